// Matrix products: mm, bmm, their addmm forms, and vector products.
#include <algorithm>
#include <numeric>

#include "tpu/ops/contract.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

using ir::DotDims;

const DotDims kMatrix{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {1}, .rhs_contracting = {0}};
const DotDims kBatch{.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {1}};
// Contracts the batch as well: the sum of the batch's products.
const DotDims kBatchSum{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {0, 2}, .rhs_contracting = {0, 1}};
const DotDims kVector{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {0}, .rhs_contracting = {0}};

// alpha times the product of two arguments, in the compute dtype.
Value scaled_product(Op& o, const char* a, const char* b, const DotDims& dims) {
  const DType dtype = ir::opmath(o.in(a).dtype());
  return scaled(o, contract(o, o.in(a), o.in(b), dims, dtype), "alpha");
}

// beta * self + product; beta = 0 ignores self, NaN included.
Value plus_self(Op& o, const Value& product) {
  if (o.is_zero("beta")) return product;
  const Value self = ir::convert(o.in("self"), product.dtype());
  return ir::add(ir::broadcast_to(scaled(o, self, "beta"), product), product);
}

Value addmm(Op& o) { return plus_self(o, scaled_product(o, "mat1", "mat2", kMatrix)); }
Value baddbmm(Op& o) { return plus_self(o, scaled_product(o, "batch1", "batch2", kBatch)); }

Rule product(const DotDims& dims) {
  return [dims](Op& o) { return contract(o, o.in(0), o.in(1), dims, o.compute_dtype()); };
}

Value addmm_activation(Op& o) {
  const Value y = addmm(o);
  if (!o.flag("use_gelu")) return ir::select(ir::compare(y, ir::zeros_like(y), "LE"), ir::zeros_like(y), y);
  const Value erf = ir::chlo("erf", ir::multiply(y, ir::full_like(y, 0.70710678118654752)));
  return ir::multiply(ir::multiply(y, ir::full_like(y, 0.5)), ir::add(erf, ir::full_like(y, 1)));
}

// beta * self + alpha * vec1 (x) vec2; for bool, alpha and beta are truth values.
Value addr(Op& o) {
  const Value rows = ir::unsqueeze(ir::convert(o.in("vec1"), o.compute_dtype()), 1);
  const Value outer = ir::multiply(ir::broadcast_to(rows, o.out().dims()), o.x("vec2"));
  return plus_self(o, scaled(o, outer, "alpha"));
}

// Rows [offs[g-1], offs[g]) of a times matrix g; one pass over the groups keeps memory flat, and
// what other groups' matrices hold (NaN, too) never reaches a row.
Value grouped_rows(Op& o, const Value& a, const Value& b, const Value& offs) {
  ir::Builder& builder = o.builder();
  const Type i32(DType::kI32, {});
  const int64_t rows = a.dim(0), depth = b.dim(1), columns = b.dim(2);
  const Value zero = ir::constant(builder, 0, i32);
  const Value groups = ir::constant(builder, b.dim(0), i32);
  const Value row = ir::iota(builder, Type(DType::kI32, {rows, columns}), 0);
  const Value init = ir::constant(builder, 0, Type(DType::kF32, {rows, columns}));
  const auto element = [](const Value& v, const Value& i) { return ir::reshape(ir::dynamic_slice(v, {i}, {1}), {}); };
  return ir::while_loop(
      {zero, zero, init}, [&](const Values& s) { return Values{ir::compare(s[0], groups, "LT")}; },
      [&](const Values& s) {
        const Value end = element(offs, s[0]);
        const Value matrix =
            ir::reshape(ir::dynamic_slice(b, {s[0], zero, zero}, {1, depth, columns}), {depth, columns});
        const Value mine = ir::and_(ir::compare(row, s[1], "GE"), ir::compare(row, end, "LT"));
        const Value y = contract(o, a, matrix, kMatrix, DType::kF32);
        return Values{ir::add(s[0], ir::constant(builder, 1, i32)), end, ir::select(mine, y, s[2])};
      })[2];
}

// The columns of a and rows of b in [offs[g-1], offs[g]) give result g.
Value grouped_depth(Op& o, const Value& a, const Value& b, const Value& offs) {
  ir::Builder& builder = o.builder();
  const int64_t groups = offs.dim(0), depth = a.dim(1);
  const Type wide(DType::kI32, {groups, depth});
  const Value start =
      ir::concatenate({ir::constant(builder, 0, Type(DType::kI32, {1})), ir::slice_in_dim(offs, 0, 0, groups - 1)}, 0);
  const Value k = ir::iota(builder, wide, 1);
  const Value mine = ir::and_(ir::compare(k, ir::broadcast_in_dim(start, wide, {0}), "GE"),
                              ir::compare(k, ir::broadcast_in_dim(offs, wide, {0}), "LT"));
  const auto masked = [&](const Value& v, int64_t depth_dim) {
    const Dims dims = {groups, v.dim(0), v.dim(1)};
    const Value keep = ir::broadcast_in_dim(mine, Type(DType::kI1, dims), {0, depth_dim + 1});
    const Value all = ir::broadcast_in_dim(v, Type(v.dtype(), dims), {1, 2});
    return ir::select(keep, all, ir::zeros_like(all));
  };
  return contract(o, masked(a, 1), masked(b, 0), kBatch, DType::kF32);
}

Value grouped_mm(Op& o) {
  const Value a = o.in("self"), b = o.in("mat2");
  if (a.rank() == 3 && b.rank() == 3) return contract(o, a, b, kBatch, DType::kF32);
  if (a.rank() == 2 && b.rank() == 2) return grouped_depth(o, a, b, o.in("offs"));
  if (a.rank() == 2) return grouped_rows(o, a, b, o.in("offs"));
  // Groups of columns of b: the same with everything transposed.
  const Value rows = grouped_rows(o, ir::transpose(b, {1, 0}), ir::transpose(a, {0, 2, 1}), o.in("offs"));
  return ir::transpose(rows, {1, 0});
}

// Of a matrix without rows, CPU returns self, whatever its shape.
Value addmv(Op& o) {
  if (o.in("mat").dim(0) == 0) return ir::multiply(o.x("self"), o.scalar("beta", o.compute_dtype()));
  return plus_self(o, scaled_product(o, "mat", "vec", kMatrix));
}

const Row kRows[] = {
    {"mm", product(kMatrix)},
    {"mm.dtype", product(kMatrix)},
    {"bmm", product(kBatch)},
    {"bmm.dtype", product(kBatch)},
    {"mv", product(kMatrix)},
    {"dot", product(kVector)},
    {"vdot", [](Op& o) { return contract(o, ir::conj(o.in(0)), o.in(1), kVector, o.compute_dtype()); }},
    {"_int_mm", product(kMatrix)},
    {"addmm", addmm},
    {"addmm.dtype", addmm},
    {"addmv", addmv},
    {"baddbmm", baddbmm},
    {"baddbmm.dtype",
     baddbmm,
     {.types =
          [](Op& o) {
            return std::vector<Type>{
                Type(*o.dtype("out_dtype"), {o.in("batch1").dim(0), o.in("batch1").dim(1), o.in("batch2").dim(2)})};
          }}},
    {"addbmm", [](Op& o) { return plus_self(o, scaled_product(o, "batch1", "batch2", kBatchSum)); }},
    {"addr", addr},
    {"_addmm_activation", addmm_activation},
    {"_grouped_mm", grouped_mm},
};

// The contraction as multiplications and a sum, for dtypes whose dot the platform refuses.
Value multiply_and_sum(const Value& a, const Value& b, const DotDims& dims, DType result) {
  const auto contains = [](const Dims& v, int64_t d) { return std::find(v.begin(), v.end(), d) != v.end(); };
  Dims sizes, a_map(a.rank()), b_map(b.rank()), sums;
  const auto place = [&](Dims& map, const Value& v, int64_t d) {
    map[d] = static_cast<int64_t>(sizes.size());
    sizes.push_back(v.dim(d));
  };
  const auto place_both = [&](const Dims& left, const Dims& right) {
    for (size_t i = 0; i < left.size(); ++i) {
      b_map[right[i]] = static_cast<int64_t>(sizes.size());
      place(a_map, a, left[i]);
    }
  };
  place_both(dims.lhs_batching, dims.rhs_batching);
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (!contains(dims.lhs_batching, d) && !contains(dims.lhs_contracting, d)) place(a_map, a, d);
  }
  for (int64_t d = 0; d < b.rank(); ++d) {
    if (!contains(dims.rhs_batching, d) && !contains(dims.rhs_contracting, d)) place(b_map, b, d);
  }
  for (size_t i = 0; i < dims.lhs_contracting.size(); ++i) sums.push_back(static_cast<int64_t>(sizes.size() + i));
  place_both(dims.lhs_contracting, dims.rhs_contracting);
  const Type type(result, sizes);
  const auto spread = [&](const Value& v, const Dims& map) {
    // broadcast_in_dim keeps the order of dimensions, so bring them into the order of the result
    // first.
    Dims order(v.rank()), targets;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return map[x] < map[y]; });
    for (int64_t d : order) targets.push_back(map[d]);
    return ir::broadcast_in_dim(ir::transpose(ir::convert(v, result), order), type, targets);
  };
  const Value zero = ir::constant(a.builder(), 0, Type(result, {}));
  return ir::reduce(ir::multiply(spread(a, a_map), spread(b, b_map)), zero, sums, "add");
}

}  // namespace

std::string contraction_precision(Op& o, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kC64) return o.context().matmul_precision();
  // bf16 is exact in one pass; f64 and f16 know no lower precision than their own.
  return dtype == DType::kBF16 ? "DEFAULT" : "HIGHEST";
}

Value contract(Op& o, const Value& a, const Value& b, const DotDims& dims, DType result) {
  if (ir::is_integer(a.dtype()) && ir::size_bytes(a.dtype()) == 8 && !o.context().has_i64_contraction()) {
    return multiply_and_sum(a, b, dims, result);
  }
  return ir::dot_general(a, b, dims, result, contraction_precision(o, a.dtype()));
}

std::span<const Row> matmul_rows() { return kRows; }

}  // namespace tpu::ops
