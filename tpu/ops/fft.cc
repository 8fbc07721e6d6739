// Discrete Fourier transforms. PyTorch's norm argument has become a number by now: 0 divides by nothing, 1 by the
// root of the number of points, 2 by that number.
#include <algorithm>
#include <cmath>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// XLA transforms the last dimensions, three at most at once.
constexpr size_t kAtOnce = 3;

// Dimensions in their order in memory, with those of `last` moved to the end.
Dims with_last(int64_t rank, const Dims& last) {
  Dims order;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(last.begin(), last.end(), d) == last.end()) order.push_back(d);
  }
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

Dims inverse(const Dims& order) {
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return back;
}

// `lengths`: points along each of `dims`. Only the last of them changes its size (RFFT, IRFFT).
Value transform(const Value& v, const char* kind, const Dims& dims, const Dims& lengths, DType dtype,
                int64_t last_size) {
  const Dims order = with_last(v.rank(), dims);
  const Value moved = ir::transpose(v, order);
  Dims sizes = moved.dims();
  sizes.back() = last_size;
  return ir::transpose(ir::fft(moved, kind, lengths, Type(dtype, sizes)), inverse(order));
}

Value complex_transform(Value v, Dims dims, bool forward) {
  while (!dims.empty()) {
    const size_t n = std::min(kAtOnce, dims.size());
    const Dims part(dims.end() - static_cast<int64_t>(n), dims.end());
    dims.resize(dims.size() - n);
    Dims lengths;
    for (int64_t d : part) lengths.push_back(v.dim(d));
    v = transform(v, forward ? "FFT" : "IFFT", part, lengths, v.dtype(), v.dim(part.back()));
  }
  return v;
}

Value scaled_by(const Value& v, double factor) {
  if (factor == 1) return v;
  const Value f = ir::constant(v.builder(), factor, Type(ir::real_of(v.dtype()), {}));
  if (!ir::is_complex(v.dtype())) return ir::multiply(v, f);
  return ir::complex(ir::multiply(ir::real(v), f), ir::multiply(ir::imag(v), f));
}

double scale_of(int64_t normalization, int64_t points) {
  const auto n = static_cast<double>(points);
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

// In the order given; negative ones are wrapped.
Dims dims_of(Op& o, int64_t rank) {
  Dims dims = o.ints("dim");
  for (int64_t& d : dims) d = d < 0 ? d + rank : d;
  return dims;
}

int64_t points_along(const Value& v, const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= v.dim(d);
  return n;
}

Value nothing(Op& o) { return ir::constant(o.builder(), 0, o.out()); }

Value complex_to_complex(Op& o) {
  const Value v = o.in("self");
  const Dims dims = dims_of(o, v.rank());
  if (dims.empty() || o.out().numel() == 0) return v;
  const bool forward = o.flag("forward");
  const int64_t n = points_along(v, dims);
  // XLA divides its inverse by the number of points.
  const double factor = scale_of(o.integer("normalization"), n) * (forward ? 1 : static_cast<double>(n));
  return scaled_by(complex_transform(v, dims, forward), factor);
}

Value real_to_complex(Op& o) {
  const Value v = o.in("self");
  Dims dims = dims_of(o, v.rank());
  const double factor = scale_of(o.integer("normalization"), points_along(v, dims));
  if (o.out().numel() == 0) return nothing(o);
  if (!o.flag("onesided")) return scaled_by(complex_transform(ir::complex(v, ir::zeros_like(v)), dims, true), factor);
  const int64_t last = dims.back();
  Value half = transform(v, "RFFT", {last}, {v.dim(last)}, o.out().dtype(), v.dim(last) / 2 + 1);
  dims.pop_back();
  return scaled_by(complex_transform(half, dims, true), factor);
}

Value complex_to_real(Op& o) {
  const Value v = o.in("self");
  Dims dims = dims_of(o, v.rank());
  const int64_t last = dims.back(), n = o.integer("last_dim_size");
  if (o.out().numel() == 0) return nothing(o);
  dims.pop_back();
  const int64_t points = points_along(v, dims) * n;
  Value whole = complex_transform(v, dims, false);
  // Half of the points is given; XLA wants neither more nor fewer.
  const int64_t half = n / 2 + 1, given = v.dim(last);
  if (given > half) whole = ir::slice_in_dim(whole, last, 0, half);
  if (given < half) {
    Dims none(whole.rank(), 0), high = none;
    high[last] = half - given;
    whole = ir::pad(whole, ir::constant(o.builder(), 0, Type(whole.dtype(), {})), none, high, none);
  }
  const Value real = transform(whole, "IRFFT", {last}, {n}, o.out().dtype(), n);
  return scaled_by(real, scale_of(o.integer("normalization"), points) * static_cast<double>(points));
}

const Row kRows[] = {
    {"_fft_c2c", complex_to_complex},
    {"_fft_r2c", real_to_complex},
    {"_fft_c2r", complex_to_real},
};

}  // namespace

std::span<const Row> fft_rows() { return kRows; }

}  // namespace tpu::ops
