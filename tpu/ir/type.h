// Tensor types with bounds. A dimension is static, or bounded: then its number is only the bound
// and the size is a run-time value (stablehlo.bounds).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tpu/ir/dtype.h"

namespace tpu::ir {

using Dims = std::vector<int64_t>;

// Thrown when a rule reads a bounded dimension as a number. The caller then lowers the op with
// static shapes and counts it.
class StaticShapeRequired : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Type {
 public:
  Type() = default;
  Type(DType dtype, Dims bounds) : dtype_(dtype), bounds_(std::move(bounds)) {}

  DType dtype() const { return dtype_; }
  int64_t rank() const { return static_cast<int64_t>(bounds_.size()); }
  // The size of dimension d as a number; throws StaticShapeRequired where it is bounded.
  int64_t dim(int64_t d) const;
  // All sizes as numbers; throws StaticShapeRequired where one is bounded.
  const Dims& dims() const;
  // What memory is laid out for; never a size that a result may depend on.
  int64_t bound(int64_t d) const { return bounds_.at(d); }
  const Dims& bounds() const { return bounds_; }
  bool is_dynamic(int64_t d) const { return (dynamic_ >> d) & 1; }
  bool is_static() const { return dynamic_ == 0; }
  void set_dynamic(int64_t d, bool dynamic = true);
  // Product of the sizes; throws StaticShapeRequired where one is bounded.
  int64_t numel() const;
  int64_t bound_numel() const;

  Type with(DType dtype) const;
  Type with(Dims dims) const { return Type(dtype_, std::move(dims)); }

  // "tensor<4x?xf32, #stablehlo.bounds<?, 16>>"
  std::string text() const;
  bool operator==(const Type&) const = default;

 private:
  DType dtype_ = DType::kF32;
  Dims bounds_;
  uint64_t dynamic_ = 0;
};

}  // namespace tpu::ir
