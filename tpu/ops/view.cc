#include "tpu/ops/view.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tpu::ops {
namespace {

using ir::Dims;
using ir::DType;
using ir::Type;
using ir::Value;
using ir::Values;

struct Segments {
  int n = 0;
  std::array<int64_t, ViewPlan::kMaxSegments> stride, extent, step;
  std::array<int8_t, ViewPlan::kMaxSegments> owner;  // tensor dimension, -1: none

  bool insert(int at, int64_t s, int64_t e) {
    if (n == ViewPlan::kMaxSegments) return false;
    for (int j = n; j > at; --j) {
      stride[j] = stride[j - 1], extent[j] = extent[j - 1], step[j] = step[j - 1], owner[j] = owner[j - 1];
    }
    stride[at] = s, extent[at] = e, step[at] = 1, owner[at] = -1;
    ++n;
    return true;
  }
  // Joins segment j with the next outer one.
  void merge_outward(int j) {
    extent[j] *= extent[j - 1];
    for (int k = j - 1; k + 1 < n; ++k) {
      stride[k] = stride[k + 1], extent[k] = extent[k + 1], step[k] = step[k + 1], owner[k] = owner[k + 1];
    }
    --n;
  }
};

ViewPlan gather_plan(int64_t offset) {
  ViewPlan p;
  p.kind = ViewPlan::Kind::kGather;
  p.num_starts = 1;
  p.run_time_starts[0] = offset;
  return p;
}

// Gives each walked dimension a segment; false where no window expresses the view.
bool assign(Segments& s, std::span<const int8_t> walks, std::span<const int64_t> strides) {
  for (int8_t d : walks) {
    const int64_t stride = strides[d];
    int j = 0;
    while (j < s.n && s.stride[j] > stride) ++j;
    if (j == s.n) return false;
    if (s.stride[j] != stride) {
      const int64_t k = stride % s.stride[j] == 0 ? stride / s.stride[j] : 0;
      if (k == 0 || s.owner[j] >= 0) return false;
      if (k < s.extent[j] && s.extent[j] % k == 0) {
        const int64_t inner = s.stride[j], outer = s.extent[j] / k;
        s.extent[j] = k;
        s.stride[j] = inner;
        if (!s.insert(j, stride, outer)) return false;
      } else {
        s.step[j] = k;
      }
    }
    if (s.owner[j] >= 0) return false;
    s.owner[j] = d;
  }
  return true;
}

}  // namespace

ViewPlan plan_view(std::span<const int64_t> buffer, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                   int64_t offset) {
  ViewPlan p;
  std::array<int8_t, ViewPlan::kMaxSegments> walks;
  int num_walks = 0;
  const int rank = static_cast<int>(sizes.size());
  int64_t numel = 1;
  for (int d = 0; d < rank; ++d) {
    numel *= sizes[d];
    if (sizes[d] <= 1 || strides[d] == 0) continue;
    if (num_walks == ViewPlan::kMaxSegments) return gather_plan(offset);
    int at = num_walks++;
    while (at > 0 && strides[walks[at - 1]] < strides[d]) walks[at] = walks[at - 1], --at;
    walks[at] = static_cast<int8_t>(d);
  }
  if (numel == 0) return p;

  Segments s;
  int64_t total = 1;
  for (int64_t e : buffer) total *= e;
  int64_t stride = total;
  for (int64_t e : buffer) {
    if (e == 1) continue;
    stride /= e;
    if (s.n == ViewPlan::kMaxSegments) return gather_plan(offset);
    s.insert(s.n, stride, e);
  }
  if (s.n == 0) s.insert(0, 1, 1);
  // A dimension may span several of the buffer's; cuts that it does not need are merged away below.
  if (!assign(s, {walks.data(), static_cast<size_t>(num_walks)}, strides)) {
    // The buffer's own cuts may be in the way: try with one flat segment.
    s.n = 0;
    s.insert(0, 1, total);
    if (!assign(s, {walks.data(), static_cast<size_t>(num_walks)}, strides)) return gather_plan(offset);
  }

  for (int j = 0; j < s.n;) {
    const int64_t start = offset / s.stride[j] % s.extent[j];
    const int64_t n = s.owner[j] >= 0 ? sizes[s.owner[j]] : 1;
    if (start + (n - 1) * s.step[j] < s.extent[j]) {
      ++j;
      continue;
    }
    if (j == 0 || s.owner[j - 1] >= 0) return gather_plan(offset);
    s.merge_outward(j);
    --j;
  }

  p.kind = ViewPlan::Kind::kWindow;
  p.num_segments = s.n;
  p.is_whole = true;
  for (int j = 0; j < s.n; ++j) {
    p.extents[j] = s.extent[j];
    p.steps[j] = s.step[j];
    p.lengths[j] = s.owner[j] >= 0 ? sizes[s.owner[j]] : 1;
    p.starts[j] = offset / s.stride[j] % s.extent[j];
    const int64_t span = (p.lengths[j] - 1) * p.steps[j] + 1;
    if (span != p.extents[j]) p.run_time_starts[p.num_starts++] = p.starts[j];
    p.is_whole = p.is_whole && p.lengths[j] == p.extents[j];
    if (s.owner[j] >= 0) {
      p.walk_dim[p.num_walks] = s.owner[j];
      p.walk_segment[p.num_walks++] = static_cast<int8_t>(j);
    }
  }
  // An expanded tensor takes elements more than once.
  for (int d = 0; d < rank; ++d) p.is_whole = p.is_whole && (sizes[d] == 1 || strides[d] != 0);
  return p;
}

namespace {

Dims span_dims(const std::array<int64_t, ViewPlan::kMaxSegments>& a, int n) { return Dims(a.begin(), a.begin() + n); }

Dims spans(const ViewPlan& p) {
  Dims d;
  for (int j = 0; j < p.num_segments; ++j) d.push_back((p.lengths[j] - 1) * p.steps[j] + 1);
  return d;
}

bool stepped(const ViewPlan& p) {
  for (int j = 0; j < p.num_segments; ++j) {
    if (p.steps[j] != 1) return true;
  }
  return false;
}

// One start per segment: the run-time one, or zero where the segment is taken whole.
Values all_starts(ir::Builder& b, const ViewPlan& p, const Values& starts) {
  Values all;
  const Dims span = spans(p);
  size_t next = 0;
  const DType dtype = starts.empty() ? DType::kI32 : starts[0].dtype();
  for (int j = 0; j < p.num_segments; ++j) {
    all.push_back(span[j] == p.extents[j] ? ir::constant(b, 0, Type(dtype, {})) : starts.at(next++));
  }
  return all;
}

// Flat positions of the tensor's elements, in the dtype of `offset`.
Value positions(std::span<const int64_t> sizes, std::span<const int64_t> strides, const Value& offset) {
  ir::Builder& b = offset.builder();
  const Type type(offset.dtype(), Dims(sizes.begin(), sizes.end()));
  Value index = ir::broadcast_to(offset, type.dims());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1 || strides[d] == 0) continue;
    index = ir::add(index, ir::multiply(ir::iota(b, type, d), ir::constant(b, strides[d], type)));
  }
  return ir::reshape(index, {type.numel(), 1});
}

}  // namespace

Value read_view(const Value& buffer, const ViewPlan& p, std::span<const int64_t> sizes,
                std::span<const int64_t> strides, const Values& starts) {
  ir::Builder& b = buffer.builder();
  const Dims result(sizes.begin(), sizes.end());
  const Type type(buffer.dtype(), result);
  if (p.kind == ViewPlan::Kind::kEmpty) return ir::constant(b, 0, type);
  if (p.kind == ViewPlan::Kind::kGather) {
    const Value flat = ir::reshape(buffer, {buffer.type().numel()});
    ir::GatherDims dims;
    dims.collapsed_slice_dims = {0};
    dims.start_index_map = {0};
    dims.index_vector_dim = 1;
    dims.slice_sizes = {1};
    const Value index = positions(sizes, strides, starts.at(0));
    return ir::reshape(ir::gather(flat, index, dims, Type(buffer.dtype(), {type.numel()})), result);
  }
  Value v = ir::reshape(buffer, span_dims(p.extents, p.num_segments));
  if (p.num_starts > 0) v = ir::dynamic_slice(v, all_starts(b, p, starts), spans(p));
  if (stepped(p)) v = ir::slice(v, Dims(p.num_segments, 0), v.dims(), span_dims(p.steps, p.num_segments));
  Dims walked;
  for (int w = 0; w < p.num_walks; ++w) walked.push_back(p.lengths[p.walk_segment[w]]);
  v = ir::reshape(v, walked);
  // Walks come by descending stride; bring them into dimension order.
  Dims order(p.num_walks), dims;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return p.walk_dim[x] < p.walk_dim[y]; });
  v = ir::transpose(v, order);
  for (int64_t w : order) dims.push_back(p.walk_dim[w]);
  bool expanded = false;
  for (size_t d = 0; d < sizes.size(); ++d) expanded = expanded || (sizes[d] != 1 && strides[d] == 0);
  return expanded ? ir::broadcast_in_dim(v, type, dims) : ir::reshape(v, result);
}

Value write_view(const Value& buffer, const ViewPlan& p, std::span<const int64_t> sizes,
                 std::span<const int64_t> strides, const Values& starts, const Value& all) {
  ir::Builder& b = buffer.builder();
  if (p.kind == ViewPlan::Kind::kEmpty) return buffer;
  // What an expanded dimension has more than once is equal.
  Value value = all;
  Dims once(sizes.begin(), sizes.end());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] <= 1 || strides[d] != 0) continue;
    once[d] = 1;
    value = ir::slice_in_dim(value, static_cast<int64_t>(d), 0, 1);
  }
  sizes = once;
  if (p.kind == ViewPlan::Kind::kGather) {
    const int64_t n = value.type().numel();
    ir::ScatterDims dims;
    dims.inserted_window_dims = {0};
    dims.scatter_dims_to_operand_dims = {0};
    dims.index_vector_dim = 1;
    const Value flat = ir::reshape(buffer, {buffer.type().numel()});
    const Value next = ir::scatter(flat, positions(sizes, strides, starts.at(0)), ir::reshape(value, {n}), dims,
                                   [](const Values& a) { return Values{a[1]}; });
    return ir::reshape(next, buffer.dims());
  }
  // Dimension order to descending stride, then to the segments.
  Dims walked, permutation, seen;
  for (int w = 0; w < p.num_walks; ++w) seen.push_back(p.walk_dim[w]);
  Dims ascending = seen;
  std::sort(ascending.begin(), ascending.end());
  for (int64_t d : ascending) walked.push_back(sizes[d]);
  for (int64_t d : seen) permutation.push_back(std::find(ascending.begin(), ascending.end(), d) - ascending.begin());
  Value v = ir::transpose(ir::reshape(value, walked), permutation);
  v = ir::reshape(v, span_dims(p.lengths, p.num_segments));
  if (p.is_whole) return ir::reshape(v, buffer.dims());
  const Value base = ir::reshape(buffer, span_dims(p.extents, p.num_segments));
  const Values at = all_starts(b, p, starts);
  if (stepped(p)) {
    // Between the steps the old elements stay.
    const Value old = ir::dynamic_slice(base, at, spans(p));
    Dims interior, zero(p.num_segments, 0);
    for (int j = 0; j < p.num_segments; ++j) interior.push_back(p.steps[j] - 1);
    const Value off = ir::constant_bool(b, false, Type(DType::kI1, {}));
    const Value on = ir::constant_bool(b, true, Type(DType::kI1, v.dims()));
    const Value taken = ir::pad(on, off, zero, zero, interior);
    v = ir::select(taken, ir::pad(v, ir::constant(b, 0, Type(v.dtype(), {})), zero, zero, interior), old);
  }
  return ir::reshape(ir::dynamic_update_slice(base, v, at), buffer.dims());
}

Dims reinterpreted_dims(std::span<const int64_t> dims, DType from, DType to) {
  const int64_t a = static_cast<int64_t>(ir::size_bytes(from)), b = static_cast<int64_t>(ir::size_bytes(to));
  Dims d(dims.begin(), dims.end());
  if (a == b) return d;
  if (!d.empty() && d.back() * a % b == 0) {
    d.back() = d.back() * a / b;
    return d;
  }
  int64_t n = 1;
  for (int64_t e : d) n *= e;
  return {n * a / b};
}

namespace {

DType unsigned_of(size_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kUI8;
    case 2:
      return DType::kUI16;
    case 4:
      return DType::kUI32;
    default:
      return DType::kUI64;
  }
}

// Any dtype to its bits: [..., k] of an unsigned type of at most 8 bytes; complex adds a minor pair.
Value to_bits(const Value& v) {
  if (ir::is_bool(v.dtype())) return ir::convert(v, DType::kUI8);
  if (ir::is_complex(v.dtype())) {
    const int64_t minor = v.rank();
    return to_bits(ir::concatenate({ir::unsqueeze(ir::real(v), minor), ir::unsqueeze(ir::imag(v), minor)}, minor));
  }
  return ir::bitcast_convert(v, unsigned_of(ir::size_bytes(v.dtype())));
}

// flat: rank 1 of an unsigned type; returns rank 1 of the unsigned type with `bytes`.
Value change_width(const Value& flat, size_t bytes) {
  const int64_t have = static_cast<int64_t>(ir::size_bytes(flat.dtype())), want = static_cast<int64_t>(bytes);
  if (have == want) return flat;
  const int64_t n = flat.type().numel();
  const DType to = unsigned_of(bytes);
  if (n == 0) return ir::constant(flat.builder(), 0, Type(to, {0}));
  if (have > want) {
    const Value wide = flat.builder().op("stablehlo.bitcast_convert", {flat}, Type(to, {n, have / want}));
    return ir::reshape(wide, {n * have / want});
  }
  const int64_t k = want / have;
  const Value whole = ir::slice(flat, {0}, {n / k * k}, {1});
  return flat.builder().op("stablehlo.bitcast_convert", {ir::reshape(whole, {n / k, k})}, Type(to, {n / k}));
}

}  // namespace

Value reinterpret(const Value& v, DType to) {
  if (v.dtype() == to) return v;
  const Dims dims = reinterpreted_dims(v.dims(), v.dtype(), to);
  const Value bits = to_bits(v);
  Value flat = ir::reshape(bits, {bits.type().numel()});
  if (ir::is_complex(to)) {
    flat = change_width(flat, ir::size_bytes(ir::real_of(to)));
    const Value pairs = ir::reshape(ir::bitcast_convert(flat, ir::real_of(to)), {flat.type().numel() / 2, 2});
    const Value re = ir::squeeze(ir::slice_in_dim(pairs, 1, 0, 1), 1),
                im = ir::squeeze(ir::slice_in_dim(pairs, 1, 1, 2), 1);
    return ir::reshape(ir::complex(re, im), dims);
  }
  flat = change_width(flat, ir::size_bytes(to));
  const Value typed = ir::is_bool(to) ? ir::convert(flat, DType::kI1) : ir::bitcast_convert(flat, to);
  return ir::reshape(typed, dims);
}

}  // namespace tpu::ops
