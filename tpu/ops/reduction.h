// Reductions as the rules use them: over sorted dimension lists, with bounds kept.
#pragma once

#include "tpu/ops/op.h"

namespace tpu::ops {

Dims all_dims(const Value& v);
// The dimension list {d}, empty for a 0-d tensor.
Dims one_dim(const Value& v, int64_t d);

Value sum_over(const Value& v, const Dims& dims);
Value product_over(const Value& v, const Dims& dims);
// NaN wins over every number.
Value max_over(const Value& v, const Dims& dims);
Value min_over(const Value& v, const Dims& dims);
// The same where a NaN may be lost: faster, and enough for a shift that the NaN passes through.
Value max_of_numbers(const Value& v, const Dims& dims);
// v must be i1.
Value all_over(const Value& v, const Dims& dims);
Value any_over(const Value& v, const Dims& dims);
// v must be floating or complex.
Value mean_over(const Value& v, const Dims& dims);
// log(sum(exp(v))), without overflow; -inf where all are -inf.
Value logsumexp_over(const Value& v, const Dims& dims);

// `reduced` with size-1 dimensions put in at `dims`.
Value keep_dims(const Value& reduced, const Dims& dims);
// `reduced` over `dims`, broadcast back to like's shape.
Value stretch(const Value& reduced, const Dims& dims, const Value& like);
// A vector along dimension d of like, broadcast to like's shape.
Value along(const Value& vector, int64_t d, const Value& like);

// 0, 1, 2, ... along dimension d, shaped (and bounded) like v.
Value iota_like(const Value& v, int64_t d, DType dtype);
// The integer type that indices into dimension d are computed in.
DType index_dtype(const Value& v, int64_t d);
struct Extremum {
  Value values, indices;
};
// The extremum along d (removed) and where it first is; the first NaN where there is one.
Extremum extremum_along(const Value& v, int64_t d, bool is_max);

// Inclusive scan along d of associative `body` over (earlier..., later...).
Values scan(const Values& operands, const Values& inits, int64_t d, const ir::Body& body);
Value cumulative_sum(const Value& v, int64_t d);

}  // namespace tpu::ops
