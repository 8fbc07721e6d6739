// Buffer: transfers, reads, ownership.

#include "tpu/pjrt/buffer.h"

#include <array>
#include <cstring>
#include <vector>

#include "tpu/pjrt/client.h"

namespace tpu::pjrt {
namespace {

// Row-major order as a layout. Without one a plugin writes the device's own order, which need not
// be row-major on a TPU.
class RowMajor {
 public:
  explicit RowMajor(size_t rank) {
    int64_t* order = few_.data();
    if (rank > few_.size()) {
      many_.resize(rank);
      order = many_.data();
    }
    for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
    layout_.tiled = {.minor_to_major = order, .minor_to_major_size = rank};
  }
  RowMajor(const RowMajor&) = delete;

  c::Buffer_MemoryLayout* layout() { return &layout_; }

 private:
  std::array<int64_t, 8> few_;
  std::vector<int64_t> many_;
  c::Buffer_MemoryLayout layout_;
};

class Hold {
 public:
  explicit Hold(const Buffer& buffer) : buffer_(buffer) { buffer_.increase_external_reference_count(); }
  ~Hold() {
    const c::Api* api = buffer_.client()->api();
    c::Buffer_DecreaseExternalReferenceCount_Args args{.buffer = buffer_.raw()};
    discard(api, api->Buffer_DecreaseExternalReferenceCount(&args));
  }
  Hold(const Hold&) = delete;

 private:
  const Buffer& buffer_;
};

bool is_dynamic(const c::Api* api, c::Buffer* raw) {
  c::Buffer_DynamicDimensionIndices_Args args{.buffer = raw};
  check(api, api->Buffer_DynamicDimensionIndices(&args));
  return args.num_dynamic_dims != 0;
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(client_, taken.client_);
  std::swap(raw_, taken.raw_);
  return *this;
}

Buffer::~Buffer() {
  if (raw_ == nullptr) return;
  const c::Api* api = client_->api();
  c::Buffer_Destroy_Args args{.buffer = raw_};
  discard(api, api->Buffer_Destroy(&args));
}

ElementType Buffer::element_type() const {
  c::Buffer_ElementType_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_ElementType(&args));
  return args.type;
}

std::span<const int64_t> Buffer::dims() const {
  c::Buffer_Dimensions_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_Dimensions(&args));
  return {args.dims, args.num_dims};
}

std::span<const int64_t> Buffer::unpadded_dims() const {
  c::Buffer_UnpaddedDimensions_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_UnpaddedDimensions(&args));
  return {args.unpadded_dims, args.num_dims};
}

size_t Buffer::on_device_size() const {
  c::Buffer_OnDeviceSizeInBytes_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_OnDeviceSizeInBytes(&args));
  return args.on_device_size_in_bytes;
}

const Device& Buffer::device() const {
  c::Buffer_Device_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_Device(&args));
  return client_->device(args.device);
}

Event Buffer::to_host(void* dst, size_t size) const {
  RowMajor row_major(dims().size());
  c::Buffer_ToHostBuffer_Args args{.src = raw_, .host_layout = row_major.layout(), .dst = dst, .dst_size = size};
  check(client_->api(), client_->api()->Buffer_ToHostBuffer(&args));
  return Event(client_->api(), args.event);
}

void Buffer::read(void* dst, size_t size) const {
  // Where sizes differ the device's form isn't the host's (packed 4-bit types, dynamic sizes).
  if (is_on_cpu() && !is_dynamic(client_->api(), raw_) && on_device_size() == size) {
    // Held, so that no other thread's run can take the memory by donation meanwhile.
    const Hold hold(*this);
    ready_event().await();
    std::memcpy(dst, reinterpret_cast<const void*>(unsafe_pointer()), size);
  } else {
    to_host(dst, size).await();
  }
}

size_t Buffer::to_host_size() const {
  RowMajor row_major(dims().size());
  c::Buffer_ToHostBuffer_Args args{.src = raw_, .host_layout = row_major.layout()};
  check(client_->api(), client_->api()->Buffer_ToHostBuffer(&args));
  return args.dst_size;
}

Event Buffer::copy_raw_to_host(void* dst, size_t offset, size_t size) const {
  c::Buffer_CopyRawToHost_Args args{
      .buffer = raw_, .dst = dst, .offset = static_cast<int64_t>(offset), .transfer_size = static_cast<int64_t>(size)};
  check(client_->api(), client_->api()->Buffer_CopyRawToHost(&args));
  return Event(client_->api(), args.event);
}

Event Buffer::ready_event() const {
  c::Buffer_ReadyEvent_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_ReadyEvent(&args));
  return Event(client_->api(), args.event);
}

uintptr_t Buffer::unsafe_pointer() const {
  c::Buffer_UnsafePointer_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_UnsafePointer(&args));
  return args.buffer_pointer;
}

bool Buffer::is_on_cpu() const {
  c::Buffer_IsOnCpu_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_IsOnCpu(&args));
  return args.is_on_cpu;
}

void Buffer::increase_external_reference_count() const {
  c::Buffer_IncreaseExternalReferenceCount_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_IncreaseExternalReferenceCount(&args));
}

void Buffer::decrease_external_reference_count() const {
  c::Buffer_DecreaseExternalReferenceCount_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_DecreaseExternalReferenceCount(&args));
}

void Buffer::free_memory() {
  c::Buffer_Delete_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_Delete(&args));
}

bool Buffer::is_deleted() const {
  c::Buffer_IsDeleted_Args args{.buffer = raw_};
  check(client_->api(), client_->api()->Buffer_IsDeleted(&args));
  return args.is_deleted;
}

Buffer Buffer::copy_to_device(const Device& device) const {
  c::Buffer_CopyToDevice_Args args{.buffer = raw_, .dst_device = device.raw()};
  check(client_->api(), client_->api()->Buffer_CopyToDevice(&args));
  return Buffer(client_, args.dst_buffer);
}

}  // namespace tpu::pjrt
