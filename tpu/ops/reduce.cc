// Reductions: sums, extrema, logic, moments, norms.
#include <cmath>

#include "tpu/ops/reduction.h"
#include "tpu/ops/rules.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

// What "dim" and "keepdim" say, where the overload has them; else everything is reduced.
struct Axes {
  Dims dims;
  bool keep = false;

  explicit Axes(Op& o) {
    const int64_t rank = o.in(0).rank();
    if (takes(o, "dim")) dims = o.dims("dim", rank);
    if (!takes(o, "dim")) dims = all_dims(o.in(0));
    if (takes(o, "keepdim")) keep = o.flag("keepdim");
  }
  Value shaped(const Value& reduced) const { return keep ? keep_dims(reduced, dims) : reduced; }
};

using Reduction = Value (*)(const Value&, const Dims&);

// f over the operand in the compute dtype.
Rule reduction(Reduction f) {
  return [f](Op& o) {
    const Axes axes(o);
    return axes.shaped(f(o.compute(0), axes.dims));
  };
}

// max and min of the whole tensor, which must have elements.
Rule all_of(Reduction f) {
  return [f](Op& o) {
    const Axes axes(o);
    const Value v = o.compute(0);
    if (v.type().is_static() && v.type().numel() == 0) {
      throw UserError(o.name() +
                      "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                      "with the 'dim' argument.");
    }
    return axes.shaped(f(v, axes.dims));
  };
}

// f over "operand != 0".
Rule logical(Reduction f) {
  return [f](Op& o) {
    const Axes axes(o);
    const Value v = ir::convert(o.in(0), DType::kI1);
    // all(x, dim=()) reduces nothing.
    const bool none = takes(o, "dim") && o.argument("dim").kind == Argument::Kind::kNumberList && o.ints("dim").empty();
    return ir::convert(none ? v : axes.shaped(f(v, axes.dims)), o.out().dtype());
  };
}

Value nansum_over(const Value& v, const Dims& dims) {
  if (!ir::is_floating(v.dtype())) return sum_over(v, dims);
  return sum_over(ir::select(ir::is_nan(v), ir::zeros_like(v), v), dims);
}

Value count_nonzero(Op& o) {
  const Value v = ir::convert(ir::convert(o.in(0), DType::kI1), DType::kI64);
  return sum_over(v, Axes(o).dims);
}

Values aminmax(Op& o) {
  const Axes axes(o);
  return {axes.shaped(min_over(o.in(0), axes.dims)), axes.shaped(max_over(o.in(0), axes.dims))};
}

// max.dim, min.dim
Rule extremum(bool is_max) {
  return [is_max](Op& o) {
    const Axes axes(o);
    if (axes.dims.empty()) {
      return Values{o.in(0), ir::constant(o.builder(), 0, Type(DType::kI64, {}))};
    }
    const Extremum e = extremum_along(o.in(0), axes.dims[0], is_max);
    return Values{axes.shaped(e.values), axes.shaped(ir::convert(e.indices, DType::kI64))};
  };
}

// argmax, argmin; without a dim of the flattened operand.
Rule position(bool is_max) {
  return [is_max](Op& o) {
    const Axes axes(o);
    Value v = o.in(0);
    if (v.rank() == 0) return ir::constant(o.builder(), 0, Type(DType::kI64, {}));
    if (o.has("dim")) {
      const Value at = extremum_along(v, axes.dims[0], is_max).indices;
      return axes.shaped(ir::convert(at, DType::kI64));
    }
    v = ir::reshape(v, {v.type().numel()});
    const Value at = ir::convert(extremum_along(v, 0, is_max).indices, DType::kI64);
    return ir::reshape(at, o.out().dims());
  };
}

struct Moments {
  Value variance, mean;
};

Moments moments(Op& o) {
  const Axes axes(o);
  const Value v = ir::convert(o.in(0), ir::opmath(o.in(0).dtype()));
  const Value mean = mean_over(v, axes.dims);
  const Value off = ir::subtract(v, stretch(mean, axes.dims, v));
  Value square = ir::multiply(ir::real(off), ir::real(off));
  if (ir::is_complex(v.dtype())) {
    square = ir::add(square, ir::multiply(ir::imag(off), ir::imag(off)));
  }
  const DType dtype = square.dtype();
  const Value one = ir::constant(o.builder(), 1, Type(dtype, {}));
  const Value correction = o.has("correction") ? o.scalar("correction", dtype) : one;
  const Value n = ir::subtract(ir::count(v, axes.dims, dtype), correction);
  const Value divisor = ir::maximum(n, ir::zeros_like(n));
  return {axes.shaped(ir::divide(sum_over(square, axes.dims), divisor)), axes.shaped(mean)};
}

Values std_mean(Op& o) {
  const Moments m = moments(o);
  return {ir::sqrt(m.variance), m.mean};
}

Values var_mean(Op& o) {
  const Moments m = moments(o);
  return {m.variance, m.mean};
}

// The p-norm; `order` names the argument that holds p.
Value vector_norm(Op& o, const char* order) {
  const Axes axes(o);
  const DType dtype = ir::real_of(o.compute_dtype());
  const Value in = o.in(0);
  const Value v = ir::is_complex(in.dtype()) ? ir::convert(ir::abs(in), dtype) : ir::abs(ir::convert(in, dtype));
  const double p = o.number(order, 2.0);
  if (p == 0) {
    const Value counted = ir::convert(ir::compare(v, ir::zeros_like(v), "NE"), dtype);
    return axes.shaped(sum_over(counted, axes.dims));
  }
  if (p == 1) return axes.shaped(sum_over(v, axes.dims));
  if (p == 2) return axes.shaped(ir::sqrt(sum_over(ir::multiply(v, v), axes.dims)));
  if (std::isinf(p)) return axes.shaped(p > 0 ? max_over(v, axes.dims) : min_over(v, axes.dims));
  const Type scalar(dtype, {});
  const Value powers = ir::power(v, ir::constant(o.builder(), p, scalar));
  return axes.shaped(ir::power(sum_over(powers, axes.dims), ir::constant(o.builder(), 1.0 / p, scalar)));
}

Rule norm(const char* order) {
  return [order](Op& o) { return vector_norm(o, order); };
}

Value trace(Op& o) {
  const Value v = o.compute(0);
  const Value on = ir::compare(iota_like(v, 0, DType::kI32), iota_like(v, 1, DType::kI32), "EQ");
  return sum_over(ir::select(on, v, ir::zeros_like(v)), {0, 1});
}

// The exclusive or of all elements' 64 bits: of floats those of the double, of integers those of the int64.
Value hash_tensor(Op& o) {
  const Axes axes(o);
  const Value v = o.in(0);
  const Value wide = ir::is_floating(v.dtype()) ? ir::bitcast_convert(ir::convert(v, DType::kF64), DType::kI64)
                                                : ir::convert(v, DType::kI64);
  const Value none = ir::constant(o.builder(), 0, Type(DType::kUI64, {}));
  const Value bits = ir::bitcast_convert(wide, DType::kUI64);
  if (axes.dims.empty()) return axes.shaped(bits);
  return axes.shaped(
      ir::reduce({bits}, {none}, axes.dims, [](const Values& a) { return Values{ir::xor_(a[0], a[1])}; })[0]);
}

const Traits kOrd = {.static_args = {"ord"}};
const Traits kP = {.static_args = {"p"}};

const Row kRows[] = {
    {"sum", reduction(sum_over)},
    {"sum.dim_IntList", reduction(sum_over)},
    {"nansum", reduction(nansum_over)},
    {"mean", reduction(mean_over)},
    {"mean.dim", reduction(mean_over)},
    {"prod", reduction(product_over)},
    {"prod.dim_int", reduction(product_over)},
    {"logsumexp", reduction(logsumexp_over)},
    {"trace", trace},
    {"hash_tensor", hash_tensor},
    {"count_nonzero.dim_IntList", count_nonzero},

    {"amax", reduction(max_over)},
    {"amin", reduction(min_over)},
    {"max", all_of(max_over)},
    {"min", all_of(min_over)},
    {"aminmax", aminmax},
    {"max.dim", extremum(true)},
    {"min.dim", extremum(false)},
    {"argmax", position(true)},
    {"argmin", position(false)},

    {"all", logical(all_over)},
    {"all.dim", logical(all_over)},
    {"all.dims", logical(all_over)},
    {"any", logical(any_over)},
    {"any.dim", logical(any_over)},
    {"any.dims", logical(any_over)},

    {"var.correction", [](Op& o) { return moments(o).variance; }},
    {"std.correction", [](Op& o) { return ir::sqrt(moments(o).variance); }},
    {"var_mean.correction", var_mean},
    {"std_mean.correction", std_mean},
    {"linalg_vector_norm", norm("ord"), kOrd},
    {"norm.ScalarOpt_dim", norm("p"), kP},
    {"norm.ScalarOpt_dim_dtype", norm("p"), kP},
};

}  // namespace

std::span<const Row> reduce_rows() { return kRows; }

}  // namespace tpu::ops
