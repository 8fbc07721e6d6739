// Cholesky factors and what is solved with them.
#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// One panel [batch, rows, width] from which the columns to its left are subtracted; its diagonal starts at row `start`.
Values factor_panel(const Value& panel, const Value& info, const Value& start) {
  const int64_t width = panel.dim(2);
  const DType dtype = panel.dtype();
  return for_loop(width, {panel, info}, [&](const Value& j, const Values& s) {
    const Value at = ir::add(start, j);
    const Value column = columns_at(s[0], j, 1);
    const Value pivot = ir::real(rows_at(column, at, 1));  // [batch, 1, 1]
    const Value flat = ir::reshape(pivot, {pivot.dim(0)});
    // Also where it is NaN.
    const Value failed = ir::not_(ir::compare(flat, ir::zeros_like(flat), "GT"));
    const Value first = ir::and_(failed, ir::compare(s[1], ir::zeros_like(s[1]), "EQ"));
    const Value order = ir::add(at, int_scalar(at.builder(), 1));
    const Value info = ir::select(first, ir::broadcast_to(order, s[1].dims()), s[1]);

    const Value root = stretched(ir::convert(ir::sqrt(pivot), dtype), column), row = row_index(column);
    const Value below = keep(ir::compare(row, at, "GT"), ir::divide(column, root));
    const Value found = ir::select(ir::compare(row, at, "EQ"), root, below);
    // The rows of the panel's own columns, as a row.
    const Value across = adjoint(rows_at(found, start, width));
    const Value later = keep(ir::compare(column_index(across), j, "GT"), across);
    const Value rest = ir::subtract(s[0], ir::multiply(stretched(below, s[0]), stretched(later, s[0])));
    return Values{with_columns(rest, j, found), info};
  });
}

}  // namespace

Cholesky factor_cholesky(const Value& a) {
  ir::Builder& b = a.builder();
  const int64_t n = a.dim(1);
  const Value info = ir::constant(b, 0, Type(DType::kI32, {a.dim(0)}));
  if (n == 0 || a.dim(0) == 0) return {a, info};
  if (n <= kPanel) {
    const Values out = factor_panel(a, info, int_scalar(b, 0));
    return {lower_triangle(out[0]), out[1]};
  }
  const int64_t blocks = (n + kPanel - 1) / kPanel, padded = blocks * kPanel;
  const Value whole = grown(a, padded, padded);
  const Value added = ir::and_(ir::compare(row_index(whole), int_scalar(b, n), "GE"),
                               ir::compare(row_index(whole), column_index(whole), "EQ"));
  const Value matrix = ir::select(added, ir::full_like(whole, 1), whole);
  const Values out = for_loop(blocks, {ir::zeros_like(matrix), info}, [&](const Value& block, const Values& s) {
    const Value start = ir::multiply(block, int_scalar(b, kPanel));
    const Value product = matmul(s[0], adjoint(rows_at(s[0], start, kPanel)));
    const Values panel = factor_panel(ir::subtract(columns_at(matrix, start, kPanel), product), s[1], start);
    const Value rows = row_index(panel[0]);
    return Values{with_columns(s[0], start, keep(ir::compare(rows, start, "GE"), panel[0])), panel[1]};
  });
  return {lower_triangle(corner(out[0], n, n)), out[1]};
}

namespace {

// a's lower triangle as rules see it: of the adjoint, where the upper one is given.
Value lower_of(const Value& a, bool upper) { return upper ? adjoint(as_batch(a)) : as_batch(a); }

Values cholesky_ex(Op& o) {
  check_precision(o.in(0), "cholesky_cpu");
  const bool upper = o.flag("upper");
  const Cholesky c = factor_cholesky(lower_of(o.in(0), upper));
  const Value factor = upper ? adjoint(c.factor) : c.factor;
  return {from_batch(factor, o.out(0)), ir::reshape(c.info, o.out(1).dims())};
}

// x of l l^H x = b.
Value solve_with_factor(const Value& l, const Value& b) {
  const Value y = solve_triangle(l, b, {.is_lower = true});
  return solve_triangle(adjoint(l), y, {.is_lower = false});
}

Value cholesky_solve(Op& o) {
  check_precision(o.in("self"), "cholesky_solve_cpu");
  const Dims batch = batch_of(o.in("self"), o.in("A"));
  const Value a = as_batch(o.in("A"), batch), l = o.flag("upper") ? adjoint(a) : a;
  return from_batch(solve_with_factor(l, as_batch(o.in("self"), batch)), o.out());
}

// The first zero on the diagonal, counted from 1, or 0: i32 [batch].
Value first_zero(const Value& v) {
  const Value d = diagonal(v);
  const Value place = ir::iota(v.builder(), Type(DType::kI32, d.dims()), 1);
  const Value none = ir::full_like(place, d.dim(1));
  const Value found = min_over(ir::select(ir::compare(d, ir::zeros_like(d), "EQ"), place, none), {1});
  const Value is_none = ir::compare(found, ir::full_like(found, d.dim(1)), "EQ");
  return ir::select(is_none, ir::zeros_like(found), ir::add(found, ir::full_like(found, 1)));
}

// `zero` as first_zero gives it.
void check_singular(Op& o, const Value& zero) {
  const std::string end = "the inversion could not be completed because the input matrix is singular.";
  const Value found = ir::compare(zero, ir::zeros_like(zero), "GT");
  if (o.in(0).rank() == 2) {
    const Value place = ir::convert(ir::reshape(zero, {}), DType::kI64);
    o.context().check(ir::reshape(found, {}), place, "LinAlgError",
                      "cholesky_inverse: The diagonal element {} is zero, " + end);
    return;
  }
  const Value element = ir::iota(o.builder(), Type(DType::kI64, zero.dims()), 0);
  const Value first = min_over(ir::select(found, element, ir::full_like(element, zero.dim(0))), {0});
  o.context().check(any_over(found, {0}), first, "LinAlgError",
                    "cholesky_inverse: (Batch element {}): A diagonal element is zero, " + end);
}

Value cholesky_inverse(Op& o) {
  check_precision(o.in(0), "cholesky_inverse_out_cpu");
  const Value l = lower_of(o.in(0), o.flag("upper"));
  const int64_t n = l.dim(1);
  if (l.type().numel() == 0) return o.in(0);
  check_singular(o, first_zero(l));
  return from_batch(solve_with_factor(l, identity(l, n, n)), o.out());
}

const Row kRows[] = {
    {"linalg_cholesky_ex", cholesky_ex},
    {"_cholesky_solve_helper", cholesky_solve},
    {"cholesky_inverse", cholesky_inverse},
};

}  // namespace

std::span<const Row> cholesky_rows() { return kRows; }

}  // namespace tpu::ops
