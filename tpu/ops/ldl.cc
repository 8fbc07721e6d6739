// LDL factors of symmetric and Hermitian matrices with the pivoting of Bunch and Kaufman (1977), in LAPACK's form.
#include <cmath>

#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// i32 or i1 [batch], one element per row (column) of v, stretched to [batch, rows, columns].
Value spread(const Value& each, const Value& v) {
  return ir::broadcast_in_dim(each, Type(each.dtype(), v.dims()), {0});
}

// Row at[batch] of v as [batch, 1, columns]; column at[batch] as [batch, rows, 1].
Value row_of(const Value& v, const Value& at) { return take_rows(v, ir::reshape(at, {v.dim(0), 1})); }
Value column_of(const Value& v, const Value& at) { return matrix_transpose(row_of(matrix_transpose(v), at)); }
// Element at[batch] of columns [batch, rows, 1], as [batch].
Value element_of(const Value& column, const Value& at) { return ir::reshape(row_of(column, at), {column.dim(0)}); }

Value is_row(const Value& v, const Value& at) { return ir::compare(row_index(v), spread(at, row_index(v)), "EQ"); }
Value is_after(const Value& v, const Value& at) { return ir::compare(row_index(v), spread(at, row_index(v)), "GT"); }

// Rows a[batch] and b[batch] of v swapped.
Value swapped(const Value& v, const Value& a, const Value& b) {
  const Value at_a = ir::broadcast_in_dim(ir::reshape(row_of(v, a), {v.dim(0), v.dim(2)}), v.type(), {0, 2});
  const Value at_b = ir::broadcast_in_dim(ir::reshape(row_of(v, b), {v.dim(0), v.dim(2)}), v.type(), {0, 2});
  return ir::select(is_row(v, a), at_b, ir::select(is_row(v, b), at_a, v));
}

Value cabs1(const Value& v) {
  return ir::is_complex(v.dtype()) ? ir::add(ir::abs(ir::real(v)), ir::abs(ir::imag(v))) : ir::abs(v);
}

Value plus(const Value& v, int64_t number) { return ir::add(v, ir::full_like(v, number)); }

// a divided by b, 0 where `used` is not.
Value quotient(const Value& a, const Value& b, const Value& used) {
  const Value safe = ir::select(used, b, ir::full_like(b, 1));
  return ir::divide(a, safe);
}

// LD, pivots, info; reads the lower triangle. Each step takes one pivot of each matrix, of one or two rows.
Values factor(const Value& a, bool is_hermitian) {
  ir::Builder& builder = a.builder();
  const int64_t batch = a.dim(0), n = a.dim(1);
  const DType dtype = a.dtype();
  const Type index(DType::kI32, {batch});
  const auto dual = [&](const Value& v) { return is_hermitian ? adjoint(v) : matrix_transpose(v); };
  const auto mirrored = [&](const Value& v) { return is_hermitian ? ir::conj(v) : v; };
  const Value strict = lower_triangle(a, -1);
  Value middle = keep(ir::compare(row_index(a), column_index(a), "EQ"), a);
  if (is_hermitian) middle = ir::convert(ir::real(middle), dtype);
  const Value full = ir::add(ir::add(strict, dual(strict)), middle);
  const double alpha = (1 + std::sqrt(17.0)) / 8;

  const Value last = ir::constant(builder, n - 1, index);
  const auto is_open = [&](const Value& k) { return ir::compare(k, last, "LE"); };
  // The rest of the matrix, the factor, the pivots [batch, n, 1], info, and the row that each matrix is at.
  const Values init = {full, lower_triangle(a), ir::constant(builder, 0, Type(DType::kI32, {batch, n, 1})),
                       ir::constant(builder, 0, index), ir::constant(builder, 0, index)};
  const Values out = ir::while_loop(
      init, [&](const Values& s) { return Values{any_over(is_open(s[4]), {0})}; },
      [&](const Values& s) {
        const Value open = is_open(s[4]), k = ir::minimum(s[4], last), next = ir::minimum(plus(k, 1), last);
        // The largest element below the diagonal, and the largest beside the diagonal in that row.
        const Value column = column_of(s[0], k), size = cabs1(column);
        const Value own = element_of(size, k);
        const Extremum below = extremum_along(
            ir::reshape(ir::select(is_after(size, k), size, ir::full_like(size, -1)), {batch, n}), 1, true);
        const Value zero = ir::zeros_like(own), col_max = ir::maximum(below.values, zero);
        const Value row = ir::convert(below.indices, DType::kI32);
        const Value other = column_of(s[0], row), other_size = cabs1(other);
        const Value beside = ir::select(is_row(other_size, row), ir::full_like(other_size, 0), other_size);
        const Value row_max = max_of_numbers(ir::reshape(beside, {batch, n}), {1});
        const Value limit = ir::multiply(ir::full_like(col_max, alpha), col_max);
        const Value is_null = ir::and_(open, ir::compare(ir::maximum(own, col_max), zero, "EQ"));
        const Value safe_max = ir::select(ir::compare(row_max, zero, "GT"), row_max, ir::full_like(row_max, 1));
        const Value stays = ir::or_(ir::compare(own, limit, "GE"),
                                    ir::compare(own, ir::multiply(limit, ir::divide(col_max, safe_max)), "GE"));
        const Value moves =
            ir::compare(element_of(other_size, row), ir::multiply(ir::full_like(row_max, alpha), row_max), "GE");
        const Value is_pair = ir::and_(open, ir::not_(ir::or_(stays, moves)));
        const Value partner = ir::select(stays, k, row), top = ir::select(is_pair, next, k);
        // Rows and columns of what is left; the columns of the factor that are done keep their order.
        const Value moved = matrix_transpose(swapped(matrix_transpose(swapped(s[0], top, partner)), top, partner));
        const Value rest = ir::select(spread(open, moved), moved, s[0]);
        const Value c1 = column_of(rest, k), c2 = column_of(rest, next);
        const auto on_diagonal = [&](const Value& v) { return is_hermitian ? ir::convert(ir::real(v), dtype) : v; };
        const Value d11 = on_diagonal(element_of(c1, k)), d22 = on_diagonal(element_of(c2, next));
        const Value d21 = element_of(c1, next);
        const Value d12 = mirrored(d21);
        const Value is_single = ir::and_(open, ir::not_(ir::or_(is_pair, is_null)));
        const Value one_row = keep(is_after(c1, k), quotient(c1, spread(d11, c1), spread(is_single, c1)));
        // [w1 w2] d = [c1 c2], by the elements over d21 as LAPACK, which cannot overflow.
        const auto over = [&](const Value& v, const Value& by) { return quotient(v, by, is_pair); };
        const Value r11 = over(d22, d21), r22 = over(d11, d12);
        const Value scale = ir::subtract(ir::multiply(r11, r22), ir::full_like(r11, 1));
        const auto wide = [&](const Value& v) { return spread(v, c1); };
        const auto by_pair = [&](const Value& v, const Value& by) { return quotient(v, wide(by), wide(is_pair)); };
        const Value w1 = by_pair(ir::subtract(ir::multiply(wide(r11), c1), c2), ir::multiply(d12, scale));
        const Value w2 = by_pair(ir::subtract(ir::multiply(wide(r22), c2), c1), ir::multiply(d21, scale));
        const Value pair_1 = keep(is_after(c1, next), w1), pair_2 = keep(is_after(c1, next), w2);
        const Value first = ir::select(wide(is_pair), pair_1, keep(wide(is_single), one_row));
        const Value second = keep(wide(is_pair), pair_2);
        const Value end = ir::select(is_pair, next, k);
        const auto left = [&](const Value& v) { return keep(is_after(v, end), v); };
        const auto outer = [&](const Value& w, const Value& c) {
          return ir::multiply(stretched(w, rest), stretched(dual(left(c)), rest));
        };
        const Value reduced = ir::subtract(ir::subtract(rest, outer(first, c1)), outer(second, c2));
        const auto is_done = [&](const Value& number) { return ir::compare(number, spread(end, number), "LE"); };
        const Value done = ir::or_(is_done(row_index(rest)), is_done(column_index(rest)));
        const Value cleared = ir::select(done, ir::zeros_like(rest), reduced);
        const Value matrix = ir::select(spread(open, rest), cleared, rest);
        // The columns as LAPACK stores them.
        const Value at_k = ir::compare(column_index(s[1]), spread(k, row_index(s[1])), "EQ");
        const Value at_next = ir::compare(column_index(s[1]), spread(next, row_index(s[1])), "EQ");
        Value column_1 = ir::select(is_row(c1, k), wide(d11), first);
        column_1 = ir::select(ir::and_(wide(is_pair), is_row(c1, next)), wide(d21), column_1);
        column_1 = ir::select(wide(is_null), c1, column_1);
        const Value column_2 = ir::select(is_row(c1, next), wide(d22), second);
        const auto on_or_below = [&](const Value& at) {
          return ir::compare(row_index(s[1]), spread(at, row_index(s[1])), "GE");
        };
        Value factor =
            ir::select(ir::and_(ir::and_(at_k, on_or_below(k)), spread(open, s[1])), stretched(column_1, s[1]), s[1]);
        factor = ir::select(ir::and_(ir::and_(at_next, on_or_below(next)), spread(is_pair, s[1])),
                            stretched(column_2, s[1]), factor);
        const Value number = plus(partner, 1), code = ir::select(is_pair, ir::negate(number), number);
        const Value marked = ir::or_(is_row(s[2], k), ir::and_(spread(is_pair, s[2]), is_row(s[2], next)));
        const Value pivots = ir::select(ir::and_(marked, spread(open, s[2])), spread(code, s[2]), s[2]);
        const Value is_first = ir::and_(is_null, ir::compare(s[3], ir::zeros_like(s[3]), "EQ"));
        const Value info = ir::select(is_first, plus(k, 1), s[3]);
        const Value step = ir::select(is_pair, ir::full_like(k, 2), ir::full_like(k, 1));
        return Values{matrix, factor, pivots, info, ir::select(open, ir::add(s[4], step), s[4])};
      });
  return {out[1], ir::reshape(out[2], {batch, n}), out[3]};
}

Values ldl_factor_ex(Op& o) {
  check_precision(o.in(0), "ldl_factor_kernel_cpu");
  const Value a = as_batch(o.in(0));
  if (a.type().numel() == 0) {
    return {o.in(0), ir::constant(o.builder(), 0, o.out(1)), ir::constant(o.builder(), 0, o.out(2))};
  }
  const Values f = factor(a, o.flag("hermitian") && ir::is_complex(a.dtype()));
  return {from_batch(f[0], o.out(0)), ir::reshape(f[1], o.out(1).dims()), ir::reshape(f[2], o.out(2).dims())};
}

// x of L D L' x = b with everything in LAPACK's order of swaps; L' is the transpose or the adjoint.
Value solve(const Value& ld, const Value& pivots, const Value& right, bool is_hermitian) {
  ir::Builder& builder = ld.builder();
  const int64_t batch = ld.dim(0), n = ld.dim(1);
  const Value codes = ir::reshape(pivots, {batch, 1, n});
  const Type flags(DType::kI1, {batch});
  const auto mirrored = [&](const Value& v) { return is_hermitian ? ir::conj(v) : v; };
  const auto dual = [&](const Value& v) { return is_hermitian ? adjoint(v) : matrix_transpose(v); };
  const auto code_at = [&](const Value& k) { return ir::reshape(columns_at(codes, k, 1), {batch}); };
  const auto at_batch = [&](const Value& k) { return ir::broadcast_to(k, Dims{batch}); };
  const auto column_at = [&](const Value& k) { return columns_at(ld, k, 1); };
  const auto next_of = [&](const Value& k) {
    return ir::minimum(ir::add(k, int_scalar(builder, 1)), int_scalar(builder, n - 1));
  };
  const auto pick = [&](const Value& which, const Value& yes, const Value& no) {
    return ir::select(spread(which, no), yes, no);
  };
  // Forward: whether row k is the first of a pair is known once all rows before it are.
  const Values down =
      for_loop(n,
               {right, ir::constant_bool(builder, false, flags),
                ir::constant_bool(builder, false, Type(DType::kI1, {batch, 1, n}))},
               [&](const Value& k, const Values& s) {
                 const Value code = code_at(k), next = next_of(k);
                 const Value is_negative = ir::compare(code, ir::zeros_like(code), "LT");
                 const Value is_first = ir::and_(is_negative, ir::not_(s[1]));
                 const Value is_second = ir::and_(is_negative, s[1]);
                 const Value partner = plus(ir::abs(code), -1);
                 const Value top = ir::select(is_first, at_batch(next), at_batch(k));
                 const Value b = pick(is_second, s[0], swapped(s[0], top, partner));
                 const Value c1 = column_at(k), c2 = column_at(next), x1 = rows_at(b, k, 1), x2 = rows_at(b, next, 1);
                 const Value end = ir::select(is_first, at_batch(next), at_batch(k));
                 const auto tail = [&](const Value& c) { return keep(is_after(c, end), c); };
                 const auto outer = [&](const Value& c, const Value& x) {
                   return ir::multiply(stretched(tail(c), b), stretched(x, b));
                 };
                 const Value single = ir::subtract(b, outer(c1, x1)), pair = ir::subtract(single, outer(c2, x2));
                 // The block of D.
                 const auto number = [&](const Value& v) { return stretched(v, x1); };
                 const Value d11 = number(rows_at(c1, k, 1)), d21 = number(rows_at(c1, next, 1));
                 const Value d22 = number(rows_at(c2, next, 1)), d12 = mirrored(d21);
                 const Value is_pair = spread(is_first, x1);
                 const Value r11 = quotient(d11, d12, is_pair), r22 = quotient(d22, d21, is_pair);
                 const Value scale = ir::subtract(ir::multiply(r11, r22), ir::full_like(r11, 1));
                 const Value b1 = quotient(x1, d12, is_pair), b2 = quotient(x2, d21, is_pair);
                 const Value y1 = quotient(ir::subtract(ir::multiply(r22, b1), b2), scale, is_pair);
                 const Value y2 = quotient(ir::subtract(ir::multiply(r11, b2), b1), scale, is_pair);
                 const Value alone = with_rows(single, k, quotient(x1, d11, ir::not_(is_pair)));
                 const Value both = with_rows(with_rows(pair, next, y2), k, y1);
                 const Value solved = pick(is_second, s[0], pick(is_first, both, alone));
                 return Values{solved, is_first, with_columns(s[2], k, ir::reshape(is_first, {batch, 1, 1}))};
               });
  const Value firsts = down[2];
  return for_loop(n, {down[0]}, [&](const Value& i, const Values& s) {
    const Value k = ir::subtract(int_scalar(builder, n - 1), i), next = next_of(k);
    const Value code = code_at(k), partner = plus(ir::abs(code), -1);
    const Value is_first = ir::reshape(columns_at(firsts, k, 1), {batch});
    const Value is_second = ir::and_(ir::compare(code, ir::zeros_like(code), "LT"), ir::not_(is_first));
    const Value end = ir::select(is_first, at_batch(next), at_batch(k));
    const auto dot = [&](const Value& c) { return matmul(dual(keep(is_after(c, end), c)), s[0]); };
    const Value alone = with_rows(s[0], k, ir::subtract(rows_at(s[0], k, 1), dot(column_at(k))));
    const Value both = with_rows(alone, next, ir::subtract(rows_at(s[0], next, 1), dot(column_at(next))));
    const Value b = pick(is_first, both, alone);
    const Value top = ir::select(is_first, at_batch(next), at_batch(k));
    return Values{pick(is_second, s[0], swapped(b, top, partner))};
  })[0];
}

Value ldl_solve(Op& o) {
  check_precision(o.in(0), "ldl_solve_kernel_cpu");
  const Value self = o.in("LD"), right = o.in("B");
  const Dims batch = batch_of(self, right);
  if (o.out().numel() == 0 || self.type().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  const Value ld = as_batch(self, batch), b = as_batch(right, batch);
  Dims dims = batch;
  dims.push_back(ld.dim(1));
  const Value pivots = ir::convert(ir::broadcast_to(o.in("pivots"), dims), DType::kI32);
  const bool is_hermitian = o.flag("hermitian") && ir::is_complex(ld.dtype());
  return from_batch(solve(ld, ir::reshape(pivots, {ld.dim(0), ld.dim(1)}), b, is_hermitian), o.out());
}

const Row kRows[] = {
    {"linalg_ldl_factor_ex", ldl_factor_ex},
    {"linalg_ldl_solve", ldl_solve},
};

}  // namespace

std::span<const Row> ldl_rows() { return kRows; }

}  // namespace tpu::ops
