#include "tpu/ops/indexing.h"

#include <algorithm>
#include <limits>

#include "tpu/ops/reduction.h"

namespace tpu::ops {
namespace {

bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// i64 operand as the smallest type that StableHLO may index dimension d with.
Value narrowed(const Value& index, const Value& v, int64_t d) { return ir::convert(index, index_dtype(v, d)); }

// One index vector per element, along a new last dimension where there are several.
Value index_vectors(const Values& indices) {
  if (indices.size() == 1) return indices[0];
  Values parts;
  DType dtype = DType::kI32;
  for (const Value& v : indices) {
    if (v.dtype() == DType::kI64) dtype = DType::kI64;
  }
  for (const Value& v : indices) parts.push_back(ir::unsqueeze(ir::convert(v, dtype), v.rank()));
  return ir::concatenate(parts, indices[0].rank());
}

// The dimensions of a result (or of updates) that stem from v, not from the index.
Dims slice_dims(int64_t rank, int64_t position, int64_t index_rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d < position || d >= position + index_rank) dims.push_back(d);
  }
  return dims;
}

Dims all_but(int64_t rank, int64_t dim) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

// v cut to the index's sizes everywhere but along d.
Value cut(const Value& v, int64_t d, const Value& index) {
  Value r = v;
  for (int64_t k : all_but(v.rank(), d)) {
    if (v.type().bound(k) != index.type().bound(k)) r = ir::slice_in_dim(r, k, 0, index.dim(k));
  }
  return r;
}

// The index at its bound, with what lies beyond its sizes pointing outside of v.
Value settled(const Value& index, const Value& v, int64_t d) {
  Value r = ir::to_bound(index);
  for (int64_t k = 0; k < index.rank(); ++k) {
    if (!index.type().is_dynamic(k)) continue;
    const Value at = iota_like(r, k, DType::kI32);
    const Value outside = ir::full_like(r, v.type().bound(d));
    r = ir::select(ir::compare(at, ir::size(index, k), "LT"), r, outside);
  }
  return r;
}

}  // namespace

std::string out_of_bounds(const Value& v, int64_t d) {
  return "index {} is out of bounds for dimension " + std::to_string(d) + " with size " +
         std::to_string(v.type().bound(d));
}

Value checked_index(Op& o, const Value& index, const Value& v, int64_t d, Negative negative, const IndexError& error) {
  if (index.type().bound_numel() == 0) return narrowed(index, v, d);
  const Value wide = ir::convert(index, DType::kI64);
  const Value size = ir::convert(ir::size(v, d), DType::kI64), zero = ir::zeros_like(size);
  const Value below = negative == Negative::kWraps ? ir::negate(size) : zero;
  const Value bad = ir::or_(ir::compare(wide, below, "LT"), ir::compare(wide, size, "GE"));
  // One reduction finds whether there is a bad index, and one of them.
  const Value none = ir::constant(o.builder(), std::numeric_limits<int64_t>::min(), size.type());
  const Value found = max_over(ir::select(bad, wide, none), all_dims(index));
  o.context().check(ir::compare(found, none, "NE"), found, error.type, error.message);
  if (negative == Negative::kError) return narrowed(wide, v, d);
  return narrowed(ir::select(ir::compare(wide, zero, "LT"), ir::add(wide, size), wide), v, d);
}

Value take_at(const Value& v, const Dims& dims, const Values& indices, int64_t position) {
  const int64_t index_rank = indices[0].rank();
  ir::GatherDims g;
  g.offset_dims = slice_dims(v.rank() - dims.size() + index_rank, position, index_rank);
  g.collapsed_slice_dims = g.start_index_map = dims;
  g.index_vector_dim = index_rank;
  g.slice_sizes = v.type().bounds();
  Dims result = indices[0].type().bounds(), left;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (contains(dims, d)) {
      g.slice_sizes[d] = 1;
    } else {
      result.insert(result.begin() + g.offset_dims[left.size()], v.type().bound(d));
      left.push_back(d);
    }
  }
  const Type type(v.dtype(), result);
  if (v.type().bound_numel() == 0 || type.numel() == 0) {
    return ir::constant(v.builder(), 0, type);
  }
  Value r = ir::gather(v, index_vectors(indices), g, type);
  for (size_t i = 0; i < left.size(); ++i) {
    if (!v.type().is_dynamic(left[i])) continue;
    r = ir::set_dimension_size(r, g.offset_dims[i], ir::size(v, left[i]));
  }
  return r;
}

Value take_slices(const Value& v, int64_t d, const Value& index) { return take_at(v, {d}, {index}, d); }

Value take_elements(const Value& v, int64_t d, const Value& index) {
  const Type type(v.dtype(), index.type().bounds());
  if (type.numel() == 0 || v.type().bound_numel() == 0) {
    return ir::with_sizes_of(ir::constant(v.builder(), 0, type), index);
  }
  ir::GatherDims g;
  g.collapsed_slice_dims = g.start_index_map = {d};
  g.operand_batching_dims = g.start_indices_batching_dims = all_but(v.rank(), d);
  g.index_vector_dim = index.rank();
  g.slice_sizes.assign(v.rank(), 1);
  const Value r = ir::gather(cut(ir::to_bound(v), d, index), ir::to_bound(index), g, type);
  return ir::with_sizes_of(r, index);
}

Value put_at(const Value& v, const Dims& dims, const Values& indices, int64_t position, const Value& updates,
             Combine combine) {
  if (updates.type().bound_numel() == 0 || v.type().bound_numel() == 0) return v;
  ir::ScatterDims s;
  s.update_window_dims = slice_dims(updates.rank(), position, indices[0].rank());
  s.inserted_window_dims = s.scatter_dims_to_operand_dims = dims;
  s.index_vector_dim = indices[0].rank();
  return ir::scatter(v, index_vectors(indices), updates, s,
                     [combine](const Values& a) { return Values{combine(a[0], a[1])}; });
}

Value put_slices(const Value& v, int64_t d, const Value& index, const Value& updates, Combine combine) {
  return put_at(v, {d}, {index}, d, updates, combine);
}

Value put_elements(const Value& v, int64_t d, const Value& index, const Value& updates, Combine combine) {
  if (index.type().bound_numel() == 0 || v.type().bound_numel() == 0) return v;
  ir::ScatterDims s;
  s.inserted_window_dims = s.scatter_dims_to_operand_dims = {d};
  s.input_batching_dims = s.scatter_indices_batching_dims = all_but(v.rank(), d);
  s.index_vector_dim = index.rank();
  const Value whole = ir::to_bound(v), part = cut(whole, d, index);
  Value r = ir::scatter(part, settled(index, v, d), ir::to_bound(updates), s,
                        [combine](const Values& a) { return Values{combine(a[0], a[1])}; });
  if (part.id() != whole.id()) {
    const Value zero = ir::constant(v.builder(), 0, Type(DType::kI32, {}));
    r = ir::dynamic_update_slice(whole, r, Values(v.rank(), zero));
  }
  return ir::with_sizes_of(r, v);
}

Value search_sorted(const Value& sorted, const Value& values, bool right) {
  const int64_t last = sorted.rank() - 1, n = sorted.dim(last);
  Value low = ir::full_like(ir::convert(values, DType::kI32), 0);
  if (n == 0 || values.type().bound_numel() == 0) return low;
  Value high = ir::full_like(low, n);
  const Value one = ir::full_like(low, 1), end = ir::full_like(low, n - 1);
  for (int64_t left = n; left > 0; left /= 2) {
    const Value middle = ir::shift_right_logical(ir::add(low, high), one);
    const Value at = ir::minimum(middle, end);
    const Value element = sorted.rank() == 1 ? take_slices(sorted, 0, at) : take_elements(sorted, last, at);
    // Written with "not", so that a NaN moves on as it does on the CPU.
    const Value further = ir::not_(ir::compare(element, values, right ? "GT" : "GE"));
    const Value open = ir::compare(low, high, "LT");
    low = ir::select(ir::and_(open, further), ir::add(middle, one), low);
    high = ir::select(ir::and_(open, ir::not_(further)), middle, high);
  }
  return low;
}

}  // namespace tpu::ops
