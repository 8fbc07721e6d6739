// QR factors by Householder reflections, in LAPACK's form.
#include <algorithm>

#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value square_of(const Value& v) {
  if (!ir::is_complex(v.dtype())) return ir::multiply(v, v);
  return ir::add(ir::multiply(ir::real(v), ir::real(v)), ir::multiply(ir::imag(v), ir::imag(v)));
}

struct Reflector {
  Value v;     // [batch, m, 1]: zero above row j, one at it
  Value tau;   // [batch, 1, 1]
  Value beta;  // what becomes of element j, real in the dtype
};

// 1 - tau v v^H, whose adjoint takes column[j:] to beta e_j.
Reflector reflector(const Value& column, const Value& j) {
  const DType dtype = column.dtype();
  const Value row = row_index(column);
  const Value from = keep(ir::compare(row, j, "GE"), column);
  // Squares of what is scaled to one neither overflow nor vanish.
  const Value largest = keep_dims(max_of_numbers(ir::abs(from), {1}), {1});
  const Value is_zero = ir::compare(largest, ir::zeros_like(largest), "EQ");
  const Value scale = ir::select(is_zero, ir::full_like(largest, 1), largest);
  const Value x = ir::divide(from, stretched(ir::convert(scale, dtype), from));
  const Value alpha = rows_at(x, j, 1), tail = keep(ir::compare(row, j, "GT"), x);
  const Value rest = keep_dims(sum_over(square_of(tail), {1}), {1});
  const Value norm = ir::sqrt(ir::add(rest, square_of(alpha)));
  const Value re = ir::real(alpha);
  const Value beta = ir::select(ir::compare(re, ir::zeros_like(re), "LT"), norm, ir::negate(norm));
  // Nothing to reflect: then the reflection is the identity.
  Value done = ir::compare(rest, ir::zeros_like(rest), "EQ");
  if (ir::is_complex(dtype)) {
    const Value im = ir::imag(alpha);
    done = ir::and_(done, ir::compare(im, ir::zeros_like(im), "EQ"));
  }
  const Value one = ir::full_like(alpha, 1), big_beta = ir::convert(beta, dtype);
  const Value gap = ir::select(done, one, ir::subtract(alpha, big_beta));
  const Value v = ir::select(ir::compare(row, j, "EQ"), ir::full_like(tail, 1), ir::divide(tail, stretched(gap, tail)));
  const Value tau = ir::select(done, ir::zeros_like(alpha), ir::divide(ir::subtract(big_beta, alpha), big_beta));
  return {v, tau, ir::multiply(ir::select(done, alpha, big_beta), ir::convert(scale, dtype))};
}

// c - tau v (v^H c)
Value reflected(const Value& c, const Value& v, const Value& tau) {
  const Value w = matmul(adjoint(v), c);
  return ir::subtract(c, ir::multiply(stretched(v, c), stretched(ir::multiply(stretched(tau, w), w), c)));
}

// `width` reflectors whose diagonal starts at row `start`, as one: H_0 H_1 ... = 1 - v t v^H (Schreiber and Van Loan
// 1989). A reflector with tau = 0 does nothing.
struct Block {
  Value v, t;  // [batch, m, width], [batch, width, width]
};

Block block_of(const Value& panel, const Value& tau, const Value& start) {
  const int64_t width = panel.dim(2);
  const Value row = row_index(panel), own = ir::add(column_index(panel), start);
  const Value below = keep(ir::compare(row, own, "GT"), panel);
  const Value v = ir::select(ir::compare(row, own, "EQ"), ir::full_like(panel, 1), below);
  const Value products = matmul(adjoint(v), v);
  const Value t = for_loop(width, {ir::zeros_like(products)}, [&](const Value& j, const Values& s) {
    const Value column = columns_at(products, j, 1), place = row_index(column);
    const Value before = keep(ir::compare(place, j, "LT"), column), own_tau = stretched(columns_at(tau, j, 1), column);
    const Value above = ir::negate(ir::multiply(own_tau, matmul(s[0], before)));
    return Values{with_columns(s[0], j, ir::select(ir::compare(place, j, "EQ"), own_tau, above))};
  })[0];
  return {v, t};
}

// Q c of the block's Q, or Q^H c.
Value apply(const Block& block, const Value& c, bool is_adjoint) {
  const Value t = is_adjoint ? adjoint(block.t) : block.t;
  return ir::subtract(c, matmul(block.v, matmul(t, matmul(adjoint(block.v), c))));
}

// Reflects `steps` columns of the panel: it, and tau [batch, 1, width].
Values factor_panel(const Value& panel, const Value& start, const Value& steps) {
  const Value tau = ir::constant(panel.builder(), 0, Type(panel.dtype(), {panel.dim(0), 1, panel.dim(2)}));
  return for_loop(steps, {panel, tau}, [&](const Value& j, const Values& s) {
    const Value column = columns_at(s[0], j, 1), at = ir::add(start, j);
    const Reflector r = reflector(column, at);
    const Value all = reflected(s[0], r.v, ir::conj(r.tau));
    const Value rest = ir::select(ir::compare(column_index(all), j, "GT"), all, s[0]);
    const Value row = row_index(column);
    const Value below = ir::select(ir::compare(row, at, "GT"), r.v, column);
    const Value packed = ir::select(ir::compare(row, at, "EQ"), stretched(r.beta, column), below);
    return Values{with_columns(rest, j, packed), with_columns(s[1], j, r.tau)};
  });
}

// body(block, state) for block = 0, 1, ...; without a loop where there is one.
Values for_blocks(int64_t blocks, const Values& init, const Step& body) {
  return blocks == 1 ? body(int_scalar(init[0].builder(), 0), init) : for_loop(blocks, init, body);
}

}  // namespace

Qr factor_qr(const Value& a) {
  ir::Builder& b = a.builder();
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  if (k == 0 || batch == 0) return {a, ir::constant(b, 0, Type(a.dtype(), {batch, k}))};
  const int64_t width = std::min(k, kPanel), blocks = (k + width - 1) / width;
  const Value whole = grown(a, m, std::max(n, blocks * width));
  const Value tau = ir::constant(b, 0, Type(a.dtype(), {batch, 1, blocks * width}));
  const Values out = for_blocks(blocks, {whole, tau}, [&](const Value& i, const Values& s) {
    const Value start = ir::multiply(i, int_scalar(b, width));
    const Value steps = ir::minimum(int_scalar(b, width), ir::subtract(int_scalar(b, k), start));
    const Values panel = factor_panel(columns_at(s[0], start, width), start, steps);
    Value matrix = s[0];
    if (whole.dim(2) > width) {
      const Value right = ir::compare(column_index(matrix), ir::add(start, int_scalar(b, width)), "GE");
      matrix = ir::select(right, apply(block_of(panel[0], panel[1], start), matrix, true), matrix);
    }
    return Values{with_columns(matrix, start, panel[0]), with_columns(s[1], start, panel[1])};
  });
  return {corner(out[0], m, n), ir::reshape(corner(out[1], 1, k), {batch, k})};
}

Value apply_reflectors(const Value& packed, const Value& tau, const Value& c, bool is_adjoint) {
  ir::Builder& b = packed.builder();
  const int64_t k = tau.dim(1);
  if (k == 0 || c.type().numel() == 0) return c;
  const int64_t width = std::min(k, kPanel), blocks = (k + width - 1) / width;
  const Value whole = grown(packed, packed.dim(1), blocks * width);
  const Value taus = grown(ir::reshape(tau, {tau.dim(0), 1, k}), 1, blocks * width);
  return for_blocks(blocks, {c}, [&](const Value& i, const Values& s) {
    const Value block = is_adjoint ? i : ir::subtract(int_scalar(b, blocks - 1), i);
    const Value start = ir::multiply(block, int_scalar(b, width));
    const Block q = block_of(columns_at(whole, start, width), columns_at(taus, start, width), start);
    return Values{apply(q, s[0], is_adjoint)};
  })[0];
}

namespace {

Values geqrf(Op& o) {
  if (o.in(0).rank() < 2) throw UserError("torch.geqrf: input must have at least 2 dimensions.");
  check_precision(o.in(0), "geqrf_cpu");
  const Qr f = factor_qr(as_batch(o.in(0)));
  return {from_batch(f.packed, o.out(0)), ir::reshape(f.tau, o.out(1).dims())};
}

Values qr(Op& o) {
  check_precision(o.in(0), "geqrf_cpu");
  const std::string mode = o.text("mode");
  const Value a = as_batch(o.in(0));
  const int64_t m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  const int64_t columns = mode == "complete" ? m : k;
  const Qr f = factor_qr(a);
  const Value r = upper_triangle(mode == "complete" ? f.packed : corner(f.packed, k, n));
  if (mode == "r") return {ir::constant(o.builder(), 0, o.out(0)), from_batch(r, o.out(1))};
  const Value q = apply_reflectors(corner(f.packed, m, k), f.tau, identity(a, m, columns), false);
  return {from_batch(q, o.out(0)), from_batch(r, o.out(1))};
}

Value flat_tau(const Value& tau, int64_t batch) { return ir::reshape(tau, {batch, tau.dim(tau.rank() - 1)}); }

Value householder_product(Op& o) {
  check_precision(o.in(0), "orgqr_cpu");
  const Value packed = as_batch(o.in(0)), tau = flat_tau(o.in(1), packed.dim(0));
  const Value start = identity(packed, packed.dim(1), packed.dim(2));
  return from_batch(apply_reflectors(corner(packed, packed.dim(1), tau.dim(1)), tau, start, false), o.out());
}

Value ormqr(Op& o) {
  check_precision(o.in(0), "ormqr_cpu");
  const Value self = as_batch(o.in(0)), tau = flat_tau(o.in(1), self.dim(0)), c = as_batch(o.in(2));
  const Value packed = corner(self, self.dim(1), tau.dim(1));
  const bool transposed = o.flag("transpose");
  if (o.flag("left")) return from_batch(apply_reflectors(packed, tau, c, transposed), o.out());
  // c Q = (Q^H c^H)^H
  return from_batch(adjoint(apply_reflectors(packed, tau, adjoint(c), !transposed)), o.out());
}

std::vector<Type> geqrf_types(Op& o) {
  const Type type = o.in(0).type();
  if (type.rank() < 2) return {type, type};  // the rule says so
  Dims tau(type.dims().begin(), type.dims().end() - 2);
  tau.push_back(std::min(type.dim(type.rank() - 2), type.dim(type.rank() - 1)));
  return {type, Type(type.dtype(), tau)};
}

const Row kRows[] = {
    {"geqrf", geqrf, {.types = geqrf_types}},
    {"linalg_qr", qr},
    {"linalg_householder_product", householder_product},
    {"ormqr", ormqr},
};

}  // namespace

std::span<const Row> qr_rows() { return kRows; }

}  // namespace tpu::ops
