#include "tpu/ops/matrix.h"

#include <algorithm>
#include <limits>

#include "tpu/ops/reduction.h"

namespace tpu::ops {
namespace {

int64_t product(const Dims& dims, size_t count) {
  int64_t n = 1;
  for (size_t i = 0; i < count; ++i) n *= dims[i];
  return n;
}

Value zero_of(const Value& v) { return ir::constant(v.builder(), 0, Type(v.dtype(), {})); }

}  // namespace

void check_precision(const Value& v, const std::string& kernel) {
  const DType real = ir::real_of(v.dtype());
  if (real == DType::kF32 || real == DType::kF64) return;
  const std::string name = real == DType::kF16 ? "Half" : real == DType::kBF16 ? "BFloat16" : "an integer dtype";
  throw UserError("\"" + kernel + "\" not implemented for '" + name + "'", "NotImplementedError");
}

Value as_batch(const Value& v) {
  const Dims& dims = v.dims();
  return ir::reshape(v, {product(dims, dims.size() - 2), dims[dims.size() - 2], dims.back()});
}

Value as_batch(const Value& v, const Dims& batch) {
  Dims dims = batch;
  dims.push_back(v.dim(v.rank() - 2));
  dims.push_back(v.dim(v.rank() - 1));
  return as_batch(ir::broadcast_to(v, dims));
}

Value from_batch(const Value& v, const Type& type) { return ir::reshape(v, type.dims()); }

Dims batch_of(const Value& a, const Value& b) {
  const int64_t rank = std::max(a.rank(), b.rank()) - 2;
  Dims batch(rank, 1);
  for (const Value& v : {a, b}) {
    for (int64_t d = 0; d < v.rank() - 2; ++d) {
      int64_t& size = batch[rank - (v.rank() - 2) + d];
      if (size == 1) size = v.dim(d);
    }
  }
  return batch;
}

Value matmul(const Value& a, const Value& b) {
  const ir::DotDims dims{.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {1}};
  // Whatever torch.set_float32_matmul_precision says: an error here grows with the condition of the matrix.
  return ir::dot_general(a, b, dims, a.dtype(), "HIGHEST");
}

Value matrix_transpose(const Value& a) { return ir::transpose(a, {0, 2, 1}); }
Value adjoint(const Value& a) { return ir::conj(matrix_transpose(a)); }

Value row_index(const Value& v) { return ir::iota(v.builder(), Type(DType::kI32, v.dims()), 1); }
Value column_index(const Value& v) { return ir::iota(v.builder(), Type(DType::kI32, v.dims()), 2); }

Value identity(const Value& like, int64_t rows, int64_t columns) {
  const Type index(DType::kI32, {like.dim(0), rows, columns});
  ir::Builder& b = like.builder();
  return ir::convert(ir::compare(ir::iota(b, index, 1), ir::iota(b, index, 2), "EQ"), like.dtype());
}

Value keep(const Value& mask, const Value& v) { return ir::select(mask, v, ir::zeros_like(v)); }

namespace {
Value side_of_diagonal(const Value& v, int64_t diagonal, const char* direction) {
  const Value row = row_index(v), shifted = ir::add(row, ir::full_like(row, diagonal));
  return keep(ir::compare(column_index(v), shifted, direction), v);
}
}  // namespace

Value lower_triangle(const Value& v, int64_t diagonal) { return side_of_diagonal(v, diagonal, "LE"); }
Value upper_triangle(const Value& v, int64_t diagonal) { return side_of_diagonal(v, diagonal, "GE"); }

Value diagonal(const Value& v) {
  const int64_t k = std::min(v.dim(1), v.dim(2));
  const Value square = corner(v, k, k);
  return ir::reduce(keep(ir::compare(row_index(square), column_index(square), "EQ"), square), zero_of(v), {1}, "add");
}

Value grown(const Value& v, int64_t rows, int64_t columns) {
  return ir::pad(v, zero_of(v), {0, 0, 0}, {0, rows - v.dim(1), columns - v.dim(2)}, {0, 0, 0});
}

Value corner(const Value& v, int64_t rows, int64_t columns) {
  return ir::slice_in_dim(ir::slice_in_dim(v, 1, 0, rows), 2, 0, columns);
}

Value stretched(const Value& v, const Value& like) {
  Dims kept, map;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (v.dim(d) == 1 && like.dim(d) != 1) continue;
    kept.push_back(v.dim(d));
    map.push_back(d);
  }
  return ir::broadcast_in_dim(ir::reshape(v, kept), Type(v.dtype(), like.dims()), map);
}

namespace {
Values starts_at(const Value& start, int64_t d) {
  Values starts(3, int_scalar(start.builder(), 0));
  starts[d] = start;
  return starts;
}
}  // namespace

Value columns_at(const Value& v, const Value& start, int64_t count) {
  return ir::dynamic_slice(v, starts_at(start, 2), {v.dim(0), v.dim(1), count});
}
Value rows_at(const Value& v, const Value& start, int64_t count) {
  return ir::dynamic_slice(v, starts_at(start, 1), {v.dim(0), count, v.dim(2)});
}
Value with_columns(const Value& v, const Value& start, const Value& columns) {
  return ir::dynamic_update_slice(v, columns, starts_at(start, 2));
}
Value with_rows(const Value& v, const Value& start, const Value& rows) {
  return ir::dynamic_update_slice(v, rows, starts_at(start, 1));
}

Value take_rows(const Value& v, const Value& order) {
  const Type type(v.dtype(), {v.dim(0), order.dim(1), v.dim(2)});
  if (v.type().numel() == 0 || type.numel() == 0) return ir::constant(v.builder(), 0, type);
  ir::GatherDims g;
  g.offset_dims = {2};
  g.collapsed_slice_dims = g.start_index_map = {1};
  g.operand_batching_dims = g.start_indices_batching_dims = {0};
  g.index_vector_dim = 2;
  g.slice_sizes = {1, 1, v.dim(2)};
  return ir::gather(v, order, g, type);
}

Value take_columns(const Value& v, const Value& order) {
  return matrix_transpose(take_rows(matrix_transpose(v), order));
}

Value int_scalar(ir::Builder& b, int64_t value) { return ir::constant(b, value, Type(DType::kI32, {})); }

double epsilon(DType dtype) {
  return ir::real_of(dtype) == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                           : std::numeric_limits<float>::epsilon();
}

Values for_loop(const Value& count, const Values& init, const Step& body) {
  ir::Builder& b = count.builder();
  Values all = {int_scalar(b, 0), count};
  all.insert(all.end(), init.begin(), init.end());
  const Values out = ir::while_loop(
      all, [](const Values& a) { return Values{ir::compare(a[0], a[1], "LT")}; },
      [&](const Values& a) {
        const Values next = body(a[0], Values(a.begin() + 2, a.end()));
        Values state = {ir::add(a[0], int_scalar(b, 1)), a[1]};
        state.insert(state.end(), next.begin(), next.end());
        return state;
      });
  return Values(out.begin() + 2, out.end());
}

Values for_loop(int64_t count, const Values& init, const Step& body) {
  return for_loop(int_scalar(init.at(0).builder(), count), init, body);
}

// ---- triangular systems ----

namespace {

// The unknowns of `a` x = b for one block: a [batch, w, w] lower, column by column.
Value substitute(const Value& a, const Value& b, bool has_unit_diagonal) {
  return for_loop(a.dim(1), {b}, [&](const Value& j, const Values& s) {
    const Value column = columns_at(a, j, 1);
    Value x = rows_at(s[0], j, 1);
    if (!has_unit_diagonal) x = ir::divide(x, stretched(rows_at(column, j, 1), x));
    const Value rest = ir::subtract(s[0], ir::multiply(stretched(column, s[0]), stretched(x, s[0])));
    // Not by a factor of zero: what is already found may be infinite.
    const Value is_below = ir::compare(row_index(s[0]), j, "GT");
    return Values{with_rows(ir::select(is_below, rest, s[0]), j, x)};
  })[0];
}

Value solve_lower(const Value& a, const Value& b, bool has_unit_diagonal) {
  const int64_t n = a.dim(1), k = b.dim(2);
  if (n == 0 || k == 0 || a.dim(0) == 0) return b;
  if (n <= kPanel) return substitute(a, b, has_unit_diagonal);
  const int64_t blocks = (n + kPanel - 1) / kPanel, padded = blocks * kPanel;
  // What is added divides by one.
  const Value added = ir::convert(
      ir::and_(ir::compare(row_index(grown(a, padded, padded)), int_scalar(a.builder(), n), "GE"),
               ir::compare(row_index(grown(a, padded, padded)), column_index(grown(a, padded, padded)), "EQ")),
      a.dtype());
  const Value lower = ir::add(grown(a, padded, padded), added);
  const Value right = grown(b, padded, k);
  const Value x = for_loop(blocks, {ir::zeros_like(right)}, [&](const Value& block, const Values& s) {
    const Value start = ir::multiply(block, int_scalar(a.builder(), kPanel));
    const Value rows = rows_at(lower, start, kPanel);
    // Unknowns not yet found are zero in s[0], but 0 times what is right of the diagonal may be NaN.
    const Value known = keep(ir::compare(column_index(rows), start, "LT"), rows);
    const Value rest = ir::subtract(rows_at(right, start, kPanel), matmul(known, s[0]));
    return Values{with_rows(s[0], start, substitute(columns_at(rows, start, kPanel), rest, has_unit_diagonal))};
  })[0];
  return corner(x, n, k);
}

}  // namespace

Value solve_triangle(const Value& a, const Value& b, Triangle triangle) {
  if (triangle.is_lower) return solve_lower(a, b, triangle.has_unit_diagonal);
  return ir::reverse(solve_lower(ir::reverse(a, {1, 2}), ir::reverse(b, {1}), triangle.has_unit_diagonal), {1});
}

Value solve_triangle_right(const Value& a, const Value& b, Triangle triangle) {
  const Triangle other{.is_lower = !triangle.is_lower, .has_unit_diagonal = triangle.has_unit_diagonal};
  return matrix_transpose(solve_triangle(matrix_transpose(a), matrix_transpose(b), other));
}

}  // namespace tpu::ops
