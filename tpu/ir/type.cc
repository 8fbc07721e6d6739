#include "tpu/ir/type.h"

namespace tpu::ir {

int64_t Type::dim(int64_t d) const {
  if (is_dynamic(d)) {
    throw StaticShapeRequired("dimension " + std::to_string(d) + " of " + text() + " has no fixed size");
  }
  return bounds_.at(d);
}

const Dims& Type::dims() const {
  if (!is_static()) throw StaticShapeRequired(text() + " has no fixed sizes");
  return bounds_;
}

void Type::set_dynamic(int64_t d, bool dynamic) {
  const uint64_t bit = uint64_t{1} << d;
  dynamic_ = dynamic ? dynamic_ | bit : dynamic_ & ~bit;
}

int64_t Type::numel() const {
  dims();
  return bound_numel();
}

int64_t Type::bound_numel() const {
  int64_t n = 1;
  for (int64_t d : bounds_) n *= d;
  return n;
}

Type Type::with(DType dtype) const {
  Type t = *this;
  t.dtype_ = dtype;
  return t;
}

std::string Type::text() const {
  std::string s = "tensor<";
  for (int64_t d = 0; d < rank(); ++d) s += (is_dynamic(d) ? "?" : std::to_string(bounds_[d])) + "x";
  s += ir::text(dtype_);
  if (!is_static()) {
    s += ", #stablehlo.bounds<";
    for (int64_t d = 0; d < rank(); ++d) {
      if (d) s += ", ";
      s += is_dynamic(d) ? std::to_string(bounds_[d]) : "?";
    }
    s += ">";
  }
  return s + ">";
}

}  // namespace tpu::ir
