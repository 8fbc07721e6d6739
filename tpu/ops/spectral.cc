// Eigenvalues of Hermitian matrices and singular values, by one-sided Jacobi rotations: columns are turned in pairs
// until all are orthogonal. Half of the columns meet the other half at once, and a round-robin tournament lets every
// pair meet once a sweep (Brent and Luk 1985; Demmel and Veselic 1992 for its accuracy).
#include <algorithm>
#include <cmath>

#include "tpu/ops/indexing.h"
#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// The sum of conj(a) b over rows, [batch, 1, columns].
Value column_dots(const Value& a, const Value& b) {
  return keep_dims(sum_over(ir::multiply(ir::conj(a), b), {1}), {1});
}

// |v_j|^2 of each column, real [batch, 1, columns].
Value column_squares(const Value& v) {
  const Value re = ir::real(v);
  const Value squares = ir::multiply(re, re);
  if (!ir::is_complex(v.dtype())) return keep_dims(sum_over(squares, {1}), {1});
  return keep_dims(sum_over(ir::add(squares, ir::multiply(ir::imag(v), ir::imag(v))), {1}), {1});
}

Value full(const Value& like, double value) { return ir::full_like(like, value); }

struct Halves {
  Value left, right;
};

// One round: column i of `left` and of `right` are turned in their plane until they are orthogonal in the first
// `rows` rows. Also how far from orthogonal they were, as a cosine, at most.
Values turn(const Halves& x, int64_t rows) {
  const DType dtype = x.left.dtype();
  const double eps = epsilon(dtype);
  const Value l = ir::slice_in_dim(x.left, 1, 0, rows), r = ir::slice_in_dim(x.right, 1, 0, rows);
  const Value a = column_squares(l), b = column_squares(r), dot = column_dots(l, r), size = ir::abs(dot);
  const Value length_a = ir::sqrt(a), length_b = ir::sqrt(b);
  const Value is_open = ir::compare(size, ir::multiply(full(a, eps), ir::multiply(length_a, length_b)), "GT");
  const Value safe = ir::select(is_open, size, full(size, 1));
  // t is the tangent of the smaller angle that makes them orthogonal.
  const Value zeta = ir::divide(ir::subtract(b, a), ir::add(safe, safe)), steep = ir::abs(zeta);
  const Value root = ir::sqrt(ir::add(full(zeta, 1), ir::multiply(zeta, zeta)));
  // Where the square would overflow, the root is the number itself.
  const Value sum = ir::select(ir::compare(steep, full(zeta, 1e9), "GT"), ir::add(steep, steep), ir::add(steep, root));
  const Value one = full(zeta, 1);
  const Value sign = ir::select(ir::compare(zeta, ir::zeros_like(zeta), "LT"), ir::negate(one), one);
  const Value t = ir::select(is_open, ir::divide(sign, sum), ir::zeros_like(zeta));
  const Value cosine = ir::divide(one, ir::sqrt(ir::add(one, ir::multiply(t, t)))), sine = ir::multiply(cosine, t);
  // As small corrections (Rutishauser 1966): a cosine that is rounded would shrink the columns a little each time.
  const Value s = ir::convert(sine, dtype), tau = ir::convert(ir::divide(sine, ir::add(one, cosine)), dtype);
  const auto times = [&](const Value& factor, const Value& columns) {
    return ir::multiply(stretched(factor, columns), columns);
  };
  Value right = x.right;
  if (ir::is_complex(dtype)) {
    // The right column by this phase, so that the product of the two is real. Its size is set to one twice, as the
    // first time rounds.
    const Value raw = ir::select(is_open, ir::divide(ir::conj(dot), ir::convert(safe, dtype)), ir::convert(one, dtype));
    const Value re = ir::real(raw), im = ir::imag(raw);
    const Value excess = ir::subtract(ir::add(ir::multiply(re, re), ir::multiply(im, im)), one);
    const Value correction = ir::subtract(one, ir::multiply(excess, full(excess, 0.5)));
    right = times(ir::multiply(raw, ir::convert(correction, dtype)), right);
  } else {
    right = times(ir::select(is_open, ir::convert(ir::sign(dot), dtype), one), right);
  }
  const Value new_left = ir::subtract(x.left, times(s, ir::add(right, times(tau, x.left))));
  const Value new_right = ir::add(right, times(s, ir::subtract(x.left, times(tau, right))));
  // A column this small is rounding of the others.
  const Value largest = ir::maximum(length_a, length_b), least = ir::minimum(length_a, length_b);
  const Value counts = ir::and_(is_open, ir::compare(least, full(least, eps * 1e-3), "GT"));
  const Value far = ir::divide(safe, ir::select(counts, ir::multiply(largest, least), one));
  const Value off = max_of_numbers(keep(counts, far), all_dims(far));
  return {new_left, new_right, off};
}

// The next round of the tournament: the first left column stays, the others move one seat around the table.
Halves next_round(const Halves& x) {
  const int64_t h = x.left.dim(2);
  if (h == 1) return x;
  const auto part = [](const Value& v, int64_t from, int64_t to) { return ir::slice_in_dim(v, 2, from, to); };
  return {ir::concatenate({part(x.left, 0, 1), part(x.right, 0, 1), part(x.left, 1, h - 1)}, 2),
          ir::concatenate({part(x.right, 1, h), part(x.left, h - 1, h)}, 2)};
}

// x [batch, rows + others, n] times the unitary matrix that makes its first `rows` rows have orthogonal columns.
// The largest of them should be near 1.
Value orthogonalized(const Value& x, int64_t rows) {
  ir::Builder& b = x.builder();
  const int64_t n = x.dim(2), half = (n + 1) / 2;
  if (n < 2 || x.dim(0) == 0) return x;
  const Value even = grown(x, x.dim(1), 2 * half);
  // It converges in 6 to 12; more means that the input is not finite.
  constexpr int64_t kMostSweeps = 30;
  const DType real = ir::real_of(x.dtype());
  // Done at once below the first; below the second, which rounding may not let it leave, when it has stopped shrinking.
  const double surely = epsilon(x.dtype()), nearly = 2 * surely * std::sqrt(static_cast<double>(rows));
  const Value zero = ir::constant(b, 0, Type(real, {})), one = ir::constant(b, 1, Type(real, {}));
  // How many sweeps, both halves, how far from orthogonal the last sweep and the one before found the columns.
  const Values out = ir::while_loop(
      {int_scalar(b, 0), ir::slice_in_dim(even, 2, 0, half), ir::slice_in_dim(even, 2, half, 2 * half), one, one},
      [&](const Values& s) {
        const Value rests = ir::and_(ir::compare(s[3], full(s[3], nearly), "LE"),
                                     ir::compare(s[3], ir::multiply(s[4], full(s[4], 0.25)), "GT"));
        const Value open = ir::and_(ir::compare(s[3], full(s[3], surely), "GT"), ir::not_(rests));
        return Values{ir::and_(ir::compare(s[0], int_scalar(b, kMostSweeps), "LT"), open)};
      },
      [&](const Values& s) {
        const Values swept = for_loop(2 * half - 1, {s[1], s[2], zero}, [&](const Value&, const Values& v) {
          const Values turned = turn({v[0], v[1]}, rows);
          const Halves next = next_round({turned[0], turned[1]});
          return Values{next.left, next.right, ir::maximum(v[2], turned[2])};
        });
        return Values{ir::add(s[0], int_scalar(b, 1)), swept[0], swept[1], swept[2], s[3]};
      });
  return ir::slice_in_dim(ir::concatenate({out[1], out[2]}, 2), 2, 0, n);
}

// i32 [batch, n]: the places of `keys` [batch, n] in order.
Value order_of(const Value& keys, bool descending) {
  const Value place = ir::iota(keys.builder(), Type(DType::kI32, keys.dims()), 1);
  return ir::sort({keys, place}, 1, true, [descending](const Values& a) {
    return Values{descending ? ir::compare(a[0], a[1], "GT", "TOTALORDER")
                             : ir::compare(a[0], a[1], "LT", "TOTALORDER")};
  })[1];
}

// max |v| of each matrix, 1 where that is 0: real [batch, 1, 1].
Value scale_of(const Value& v) {
  const Value largest = keep_dims(max_of_numbers(ir::abs(v), {1, 2}), {1, 2});
  const Value is_zero = ir::compare(largest, ir::zeros_like(largest), "EQ");
  return ir::select(is_zero, full(largest, 1), largest);
}

Value divided(const Value& v, const Value& by) { return ir::divide(v, stretched(ir::convert(by, v.dtype()), v)); }

Value frobenius(const Value& v) { return ir::sqrt(keep_dims(sum_over(column_squares(v), {2}), {2})); }

// Not below the largest |eigenvalue| of the Hermitian a, and at most n^(1/8) above it: |a^4|^(1/4).
Value spectral_bound(const Value& a) {
  const Value size = frobenius(a), is_zero = ir::compare(size, ir::zeros_like(size), "EQ");
  const Value unit = divided(a, ir::select(is_zero, full(size, 1), size));
  const Value square = matmul(unit, unit);
  return ir::multiply(size, ir::sqrt(ir::sqrt(frobenius(matmul(square, square)))));
}

// Reads only the lower (or upper) triangle, and a real diagonal.
Value hermitian_of(const Value& a, bool is_lower) {
  const Value strict = is_lower ? lower_triangle(a, -1) : upper_triangle(a, 1);
  const Value middle = keep(ir::compare(row_index(a), column_index(a), "EQ"), ir::convert(ir::real(a), a.dtype()));
  return ir::add(ir::add(strict, adjoint(strict)), middle);
}

}  // namespace

Eigh eigen_hermitian(const Value& a) {
  const int64_t batch = a.dim(0), n = a.dim(1);
  const DType real = ir::real_of(a.dtype());
  if (n == 0 || batch == 0) return {ir::constant(a.builder(), 0, Type(real, {batch, n})), a};
  const Value scale = scale_of(a), unit = divided(a, scale);
  // Shifted to be positive semidefinite, its right singular vectors are its eigenvectors.
  const Value bound = ir::multiply(spectral_bound(unit), full(scale, 1 + 1e-3));
  const Value eye = identity(a, n, n);
  const Value shifted = ir::add(unit, ir::multiply(stretched(ir::convert(bound, a.dtype()), eye), eye));
  const Value size = ir::add(bound, bound), is_zero = ir::compare(size, ir::zeros_like(size), "EQ");
  const Value start = divided(shifted, ir::select(is_zero, full(size, 1), size));
  const Value turned = orthogonalized(ir::concatenate({start, eye}, 1), n);
  const Value raw = ir::slice_in_dim(turned, 1, n, 2 * n);
  const Value vectors = divided(raw, ir::sqrt(column_squares(raw)));
  // Rayleigh quotients: their error is of second order in that of the vectors, and the shift costs no digits.
  const Value product = matmul(unit, vectors);
  const Value values = ir::real(column_dots(vectors, product));
  const Value scaled = ir::reshape(ir::multiply(values, stretched(scale, values)), {batch, n});
  const Value order = order_of(scaled, false);
  return {take_elements(scaled, 1, order), take_columns(vectors, order)};
}

Svd factor_svd(const Value& a, bool is_full, bool with_vectors) {
  ir::Builder& b = a.builder();
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2);
  if (m < n) {
    const Svd f = factor_svd(adjoint(a), is_full, with_vectors);
    return {f.v, f.s, f.u};
  }
  const DType real = ir::real_of(a.dtype());
  if (n == 0 || batch == 0) {
    return {identity(a, m, is_full ? m : n), ir::constant(b, 0, Type(real, {batch, n})), identity(a, n, n)};
  }
  const Value scale = scale_of(a);
  const Qr f = factor_qr(divided(a, scale));
  // Of the triangle's adjoint: its columns are closer to orthogonal than those of a.
  const Value triangle = adjoint(upper_triangle(corner(f.packed, n, n)));
  const Value size = scale_of(triangle), start = divided(triangle, size);
  const Value turned = orthogonalized(with_vectors ? ir::concatenate({start, identity(a, n, n)}, 1) : start, n);
  const Value columns = ir::slice_in_dim(turned, 1, 0, n);
  const Value lengths = ir::reshape(ir::sqrt(column_squares(columns)), {batch, n});
  const Value order = order_of(lengths, true);
  const Value unscaled = take_elements(lengths, 1, order);
  const Value both = ir::reshape(ir::multiply(size, scale), {batch, 1});
  const Value s = ir::multiply(unscaled, ir::broadcast_to(both, unscaled.dims()));
  if (!with_vectors) return {Value(), s, Value()};
  // r^H j = v s. The columns of v s are orthogonal, so its Q is v up to phases, and has all of its columns also where
  // singular values are zero.
  const Qr g = factor_qr(take_columns(columns, order));
  const Value d = diagonal(g.packed), length = ir::abs(d), is_zero = ir::compare(length, ir::zeros_like(length), "EQ");
  const Value phase = ir::select(is_zero, ir::full_like(d, 1),
                                 ir::divide(d, ir::convert(ir::select(is_zero, full(length, 1), length), d.dtype())));
  const Value q = apply_reflectors(g.packed, g.tau, identity(a, n, n), false);
  const Value v = ir::multiply(q, stretched(ir::reshape(phase, {batch, 1, n}), q));
  const Value j = take_columns(ir::slice_in_dim(turned, 1, n, 2 * n), order);
  Value u = grown(j, m, is_full ? m : n);
  if (is_full && m > n) {
    const Value rest = ir::compare(column_index(u), int_scalar(b, n), "GE");
    u = ir::select(rest, identity(a, m, m), u);
  }
  return {apply_reflectors(f.packed, f.tau, u, false), s, v};
}

namespace {

// Reports a matrix that no rotation makes converge.
void check_finite(Op& o, const Value& a, const std::string& api, const std::string& message) {
  if (a.type().numel() == 0) return;
  const Value bad = any_over(ir::not_(ir::is_finite(ir::abs(a))), {1, 2});
  const Value place = ir::iota(o.builder(), Type(DType::kI64, bad.dims()), 0);
  const Value first = min_over(ir::select(bad, place, ir::full_like(place, a.dim(0))), {0});
  const std::string which = o.in(0).rank() > 2 ? "(Batch element {}): " : "";
  o.context().check(any_over(bad, {0}), first, "LinAlgError", api + ": " + which + message);
}

Values eigh(Op& o) {
  check_precision(o.in(0), "linalg_eigh_cpu");
  const Value a = as_batch(o.in(0));
  const std::string side = o.text("UPLO");
  const Value h = hermitian_of(a, side != "U" && side != "u");
  // Of two rows LAPACK gives NaN without complaint.
  if (h.dim(1) > 2) {
    check_finite(
        o, h, "linalg.eigh",
        "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
        "eigenvalues.");
  }
  const Eigh e = eigen_hermitian(h);
  const bool with_vectors = o.flag("compute_v");
  return {ir::reshape(e.values, o.out(0).dims()),
          with_vectors ? from_batch(e.vectors, o.out(1)) : ir::constant(o.builder(), 0, o.out(1))};
}

Values svd(Op& o) {
  if (o.has("driver")) {
    throw UserError(
        "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.");
  }
  check_precision(o.in(0), "linalg_svd_cpu");
  const Value a = as_batch(o.in(0));
  check_finite(o, a, "linalg.svd",
               "The algorithm failed to converge because the input matrix contained non-finite values.");
  const bool with_vectors = o.flag("compute_uv");
  const Svd f = factor_svd(a, o.flag("full_matrices"), with_vectors);
  const Value s = ir::reshape(f.s, o.out(1).dims());
  if (!with_vectors) return {ir::constant(o.builder(), 0, o.out(0)), s, ir::constant(o.builder(), 0, o.out(2))};
  return {from_batch(f.u, o.out(0)), s, from_batch(adjoint(f.v), o.out(2))};
}

const Row kRows[] = {
    {"_linalg_eigh", eigh},
    {"_linalg_svd", svd},
};

}  // namespace

std::span<const Row> spectral_rows() { return kRows; }

}  // namespace tpu::ops
