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
#include "tpu/runtime/counters.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/check.h"
#include "tpu/torch/kernel.h"
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

void upload(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.numel() == 0) return;
  if (!is_whole(dst) || Trace::current()) {
    // Inside a recording the uploaded tensor becomes a constant of the program.
    at::Tensor temporary = make_tensor(make_storage(src.numel() * dst.element_size(), dst.device().index()),
                                       dst.scalar_type(), src.sizes(), c10::contiguous_strides(src.sizes()));
    const at::Tensor host = src.to(dst.scalar_type()).contiguous().resolve_conj().resolve_neg();
    cell_of(*temporary.unsafeGetTensorImpl()).buffer =
        runtime::Session::get().to_device(host.const_data_ptr(), to_dtype(dst.scalar_type()), src.sizes().vec(),
                                          dst.device().index(), pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
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
  Cell& cell = cell_of(*dst.unsafeGetTensorImpl());
  cell.buffer =
      runtime::Session::get().to_device(host.const_data_ptr(), to_dtype(dst.scalar_type()), dims_in_memory(dst),
                                        cell.device, pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  cell.lost.clear();
  cell.producer = "a copy from the CPU";
}

// The bytes of a buffer; errors of the run that made it are raised here.
void read_buffer(const Cell& cell, void* to, size_t bytes) {
  runtime::Session::get();  // not in a forked child
  TORCH_CHECK(cell.lost.empty(), "The tensor's content was lost: ", cell.lost);
  runtime::BufferPtr buffer;
  {
    const std::lock_guard lock(launch_mutex());
    buffer = cell.buffer;
  }
  try {
    buffer->pjrt().read(to, bytes);
  } catch (const pjrt::Error& e) {
    raise(cell.producer ? cell.producer : "a copy to the CPU", e);
  }
  runtime::counters().bytes_to_host += static_cast<int64_t>(bytes);
  raise_failed_checks();
  runtime::stop_if_shut_down();
}

// A tensor that is all of its storage, in its own dtype, with the elements of src.
at::Tensor whole(const at::Tensor& src) {
  const Cell& cell = cell_of(*src.unsafeGetTensorImpl());
  if (is_whole(src) && cell.buffer && cell.buffer->dtype() == to_dtype(src.scalar_type())) return src;
  if (is_whole(src) && !cell.buffer) {
    buffer_or_zeros(const_cast<Cell&>(cell), storage_bytes(src));
    return src;
  }
  at::Tensor t = make_tensor(make_storage(src.numel() * src.element_size(), src.device().index()), src.scalar_type(),
                             src.sizes(), c10::contiguous_strides(src.sizes()));
  copy_on_device(t, src);
  return t;
}

void download(const at::Tensor& dst, const at::Tensor& src) {
  if (Trace::current()) throw RecordingBroken("its decomposition reads values on the host");
  if (src.numel() == 0) return;
  const at::Tensor t = whole(src);
  const Cell& cell = cell_of(*t.unsafeGetTensorImpl());
  const size_t bytes = t.numel() * t.element_size();
  const bool direct = dst.scalar_type() == t.scalar_type() && dst.sizes() == t.sizes() &&
                      dst.strides() == t.strides() && !dst.is_conj() && !dst.is_neg();
  if (direct) {
    read_buffer(cell, dst.mutable_data_ptr(), bytes);
    return;
  }
  at::Tensor host = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
  read_buffer(cell, host.mutable_data_ptr(), bytes);
  dst.copy_(host);
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool) {
  TORCH_CHECK(on_device(src) || on_device(dst), "_copy_from: neither tensor is on the tpu device");
  if (dst.sizes() != src.sizes()) {
    const std::vector<int64_t> shape = at::infer_size(dst.sizes(), src.sizes());
    TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(shape));
  }
  // Complex to real drops the imaginary part, as copy_ warns of elsewhere.
  if (on_device(src) && on_device(dst)) {
    if (src.device() == dst.device()) {
      if (dst.numel() > 0) copy_on_device(dst, src);
    } else {
      upload(dst, src.cpu().expand(dst.sizes()));
    }
  } else if (on_device(dst)) {
    upload(dst, src.expand(dst.sizes()));
  } else {
    download(dst, src.sizes() == dst.sizes() ? src : src.expand(dst.sizes()));
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
