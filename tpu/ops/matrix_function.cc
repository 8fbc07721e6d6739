// Functions of square matrices: the exponential.
#include <algorithm>

#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// Scaled by 2^-s to a 1-norm of at most one, Taylor's series, then squared s times.
Value matrix_exp(Op& o) {
  const Value a = as_batch(o.compute(0));
  if (a.type().numel() == 0) return o.in(0);
  ir::Builder& b = o.builder();
  const DType dtype = a.dtype(), real = ir::real_of(dtype);
  const Value norm = max_over(sum_over(ir::abs(a), {1}), {1});  // [batch]
  const Value zero = ir::zeros_like(norm), one = ir::full_like(norm, 1);
  const Value log2 = ir::divide(ir::log(ir::maximum(norm, one)), ir::full_like(norm, 0.69314718055994531));
  // A norm that is not finite gives what is not finite anyway.
  const Value most = ir::full_like(norm, real == DType::kF64 ? 1024 : 128);
  const Value times = ir::minimum(ir::ceil(ir::select(ir::is_finite(log2), log2, zero)), most);
  const Value half = ir::full_like(norm, 0.5);
  const auto spread = [&](const Value& v) { return stretched(ir::reshape(v, {a.dim(0), 1, 1}), a); };
  const Value scaled = ir::multiply(a, ir::convert(spread(ir::power(half, times)), dtype));
  // The rest of the series is below half an epsilon of it: 1/12! and 1/20!.
  const int64_t terms = real == DType::kF64 ? 19 : 11;
  const Value eye = identity(a, a.dim(1), a.dim(1));
  const Value series = for_loop(terms, {eye}, [&](const Value& i, const Values& s) {
    const Value k = ir::convert(ir::subtract(int_scalar(b, terms), i), real);
    const Value by = ir::convert(ir::broadcast_to(k, a.dims()), dtype);
    return Values{ir::add(eye, ir::divide(matmul(scaled, s[0]), by))};
  })[0];
  const Value rounds = ir::convert(times, DType::kI32);
  return from_batch(
      for_loop(max_over(rounds, {0}), {series},
               [&](const Value& i, const Values& s) {
                 return Values{ir::select(spread(ir::compare(rounds, i, "GT")), matmul(s[0], s[0]), s[0])};
               })[0],
      o.out());
}

const Row kRows[] = {
    {"linalg_matrix_exp", matrix_exp},
};

}  // namespace

std::span<const Row> matrix_function_rows() { return kRows; }

}  // namespace tpu::ops
