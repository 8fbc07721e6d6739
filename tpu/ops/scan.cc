// Running sums, products and extrema along one dimension.
#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

Value number(const Value& v, double value) { return ir::constant(v.builder(), value, Type(v.dtype(), {})); }

Value cumsum(Op& o) {
  const Value v = o.compute(0);
  return v.rank() == 0 ? v : cumulative_sum(v, o.dim("dim", v.rank()));
}

Value cumprod(Op& o) {
  const Value v = o.compute(0);
  if (v.rank() == 0) return v;
  return scan({v}, {number(v, 1)}, o.dim("dim", v.rank()),
              [](const Values& a) { return Values{ir::multiply(a[0], a[1])}; })[0];
}

// log(exp(a) + exp(b)); equal infinities have no difference to take.
Value log_add(const Value& a, const Value& b) {
  const Value top = ir::maximum(a, b);
  const Value gap = ir::negate(ir::abs(ir::subtract(a, b)));
  const Value same = ir::and_(ir::compare(a, b, "EQ"), ir::not_(ir::is_finite(a)));
  return ir::select(same, a, ir::add(top, ir::log_plus_one(ir::exponential(gap))));
}

Value logcumsumexp(Op& o) {
  const Value v = o.compute(0);
  if (v.rank() == 0) return v;
  if (ir::is_complex(v.dtype())) throw ir::StaticShapeRequired("logcumsumexp of complex numbers");
  const Value init = ir::lowest(o.builder(), Type(v.dtype(), {}));
  return scan({v}, {init}, o.dim("dim", v.rank()), [](const Values& a) { return Values{log_add(a[0], a[1])}; })[0];
}

// The later of equal extrema counts, and a NaN counts as more extreme than any number.
Rule cumulative_extremum(bool is_max) {
  return [is_max](Op& o) {
    const Value v = o.in(0);
    const Type index(DType::kI64, {});
    if (v.rank() == 0) return Values{v, ir::constant(o.builder(), 0, index)};
    const int64_t d = o.dim("dim", v.rank());
    const Type scalar(v.dtype(), {});
    const Value worst = is_max ? ir::lowest(o.builder(), scalar) : ir::highest(o.builder(), scalar);
    const Value at = iota_like(v, d, index_dtype(v, d));
    const Value before = ir::constant(o.builder(), -1, Type(at.dtype(), {}));
    Values out = scan({v, at}, {worst, before}, d, [is_max](const Values& a) {
      Value later = ir::compare(a[2], a[0], is_max ? "GT" : "LT");
      Value same = ir::compare(a[2], a[0], "EQ");
      if (ir::is_floating(a[0].dtype())) {
        const Value nan0 = ir::is_nan(a[0]), nan2 = ir::is_nan(a[2]);
        later = ir::or_(later, ir::and_(nan2, ir::not_(nan0)));
        same = ir::or_(same, ir::and_(nan2, nan0));
      }
      later = ir::or_(later, ir::and_(same, ir::compare(a[3], a[1], "GT")));
      return Values{ir::select(later, a[2], a[0]), ir::select(later, a[3], a[1])};
    });
    return Values{out[0], ir::convert(out[1], DType::kI64)};
  };
}

std::vector<Type> like_self(Op& o) { return {o.in(0).type()}; }

const Row kRows[] = {
    {"cumsum", cumsum},
    {"cumprod", cumprod},
    {"_logcumsumexp", logcumsumexp, {.types = like_self}},
    {"cummax", cumulative_extremum(true)},
    {"cummin", cumulative_extremum(false)},
};

}  // namespace

std::span<const Row> scan_rows() { return kRows; }

}  // namespace tpu::ops
