#include "tpu/torch/dlpack.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <mutex>
#include <vector>

#include "tpu/pjrt/error.h"
#include "tpu/runtime/counters.h"
#include "tpu/torch/check.h"
#include "tpu/torch/debug.h"
#include "tpu/torch/device.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/scalar_type.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {

constexpr uintptr_t kAlignment = 64;

std::mutex returned_mutex;
std::vector<at::Tensor>& returned() {
  static auto* v = new std::vector<at::Tensor>;
  return *v;
}
void (*drop_later)() = nullptr;

void give_back(at::Tensor host) {
  {
    const std::lock_guard lock(returned_mutex);
    returned().push_back(std::move(host));
  }
  if (drop_later) {
    drop_later();
  } else {
    drop_returned();  // without Python nobody needs the GIL
  }
}

}  // namespace

void drop_returned() {
  std::vector<at::Tensor> now;
  const std::lock_guard lock(returned_mutex);
  now.swap(returned());
}

void set_drop_later_hook(void (*hook)()) { drop_later = hook; }

at::Tensor host_view(const at::Tensor& t) {
  TORCH_CHECK(t.device().type() == c10::DeviceType::PrivateUse1 && t.layout() == c10::kStrided,
              "A view of device memory needs a dense strided tensor on the tpu device, but got one on ", t.device(),
              " of layout ", t.layout());
  TORCH_CHECK(!t.is_conj() && !t.is_neg(),
              "A tensor with its conjugate or negative bit set cannot be shared: "
              "call resolve_conj() and resolve_neg() first");
  if (Trace::current()) throw RecordingBroken("its decomposition shares memory with the host");
  const auto options = t.options().device(at::kCPU).requires_grad(false);
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  runtime::Session::get();  // not in a forked child
  about_to_wait();
  Cell& cell = cell_of(*t.unsafeGetTensorImpl());
  runtime::BufferPtr buffer;
  {
    const std::lock_guard lock(launch_mutex());
    TORCH_CHECK(cell.lost.empty(), "The tensor's content was lost: ", cell.lost);
    buffer = buffer_or_zeros(cell, cell.nbytes);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(buffer->pjrt().is_on_cpu() && buffer->pjrt().on_device_size() == cell.nbytes,
                              "The memory of ", t.device(),
                              " is not the host's, so it cannot be shared with it: "
                              "copy the tensor with .cpu()");
  try {
    buffer->pjrt().ready_event().await();
  } catch (const pjrt::Error& e) {
    raise(cell.producer ? cell.producer : "a view of device memory", e, cell.device);
  }
  raise_failed_checks();
  // The reference keeps the memory alive, and as a second owner it keeps programs from writing there.
  buffer->pjrt().increase_external_reference_count();
  auto* first = reinterpret_cast<std::byte*>(buffer->pjrt().unsafe_pointer());
  return at::from_blob(
      first + t.storage_offset() * static_cast<int64_t>(t.element_size()), t.sizes(), t.strides(),
      [buffer](void*) { buffer->pjrt().decrease_external_reference_count(); }, options);
}

at::Tensor over_host_memory(const at::Tensor& host, int device) {
  TORCH_CHECK(host.is_cpu() && host.layout() == c10::kStrided && !host.is_conj() && !host.is_neg(),
              "Only the memory of a dense strided tensor on the CPU can be shared with the tpu device, but got one on ",
              host.device(), " of layout ", host.layout());
  drop_returned();
  at::Tensor t = make_tensor(make_storage(host.numel() * host.element_size(), device), host.scalar_type(), host.sizes(),
                             host.strides());
  if (host.numel() == 0) return t;
  const auto address = reinterpret_cast<uintptr_t>(host.const_data_ptr());
  TORCH_CHECK_NOT_IMPLEMENTED(host.is_non_overlapping_and_dense(),
                              "The tpu device takes host memory without copying where all elements lie densely, but "
                              "got strides ",
                              host.strides(), " for sizes ", host.sizes(), ": make it contiguous");
  TORCH_CHECK_NOT_IMPLEMENTED(address % kAlignment == 0,
                              "The tpu device takes host memory without copying where it is aligned to ", kAlignment,
                              " bytes, but this starts at ", host.const_data_ptr(),
                              ": allocate it aligned (torch.empty is), or let it be copied");
  std::vector<int64_t> dims;
  for (int64_t d : memory_order(host.strides())) dims.push_back(host.size(d));
  pjrt::Event returned;
  runtime::BufferPtr buffer =
      runtime::Session::get().to_device(host.const_data_ptr(), to_dtype(host.scalar_type()), std::move(dims), device,
                                        pjrt::HostBufferSemantics::kImmutableZeroCopy, &returned);
  runtime::counters().bytes_to_device -= static_cast<int64_t>(host.nbytes());
  returned.on_ready([host](const pjrt::Error*) mutable { give_back(std::move(host)); });
  TORCH_CHECK_NOT_IMPLEMENTED(buffer->pjrt().is_on_cpu() && buffer->pjrt().unsafe_pointer() == address,
                              "The memory of tpu:", device,
                              " is not the host's, so host memory cannot be used there "
                              "without copying");
  Cell& cell = cell_of(*t.unsafeGetTensorImpl());
  cell.buffer = std::move(buffer);
  cell.producer = "memory of the host";
  return t;
}

}  // namespace tpu
