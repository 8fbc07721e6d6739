#include "tpu/torch/scalar_type.h"

#include <c10/util/Exception.h>

#include <optional>

namespace tpu {
namespace {

std::optional<ir::DType> find(c10::ScalarType type) {
  using S = c10::ScalarType;
  using D = ir::DType;
  switch (type) {
    case S::Bool:
      return D::kI1;
    case S::Char:
      return D::kI8;
    case S::Short:
      return D::kI16;
    case S::Int:
      return D::kI32;
    case S::Long:
      return D::kI64;
    case S::Byte:
      return D::kUI8;
    case S::UInt16:
      return D::kUI16;
    case S::UInt32:
      return D::kUI32;
    case S::UInt64:
      return D::kUI64;
    case S::Half:
      return D::kF16;
    case S::BFloat16:
      return D::kBF16;
    case S::Float:
      return D::kF32;
    case S::Double:
      return D::kF64;
    case S::ComplexFloat:
      return D::kC64;
    case S::ComplexDouble:
      return D::kC128;
    case S::Float8_e4m3fn:
      return D::kF8E4M3FN;
    case S::Float8_e4m3fnuz:
      return D::kF8E4M3FNUZ;
    case S::Float8_e5m2:
      return D::kF8E5M2;
    case S::Float8_e5m2fnuz:
      return D::kF8E5M2FNUZ;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool has_dtype(c10::ScalarType type) { return find(type).has_value(); }

ir::DType to_dtype(c10::ScalarType type) {
  const std::optional<ir::DType> d = find(type);
  TORCH_CHECK_NOT_IMPLEMENTED(d.has_value(), "The tpu device has no element type for dtype ", c10::toString(type),
                              "; convert the tensor on the CPU first");
  return *d;
}

c10::ScalarType to_scalar_type(ir::DType dtype) {
  using S = c10::ScalarType;
  using D = ir::DType;
  switch (dtype) {
    case D::kI1:
      return S::Bool;
    case D::kI8:
      return S::Char;
    case D::kI16:
      return S::Short;
    case D::kI32:
      return S::Int;
    case D::kI64:
      return S::Long;
    case D::kUI8:
      return S::Byte;
    case D::kUI16:
      return S::UInt16;
    case D::kUI32:
      return S::UInt32;
    case D::kUI64:
      return S::UInt64;
    case D::kF16:
      return S::Half;
    case D::kBF16:
      return S::BFloat16;
    case D::kF32:
      return S::Float;
    case D::kF64:
      return S::Double;
    case D::kC64:
      return S::ComplexFloat;
    case D::kC128:
      return S::ComplexDouble;
    case D::kF8E4M3FN:
      return S::Float8_e4m3fn;
    case D::kF8E4M3FNUZ:
      return S::Float8_e4m3fnuz;
    case D::kF8E5M2:
      return S::Float8_e5m2;
    case D::kF8E5M2FNUZ:
      return S::Float8_e5m2fnuz;
    case D::kI4:
    case D::kUI4:
      break;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "PyTorch has no dtype for ", ir::text(dtype));
}

}  // namespace tpu
