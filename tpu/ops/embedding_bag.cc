// embedding_bag: rows of a table, reduced bag by bag, and its gradients.
#include "tpu/ops/indexing.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

enum Mode { kSum = 0, kMean = 1, kMax = 2 };

Value add(const Value& old, const Value& update) { return ir::add(old, update); }
Value larger(const Value& old, const Value& update) { return ir::maximum(old, update); }
Value smaller(const Value& old, const Value& update) { return ir::minimum(old, update); }

// A number per row [n], broadcast to rows [n, width].
Value across(const Value& v, const Value& rows) { return ir::broadcast_in_dim(v, Type(v.dtype(), rows.dims()), {0}); }

// The bag of each index, i32 [n]; `offsets` has one start per bag.
Value bag_of(const Value& offsets, int64_t n) {
  const Value place = ir::iota(offsets.builder(), Type(DType::kI32, {n}), 0);
  const Value after = search_sorted(ir::convert(offsets, DType::kI32), place, /*right=*/true);
  return ir::subtract(after, ir::full_like(after, 1));
}

// Which indices count: those that are not the padding's.
Value counted(Op& o, const Value& indices) {
  const int64_t padding = o.integer("padding_idx");
  return ir::compare(indices, ir::full_like(indices, padding), "NE");
}

void check_offsets(Op& o, const Value& offsets, int64_t n) {
  const auto element = [&](int64_t i) {
    return ir::convert(ir::reshape(ir::slice_in_dim(offsets, 0, i, i + 1), {}), DType::kI64);
  };
  const Value first = element(0), last = element(offsets.dim(0) - 1);
  o.context().check(ir::compare(first, ir::zeros_like(first), "NE"), first, "RuntimeError",
                    "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
                    "However, got {}");
  o.context().check(
      ir::compare(last, ir::full_like(last, n), "GT"), last, "RuntimeError",
      "offsets[-1] can not be greater than input's length " + std::to_string(n) + " but got offsets[-1] of {}");
}

// output, offset2bag, bag_size, max_indices
Values embedding_bag(Op& o) {
  ir::Builder& b = o.builder();
  const Value weight = ir::convert(o.in("weight"), ir::opmath(o.in("weight").dtype()));
  const Value indices = o.in("indices"), offsets = o.in("offsets");
  const int64_t n = indices.dim(0), bags = o.out(0).dim(0), mode = o.integer("mode");
  const Value none = ir::constant(b, 0, Type(weight.dtype(), o.out(0).dims()));
  const Value no_size = ir::constant(b, 0, Type(DType::kI32, o.out(2).dims()));
  if (offsets.dim(0) > 0) check_offsets(o, offsets, n);
  if (n == 0 || bags == 0) {
    return {none, ir::constant(b, 0, o.out(1)), no_size, ir::constant(b, mode == kMax ? -1 : 0, o.out(3))};
  }
  const Value index =
      checked_index(o, indices, weight, 0, Negative::kError,
                    {"Expected idx >= 0 && idx < num_embeddings but found idx to be {}", "RuntimeError"});
  const Value bag = bag_of(ir::slice_in_dim(offsets, 0, 0, bags), n), counts = counted(o, indices);
  const Value sizes = put_slices(no_size, 0, bag, ir::convert(counts, DType::kI32), add);
  const Value size = ir::slice_in_dim(sizes, 0, 0, bags);
  Value rows = take_slices(weight, 0, index);
  if (mode != kMax) {
    if (o.has("per_sample_weights")) {
      rows = ir::multiply(rows, across(ir::convert(o.in("per_sample_weights"), rows.dtype()), rows));
    }
    Value sum = put_slices(none, 0, bag, ir::select(across(counts, rows), rows, ir::zeros_like(rows)), add);
    if (mode == kMean) {
      const Value least = ir::maximum(size, ir::full_like(size, 1));
      sum = ir::divide(sum, across(ir::convert(least, sum.dtype()), sum));
    }
    return {sum, bag, sizes, ir::constant(b, 0, o.out(3))};
  }
  const Value lowest = ir::lowest(b, Type(rows.dtype(), {}));
  const Value most = put_slices(ir::broadcast_to(lowest, none.dims()), 0, bag,
                                ir::select(across(counts, rows), rows, ir::broadcast_to(lowest, rows.dims())), larger);
  // The first row that has the maximum.
  const Value mine = take_slices(most, 0, bag);
  const Value hit = ir::and_(across(counts, rows), ir::or_(ir::compare(rows, mine, "EQ"), ir::is_nan(rows)));
  const Value place = ir::iota(b, Type(DType::kI32, rows.dims()), 0), beyond = ir::full_like(place, n);
  const Value start = ir::constant(b, n, Type(DType::kI32, none.dims()));
  const Value first = put_slices(start, 0, bag, ir::select(hit, place, beyond), smaller);
  const Value is_empty = ir::compare(first, ir::full_like(first, n), "EQ");
  const Value last = ir::full_like(first, n - 1);
  const Value found = take_slices(index, 0, ir::minimum(first, last));
  return {ir::select(is_empty, none, most), bag, sizes, ir::select(is_empty, ir::full_like(found, -1), found)};
}

// The gradient of each row that was read, into the table.
Value table_gradient(Op& o) {
  const Value grad = ir::convert(o.in("grad"), ir::opmath(o.in("grad").dtype()));
  const Value indices = o.in("indices");
  const int64_t n = indices.dim(0), mode = o.integer("mode"), width = grad.dim(1), rows = o.integer("num_weights");
  const Value zeros = ir::constant(o.builder(), 0, Type(grad.dtype(), {rows, width}));
  if (n == 0 || grad.type().numel() == 0 || rows == 0) return zeros;
  if (mode == kMax) return put_elements(zeros, 0, ir::convert(o.in("maximum_indices"), DType::kI32), grad, add);
  const Value bag = ir::convert(o.in("offset2bag"), DType::kI32), index = ir::convert(indices, DType::kI32);
  Value each = take_slices(grad, 0, bag);
  if (o.has("per_sample_weights")) {
    each = ir::multiply(each, across(ir::convert(o.in("per_sample_weights"), each.dtype()), each));
  }
  if (mode == kMean) {
    const Value size = take_slices(ir::convert(o.in("bag_size"), DType::kI32), 0, bag);
    each = ir::divide(each, across(ir::convert(ir::maximum(size, ir::full_like(size, 1)), each.dtype()), each));
  }
  if (o.flag("scale_grad_by_freq")) {
    const Value uses =
        put_slices(ir::constant(o.builder(), 0, Type(DType::kI32, {rows})), 0, index, ir::full_like(index, 1), add);
    each = ir::divide(each, across(ir::convert(take_slices(uses, 0, index), each.dtype()), each));
  }
  each = ir::select(across(counted(o, indices), each), each, ir::zeros_like(each));
  return put_slices(zeros, 0, index, each, add);
}

Value dense_backward(Op& o) { return table_gradient(o); }

Value backward(Op& o) {
  if (o.flag("sparse")) {
    throw UserError("embedding_bag: sparse gradients are not supported on the tpu device; pass sparse=False");
  }
  return table_gradient(o);
}

Value per_sample_weights_backward(Op& o) {
  const Value grad = ir::convert(o.in("grad"), ir::opmath(o.in("grad").dtype()));
  const Value weight = ir::convert(o.in("weight"), grad.dtype()), indices = o.in("indices");
  const Value zeros = ir::constant(o.builder(), 0, Type(grad.dtype(), {indices.dim(0)}));
  if (indices.dim(0) == 0 || grad.type().numel() == 0 || weight.type().numel() == 0) return zeros;
  const Value bag = bag_of(ir::slice_in_dim(o.in("offsets"), 0, 0, grad.dim(0)), indices.dim(0));
  const Value rows = take_slices(weight, 0, ir::convert(indices, DType::kI32));
  const Value dot = sum_over(ir::multiply(take_slices(grad, 0, bag), rows), {1});
  return ir::select(counted(o, indices), dot, zeros);
}

const Row kRows[] = {
    {"_embedding_bag", embedding_bag},
    {"_embedding_bag_forward_only", embedding_bag},
    {"_embedding_bag_backward", backward},
    {"_embedding_bag_dense_backward", dense_backward},
    {"_embedding_bag_per_sample_weights_backward", per_sample_weights_backward},
};

}  // namespace

std::span<const Row> embedding_bag_rows() { return kRows; }

}  // namespace tpu::ops
