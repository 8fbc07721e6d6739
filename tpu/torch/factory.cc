// Tensors without content, and the view ops that PyTorch asks of a backend. Views are metadata only:
// reading and writing through them is the program's business.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "tpu/torch/cell.h"
#include "tpu/torch/device.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/resize.h"
#include "tpu/torch/scalar_type.h"
#include "tpu/torch/trace.h"

namespace tpu {

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  Cell& old = cell_of(storage);
  if (Trace* trace = Trace::current(); trace && trace->holds(old)) throw RecordingBroken("a storage is resized");
  c10::DataPtr fresh = allocator().allocate_on(nbytes, old.device);
  const size_t keep = std::min(nbytes, storage.nbytes());
  if (old.buffer && nbytes > 0) {
    // Rare, so through the host.
    std::vector<std::byte> bytes;
    try {
      bytes.resize(std::max(nbytes, storage.nbytes()));
    } catch (const std::bad_alloc&) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "The tpu device is out of memory in resizing a tensor to ", nbytes,
                       " bytes");
    }
    old.buffer->pjrt().read(bytes.data(), storage.nbytes());
    std::fill(bytes.begin() + static_cast<int64_t>(keep), bytes.end(), std::byte{0});
    static_cast<Cell*>(fresh.get_context())->buffer =
        runtime::Session::get().to_device(bytes.data(), ir::DType::kUI8, {static_cast<int64_t>(nbytes)}, old.device,
                                          pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(nbytes);
}

namespace {

using c10::IntArrayRef;

int device_of(std::optional<c10::Device> device) {
  if (!device) return current_device();
  TORCH_CHECK(device->type() == c10::DeviceType::PrivateUse1, "Expected a tpu device, but got ", *device);
  return check_device_index(device->index());
}

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory, c10::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::kStrided, "The tpu device makes strided tensors only, not ",
                              *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
  to_dtype(dtype);
}

void check_sizes(IntArrayRef sizes) {
  for (int64_t s : sizes) {
    TORCH_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", sizes);
  }
}

at::Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  check_factory(layout, pin_memory, type);
  check_sizes(sizes);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  return make_tensor(make_storage(bytes, device_of(device)), type, sizes, strides);
}

at::Tensor empty(IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> format) {
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  check_factory(layout, pin_memory, type);
  check_sizes(sizes);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(make_storage(bytes, device_of(device)),
                                                          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                          c10::scalarTypeToTypeMeta(type));
  if (sizes.size() != 1 || sizes[0] != 0) t.unsafeGetTensorImpl()->generic_set_sizes_contiguous(sizes);
  if (format && *format != c10::MemoryFormat::Contiguous) t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return t;
}

// Nobody writes it, so it costs nothing.
at::Tensor efficient_zeros(IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                           std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return empty(sizes, dtype, layout, device, pin_memory, std::nullopt);
}

void grow(const at::Tensor& self, size_t bytes) {
  c10::StorageImpl* storage = self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(*storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  check_sizes(sizes);
  c10::TensorImpl* t = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) {
    t->generic_set_sizes_contiguous(sizes);
    grow(self, at::detail::computeStorageNbytesContiguous(sizes, self.element_size(), self.storage_offset()));
  }
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    t->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, IntArrayRef sizes,
                               IntArrayRef strides) {
  TORCH_CHECK(source.device().type() == c10::DeviceType::PrivateUse1,
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  check_sizes(sizes);
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  c10::TensorImpl* t = self.unsafeGetTensorImpl();
  t->set_storage_keep_dtype(std::move(source));
  if (strides.data() == nullptr) {
    t->set_sizes_contiguous(sizes);
    t->set_storage_offset(offset);
  } else {
    t->set_sizes_and_strides(sizes, strides, offset);
  }
  grow(self, at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(), offset));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const int64_t n = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage_offset(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage_offset(self, make_storage(0, self.device().index()), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
             other.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

// Lets `parameter.data = moved` keep the parameter itself, so that tied weights stay tied and an
// optimizer made before the move goes on working.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  auto is_dense = [](const at::Tensor& t) {
    return t.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           (t.is_cpu() || t.device().type() == c10::DeviceType::PrivateUse1);
  };
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set()) ||
         (is_dense(self) && is_dense(from));
}

void record_stream(at::Tensor&, c10::Stream) {}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace tpu
