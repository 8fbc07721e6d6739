// LU factors with partial pivoting; systems, inverses and determinants by them.
#include <algorithm>
#include <numeric>

#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// |re| + |im|, by which LAPACK picks a pivot.
Value magnitude(const Value& v) {
  return ir::is_complex(v.dtype()) ? ir::add(ir::abs(ir::real(v)), ir::abs(ir::imag(v))) : ir::abs(v);
}

// v [batch, rows, n] with row `at` and row other[batch] swapped.
Value swap_rows(const Value& v, const Value& at, const Value& other) {
  const Value here = rows_at(v, at, 1);
  const Value there = take_rows(v, ir::reshape(other, {v.dim(0), 1}));
  const Value is_other = ir::compare(row_index(v), stretched(ir::reshape(other, {v.dim(0), 1, 1}), row_index(v)), "EQ");
  return with_rows(ir::select(is_other, stretched(here, v), v), at, there);
}

struct Panel {
  Value matrix;  // [batch, m, width]
  Value order;   // i32 [batch, m, 1]: how this panel moved the rows
  Value pivots;  // i32 [batch, 1, columns of all panels]
  Value info;
};

// Eliminates `steps` columns of the panel, whose diagonal starts at row `start`.
Panel eliminate(const Panel& panel, const Value& start, const Value& steps, bool pivoting) {
  const Values out =
      for_loop(steps, {panel.matrix, panel.order, panel.pivots, panel.info}, [&](const Value& j, const Values& s) {
        const Value at = ir::add(start, j), one = int_scalar(at.builder(), 1);
        Value matrix = s[0], order = s[1];
        Value other = ir::broadcast_to(at, {matrix.dim(0)});
        if (pivoting) {
          const Value size = magnitude(columns_at(matrix, j, 1));
          const Value open = ir::compare(row_index(size), at, "GE");
          const Value masked = ir::reshape(ir::select(open, size, ir::full_like(size, -1)), {size.dim(0), size.dim(1)});
          other = ir::convert(extremum_along(masked, 1, true).indices, DType::kI32);
          matrix = swap_rows(matrix, at, other);
          order = swap_rows(order, at, other);
        }
        const Value pivots = with_columns(
            s[2], at, ir::reshape(ir::add(other, ir::broadcast_to(one, other.dims())), {other.dim(0), 1, 1}));
        const Value column = columns_at(matrix, j, 1), row = rows_at(matrix, at, 1);
        const Value pivot = rows_at(column, at, 1);  // [batch, 1, 1]
        const Value is_zero = ir::compare(pivot, ir::zeros_like(pivot), "EQ");
        const Value first = ir::and_(ir::reshape(is_zero, s[3].dims()), ir::compare(s[3], ir::zeros_like(s[3]), "EQ"));
        const Value info = ir::select(first, ir::broadcast_to(ir::add(at, one), s[3].dims()), s[3]);
        // Below a zero pivot all is zero, so it divides by one.
        const Value divisor = stretched(ir::select(is_zero, ir::full_like(pivot, 1), pivot), column);
        const Value is_below = ir::compare(row_index(column), at, "GT");
        const Value factor = ir::select(is_below, ir::divide(column, divisor), column);
        // Not by factors of zero: rows above may be infinite.
        const Value is_inner =
            ir::and_(ir::compare(row_index(matrix), at, "GT"), ir::compare(column_index(matrix), j, "GT"));
        const Value product = ir::multiply(stretched(factor, matrix), stretched(row, matrix));
        const Value rest = ir::select(is_inner, ir::subtract(matrix, product), matrix);
        return Values{with_columns(rest, j, factor), order, pivots, info};
      });
  return {out[0], out[1], out[2], out[3]};
}

Value row_numbers(const Value& v) { return ir::iota(v.builder(), Type(DType::kI32, {v.dim(0), v.dim(1), 1}), 1); }

}  // namespace

Lu factor_lu(const Value& a, bool pivoting) {
  ir::Builder& b = a.builder();
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  const Value info = ir::constant(b, 0, Type(DType::kI32, {batch}));
  if (k == 0 || batch == 0) {
    return {a, ir::constant(b, 0, Type(DType::kI32, {batch, k})), ir::iota(b, Type(DType::kI32, {batch, m}), 1), info};
  }
  const int64_t width = std::min(k, kPanel), blocks = (k + width - 1) / width;
  const Value whole = grown(a, std::max(m, blocks * width), std::max(n, blocks * width));
  const int64_t columns = whole.dim(2);
  const Value pivots = ir::constant(b, 0, Type(DType::kI32, {batch, 1, blocks * width}));
  const auto block = [&](const Value& i, const Values& s) {
    const Value start = ir::multiply(i, int_scalar(b, width)), end = ir::add(start, int_scalar(b, width));
    const Value steps = ir::minimum(int_scalar(b, width), ir::subtract(int_scalar(b, k), start));
    const Panel panel =
        eliminate({columns_at(s[0], start, width), row_numbers(whole), s[2], s[3]}, start, steps, pivoting);
    Value matrix = s[0], order = s[1];
    if (pivoting) {
      const Value moved = ir::reshape(panel.order, {batch, whole.dim(1)});
      matrix = take_rows(matrix, moved);
      order = take_rows(order, moved);
    }
    if (columns > width) {
      // The panel's rows of U right of it, then what they subtract from all that is left.
      const Value corner = rows_at(panel.matrix, start, width), rows = rows_at(matrix, start, width);
      const Value right = ir::compare(column_index(rows), end, "GE");
      const Value u = keep(right, solve_triangle(corner, rows, {.is_lower = true, .has_unit_diagonal = true}));
      const Value l = keep(ir::compare(row_index(panel.matrix), end, "GE"), panel.matrix);
      matrix = with_rows(ir::subtract(matrix, matmul(l, u)), start, ir::select(right, u, rows));
    }
    return Values{with_columns(matrix, start, panel.matrix), order, panel.pivots, panel.info};
  };
  const Values init = {whole, row_numbers(whole), pivots, info};
  const Values out = blocks == 1 ? block(int_scalar(b, 0), init) : for_loop(blocks, init, block);
  return {corner(out[0], m, n), ir::reshape(corner(out[2], 1, k), {batch, k}),
          ir::reshape(corner(out[1], m, 1), {batch, m}), out[3]};
}

Value order_of_pivots(const Value& pivots, int64_t m) {
  ir::Builder& b = pivots.builder();
  const int64_t batch = pivots.dim(0), k = pivots.dim(1);
  const Value order = ir::iota(b, Type(DType::kI32, {batch, m, 1}), 1);
  if (batch == 0 || k == 0 || m == 0) return ir::reshape(order, {batch, m});
  const Value places = ir::reshape(ir::subtract(pivots, ir::full_like(pivots, 1)), {batch, 1, k});
  const Value out = for_loop(k, {order}, [&](const Value& i, const Values& s) {
    return Values{swap_rows(s[0], i, ir::reshape(columns_at(places, i, 1), {batch}))};
  })[0];
  return ir::reshape(out, {batch, m});
}

Value inverse_order(const Value& order) {
  const Value place = ir::iota(order.builder(), order.type(), 1);
  return ir::sort({order, place}, 1, true, [](const Values& a) { return Values{ir::compare(a[0], a[1], "LT")}; })[1];
}

Value solve_lu(const Value& factors, const Value& order, const Value& b, bool is_adjoint) {
  const Triangle l{.is_lower = true, .has_unit_diagonal = true}, u{.is_lower = false};
  if (!is_adjoint) return solve_triangle(factors, solve_triangle(factors, take_rows(b, order), l), u);
  const Value f = adjoint(factors);
  const Triangle u_adjoint{.is_lower = true}, l_adjoint{.is_lower = false, .has_unit_diagonal = true};
  return take_rows(solve_triangle(f, solve_triangle(f, b, u_adjoint), l_adjoint), inverse_order(order));
}

namespace {

Value lower_factor(const Value& factors) {
  const int64_t k = std::min(factors.dim(1), factors.dim(2));
  const Value l = lower_triangle(corner(factors, factors.dim(1), k), -1);
  return ir::add(l, identity(l, l.dim(1), k));
}

Value upper_factor(const Value& factors) {
  return upper_triangle(corner(factors, std::min(factors.dim(1), factors.dim(2)), factors.dim(2)));
}

// P of a = P L U: column i of row order[i] is one.
Value permutation_matrix(const Value& order, DType dtype) {
  const Type index(DType::kI32, {order.dim(0), order.dim(1), order.dim(1)});
  const Value column = ir::broadcast_in_dim(order, index, {0, 2});
  return ir::convert(ir::compare(ir::iota(order.builder(), index, 1), column, "EQ"), dtype);
}

Value empty(Op& o, size_t output) { return ir::constant(o.builder(), 0, o.out(output)); }

Values lu_factor_ex(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  const Lu f = factor_lu(as_batch(o.in(0)), o.flag("pivot"));
  return {from_batch(f.factors, o.out(0)), ir::reshape(f.pivots, o.out(1).dims()),
          ir::reshape(f.info, o.out(2).dims())};
}

Values lu(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  const bool pivoting = o.flag("pivot");
  const Lu f = factor_lu(as_batch(o.in(0)), pivoting);
  return {pivoting ? from_batch(permutation_matrix(f.order, o.out(0).dtype()), o.out(0)) : empty(o, 0),
          from_batch(lower_factor(f.factors), o.out(1)), from_batch(upper_factor(f.factors), o.out(2))};
}

Value flat_pivots(const Value& pivots, const Dims& batch) {
  Dims dims = batch;
  dims.push_back(pivots.dim(pivots.rank() - 1));
  const Value v = ir::broadcast_to(pivots, dims);
  return ir::reshape(v, {std::accumulate(batch.begin(), batch.end(), int64_t{1}, std::multiplies<>()), dims.back()});
}

Values lu_unpack(Op& o) {
  const Value data = o.in(0), pivots = o.in(1);
  const bool unpacks = o.flag("unpack_data");
  const Dims batch(data.dims().begin(), data.dims().end() - 2);
  Value p = empty(o, 0);
  if (o.flag("unpack_pivots")) {
    const Value order = order_of_pivots(flat_pivots(pivots, batch), data.dim(data.rank() - 2));
    p = from_batch(permutation_matrix(order, o.out(0).dtype()), o.out(0));
  }
  if (!unpacks) return {p, empty(o, 1), empty(o, 2)};
  const Value factors = as_batch(data);
  return {p, from_batch(lower_factor(factors), o.out(1)), from_batch(upper_factor(factors), o.out(2))};
}

// x of a x = b, or of x a = b where not `left`; both in batch form.
Value solve(const Value& factors, const Value& order, const Value& b, bool left, bool is_adjoint) {
  if (left) return solve_lu(factors, order, b, is_adjoint);
  // x op(a) = b is op(a)^H x^H = b^H.
  return adjoint(solve_lu(factors, order, adjoint(b), !is_adjoint));
}

Value lu_solve(Op& o) {
  check_precision(o.in("LU"), "linalg.lu_solve_cpu");
  const Value lu = o.in("LU"), right = o.in("B");
  const Dims batch = batch_of(lu, right);
  const Value factors = as_batch(lu, batch);
  const Value order = order_of_pivots(flat_pivots(o.in("pivots"), batch), factors.dim(1));
  return from_batch(solve(factors, order, as_batch(right, batch), o.flag("left"), o.flag("adjoint")), o.out());
}

Values solve_ex(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  Value a = o.in("A"), right = o.in("B");
  const Dims& rows = a.dims();
  // PyTorch takes B as vectors where its shape is that of A without the last dimension.
  const bool is_vector = right.rank() == 1 || (right.rank() == a.rank() - 1 &&
                                               std::equal(rows.begin(), rows.end() - 1, right.dims().begin()));
  if (is_vector) right = ir::unsqueeze(right, right.rank());
  const Lu f = factor_lu(as_batch(a));
  const Dims own(rows.begin(), rows.end() - 2), batch = batch_of(a, right);
  const auto spread = [&](const Value& v, Dims dims) {
    Dims full = own, wide = batch;
    full.insert(full.end(), dims.begin(), dims.end());
    wide.insert(wide.end(), dims.begin(), dims.end());
    Dims flat = {std::accumulate(batch.begin(), batch.end(), int64_t{1}, std::multiplies<>())};
    flat.insert(flat.end(), dims.begin(), dims.end());
    return ir::reshape(ir::broadcast_to(ir::reshape(v, full), wide), flat);
  };
  const int64_t n = rows.back();
  const Value factors = spread(f.factors, {n, n}), order = spread(f.order, {n}), b = as_batch(right, batch);
  const Value x = solve(factors, order, b, o.flag("left"), false);
  return {from_batch(x, o.out(0)), from_batch(f.factors, o.out(1)), ir::reshape(f.pivots, o.out(2).dims()),
          ir::reshape(f.info, o.out(3).dims())};
}

Values inv_ex(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  const Value a = as_batch(o.in(0));
  const Lu f = factor_lu(a);
  const Value x = solve_lu(f.factors, f.order, identity(a, a.dim(1), a.dim(1)), false);
  return {from_batch(x, o.out(0)), ir::reshape(f.info, o.out(1).dims())};
}

// -1 for an odd number of swaps, else 1; [batch].
Value parity(const Lu& f, DType dtype) {
  const Value place = ir::iota(f.pivots.builder(), f.pivots.type(), 1);
  const Value swapped = ir::compare(f.pivots, ir::add(place, ir::full_like(place, 1)), "NE");
  const Value one = ir::constant(f.pivots.builder(), 1, Type(dtype, f.pivots.dims()));
  return product_over(ir::select(swapped, ir::negate(one), one), {1});
}

// For determinants PyTorch factors the transpose of a real row-major matrix, which LAPACK reads without a copy, and
// its gradients rely on that.
bool factors_transpose(Op& o) { return o.argument("A").is_contiguous && !ir::is_complex(o.in("A").dtype()); }

Lu factor_for(Op& o, const Value& a) { return factor_lu(factors_transpose(o) ? matrix_transpose(a) : a); }

Values det(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  const Lu f = factor_for(o, as_batch(o.in(0)));
  const Value d = diagonal(f.factors);
  const Value value = ir::multiply(product_over(d, {1}), parity(f, d.dtype()));
  return {ir::reshape(value, o.out(0).dims()), from_batch(f.factors, o.out(1)), ir::reshape(f.pivots, o.out(2).dims())};
}

// v / |v|; zero stays zero.
Value direction(const Value& v) {
  if (!ir::is_complex(v.dtype())) return ir::sign(v);
  const Value size = ir::abs(v), is_zero = ir::compare(size, ir::zeros_like(size), "EQ");
  const Value safe = ir::select(is_zero, ir::full_like(size, 1), size);
  return ir::divide(v, ir::convert(safe, v.dtype()));
}

Values slogdet(Op& o) {
  check_precision(o.in(0), "lu_cpu");
  const Lu f = factor_for(o, as_batch(o.in(0)));
  const Value d = diagonal(f.factors);
  const Value sign = ir::multiply(product_over(direction(d), {1}), parity(f, d.dtype()));
  const Value log = sum_over(ir::log(ir::abs(d)), {1});
  return {ir::reshape(sign, o.out(0).dims()), ir::reshape(log, o.out(1).dims()), from_batch(f.factors, o.out(2)),
          ir::reshape(f.pivots, o.out(3).dims())};
}

Value solve_triangular(Op& o) {
  check_precision(o.in(0), "triangular_solve_cpu");
  const Value self = o.in("self"), right = o.in("B");
  const Dims batch = batch_of(self, right);
  const Triangle t{.is_lower = !o.flag("upper"), .has_unit_diagonal = o.flag("unitriangular")};
  const Value a = as_batch(self, batch), b = as_batch(right, batch);
  return from_batch(o.flag("left") ? solve_triangle(a, b, t) : solve_triangle_right(a, b, t), o.out());
}

Values triangular_solve(Op& o) {
  check_precision(o.in(0), "triangular_solve_cpu");
  const Value right = o.in("self"), self = o.in("A");
  const Dims batch = batch_of(self, right);
  Triangle t{.is_lower = !o.flag("upper"), .has_unit_diagonal = o.flag("unitriangular")};
  Value a = as_batch(self, batch);
  const Value clone = a;
  if (o.flag("transpose")) {
    a = matrix_transpose(a);
    t.is_lower = !t.is_lower;
  }
  return {from_batch(solve_triangle(a, as_batch(right, batch), t), o.out(0)), from_batch(clone, o.out(1))};
}

const Row kRows[] = {
    {"linalg_lu_factor_ex", lu_factor_ex},
    {"linalg_lu", lu},
    {"lu_unpack", lu_unpack},
    {"linalg_lu_solve", lu_solve},
    {"_linalg_solve_ex", solve_ex},
    {"linalg_inv_ex", inv_ex},
    {"_linalg_det", det},
    {"_linalg_slogdet", slogdet},
    {"linalg_solve_triangular", solve_triangular},
    {"triangular_solve", triangular_solve},
};

}  // namespace

std::span<const Row> lu_rows() { return kRows; }

}  // namespace tpu::ops
