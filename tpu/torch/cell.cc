#include "tpu/torch/cell.h"

#include <c10/core/Allocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tpu/torch/device.h"
#include "tpu/torch/memory.h"

namespace tpu {
namespace {

// Ranges come from one large reservation without access rights and are reused by size class.
class AddressSpace {
 public:
  AddressSpace() {
    for (size_t bytes = size_t{1} << 45; bytes >= size_t{1} << 36; bytes >>= 1) {
      void* p = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) continue;
      begin_ = next_ = static_cast<char*>(p);
      end_ = begin_ + bytes;
      return;
    }
    TORCH_CHECK(false,
                "The tpu device cannot reserve address space (ulimit -v?): 64 GiB are needed, none of it is used");
  }

  void* reserve(size_t& bytes, Cell* cell) {
    const int c = size_class(bytes);
    bytes = class_bytes(c);
    std::lock_guard lock(mutex_);
    if (!free_[c].empty()) {
      void* p = free_[c].back();
      free_[c].pop_back();
      cells_[p] = cell;
      return p;
    }
    if (static_cast<size_t>(end_ - next_) < bytes) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "The tpu device's address space is exhausted by tensors of ", bytes,
                       " bytes");
    }
    void* p = next_;
    next_ += bytes;
    cells_[p] = cell;
    return p;
  }

  Cell* find(const void* p) {
    std::lock_guard lock(mutex_);
    auto it = cells_.find(p);
    return it == cells_.end() ? nullptr : it->second;
  }

  void release(void* p, size_t bytes) {
    std::lock_guard lock(mutex_);
    free_[size_class(bytes)].push_back(p);
    cells_.erase(p);
  }

  void for_each(const std::function<void(const Cell&)>& f) {
    std::lock_guard lock(mutex_);
    for (const auto& [address, cell] : cells_) f(*cell);
  }

  bool contains(const void* p) const { return p >= begin_ && p < end_; }

 private:
  // Four classes per octave from 64 bytes up.
  static int size_class(size_t bytes) {
    const size_t n = std::max<size_t>(bytes, 64);
    const int octave = std::bit_width(n - 1) - 1;
    const size_t step = size_t{1} << (octave >= 2 ? octave - 2 : 0);
    return octave * 4 + static_cast<int>((n - 1 - (size_t{1} << octave)) / step);
  }
  static size_t class_bytes(int c) {
    const int octave = c / 4;
    return (size_t{1} << octave) + (static_cast<size_t>(c % 4) + 1) * (size_t{1} << (octave - 2));
  }
  std::mutex mutex_;
  char *begin_ = nullptr, *next_ = nullptr, *end_ = nullptr;
  std::vector<void*> free_[64 * 4];
  std::unordered_map<const void*, Cell*> cells_;  // by first address
};

AddressSpace& addresses() {
  static auto* space = new AddressSpace;
  return *space;
}

// To a profiler of this thread that asks for memory. A storage counts from when it is made, as everywhere in PyTorch;
// the totals are what buffers hold, as in memory_stats().
void report_to_profiler(const Cell& cell, int64_t bytes) {
  if (!c10::memoryProfilingEnabled() || runtime::Session::is_in_bad_fork()) return;
  const int64_t held =
      runtime::Session::is_started() ? runtime::Session::get().memory(cell.device).allocated.load() : 0;
  c10::reportMemoryUsageToProfiler(
      cell.address, bytes, held, held,
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(cell.device)));
}

}  // namespace

void delete_cell(void* context) {
  Cell* cell = static_cast<Cell*>(context);
  cell->buffer.reset();
  if (cell->address) report_to_profiler(*cell, -static_cast<int64_t>(cell->nbytes));
  if (cell->address) addresses().release(cell->address, cell->reserved_bytes);
  delete cell;
}

Cell& cell_at_address_of(const c10::StorageImpl& storage) {
  static auto* nothing = new Cell;
  if (storage.nbytes() == 0) return *nothing;
  Cell* cell = addresses().find(storage.data_ptr().get());
  TORCH_CHECK(
      cell && cell->nbytes == storage.nbytes(),
      "The tensor's address is not that of a whole storage on the tpu device, where "
      "memory cannot be reached by address. It was made of a pointer, or it is a wrapper without memory of its own");
  return *cell;
}

void for_each_cell(const std::function<void(const Cell&)>& f) { addresses().for_each(f); }

bool is_device_address(const void* p) { return addresses().contains(p); }

c10::DataPtr DeviceAllocator::allocate(size_t nbytes) { return allocate_on(nbytes, current_device()); }

c10::DataPtr DeviceAllocator::allocate_on(size_t nbytes, int device) {
  auto cell = std::make_unique<Cell>();
  cell->device = device;
  if (nbytes > 0) {
    cell->reserved_bytes = nbytes;
    cell->address = addresses().reserve(cell->reserved_bytes, cell.get());
    cell->nbytes = nbytes;
    report_to_profiler(*cell, static_cast<int64_t>(nbytes));
  }
  void* address = cell->address;
  return c10::DataPtr(address, cell.release(), &delete_cell,
                      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
}

void DeviceAllocator::copy_data(void*, const void*, std::size_t) const {
  TORCH_CHECK(false, "Memory of the tpu device cannot be copied by address; copy tensors instead");
}

DeviceAllocator& allocator() {
  static auto* a = new DeviceAllocator;
  return *a;
}

c10::Storage make_storage(size_t nbytes, int device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                            allocator().allocate_on(nbytes, device), &allocator(),
                                                            /*resizable=*/true));
}

runtime::BufferPtr buffer_or_zeros(Cell& cell, size_t nbytes) {
  if (cell.buffer) return cell.buffer;
  std::vector<std::byte> zeros;
  try {
    zeros.resize(nbytes);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "The tpu device is out of memory in reading an empty tensor of ", nbytes,
                     " bytes");
  }
  cell.buffer = runtime::Session::get().to_device(zeros.data(), ir::DType::kUI8, {static_cast<int64_t>(nbytes)},
                                                  cell.device, pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  return cell.buffer;
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  c10::CachingDeviceAllocator::DeviceStats stats;
  const runtime::MemoryUse& use = runtime::Session::get().memory(check_device_index(device));
  // StatArray index 0: aggregate over pools.
  auto set = [](c10::CachingAllocator::StatArray& stat, int64_t current, int64_t peak, int64_t total) {
    stat[0].current = current;
    stat[0].peak = peak;
    stat[0].allocated = total;
    stat[0].freed = total - current;
  };
  const int64_t now = use.allocated, peak = use.peak, total = use.total_allocated;
  for (auto* s : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
    set(*s, now, peak, total);
  }
  for (auto* s : {&stats.allocation, &stats.active, &stats.segment}) set(*s, use.buffers, use.buffers, use.allocations);
  const MemoryTrouble trouble = memory_trouble(check_device_index(device));
  stats.num_alloc_retries = trouble.retries;
  stats.num_ooms = trouble.failures;
  stats.num_device_alloc = use.allocations;
  stats.num_device_free = use.allocations - use.buffers;
  return stats;
}

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  runtime::MemoryUse& use = runtime::Session::get().memory(check_device_index(device));
  use.total_allocated = use.allocated.load();
  use.allocations = use.buffers.load();
  reset_memory_trouble(check_device_index(device));
}

void DeviceAllocator::resetPeakStats(c10::DeviceIndex device) {
  runtime::MemoryUse& use = runtime::Session::get().memory(check_device_index(device));
  use.peak = use.allocated.load();
}

std::pair<size_t, size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex device) {
  runtime::Session& session = runtime::Session::get();
  const int index = check_device_index(device);
  if (auto stats = session.client().devices()[index].memory_stats(); stats && stats->bytes_limit) {
    return {*stats->bytes_limit - stats->bytes_in_use, *stats->bytes_limit};
  }
  // The CPU plugin computes in host memory.
  const size_t page = ::sysconf(_SC_PAGESIZE);
  return {::sysconf(_SC_AVPHYS_PAGES) * page, ::sysconf(_SC_PHYS_PAGES) * page};
}

}  // namespace tpu
