// What a storage on the device owns: a cell, which holds the current buffer, and an address range that
// is never dereferenced but identifies the memory, as libraries expect of data_ptr().
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <functional>

#include "tpu/runtime/session.h"

namespace tpu {

struct Cell {
  void* address = nullptr;
  size_t nbytes = 0, reserved_bytes = 0;
  int device = 0;
  // Null while nobody has written: an `empty` costs nothing.
  runtime::BufferPtr buffer;
  // The ATen op that computed the buffer, for the words of a later error.
  const char* producer = nullptr;
  // The Python line that called it, where that is asked for (launch_blocking). Never freed.
  const char* line = nullptr;
  // Why the content is lost (a failed run had taken the old buffer); raised at the next read.
  std::string lost;
};

void delete_cell(void* cell);
// Of a storage that was made of an address (at::from_blob): the cell that lives there. Throws where none does.
Cell& cell_at_address_of(const c10::StorageImpl& storage);

inline Cell& cell_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& p = storage.data_ptr();
  if (p.get_deleter() == &delete_cell) [[likely]]
    return *static_cast<Cell*>(p.get_context());
  return cell_at_address_of(storage);
}
inline Cell& cell_of(const c10::TensorImpl& tensor) { return cell_of(*tensor.unsafe_storage().unsafeGetStorageImpl()); }

// Calls f with every cell of more than no bytes. While it runs no cell is made or destroyed: f must do neither.
void for_each_cell(const std::function<void(const Cell&)>& f);

// The buffer of a cell that may be unwritten: then zeros, made now.
runtime::BufferPtr buffer_or_zeros(Cell& cell, size_t nbytes);

// Producer of what came from the host. A buffer of bytes from there (torch.load, copies of storages) has no dtype yet.
inline constexpr const char* kUploaded = "a copy from the CPU";
// Gives such a buffer the dtype and the dimensions in memory of the first tensor that reads it.
void give_dtype(Cell& cell, const c10::TensorImpl& reader);

// A storage of `nbytes` with an unwritten cell.
c10::Storage make_storage(size_t nbytes, int device);

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override;
  c10::DataPtr allocate_on(size_t nbytes, int device);
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, std::size_t count) const override;
  bool initialized() override { return runtime::Session::is_started(); }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;
};
DeviceAllocator& allocator();

// Whether p lies in the address space that cells reserve ranges of.
bool is_device_address(const void* p);

}  // namespace tpu
