// An array in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tpu/pjrt/c_api.h"
#include "tpu/pjrt/event.h"

namespace tpu::pjrt {

class Client;
class Device;

// Owns one PJRT buffer and keeps its client alive. Const methods are thread-safe. Destroying a
// buffer that enqueued work still reads is fine: the plugin holds the memory until then.
// A buffer whose value failed to compute, or that was donated, remains an object: reading it
// throws.
class Buffer {
 public:
  Buffer() = default;
  // Takes over `raw`, for instance an output of LoadedExecutable::execute.
  Buffer(std::shared_ptr<const Client> client, c::Buffer* raw) noexcept : client_(std::move(client)), raw_(raw) {}
  Buffer(Buffer&& other) noexcept : client_(std::move(other.client_)), raw_(std::exchange(other.raw_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  ElementType element_type() const;
  // Bounds, where a dimension is dynamic. The span lives as long as the buffer.
  std::span<const int64_t> dims() const;
  // Actual sizes; waits for a dynamic buffer to be computed.
  std::span<const int64_t> unpadded_dims() const;
  size_t on_device_size() const;
  const Device& device() const;

  // Row-major bytes of the (unpadded) value. `dst` must stay valid until the event is ready, also
  // when that is an error. Enqueued after the work that computes the buffer.
  Event to_host(void* dst, size_t size) const;
  // The same, but waits for the value and copies it on this thread where the platform allows:
  // several times faster for small values on a CPU. `size` must be to_host_size().
  void read(void* dst, size_t size) const;
  // The size that to_host needs.
  size_t to_host_size() const;
  // Bytes [offset, offset + size) of the device memory as they lie there.
  Event copy_raw_to_host(void* dst, size_t offset, size_t size) const;

  Event ready_event() const;

  // Address of the device memory, which the host may read only where is_on_cpu().
  uintptr_t unsafe_pointer() const;
  bool is_on_cpu() const;
  // While held from outside (DLPack), the memory stays: a run that would donate it copies instead.
  void increase_external_reference_count() const;
  void decrease_external_reference_count() const;

  // Frees the memory now; the object then reads as deleted.
  void free_memory();
  // Freed or donated.
  bool is_deleted() const;

  Buffer copy_to_device(const Device& device) const;

  const std::shared_ptr<const Client>& client() const noexcept { return client_; }
  c::Buffer* raw() const noexcept { return raw_; }
  c::Buffer* release() noexcept { return std::exchange(raw_, nullptr); }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

 private:
  std::shared_ptr<const Client> client_;
  c::Buffer* raw_ = nullptr;
};

}  // namespace tpu::pjrt
