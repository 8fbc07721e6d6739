// Series that several special functions are made of, and functions that others need.
#pragma once

#include <span>

#include "tpu/ops/op.h"

namespace tpu::ops {

// Coefficients by falling powers; x is a float.
Value polynomial(const Value& x, std::span<const double> coefficients);
// Half of the Clenshaw sum, coefficients by falling degree: the form of the Cephes library, whose argument is twice
// Chebyshev's.
Value chebyshev_series(const Value& x, std::span<const double> coefficients);

Value modified_bessel_i0(const Value& x);
// exp(x^2) erfc(x), of f64.
Value erfcx(const Value& x);

}  // namespace tpu::ops
