#include "tpu/runtime/element_type.h"

#include <stdexcept>

namespace tpu::runtime {

pjrt::ElementType element_type(ir::DType dtype) {
  using D = ir::DType;
  using E = pjrt::ElementType;
  switch (dtype) {
    case D::kI1:
      return E::kPred;
    case D::kI4:
      return E::kS4;
    case D::kI8:
      return E::kS8;
    case D::kI16:
      return E::kS16;
    case D::kI32:
      return E::kS32;
    case D::kI64:
      return E::kS64;
    case D::kUI4:
      return E::kU4;
    case D::kUI8:
      return E::kU8;
    case D::kUI16:
      return E::kU16;
    case D::kUI32:
      return E::kU32;
    case D::kUI64:
      return E::kU64;
    case D::kF8E4M3FN:
      return E::kF8E4M3FN;
    case D::kF8E4M3FNUZ:
      return E::kF8E4M3FNUZ;
    case D::kF8E5M2:
      return E::kF8E5M2;
    case D::kF8E5M2FNUZ:
      return E::kF8E5M2FNUZ;
    case D::kF16:
      return E::kF16;
    case D::kBF16:
      return E::kBF16;
    case D::kF32:
      return E::kF32;
    case D::kF64:
      return E::kF64;
    case D::kC64:
      return E::kC64;
    case D::kC128:
      return E::kC128;
  }
  throw std::logic_error("element_type: unknown DType");
}

}  // namespace tpu::runtime
