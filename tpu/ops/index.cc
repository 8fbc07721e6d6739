// Reading and writing by index tensors along whole slices: index, index_put, index_select,
// embedding.
#include <algorithm>

#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

const IndexError kOutOfRange = {"index out of range in self"};

// The index tensors of at::index: which dimensions they index, one broadcast shape, and where that
// shape stands in the result (in front, where indexed dimensions are not neighbours).
struct Indexing {
  Dims dims;
  Values indices;
  int64_t position = 0;

  Indexing(Op& o, const Value& v, const Values& list) {
    Dims shape;
    for (const Value& index : list) {
      if (index) shape = broadcast_shape(shape, index);
    }
    for (size_t d = 0; d < list.size(); ++d) {
      if (!list[d]) continue;
      const int64_t dim = static_cast<int64_t>(d);
      const Value index = checked_index(o, list[d], v, dim, Negative::kWraps, {out_of_bounds(v, dim)});
      indices.push_back(index.type().bounds() == shape ? index : ir::broadcast_to(index, shape));
      dims.push_back(dim);
    }
    const bool neighbours = dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
    position = neighbours ? dims.front() : 0;
  }

  static Dims broadcast_shape(const Dims& a, const Value& v) {
    Dims shape = v.type().bounds();
    if (shape.size() < a.size()) shape.insert(shape.begin(), a.size() - shape.size(), 1);
    for (size_t i = 0; i < a.size(); ++i) {
      int64_t& n = shape[shape.size() - a.size() + i];
      if (n == 1) n = a[i];
    }
    return shape;
  }

  // The shape of v indexed.
  Dims result(const Value& v) const {
    Dims shape;
    for (int64_t d = 0; d < v.rank(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) shape.push_back(v.type().bound(d));
    }
    const Dims& inner = indices[0].type().bounds();
    shape.insert(shape.begin() + position, inner.begin(), inner.end());
    return shape;
  }
};

bool has_index(const Values& list) {
  return std::any_of(list.begin(), list.end(), [](const Value& v) { return static_cast<bool>(v); });
}

Value index(Op& o) {
  const Value v = o.in(0);
  if (!has_index(o.list("indices"))) return v;
  const Indexing at(o, v, o.list("indices"));
  return take_at(v, at.dims, at.indices, at.position);
}

Value index_put(Op& o) {
  const bool accumulate = o.flag("accumulate");
  const Value v = accumulate ? o.compute(0) : o.in(0);
  const Value values = ir::convert(o.in("values"), v.dtype());
  if (!has_index(o.list("indices"))) {
    const Value all = ir::broadcast_to(values, v);
    return accumulate ? ir::add(v, all) : all;
  }
  const Indexing at(o, v, o.list("indices"));
  const Dims shape = at.result(v);
  const Value updates = values.type().bounds() == shape ? values : ir::broadcast_to(values, shape);
  return put_at(v, at.dims, at.indices, at.position, updates, accumulate ? ir::add : replace);
}

Value index_select(Op& o) {
  const Value v = at_least_1d(o.in(0));
  const int64_t d = o.dim("dim", v.rank());
  const Value index = at_least_1d(o.in("index"));
  const Value at = checked_index(o, index, v, d, Negative::kError, kOutOfRange);
  return with_rank(take_slices(v, d, at), o.in(0).rank());
}

Value index_add(Op& o) {
  const Value v = at_least_1d(o.compute(0));
  const int64_t d = o.dim("dim", v.rank());
  const IndexError error = v.rank() > 1 ? IndexError{out_of_bounds(v, d), "RuntimeError"} : kOutOfRange;
  const Value index = at_least_1d(o.in("index"));
  const Value at = checked_index(o, index, v, d, Negative::kError, error);
  const Value source = scaled(o, at_least_1d(o.compute("source")), "alpha");
  return with_rank(put_slices(v, d, at, source, ir::add), o.in(0).rank());
}

Value index_copy(Op& o) {
  const Value v = at_least_1d(o.in(0)), source = at_least_1d(o.in("source"));
  const int64_t d = o.dim("dim", v.rank());
  const IndexError error = {"index_copy_(): " + out_of_bounds(v, d)};
  const Value index = at_least_1d(o.in("index"));
  const Value at = checked_index(o, index, v, d, Negative::kError, error);
  return with_rank(put_slices(v, d, at, source, replace), o.in(0).rank());
}

Value index_fill(Op& o) {
  const Value v = at_least_1d(o.in(0)), index = at_least_1d(o.in("index"));
  const int64_t d = o.dim("dim", v.rank());
  const Value at = checked_index(o, index, v, d, Negative::kWraps, {out_of_bounds(v, d)});
  Dims shape = v.dims();
  shape[d] = index.dim(0);
  const Value fill = ir::broadcast_to(o.scalar("value", v.dtype()), shape);
  return with_rank(put_slices(v, d, at, fill, replace), o.in(0).rank());
}

// take and put index the flattened tensor.
Value flat_index(Op& o, const Value& flat) {
  const std::string count = std::to_string(flat.dim(0));
  const IndexError error = {"out of range: tried to access index {} on a tensor of " + count + " elements."};
  return checked_index(o, o.in("index"), flat, 0, Negative::kWraps, error);
}

Value take(Op& o) {
  const Value flat = ir::reshape(o.in(0), {o.in(0).type().numel()});
  return take_slices(flat, 0, flat_index(o, flat));
}

Value put(Op& o) {
  const bool accumulate = o.flag("accumulate");
  const Value v = accumulate ? o.compute(0) : o.in(0);
  const Value flat = ir::reshape(v, {v.type().numel()});
  const Value index = flat_index(o, flat);
  const Value source = ir::reshape(ir::convert(o.in("source"), v.dtype()), index.dims());
  const Value r = put_slices(flat, 0, index, source, accumulate ? ir::add : replace);
  return ir::reshape(r, v.dims());
}

Value embedding(Op& o) {
  const Value weight = o.in("weight");
  const Value at = checked_index(o, o.in("indices"), weight, 0, Negative::kError, kOutOfRange);
  return take_slices(weight, 0, at);
}

Value embedding_backward(Op& o) {
  Value grad = o.compute("grad_output"), at = ir::convert(o.in("indices"), DType::kI64);
  const int64_t rows = o.integer("num_weights");
  const Value zero = ir::zeros_like(at), outside = ir::full_like(at, rows);
  // Scatter drops what lies outside, and that is what becomes of the padding index.
  const Value padding = ir::compare(at, ir::full_like(at, o.integer("padding_idx")), "EQ");
  at = ir::select(ir::or_(padding, ir::compare(at, zero, "LT")), outside, at);
  if (o.flag("scale_grad_by_freq")) {
    const Value none = ir::constant(o.builder(), 0, Type(grad.dtype(), {rows}));
    const Value ones = ir::convert(ir::full_like(at, 1), grad.dtype());
    const Value count = put_slices(none, 0, at, ones, ir::add);
    const Value uses = ir::unsqueeze(take_slices(count, 0, at), at.rank());
    grad = ir::divide(grad, ir::broadcast_to(uses, grad));
  }
  const Value none = ir::constant(o.builder(), 0, Type(grad.dtype(), o.out().dims()));
  return put_slices(none, 0, at, grad, ir::add);
}

const Row kRows[] = {
    {"index.Tensor", index},
    {"_unsafe_index.Tensor", index},
    {"index_put", index_put},
    {"_index_put_impl", index_put},
    {"_unsafe_index_put", index_put},
    {"index_select", index_select},
    {"index_add", index_add},
    {"index_copy", index_copy},
    {"index_fill.int_Scalar", index_fill},
    {"index_fill.int_Tensor", index_fill},
    {"take", take},
    {"put", put},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_backward},
};

}  // namespace

std::span<const Row> index_rows() { return kRows; }

}  // namespace tpu::ops
