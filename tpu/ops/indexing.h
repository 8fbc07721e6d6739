// Index tensors: range checks, and gathers and scatters in the few forms that rows need.
#pragma once

#include "tpu/ops/op.h"

namespace tpu::ops {

// Indices into dimension d of v as i32 (i64 where the size needs it). Reports an error where one is
// not in [0, size), or, if they wrap, in [-size, size); those are then brought into [0, size).
enum class Negative { kError, kWraps };
struct IndexError {
  std::string message, type = "IndexError";
};
Value checked_index(Op& o, const Value& index, const Value& v, int64_t d, Negative negative, const IndexError& error);
// "index 7 is out of bounds for dimension 0 with size 5"
std::string out_of_bounds(const Value& v, int64_t d);

// Index ops take a 0-d tensor for one element, and a 0-d index for one index.
inline Value at_least_1d(const Value& v) { return v.rank() == 0 ? ir::unsqueeze(v, 0) : v; }
inline Value with_rank(const Value& v, int64_t rank) { return v.rank() > rank ? ir::squeeze(v, 0) : v; }

// v indexed in `dims` (sorted) by the indices, which have one shape: that shape stands at dimension
// `position` of the result, before and after it what is left of v.
Value take_at(const Value& v, const Dims& dims, const Values& indices, int64_t position);
// v[..., index, ...]: dimension d replaced by the index's dimensions.
Value take_slices(const Value& v, int64_t d, const Value& index);
// result[i, j, k] = v[i, index[i, j, k], k] for d = 1; the index is nowhere larger than v but along
// d.
Value take_elements(const Value& v, int64_t d, const Value& index);

using Combine = Value (*)(const Value& old, const Value& update);
inline Value replace(const Value&, const Value& update) { return update; }
// The inverses of the above: v with `updates` combined in. Indices beyond v are dropped.
Value put_at(const Value& v, const Dims& dims, const Values& indices, int64_t position, const Value& updates,
             Combine combine);
Value put_slices(const Value& v, int64_t d, const Value& index, const Value& updates, Combine combine);
Value put_elements(const Value& v, int64_t d, const Value& index, const Value& updates, Combine combine);

// First positions in `sorted` (along its last dimension) whose element is not less than the value
// (right: is greater), as i32. `sorted` is 1-d, or shaped like values but in the last dimension.
Value search_sorted(const Value& sorted, const Value& values, bool right);

}  // namespace tpu::ops
