// Copies across the border of the device, and what reads single values from it.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <torch/library.h>

#include "tpu/pjrt/error.h"
#include "tpu/runtime/activity.h"
#include "tpu/runtime/counters.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/check.h"
#include "tpu/torch/debug.h"
#include "tpu/torch/device.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/memory.h"
#include "tpu/torch/scalar_type.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {

bool on_device(const at::Tensor& t) { return t.device().type() == c10::DeviceType::PrivateUse1; }

size_t storage_bytes(const at::Tensor& t) { return t.unsafeGetTensorImpl()->unsafe_storage().nbytes(); }

// All of its storage, in an order that a dense buffer has.
bool is_whole(const at::Tensor& t) {
  return t.storage_offset() == 0 && t.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false() &&
         static_cast<size_t>(t.numel()) * t.element_size() == storage_bytes(t) && !t.is_conj() && !t.is_neg();
}

void copy_on_device(const at::Tensor& dst, const at::Tensor& src) {
  static OpEntry& entry = entry_of("aten::copy_", "");
  call(entry, dst, src, false);
}

std::vector<int64_t> dims_in_memory(const at::Tensor& t) {
  std::vector<int64_t> dims;
  for (int64_t d : memory_order(t.strides())) dims.push_back(t.size(d));
  return dims;
}

// Memory for a copy from the host is asked for like that of a result.
runtime::BufferPtr to_device(const void* data, const at::Tensor& dst, std::vector<int64_t> dims,
                             pjrt::HostBufferSemantics semantics, pjrt::Event* read = nullptr) {
  const int device = dst.device().index();
  require_memory(device, dst.numel() * static_cast<int64_t>(dst.element_size()), kUploaded);
  try {
    return runtime::Session::get().to_device(data, to_dtype(dst.scalar_type()), std::move(dims), device, semantics,
                                             read);
  } catch (const pjrt::Error& e) {
    raise(kUploaded, e, device);
  }
}

// The next content of a tensor that is_whole.
void replace(const at::Tensor& dst, runtime::BufferPtr buffer, const char* producer) {
  Cell& cell = cell_of(*dst.unsafeGetTensorImpl());
  const char* line = launch_blocking() ? calling_line() : nullptr;
  const std::lock_guard lock(launch_mutex());
  cell.buffer = std::move(buffer);
  cell.lost.clear();
  cell.producer = producer;
  cell.line = line;
}

runtime::Stream& current_stream_of(const at::Tensor& t) {
  return runtime::Session::get().stream(t.device().index(), current_stream(t.device().index()));
}

// A copy between the host and the device that goes on after the call: part of the stream's work, and what it needs
// stays alive until it is done. `keep` must not need the GIL to be destroyed, which happens on the plugin's thread.
template <typename Keep>
void enqueue(runtime::Stream& stream, pjrt::Event done, Keep keep) {
  auto event = std::make_shared<pjrt::Event>(std::move(done));
  event->on_ready([keep = std::move(keep)](const pjrt::Error*) {});
  stream.add(std::move(event));
}

void upload(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.numel() == 0) return;
  if (!is_whole(dst) || Trace::current()) {
    // Inside a recording the uploaded tensor becomes a constant of the program.
    at::Tensor temporary = make_tensor(make_storage(src.numel() * dst.element_size(), dst.device().index()),
                                       dst.scalar_type(), src.sizes(), c10::contiguous_strides(src.sizes()));
    const at::Tensor host = src.to(dst.scalar_type()).contiguous().resolve_conj().resolve_neg();
    cell_of(*temporary.unsafeGetTensorImpl()).buffer = to_device(host.const_data_ptr(), temporary, src.sizes().vec(),
                                                                 pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
    if (src.numel() == 0) return;
    if (Trace* trace = Trace::current()) trace->embed(temporary);
    copy_on_device(dst, temporary);
    return;
  }
  // The host's elements in the order that dst's memory has.
  at::Tensor host = src;
  if (src.scalar_type() != dst.scalar_type() || src.sizes() != dst.sizes() || src.strides() != dst.strides() ||
      src.is_conj() || src.is_neg()) {
    host = at::empty_strided(dst.sizes(), dst.strides(), src.options().dtype(dst.scalar_type()));
    host.copy_(src);
  }
  // Pinned memory is ours, so it can be kept from being freed.
  const bool returns_early = non_blocking && host.is_same(src) && host.is_pinned();
  pjrt::Event read;
  runtime::BufferPtr buffer = to_device(host.const_data_ptr(), dst, dims_in_memory(dst),
                                        returns_early ? pjrt::HostBufferSemantics::kImmutableUntilTransferCompletes
                                                      : pjrt::HostBufferSemantics::kImmutableOnlyDuringCall,
                                        &read);
  if (returns_early) {
    runtime::Stream& stream = current_stream_of(dst);
    enqueue(stream, std::move(read), host.storage());
    stream.add(std::make_shared<pjrt::Event>(buffer->pjrt().ready_event()));
  }
  replace(dst, std::move(buffer), kUploaded);
}

// What a cell holds now.
runtime::BufferPtr content(const Cell& cell) {
  runtime::Session::get();  // not in a forked child
  const std::lock_guard lock(launch_mutex());
  TORCH_CHECK(cell.lost.empty(), "The tensor's content was lost: ", cell.lost);
  return cell.buffer;
}

// The bytes of a buffer; errors of the run that made it are raised here.
void read_buffer(const Cell& cell, void* to, size_t bytes) {
  about_to_wait();
  const runtime::BufferPtr buffer = content(cell);
  using Kind = runtime::Activity::Kind;
  try {
    // The copy alone, where somebody looks: without the wait for what computes the value.
    if (runtime::is_recording()) {
      const runtime::ActivityScope scope(Kind::kWait, cell.device);
      buffer->pjrt().ready_event().await();
    }
    runtime::ActivityScope scope(Kind::kCopyToHost, cell.device);
    buffer->pjrt().read(to, bytes);
    if (scope) {
      scope->bytes = static_cast<int64_t>(bytes);
      scope.done_at_end();
    }
  } catch (const pjrt::Error& e) {
    raise(cell.producer ? cell.producer : "a copy to the CPU", e, cell.device);
  }
  runtime::counters().bytes_to_host += static_cast<int64_t>(bytes);
  raise_failed_checks();
  runtime::stop_if_shut_down();
}

// A tensor that is all of its storage, with the elements of src. Its buffer may have another dtype: the bytes are
// those of the storage either way, so that files and copies of storages compile nothing.
at::Tensor whole(const at::Tensor& src) {
  const Cell& cell = cell_of(*src.unsafeGetTensorImpl());
  if (is_whole(src)) {
    if (!cell.buffer) buffer_or_zeros(const_cast<Cell&>(cell), storage_bytes(src));
    return src;
  }
  at::Tensor t = make_tensor(make_storage(src.numel() * src.element_size(), src.device().index()), src.scalar_type(),
                             src.sizes(), c10::contiguous_strides(src.sizes()));
  copy_on_device(t, src);
  return t;
}

void download(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (Trace::current()) throw RecordingBroken("its decomposition reads values on the host");
  if (src.numel() == 0) return;
  const at::Tensor t = whole(src);
  const Cell& cell = cell_of(*t.unsafeGetTensorImpl());
  const size_t bytes = t.numel() * t.element_size();
  const bool direct = dst.scalar_type() == t.scalar_type() && dst.sizes() == t.sizes() &&
                      dst.strides() == t.strides() && !dst.is_conj() && !dst.is_neg();
  if (direct && non_blocking && dst.is_pinned()) {
    runtime::BufferPtr buffer = content(cell);
    runtime::ActivityScope scope(runtime::Activity::Kind::kCopyToHost, cell.device);
    pjrt::Event done = buffer->pjrt().to_host(dst.mutable_data_ptr(), bytes);
    if (scope) {
      scope->bytes = static_cast<int64_t>(bytes);
      scope.done_when(done);
    }
    runtime::counters().bytes_to_host += static_cast<int64_t>(bytes);
    // Both ends are needed; of the buffer it also tells that it must not be given away.
    enqueue(current_stream_of(src), std::move(done), std::pair(std::move(buffer), dst.storage()));
    return;
  }
  if (direct) {
    read_buffer(cell, dst.mutable_data_ptr(), bytes);
    return;
  }
  at::Tensor host = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
  read_buffer(cell, host.mutable_data_ptr(), bytes);
  dst.copy_(host);
}

// From another device.
void transfer(const at::Tensor& dst, const at::Tensor& src) {
  if (Trace::current()) throw RecordingBroken("its decomposition copies between devices");
  if (src.numel() == 0) return;
  const at::Tensor t = whole(src);
  const runtime::BufferPtr from = content(cell_of(*t.unsafeGetTensorImpl()));
  const int device = dst.device().index();
  const bool direct =
      is_whole(dst) && dst.scalar_type() == t.scalar_type() && dst.sizes() == t.sizes() && dst.strides() == t.strides();
  const at::Tensor there =
      direct ? dst
             : make_tensor(make_storage(t.numel() * t.element_size(), device), t.scalar_type(), t.sizes(), t.strides());
  require_memory(device, t.numel() * static_cast<int64_t>(t.element_size()), "a copy between devices");
  runtime::ActivityScope scope(runtime::Activity::Kind::kCopyBetweenDevices, device);
  auto to = std::make_shared<runtime::DeviceBuffer>(
      from->pjrt().copy_to_device(runtime::Session::get().client().devices().at(device)), from->dtype(), from->dims(),
      device);
  auto done = std::make_shared<pjrt::Event>(to->pjrt().ready_event());
  if (scope) {
    scope->bytes = t.numel() * static_cast<int64_t>(t.element_size());
    scope.done_when(*done);
  }
  current_stream_of(src).add(done);
  current_stream_of(dst).add(std::move(done));
  replace(there, std::move(to), "a copy between devices");
  if (!direct) copy_on_device(dst, there);
}

// A copy of a storage, which torch makes as one of bytes: both hold the buffer until either is written, and so keep
// the dtype that it has.
void share(const at::Tensor& dst, const at::Tensor& src) {
  Cell &to = cell_of(*dst.unsafeGetTensorImpl()), &from = cell_of(*src.unsafeGetTensorImpl());
  if (&to == &from) return;
  runtime::Session::get();  // not in a forked child
  const std::lock_guard lock(launch_mutex());
  to.buffer = from.buffer;
  to.producer = from.producer;
  to.line = from.line;
  to.lost = from.lost;
}

bool is_copy_of_bytes(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == at::kByte && src.scalar_type() == at::kByte && dst.dim() == 1 && is_whole(dst) &&
         is_whole(src) && dst.sizes() == src.sizes() && dst.numel() > 0;
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(on_device(src) || on_device(dst), "_copy_from: neither tensor is on the tpu device");
  if (dst.sizes() != src.sizes()) {
    const std::vector<int64_t> shape = at::infer_size(dst.sizes(), src.sizes());
    TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(shape));
  }
  // Complex to real drops the imaginary part, as copy_ warns of elsewhere.
  if (on_device(src) && on_device(dst)) {
    if (src.device() == dst.device()) {
      if (!Trace::current() && is_copy_of_bytes(dst, src)) {
        share(dst, src);
      } else if (dst.numel() > 0)
        copy_on_device(dst, src);
    } else {
      transfer(dst, src.expand(dst.sizes()));
    }
  } else if (on_device(dst)) {
    upload(dst, src.expand(dst.sizes()), non_blocking);
  } else {
    download(dst, src.sizes() == dst.sizes() ? src : src.expand(dst.sizes()), non_blocking);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (src.sizes() != dst.sizes()) at::native::resize_output(dst, src.sizes());
  dst.copy_(src);
  return dst;
}

template <typename T>
c10::Scalar load(const Cell& cell) {
  T v;
  read_buffer(cell, &v, sizeof v);
  return v;
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  if (Trace::current()) throw RecordingBroken("its decomposition reads a value on the host");
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  const at::Tensor t = whole(self);
  const Cell& cell = cell_of(*t.unsafeGetTensorImpl());
  ++runtime::counters().scalar_reads;
  switch (self.scalar_type()) {
    case at::kBool:
      return load<bool>(cell);
    case at::kByte:
      return load<uint8_t>(cell);
    case at::kChar:
      return load<int8_t>(cell);
    case at::kShort:
      return load<int16_t>(cell);
    case at::kInt:
      return load<int32_t>(cell);
    case at::kLong:
      return load<int64_t>(cell);
    case at::kUInt16:
      return load<uint16_t>(cell);
    case at::kUInt32:
      return load<uint32_t>(cell);
    case at::kUInt64:
      return load<uint64_t>(cell);
    case at::kHalf:
      return load<c10::Half>(cell);
    case at::kBFloat16:
      return load<c10::BFloat16>(cell);
    case at::kFloat:
      return load<float>(cell);
    case at::kDouble:
      return load<double>(cell);
    case at::kComplexFloat:
      return load<c10::complex<float>>(cell);
    case at::kComplexDouble:
      return load<c10::complex<double>>(cell);
    case at::kFloat8_e4m3fn:
      return static_cast<float>(load<c10::Float8_e4m3fn>(cell).toFloat());
    case at::kFloat8_e5m2:
      return static_cast<float>(load<c10::Float8_e5m2>(cell).toFloat());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"local_scalar_dense\" not implemented for '", self.scalar_type(),
                                  "' on the tpu device");
  }
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected all tensors to have the same dtype, but got ",
              self.scalar_type(), " and ", other.scalar_type());
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item<bool>();
}

}  // namespace

// Through the host: a program that reinterprets the bytes would be compiled for each size.
void give_dtype(Cell& cell, const c10::TensorImpl& reader) {
  const runtime::BufferPtr bytes = content(cell);
  const ir::DType dtype = to_dtype(c10::typeMetaToScalarType(reader.dtype()));
  const auto element = static_cast<int64_t>(ir::size_bytes(dtype));
  if (!bytes || bytes->dtype() != ir::DType::kUI8 || bytes->numel() % element != 0) return;
  std::vector<int64_t> dims = {bytes->numel() / element};
  if (reader.storage_offset() == 0 && reader.numel() == dims[0] && reader.is_non_overlapping_and_dense_or_false()) {
    dims.clear();
    for (int64_t d : memory_order(reader.strides())) dims.push_back(reader.size(d));
  }
  try {
    std::vector<std::byte> copy;
    const void* data = nullptr;
    if (bytes->pjrt().is_on_cpu()) {
      bytes->pjrt().ready_event().await();
      data = reinterpret_cast<const void*>(bytes->pjrt().unsafe_pointer());
    } else {
      copy.resize(bytes->numel());
      bytes->pjrt().read(copy.data(), copy.size());
      data = copy.data();
    }
    runtime::BufferPtr typed = runtime::Session::get().to_device(data, dtype, std::move(dims), cell.device,
                                                                 pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
    runtime::counters().bytes_to_device -= bytes->numel();  // they were counted when they came
    const std::lock_guard lock(launch_mutex());
    if (cell.buffer == bytes) cell.buffer = std::move(typed);
  } catch (const pjrt::Error& e) {
    raise(kUploaded, e, cell.device);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("equal", TORCH_FN(equal));
}

// The copy reads and writes the bits itself: resolving them first would copy, and so on without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace tpu
