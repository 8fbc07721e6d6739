// Joining, repeating, reordering, triangles and diagonals, and the gradients of views.
#include <algorithm>

#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value empty(Op& o) { return ir::constant(o.builder(), 0, o.out()); }

Value cat(Op& o) {
  const Type& out = o.out();
  const int64_t d = o.dim("dim", out.rank());
  Values parts;
  for (const Value& v : o.list("tensors")) {
    // A 1-d tensor without elements may stand beside tensors of any rank.
    const bool legacy = v.rank() == 1 && v.type().is_static() && v.dim(0) == 0;
    if (legacy || (!v.type().is_dynamic(d) && v.dim(d) == 0)) continue;
    parts.push_back(ir::convert(v, out.dtype()));
  }
  return parts.empty() ? empty(o) : ir::concatenate(parts, d);
}

Value stack(Op& o) {
  const int64_t d = o.dim("dim", o.out().rank());
  Values parts;
  for (const Value& v : o.list("tensors")) {
    parts.push_back(ir::unsqueeze(ir::convert(v, o.out().dtype()), d));
  }
  return ir::concatenate(parts, d);
}

Value flip(Op& o) {
  const Value x = o.in("self");
  return o.ints("dims").empty() ? x : ir::reverse(x, o.dims("dims", x.rank()));
}

// The starts of a dynamic slice that moves along dimension d only.
Values starts_along(const Value& x, int64_t d, const Value& start) {
  Values starts(x.rank(), ir::zeros_like(start));
  starts.at(d) = start;
  return starts;
}

Value roll_dim(const Value& x, int64_t d, const Value& shift) {
  const Value n = ir::full_like(shift, x.dim(d));
  // n - shift mod n, in [1, n] for shifts of either sign.
  const Value back = ir::remainder(ir::add(ir::remainder(shift, n), n), n);
  return ir::dynamic_slice(ir::concatenate({x, x}, d), starts_along(x, d, ir::subtract(n, back)), x.dims());
}

Value roll(Op& o) {
  Value x = o.in("self");
  if (x.type().numel() == 0 || x.rank() == 0) return x;
  const Dims dims = o.ints("dims");
  if (dims.empty()) {
    const Value flat = ir::reshape(x, {x.type().numel()});
    return ir::reshape(roll_dim(flat, 0, o.scalar("shifts", DType::kI64)), x.dims());
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = dims[i] < 0 ? dims[i] + x.rank() : dims[i];
    x = roll_dim(x, d, o.scalar("shifts", DType::kI64, i));
  }
  return x;
}

Value repeat(Op& o) {
  const Value x = o.in("self");
  const Dims times = o.ints("repeats");
  const int64_t rank = static_cast<int64_t>(times.size()), leading = rank - x.rank();
  Dims split, map;
  for (int64_t d = 0; d < rank; ++d) {
    split.push_back(times[d]);
    if (d < leading) continue;
    map.push_back(static_cast<int64_t>(split.size()));
    split.push_back(x.dim(d - leading));
  }
  return ir::reshape(ir::broadcast_in_dim(x, Type(x.dtype(), split), map), o.out().dims());
}

// ---- triangles and diagonals ----

// Column minus row over the last two dimensions of `type`, at its bounds.
Value diagonal_number(ir::Builder& b, const Type& type) {
  const int64_t r = type.rank();
  const Type matrix(DType::kI32, {type.bound(r - 2), type.bound(r - 1)});
  return ir::subtract(ir::iota(b, matrix, 1), ir::iota(b, matrix, 0));
}

Rule triangle(const char* keep) {
  return [keep](Op& o) {
    const Value x = o.in("self");
    const Type wide(DType::kI64, {}), narrow(DType::kI32, {});
    const Value diagonal = ir::convert(
        ir::clamp(ir::convert(ir::lowest(o.builder(), narrow), DType::kI64), o.scalar("diagonal", DType::kI64),
                  ir::convert(ir::highest(o.builder(), narrow), DType::kI64)),
        DType::kI32);
    const Value kept = ir::compare(diagonal_number(o.builder(), x.type()), diagonal, keep);
    return ir::select(ir::broadcast_to(kept, x), x, ir::zeros_like(x));
  };
}

Value trace(Op& o) {
  const Value x = o.compute("self");
  const Value number = diagonal_number(o.builder(), x.type());
  const Value diagonal = ir::select(ir::compare(number, ir::zeros_like(number), "EQ"), x, ir::zeros_like(x));
  return ir::reduce(diagonal, ir::constant(o.builder(), 0, Type(x.dtype(), {})), {0, 1}, "add");
}

// `base` with a diagonal of its dimensions d1 and d2 replaced by `v`, whose last dimension it is.
Value with_diagonal(const Value& base, const Value& v, int64_t offset, int64_t d1, int64_t d2) {
  ir::Builder& b = base.builder();
  const int64_t rank = base.rank(), last = v.rank() - 1;
  d1 = d1 < 0 ? d1 + rank : d1;
  d2 = d2 < 0 ? d2 + rank : d2;
  Dims low(v.rank(), 0), high(v.rank(), 0);
  low[last] = std::max<int64_t>(0, -offset);
  high[last] = base.dim(d1) - low[last] - v.dim(last);
  const Value rows = ir::pad(v, ir::constant(b, 0, Type(v.dtype(), {})), low, high, Dims(v.rank(), 0));

  // Dimensions of v in base: all but d1 and d2 in order, then d1.
  Dims map;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != d1 && d != d2) map.push_back(d);
  }
  map.push_back(d1);
  Dims order = map;
  std::sort(order.begin(), order.end());
  Dims permutation;
  for (int64_t d : order) permutation.push_back(std::find(map.begin(), map.end(), d) - map.begin());
  const Value placed = ir::broadcast_in_dim(ir::transpose(rows, permutation), base.type(), order);
  const Type index(DType::kI32, base.dims());
  const Value number = ir::subtract(ir::iota(b, index, d2), ir::iota(b, index, d1));
  return ir::select(ir::compare(number, ir::full_like(number, offset), "EQ"), placed, base);
}

Value diag_embed(Op& o) {
  return with_diagonal(empty(o), o.in("self"), o.integer("offset"), o.integer("dim1"), o.integer("dim2"));
}

Value diagonal_backward(Op& o) {
  return with_diagonal(empty(o), o.in("grad_output"), o.integer("offset"), o.integer("dim1"), o.integer("dim2"));
}

Value diagonal_scatter(Op& o) {
  return with_diagonal(o.in("self"), ir::convert(o.in("src"), o.out().dtype()), o.integer("offset"), o.integer("dim1"),
                       o.integer("dim2"));
}

// ---- writes to a view of zeros or of a tensor: where they start is no part of the program ----

// `index` counted from the end where negative.
Value wrapped(const Value& index, int64_t size) {
  return ir::select(ir::compare(index, ir::zeros_like(index), "LT"), ir::add(index, ir::full_like(index, size)), index);
}

Value with_slice(const Value& base, const Value& v, int64_t d, const Value& start, int64_t step) {
  if (v.type().numel() == 0) return base;
  const Values starts = starts_along(base, d, wrapped(start, base.dim(d)));
  if (step == 1 || v.dim(d) == 1) return ir::dynamic_update_slice(base, v, starts);
  auto spread = [&](const Value& x, const Value& into) {
    Dims interior(x.rank(), 0);
    interior[d] = step - 1;
    const Value nothing = ir::constant(x.builder(), 0, Type(x.dtype(), {}));
    const Value wide = ir::pad(x, nothing, Dims(x.rank(), 0), Dims(x.rank(), 0), interior);
    return ir::dynamic_update_slice(into, wide, starts);
  };
  const Value written = ir::constant_bool(v.builder(), true, v.type().with(DType::kI1));
  const Value nowhere = ir::constant_bool(v.builder(), false, base.type().with(DType::kI1));
  return ir::select(spread(written, nowhere), spread(v, base), base);
}

Value start_of(Op& o, int64_t size) {
  const Type scalar(DType::kI64, {});
  if (!o.has("start")) return ir::constant(o.builder(), 0, scalar);
  const Value start = o.scalar("start", DType::kI64);
  return ir::clamp(ir::constant(o.builder(), -size, scalar), start, ir::constant(o.builder(), size, scalar));
}

Value slice_backward(Op& o) {
  const int64_t d = o.dim("dim", o.out().rank());
  return with_slice(empty(o), o.in("grad_output"), d, start_of(o, o.out().dim(d)), o.integer("step"));
}

Value slice_scatter(Op& o) {
  const int64_t d = o.dim("dim", o.out().rank());
  return with_slice(o.in("self"), ir::convert(o.in("src"), o.out().dtype()), d, start_of(o, o.out().dim(d)),
                    o.integer("step"));
}

Value select_backward(Op& o) {
  const int64_t d = o.dim("dim", o.out().rank());
  return with_slice(empty(o), ir::unsqueeze(o.in("grad_output"), d), d, o.scalar("index", DType::kI64), 1);
}

Value select_scatter(Op& o) {
  const int64_t d = o.dim("dim", o.out().rank());
  const Value src = ir::unsqueeze(ir::convert(o.in("src"), o.out().dtype()), d);
  return with_slice(o.in("self"), src, d, o.scalar("index", DType::kI64), 1);
}

// ---- channels and pixels ----

Value pixel_shuffle(Op& o) {
  const Value x = o.in("self");
  const int64_t r = o.integer("upscale_factor"), n = x.rank() - 3;
  Dims split = x.dims(), order;
  const int64_t height = split[n + 1], width = split[n + 2];
  split.resize(n);
  split.insert(split.end(), {x.dim(n) / (r * r), r, r, height, width});
  for (int64_t d = 0; d <= n; ++d) order.push_back(d);
  for (int64_t d : {3, 1, 4, 2}) order.push_back(n + d);
  return ir::reshape(ir::transpose(ir::reshape(x, split), order), o.out().dims());
}

Value pixel_unshuffle(Op& o) {
  const Value x = o.in("self");
  const int64_t r = o.integer("downscale_factor"), n = x.rank() - 3;
  Dims split = x.dims(), order;
  const int64_t height = split[n + 1], width = split[n + 2];
  split.resize(n + 1);
  split.insert(split.end(), {height / r, r, width / r, r});
  for (int64_t d = 0; d <= n; ++d) order.push_back(d);
  for (int64_t d : {2, 4, 1, 3}) order.push_back(n + d);
  return ir::reshape(ir::transpose(ir::reshape(x, split), order), o.out().dims());
}

Value channel_shuffle(Op& o) {
  const Value x = o.in("self");
  const int64_t groups = o.integer("groups");
  Dims split = x.dims(), order;
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  for (int64_t d = 0; d < x.rank() + 1; ++d) order.push_back(d);
  std::swap(order[1], order[2]);
  return ir::reshape(ir::transpose(ir::reshape(x, split), order), x.dims());
}

const Row kRows[] = {
    {"cat", cat},
    {"stack", stack},
    {"flip", flip},
    {"roll", roll, {.runtime_args = {"shifts"}}},
    {"repeat", repeat},
    {"tril", triangle("LE"), {.runtime_args = {"diagonal"}}},
    {"triu", triangle("GE"), {.runtime_args = {"diagonal"}}},
    {"trace", trace},
    {"diag_embed", diag_embed},
    {"diagonal_backward", diagonal_backward},
    {"diagonal_scatter", diagonal_scatter},
    {"slice_backward", slice_backward, {.runtime_args = {"start", "end"}}},
    {"slice_scatter", slice_scatter, {.runtime_args = {"start", "end"}}},
    {"select_backward", select_backward, {.runtime_args = {"index"}}},
    {"select_scatter", select_scatter, {.runtime_args = {"index"}}},
    {"pixel_shuffle", pixel_shuffle},
    {"pixel_unshuffle", pixel_unshuffle},
    {"channel_shuffle", channel_shuffle},
};

}  // namespace

std::span<const Row> shape_rows() { return kRows; }

}  // namespace tpu::ops
