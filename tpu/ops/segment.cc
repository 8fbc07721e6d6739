// Reductions over consecutive segments of one dimension, which lengths or offsets give, and their gradient. A segment
// is a mask over the dimension: XLA fuses it with the reduction.
#include <limits>

#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// data is (batch..., elements, rest...), results are (batch..., segments, rest...); masks and spread values are
// (batch..., segments, elements, rest...).
struct Segments {
  int64_t axis, count, elements;
  Value lengths;  // (batch..., segments)
  Value member;

  Segments(Op& o, const Value& data) {
    const bool by_offsets = o.has("offsets");
    const Value given = ir::convert(o.in(by_offsets ? "offsets" : "lengths"), DType::kI64);
    axis = given.rank() - 1;
    elements = data.dim(axis);
    Value starts, ends;
    if (by_offsets) {
      count = given.dim(axis) - 1;
      starts = ir::slice_in_dim(given, axis, 0, count);
      ends = ir::slice_in_dim(given, axis, 1, count + 1);
      lengths = ir::subtract(ends, starts);
    } else {
      count = given.dim(axis);
      lengths = given;
      ends = cumulative_sum(given, axis);
      starts = ir::subtract(ends, lengths);
    }
    Dims sizes = data.dims();
    sizes.insert(sizes.begin() + axis, count);
    const Type type(DType::kI64, sizes);
    Dims leading;
    for (int64_t d = 0; d <= axis; ++d) leading.push_back(d);
    const Value place = ir::iota(o.builder(), type, axis + 1);
    member = ir::and_(ir::compare(place, ir::broadcast_in_dim(starts, type, leading), "GE"),
                      ir::compare(place, ir::broadcast_in_dim(ends, type, leading), "LT"));
    if (takes(o, "unsafe") && !o.flag("unsafe") && !by_offsets) check(o);
  }

  // A value like data, or like a result, for each pair of segment and element.
  Value of_data(const Value& v) const { return spread(v, axis); }
  Value of_result(const Value& v) const { return spread(v, axis + 1); }
  // The lengths as a value like a result.
  Value lengths_like(const Value& result) const {
    Dims leading;
    for (int64_t d = 0; d <= axis; ++d) leading.push_back(d);
    return ir::broadcast_in_dim(ir::convert(lengths, result.dtype()), result.type(), leading);
  }
  Dims over_elements() const { return {axis + 1}; }
  Dims over_segments() const { return {axis}; }

 private:
  Value spread(const Value& v, int64_t missing) const {
    Dims kept;
    for (int64_t d = 0; d < v.rank() + 1; ++d) {
      if (d != missing) kept.push_back(d);
    }
    return ir::broadcast_in_dim(v, member.type().with(v.dtype()), kept);
  }

  void check(Op& o) const {
    const Value total = sum_over(lengths, {axis});
    const Value wrong = ir::compare(total, ir::full_like(total, static_cast<int>(elements)), "NE");
    const Value negative = ir::compare(lengths, ir::zeros_like(lengths), "LT");
    const Value none = ir::constant(o.builder(), 0, Type(DType::kI64, {}));
    o.context().check(any_over(negative, all_dims(negative)), none, "RuntimeError", "lengths contains negative value!");
    o.context().check(any_over(wrong, all_dims(wrong)), none, "RuntimeError",
                      "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) "
                      "when !unsafe.");
  }
};

double identity_of(const std::string& reduce) {
  return reduce == "max" ? -kInf : reduce == "min" ? kInf : reduce == "prod" ? 1 : 0;
}

Value segment_reduce(Op& o) {
  const Value data = o.compute("data");
  const std::string reduce = o.text("reduce");
  const Segments s(o, data);
  const Value spread = s.of_data(data);
  const Value masked = ir::select(s.member, spread, ir::full_like(spread, identity_of(reduce)));
  const bool has_initial = o.has("initial");
  auto with_initial = [&](const Value& v, BinaryFunction f) {
    return has_initial ? f(v, ir::broadcast_to(o.scalar("initial", v.dtype()), v)) : v;
  };
  if (reduce == "max") return with_initial(max_over(masked, s.over_elements()), ir::maximum);
  if (reduce == "min") return with_initial(min_over(masked, s.over_elements()), ir::minimum);
  if (reduce == "prod") return with_initial(product_over(masked, s.over_elements()), ir::multiply);
  const Value sum = with_initial(sum_over(masked, s.over_elements()), ir::add);
  if (reduce == "sum") return sum;
  const Value n = s.lengths_like(sum), zero = ir::zeros_like(n);
  // Of nothing the mean is NaN, or the initial value where that is given.
  const Value empty = ir::compare(n, zero, "EQ");
  return has_initial ? ir::select(empty, sum, ir::divide(sum, n)) : ir::divide(sum, n);
}

Value segment_reduce_backward(Op& o) {
  const Value data = o.compute("data"), output = o.compute("output"), grad = o.compute("grad");
  const std::string reduce = o.text("reduce");
  const Segments s(o, data);
  const Value x = s.of_data(data), zero = ir::zeros_like(x), incoming = s.of_result(grad);
  Value slope = incoming;
  if (reduce == "mean") {
    slope = s.of_result(ir::divide(grad, s.lengths_like(grad)));
  } else if (reduce == "max" || reduce == "min") {
    // Equal extrema share the gradient.
    const Value hit = ir::or_(ir::is_nan(x), ir::compare(x, s.of_result(output), "EQ"));
    const Value inside = ir::and_(hit, s.member);
    const Value n = sum_over(ir::convert(inside, x.dtype()), s.over_elements());
    slope = ir::select(hit, ir::divide(incoming, s.of_result(ir::maximum(n, ir::full_like(n, 1)))), zero);
  } else if (reduce == "prod") {
    // The product of the others: without the element itself where that is 0.
    const Value one = ir::full_like(x, 1), is_zero = ir::and_(ir::compare(x, zero, "EQ"), s.member);
    const Value zeros = sum_over(ir::convert(is_zero, x.dtype()), s.over_elements());
    const Value factors = ir::select(ir::and_(s.member, ir::not_(is_zero)), x, one);
    Value rest = product_over(factors, s.over_elements());
    if (o.has("initial")) rest = ir::multiply(rest, ir::broadcast_to(o.scalar("initial", rest.dtype()), rest));
    const Value alone = ir::compare(zeros, ir::full_like(zeros, 1), "EQ");
    const Value others = s.of_result(ir::select(alone, rest, ir::zeros_like(rest)));
    slope = ir::multiply(incoming, ir::select(is_zero, others, ir::divide(s.of_result(output), x)));
  }
  return sum_over(ir::select(s.member, slope, zero), s.over_segments());
}

std::vector<Type> reduced_type(Op& o) {
  const Value given = o.in(o.has("offsets") ? "offsets" : "lengths"), data = o.in("data");
  Dims sizes = data.dims();
  sizes[given.rank() - 1] = given.dim(given.rank() - 1) - (o.has("offsets") ? 1 : 0);
  return {Type(data.dtype(), sizes)};
}

std::vector<Type> like_data(Op& o) { return {o.in("data").type()}; }

const Row kRows[] = {
    {"segment_reduce", segment_reduce, {.types = reduced_type}},
    {"_segment_reduce_backward", segment_reduce_backward, {.types = like_data}},
};

}  // namespace

std::span<const Row> segment_rows() { return kRows; }

}  // namespace tpu::ops
