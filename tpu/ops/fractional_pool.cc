// Fractional max pooling: windows that start where random numbers say, a sample for each channel and dimension.
#include <algorithm>

#include "tpu/ops/indexing.h"
#include "tpu/ops/matrix.h"
#include "tpu/ops/reduction.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Where the windows of one dimension start, i32 [channels, windows]; sample [channels].
Value starts_of(const Value& sample, int64_t size, int64_t windows, int64_t kernel) {
  const Type type(sample.dtype(), {sample.dim(0), windows});
  const Value last = ir::constant(sample.builder(), size - kernel, Type(DType::kI32, type.dims()));
  if (windows <= 1) return last;
  const Value place = ir::iota(sample.builder(), type, 1), u = ir::broadcast_in_dim(sample, type, {0});
  const Value step = ir::divide(ir::full_like(u, size - kernel), ir::full_like(u, windows - 1));
  const Value start = ir::subtract(ir::convert(ir::multiply(ir::add(place, u), step), DType::kI32),
                                   ir::convert(ir::multiply(u, step), DType::kI32));
  return ir::select(ir::compare(place, ir::full_like(place, windows - 1), "EQ"), last, start);
}

// values, indices into the flat spatial dimensions
Rule fractional_max_pool(int64_t rank) {
  return [rank](Op& o) {
    const Value input = o.in("self");
    const Dims kernel = o.ints("kernel_size"), windows = o.ints("output_size");
    const int64_t skip = input.rank() - rank;
    const Dims sizes(input.dims().begin() + skip, input.dims().end());
    const int64_t channels = product(Dims(input.dims().begin(), input.dims().begin() + skip));
    if (o.out().numel() == 0) {
      return Values{ir::constant(o.builder(), 0, o.out(0)), ir::constant(o.builder(), 0, o.out(1))};
    }
    const int64_t batch = input.rank() == rank + 2 ? input.dim(0) : 1;
    const Value used = ir::slice_in_dim(o.in("random_samples"), 0, 0, batch);
    const Value samples = ir::reshape(used, {channels, rank});
    const Value flat = ir::reshape(input, {channels, product(sizes)});
    Dims full = {channels};
    full.insert(full.end(), windows.begin(), windows.end());
    Values starts;
    for (int64_t d = 0; d < rank; ++d) {
      // In two dimensions the first sample is the width's.
      const int64_t k = rank == 2 ? 1 - d : d;
      const Value sample = ir::reshape(ir::slice_in_dim(samples, 1, k, k + 1), {channels});
      const Value start = starts_of(sample, sizes[d], windows[d], kernel[d]);
      starts.push_back(ir::broadcast_in_dim(start, Type(DType::kI32, full), {0, 1 + d}));
    }
    const Type index_type(DType::kI32, {channels, product(windows)});
    const Value none = ir::constant(o.builder(), 0, index_type);
    const Value lowest = ir::lowest(o.builder(), Type(input.dtype(), index_type.dims()));
    const bool has_nan = ir::is_floating(input.dtype());
    // One element of every window after the other, the last dimension first.
    const Values found = for_loop(product(kernel), {lowest, none}, [&](const Value& i, const Values& s) {
      Value rest = i, offset[3];
      for (int64_t d = rank - 1; d >= 0; --d) {
        const Value n = int_scalar(o.builder(), kernel[d]);
        offset[d] = ir::remainder(rest, n);
        rest = ir::divide(rest, n);
      }
      Value index;
      for (int64_t d = 0; d < rank; ++d) {
        const Value at = ir::add(starts[d], offset[d]);
        index = index ? ir::add(ir::multiply(index, ir::full_like(index, sizes[d])), at) : at;
      }
      index = ir::reshape(index, index_type.dims());
      const Value value = take_elements(flat, 1, index);
      Value better = ir::compare(value, s[0], "GT");
      if (has_nan) better = ir::or_(better, ir::is_nan(value));
      // The first element is taken whatever it is.
      better = ir::or_(better, ir::broadcast_to(ir::compare(i, int_scalar(o.builder(), 0), "EQ"), better.dims()));
      return Values{ir::select(better, value, s[0]), ir::select(better, index, s[1])};
    });
    return Values{ir::reshape(found[0], o.out(0).dims()), ir::reshape(found[1], o.out(1).dims())};
  };
}

Value add(const Value& old, const Value& update) { return ir::add(old, update); }

Rule fractional_max_pool_backward(int64_t rank) {
  return [rank](Op& o) {
    const Value input = o.in("self"), index = o.in("indices");
    const int64_t skip = input.rank() - rank;
    const int64_t channels = product(Dims(input.dims().begin(), input.dims().begin() + skip));
    const DType dtype = ir::opmath(input.dtype());
    const Value zeros = ir::convert(ir::zeros_like(input), dtype);
    if (input.type().numel() == 0 || index.type().numel() == 0) return zeros;
    const int64_t elements = input.type().numel() / channels, windows = index.type().numel() / channels;
    const Value grad = ir::reshape(ir::convert(o.in("grad_output"), dtype), {channels, windows});
    const Value at = ir::convert(ir::reshape(index, {channels, windows}), DType::kI32);
    const Value sum = put_elements(ir::reshape(zeros, {channels, elements}), 1, at, grad, add);
    return ir::reshape(sum, input.dims());
  };
}

std::vector<Type> like_self(Op& o) { return {o.in("self").type()}; }

const Row kRows[] = {
    {"fractional_max_pool2d", fractional_max_pool(2)},
    {"fractional_max_pool2d_backward", fractional_max_pool_backward(2)},
    {"fractional_max_pool3d", fractional_max_pool(3)},
    {"fractional_max_pool3d_backward", fractional_max_pool_backward(3), {.types = like_self}},
};

}  // namespace

std::span<const Row> fractional_pool_rows() { return kRows; }

}  // namespace tpu::ops
