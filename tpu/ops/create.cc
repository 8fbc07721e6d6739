// Ops that make values from numbers: fills, ranges, identity matrices, index lists.
#include <algorithm>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value fill(Op& o) { return o.x_as("value", o.out().dtype()); }

Value number(const Value& like, int64_t v) { return ir::full_like(like, v); }

// 0, 1, ... over all elements of the result, in `dtype`.
Value positions(Op& o, DType dtype) {
  return ir::convert(ir::iota(o.builder(), Type(DType::kI64, {o.out().numel()}), 0), dtype);
}

// The type that CPU counts in: at::acc_type.
DType counting_type(DType dtype) {
  if (ir::is_integral(dtype)) return DType::kI64;
  return ir::size_bytes(dtype) < 4 ? DType::kF32 : DType::kF64;
}

Value arange(Op& o) {
  const DType dtype = counting_type(o.out().dtype());
  const Value steps = ir::multiply(positions(o, dtype), o.scalar("step", dtype));
  return ir::reshape(ir::add(steps, o.scalar("start", dtype)), o.out().dims());
}

// Values between the ends, from the nearer one, in `dtype`:
// ATen/native/cpu/RangeFactoriesKernel.cpp.
Value between(Op& o, const Value& start, const Value& end) {
  const int64_t steps = o.out().numel();
  const Value i = positions(o, DType::kI64);
  const Value span = ir::convert(number(start, std::max<int64_t>(steps - 1, 1)), start.dtype());
  const Value step = ir::divide(ir::subtract(end, start), span);
  const Value from_start = ir::add(start, ir::multiply(step, ir::convert(i, start.dtype())));
  const Value left = ir::convert(ir::subtract(number(i, steps - 1), i), start.dtype());
  const Value from_end = ir::subtract(end, ir::multiply(step, left));
  if (steps == 1) return from_start;
  return ir::select(ir::compare(i, number(i, steps / 2), "LT"), from_start, from_end);
}

// From "start" to "end", cut to an integer type first; the steps between are not.
Value spaced(Op& o) {
  const DType dtype = o.out().dtype();
  const DType within = ir::is_integral(dtype) ? DType::kF64 : dtype;
  return between(o, ir::convert(o.scalar("start", dtype), within), ir::convert(o.scalar("end", dtype), within));
}

Value linspace(Op& o) { return ir::reshape(spaced(o), o.out().dims()); }

Value logspace(Op& o) {
  const DType wide = ir::is_complex(o.out().dtype()) ? o.out().dtype() : DType::kF64;
  const Value exponents = ir::convert(spaced(o), wide);
  const Value base = ir::broadcast_to(o.scalar("base", wide), exponents.dims());
  return ir::reshape(ir::power(base, exponents), o.out().dims());
}

Value eye(Op& o) {
  const Type index(DType::kI32, o.out().dims());
  return ir::compare(ir::iota(o.builder(), index, 0), ir::iota(o.builder(), index, 1), "EQ");
}

// Row and column of the entries numbered k of the lower triangle, row by row. Its rows grow by one
// from `first` entries until they are `columns` long.
std::pair<Value, Value> lower_triangle(const Value& k, int64_t columns, int64_t offset) {
  const int64_t first = offset > 0 ? std::min(columns, offset + 1) : 1;
  const int64_t skipped = std::max<int64_t>(0, -offset);
  const int64_t growing = columns - first + 1;
  const int64_t grown = growing * (first + columns) / 2;
  auto start = [&](const Value& row) {
    const Value triangle = ir::divide(ir::multiply(row, ir::subtract(row, number(row, 1))), number(row, 2));
    return ir::add(ir::multiply(row, number(row, first)), triangle);
  };
  // start(row) <= k solved for row; the root may be one off.
  const int64_t b = 2 * first - 1;
  const Value square = ir::add(ir::multiply(number(k, 8), k), number(k, b * b));
  const Value root = ir::convert(ir::floor(ir::sqrt(ir::convert(square, DType::kF64))), DType::kI64);
  Value row = ir::divide(ir::subtract(root, number(k, b)), number(k, 2));
  row = ir::subtract(row, ir::convert(ir::compare(start(row), k, "GT"), DType::kI64));
  const Value next = ir::add(row, number(k, 1));
  row = ir::add(row, ir::convert(ir::compare(start(next), k, "LE"), DType::kI64));
  const Value column = ir::subtract(k, start(row));

  const Value full = ir::subtract(k, number(k, grown));
  const Value is_full = ir::compare(full, number(k, 0), "GE");
  const Value width = number(k, columns);
  row = ir::select(is_full, ir::add(ir::divide(full, width), number(k, growing)), row);
  return {ir::add(row, number(k, skipped)), ir::select(is_full, ir::remainder(full, width), column)};
}

Value indices(const Value& row, const Value& column) {
  return ir::concatenate({ir::unsqueeze(row, 0), ir::unsqueeze(column, 0)}, 0);
}

Value tril_indices(Op& o) {
  if (o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  const Value k = ir::iota(o.builder(), Type(DType::kI64, {o.out().dim(1)}), 0);
  const auto [row, column] = lower_triangle(k, o.integer("col"), o.integer("offset"));
  return indices(row, column);
}

// The upper triangle is a lower one read from the far corner.
Value triu_indices(Op& o) {
  if (o.out().numel() == 0) return ir::constant(o.builder(), 0, o.out());
  const int64_t rows = o.integer("row"), columns = o.integer("col");
  const Value k = ir::iota(o.builder(), Type(DType::kI64, {o.out().dim(1)}), 0);
  const Value back = ir::subtract(number(k, o.out().dim(1) - 1), k);
  const auto [row, column] = lower_triangle(back, columns, columns - rows - o.integer("offset"));
  return indices(ir::subtract(number(k, rows - 1), row), ir::subtract(number(k, columns - 1), column));
}

// `f` counts in a dtype of its own.
Rule rounded(Value (*f)(Op&)) {
  return [f](Op& o) { return ir::convert(f(o), o.out().dtype()); };
}

const Row kRows[] = {
    {"fill_.Scalar", fill},
    {"fill_.Tensor", fill},
    {"zero_", [](Op& o) { return ir::zeros_like(o.in(0)); }},
    {"arange.start_out", rounded(arange)},
    {"range.out", rounded(arange)},
    {"linspace.out", rounded(linspace)},
    {"logspace.out", rounded(logspace)},
    {"eye.out", rounded(eye)},
    {"eye.m_out", rounded(eye)},
    {"tril_indices", rounded(tril_indices)},
    {"triu_indices", rounded(triu_indices)},
};

}  // namespace

std::span<const Row> create_rows() { return kRows; }

}  // namespace tpu::ops
