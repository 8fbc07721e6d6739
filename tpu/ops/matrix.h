// Batches of matrices: the one form [batch, rows, columns] in which linear algebra is computed, and the
// factorizations that several rows share. Programs are loops, so that their size does not grow with the matrices.
#pragma once

#include <functional>
#include <string>

#include "tpu/ops/op.h"

namespace tpu::ops {

// ---- form ----
// Only single and double precision have factorizations; raises what the CPU's kernel of that name raises.
void check_precision(const Value& v, const std::string& kernel);
// v [*, m, n] as [batch, m, n].
Value as_batch(const Value& v);
// The same after broadcasting its batch dimensions to `batch`.
Value as_batch(const Value& v, const Dims& batch);
// [batch, m, n] in the batch dimensions and shape of `type`.
Value from_batch(const Value& v, const Type& type);
// The broadcast of the batch dimensions (all but the last two) of two operands.
Dims batch_of(const Value& a, const Value& b);

// ---- pieces; all of [batch, m, n] ----
Value matmul(const Value& a, const Value& b);
Value matrix_transpose(const Value& a);
Value adjoint(const Value& a);
// i32 number of the row (column) of each element of [batch, m, n].
Value row_index(const Value& v);
Value column_index(const Value& v);
Value identity(const Value& like, int64_t rows, int64_t columns);
// The elements on and below (above) diagonal `diagonal`; zero elsewhere.
Value lower_triangle(const Value& v, int64_t diagonal = 0);
Value upper_triangle(const Value& v, int64_t diagonal = 0);
// `mask` picks what stays; zero elsewhere.
Value keep(const Value& mask, const Value& v);
// The diagonal as [batch, min(m, n)].
Value diagonal(const Value& v);
// v grown to [batch, rows, columns] by zeros.
Value grown(const Value& v, int64_t rows, int64_t columns);
// The first `rows` and `columns`.
Value corner(const Value& v, int64_t rows, int64_t columns);
// A value with a leading batch dimension and others of size 1 stretched to the shape of v.
Value stretched(const Value& v, const Value& like);
// Columns [start, start + count) and rows of the same; start is a 0-d i32.
Value columns_at(const Value& v, const Value& start, int64_t count);
Value rows_at(const Value& v, const Value& start, int64_t count);
Value with_columns(const Value& v, const Value& start, const Value& columns);
Value with_rows(const Value& v, const Value& start, const Value& rows);
// result[b, i, :] = v[b, order[b, i], :], order [batch, k].
Value take_rows(const Value& v, const Value& order);
Value take_columns(const Value& v, const Value& order);
// 0-d i32.
Value int_scalar(ir::Builder& b, int64_t value);
// The reciprocal of 2^digits: the distance from 1 to the next number of the (real part of the) dtype.
double epsilon(DType dtype);

// body(i, state) for i = 0, 1, ..., count - 1.
using Step = std::function<Values(const Value& i, const Values& state)>;
Values for_loop(const Value& count, const Values& init, const Step& body);
Values for_loop(int64_t count, const Values& init, const Step& body);

// Columns that a blocked algorithm treats at once.
constexpr int64_t kPanel = 32;

// ---- triangular systems ----
struct Triangle {
  bool is_lower = true, has_unit_diagonal = false;
};
// x of a x = b; a [batch, n, n], b [batch, n, k]. Only the named triangle is read; a zero on the diagonal divides.
Value solve_triangle(const Value& a, const Value& b, Triangle triangle);
// x of x a = b.
Value solve_triangle_right(const Value& a, const Value& b, Triangle triangle);

// ---- factorizations ----
struct Cholesky {
  Value factor, info;  // [batch, n, n] lower, zero above; i32 [batch]: the first minor that is not positive, or 0
};
// Reads the lower triangle.
Cholesky factor_cholesky(const Value& a);

struct Lu {
  Value factors;  // [batch, m, n]: L below the diagonal (ones on it), U on and above
  Value pivots;   // i32 [batch, min(m, n)]: row i was swapped with row pivots[i] - 1
  Value order;    // i32 [batch, m]: row i of L U is row order[i] of a
  Value info;     // i32 [batch]: the first zero on U's diagonal, counted from 1, or 0
};
Lu factor_lu(const Value& a, bool pivoting = true);
// order of the above from pivots alone, for m rows.
Value order_of_pivots(const Value& pivots, int64_t m);
// The inverse of a permutation [batch, n].
Value inverse_order(const Value& order);
// x of a x = b (adjoint: a^H x = b).
Value solve_lu(const Value& factors, const Value& order, const Value& b, bool adjoint);

struct Qr {
  // As LAPACK's geqrf: R on and above the diagonal, below it the reflectors H_j = 1 - tau_j v_j v_j^H.
  Value packed, tau;  // [batch, m, n], [batch, min(m, n)]
};
Qr factor_qr(const Value& a);
// Q c, or Q^H c, of Q = H_0 H_1 ...; packed [batch, m, k], tau [batch, k], c [batch, m, n].
Value apply_reflectors(const Value& packed, const Value& tau, const Value& c, bool adjoint);

struct Eigh {
  Value values, vectors;  // real [batch, n], ascending; [batch, n, n]
};
// a Hermitian; reads all of it.
Eigh eigen_hermitian(const Value& a);

struct Svd {
  Value u, s, v;  // [batch, m, m or k], real [batch, k], descending; [batch, n, n or k]; a = u s v^H
};
Svd factor_svd(const Value& a, bool is_full, bool with_vectors);

}  // namespace tpu::ops
