// Every form of op that the builder writes, on the plugin: that it parses, and what it computes; and
// rules written once, with fixed and with bounded dimensions.

#include <cstdlib>

#include "tests/cpp/bounded.h"

namespace tpu::ir {
namespace {

using test::Array;
using test::array;
using test::both;
using test::fail;
using test::numbers;
using test::Shape;
using C = std::complex<float>;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Array floats(Dims dims, const std::vector<float>& v) { return array<float>(std::move(dims), v); }
Array ints(Dims dims, const std::vector<int32_t>& v) { return array<int32_t>(std::move(dims), v); }
Array bools(Dims dims, const std::vector<bool>& v) {
  Array a(DType::kI1, std::move(dims));
  for (size_t i = 0; i < v.size(); ++i) a.set<uint8_t>(i, v[i]);
  return a;
}

// Collects forms and their expected results into one program.
class Forms {
 public:
  Value operand(const Array& a) {
    arguments_.push_back(a);
    return b.parameter(Type(a.dtype, a.dims));
  }
  void expect(const std::string& name, const Value& result, const Array& expected, double tolerance = 0) {
    names_.push_back(name);
    results_.push_back(result);
    expected_.push_back(expected);
    tolerances_.push_back(tolerance);
  }
  void run() {
    const std::vector<Array> got = test::run(test::compile(b, results_), arguments_);
    for (size_t i = 0; i < got.size(); ++i) {
      if (!test::close(got[i], expected_[i], tolerances_[i]))
        fail(names_[i] + " is " + show(got[i]) + "\n    not " + show(expected_[i]));
    }
  }
  Builder b;

 private:
  std::vector<std::string> names_;
  std::vector<Array> arguments_, expected_;
  Values results_;
  std::vector<double> tolerances_;
};

void constants_are_exact() {
  Forms f;
  Builder& b = f.b;
  f.expect("f32", constant(b, 0.1, Type(DType::kF32, {2})), floats({2}, {0.1f, 0.1f}));
  f.expect("f32 nan", constant(b, std::nan(""), Type(DType::kF32, {})), floats({}, {kNan}));
  f.expect("f32 -inf", constant(b, -INFINITY, Type(DType::kF32, {})), floats({}, {-kInf}));
  f.expect("f64", constant(b, 0.1, Type(DType::kF64, {})), array<double>({}, {0.1}));
  f.expect("bf16", convert(constant(b, 0.1, Type(DType::kBF16, {})), DType::kF32), floats({}, {0.10009765625f}));
  f.expect("i64", constant(b, INT64_MIN, Type(DType::kI64, {})), array<int64_t>({}, {INT64_MIN}));
  f.expect("i8 wraps", constant(b, 200, Type(DType::kI8, {})), array<int8_t>({}, {-56}));
  f.expect("ui64", constant(b, int64_t{-1}, Type(DType::kUI64, {})), array<uint64_t>({}, {UINT64_MAX}));
  f.expect("i4", convert(constant(b, -7, Type(DType::kI4, {})), DType::kI32), ints({}, {-7}));
  f.expect("bool of a number", constant(b, 3, Type(DType::kI1, {2})), bools({2}, {true, true}));
  f.expect("double to int", constant(b, -2.9, Type(DType::kI32, {})), ints({}, {-2}));
  f.expect("complex", constant_complex(b, 1, -2, Type(DType::kC64, {1})), array<C>({1}, {C(1, -2)}));
  f.expect("list", constant_i64(b, {1, -2, 3, 4}, Type(DType::kI64, {2, 2})), array<int64_t>({2, 2}, {1, -2, 3, 4}));
  f.expect("list of one", constant_i64(b, {7}, Type(DType::kI32, {1})), ints({1}, {7}));
  f.expect("list of none", constant_i64(b, {}, Type(DType::kI64, {0})), array<int64_t>({0}, {}));
  f.expect("iota", iota(b, Type(DType::kI32, {2, 3}), 1), ints({2, 3}, {0, 1, 2, 0, 1, 2}));
  f.expect("bool iota", iota(b, Type(DType::kI1, {3}), 0), bools({3}, {false, true, true}));
  const Value ones = f.operand(floats({2}, {1, 1}));
  f.expect("full_like", full_like(ones, 2.5), floats({2}, {2.5, 2.5}));
  f.expect("zeros_like", zeros_like(ones), floats({2}, {0, 0}));
  f.expect("highest f32", highest(b, Type(DType::kF32, {})), floats({}, {kInf}));
  f.expect("lowest f32", lowest(b, Type(DType::kF32, {})), floats({}, {-kInf}));
  f.expect("highest i64", highest(b, Type(DType::kI64, {})), array<int64_t>({}, {INT64_MAX}));
  f.expect("lowest i64", lowest(b, Type(DType::kI64, {})), array<int64_t>({}, {INT64_MIN}));
  f.expect("highest i8", highest(b, Type(DType::kI8, {})), array<int8_t>({}, {127}));
  f.expect("lowest i8", lowest(b, Type(DType::kI8, {})), array<int8_t>({}, {-128}));
  f.expect("highest ui32", highest(b, Type(DType::kUI32, {})), array<uint32_t>({}, {UINT32_MAX}));
  f.expect("lowest ui8", lowest(b, Type(DType::kUI8, {})), array<uint8_t>({}, {0}));
  f.expect("highest i4", convert(highest(b, Type(DType::kI4, {})), DType::kI32), ints({}, {7}));
  f.expect("lowest i4", convert(lowest(b, Type(DType::kI4, {})), DType::kI32), ints({}, {-8}));
  f.expect("highest bool", highest(b, Type(DType::kI1, {})), bools({}, {true}));
  f.run();
}

void elementwise_ops_of_floats() {
  const std::vector<float> v = {0.25f, -0.5f, 1.5f, 3, -2.5f, 0.75f};
  Forms f;
  const Value x = f.operand(floats({2, 3}, v));
  struct Unary {
    const char* name;
    Value (*op)(const Value&);
    float (*reference)(float);
  };
  const Unary unary[] = {
      {"negate", negate, [](float a) { return -a; }},
      {"abs", abs, [](float a) { return std::fabs(a); }},
      {"sign", sign, [](float a) { return a > 0   ? 1.f
                                          : a < 0 ? -1.f
                                                  : 0.f; }},
      {"exponential", exponential, std::exp},
      {"exponential_minus_one", exponential_minus_one, std::expm1},
      {"log", log, std::log},
      {"log_plus_one", log_plus_one, std::log1p},
      {"logistic", logistic, [](float a) { return 1 / (1 + std::exp(-a)); }},
      {"sqrt", sqrt, std::sqrt},
      {"rsqrt", rsqrt, [](float a) { return 1 / std::sqrt(a); }},
      {"cbrt", cbrt, std::cbrt},
      {"tanh", tanh, std::tanh},
      {"cosine", cosine, std::cos},
      {"sine", sine, std::sin},
      {"tan", tan, std::tan},
      {"floor", floor, std::floor},
      {"ceil", ceil, std::ceil},
      {"round_nearest_even", round_nearest_even, std::nearbyint},
      {"chlo.erf", [](const Value& a) { return chlo("erf", a); }, std::erf},
      {"chlo.lgamma", [](const Value& a) { return chlo("lgamma", a); }, std::lgamma},
      {"real", real, [](float a) { return a; }},
      {"imag", imag, [](float) { return 0.f; }},
      {"conj", conj, [](float a) { return a; }},
      {"optimization_barrier", optimization_barrier, [](float a) { return a; }},
  };
  for (const Unary& u : unary) {
    std::vector<float> expected;
    for (float a : v) expected.push_back(u.reference(a));
    f.expect(u.name, u.op(x), floats({2, 3}, expected), 1e-5);
  }
  const std::vector<float> w = {2, 0.5f, -1.5f, 3, 0.125f, -4};
  const Value y = f.operand(floats({2, 3}, w));
  struct Binary {
    const char* name;
    Value (*op)(const Value&, const Value&);
    float (*reference)(float, float);
  };
  const Binary binary[] = {
      {"add", add, [](float a, float b) { return a + b; }},
      {"subtract", subtract, [](float a, float b) { return a - b; }},
      {"multiply", multiply, [](float a, float b) { return a * b; }},
      {"divide", divide, [](float a, float b) { return a / b; }},
      {"remainder", remainder, std::fmod},
      {"maximum", maximum, [](float a, float b) { return std::max(a, b); }},
      {"minimum", minimum, [](float a, float b) { return std::min(a, b); }},
      {"power", power, std::pow},
      {"atan2", atan2, std::atan2},
  };
  for (const Binary& o : binary) {
    std::vector<float> expected, with_scalar;
    for (size_t i = 0; i < v.size(); ++i) {
      expected.push_back(o.reference(v[i], w[i]));
      with_scalar.push_back(o.reference(v[i], 2));
    }
    f.expect(o.name, o.op(x, y), floats({2, 3}, expected), 1e-5);
    f.expect(std::string(o.name) + " with a 0-d operand", o.op(x, constant(f.b, 2, Type(DType::kF32, {}))),
             floats({2, 3}, with_scalar), 1e-5);
  }
  const Value special = f.operand(floats({5}, {1, kNan, kInf, -0.f, -kInf}));
  f.expect("is_finite", is_finite(special), bools({5}, {true, false, false, true, false}));
  f.expect("is_nan", is_nan(special), bools({5}, {false, true, false, false, false}));
  f.expect("maximum keeps NaN", maximum(special, full_like(special, 0)), floats({5}, {1, kNan, kInf, 0, 0}));
  f.expect("clamp", clamp(constant(f.b, -1, Type(DType::kF32, {})), x, constant(f.b, 1, Type(DType::kF32, {}))),
           floats({2, 3}, {0.25f, -0.5f, 1, 1, -1, 0.75f}));
  f.expect("select", select(compare(x, zeros_like(x), "LT"), y, x),
           floats({2, 3}, {0.25f, 0.5f, 1.5f, 3, 0.125f, 0.75f}));
  f.expect("select by a 0-d predicate", select(constant_bool(f.b, false, Type(DType::kI1, {})), y, x),
           floats({2, 3}, v));
  f.expect("reduce_precision", reduce_precision(f.operand(floats({1}, {1.001f})), DType::kBF16), floats({1}, {1}));
  for (auto [direction, expected] :
       std::initializer_list<std::pair<const char*, std::vector<bool>>>{{"EQ", {false, true, false, false}},
                                                                        {"NE", {true, false, true, true}},
                                                                        {"LT", {true, false, false, false}},
                                                                        {"LE", {true, true, false, false}},
                                                                        {"GT", {false, false, true, false}},
                                                                        {"GE", {false, true, true, false}}}) {
    f.expect(direction,
             compare(f.operand(floats({4}, {1, 2, 3, kNan})), constant(f.b, 2, Type(DType::kF32, {})), direction),
             bools({4}, expected));
  }
  f.expect("total order",
           compare(f.operand(floats({2}, {-0.f, kNan})), f.operand(floats({2}, {0.f, kInf})), "LT", "TOTALORDER"),
           bools({2}, {true, false}));
  f.run();
}

void elementwise_ops_of_other_dtypes() {
  Forms f;
  const Value i = f.operand(ints({4}, {7, -7, 0, INT32_MIN})), two = constant(f.b, 2, Type(DType::kI32, {}));
  f.expect("integer divide", divide(i, two), ints({4}, {3, -3, 0, INT32_MIN / 2}));
  f.expect("integer remainder", remainder(i, two), ints({4}, {1, -1, 0, 0}));
  f.expect("and", and_(i, two), ints({4}, {2, 0, 0, 0}));
  f.expect("or", or_(i, two), ints({4}, {7, -5, 2, INT32_MIN + 2}));
  f.expect("xor", xor_(i, two), ints({4}, {5, -5, 2, INT32_MIN + 2}));
  f.expect("not", not_(i), ints({4}, {-8, 6, -1, INT32_MAX}));
  f.expect("shift_left", shift_left(i, two), ints({4}, {28, -28, 0, 0}));
  f.expect("shift_right_arithmetic", shift_right_arithmetic(i, two), ints({4}, {1, -2, 0, INT32_MIN / 4}));
  f.expect("shift_right_logical", shift_right_logical(i, two), ints({4}, {1, 1073741822, 0, 536870912}));
  f.expect("signed compare", compare(i, zeros_like(i), "LT"), bools({4}, {false, true, false, true}));
  const Value u = f.operand(array<uint32_t>({2}, {1, UINT32_MAX}));
  f.expect("unsigned compare", compare(u, constant(f.b, 2, Type(DType::kUI32, {})), "GT"), bools({2}, {false, true}));
  f.expect("abs of unsigned", abs(u), array<uint32_t>({2}, {1, UINT32_MAX}));
  const Value p = f.operand(bools({2}, {true, false})), q = f.operand(bools({2}, {true, true}));
  f.expect("bool and", and_(p, q), bools({2}, {true, false}));
  f.expect("bool not", not_(p), bools({2}, {false, true}));
  f.expect("bool to int", convert(p, DType::kI32), ints({2}, {1, 0}));
  f.expect("to bool", convert(f.operand(floats({3}, {0, 0.1f, kNan})), DType::kI1), bools({3}, {false, true, true}));
  f.expect("float to int", convert(f.operand(floats({2}, {-1.9f, 2.5f})), DType::kI64), array<int64_t>({2}, {-1, 2}));
  f.expect("bitcast", bitcast_convert(f.operand(floats({1}, {1})), DType::kI32), ints({1}, {0x3f800000}));
  const Value c = f.operand(array<C>({2}, {C(3, 4), C(1, -1)}));
  f.expect("complex abs", abs(c), floats({2}, {5, std::sqrt(2.f)}), 1e-6);
  f.expect("real", real(c), floats({2}, {3, 1}));
  f.expect("imag", imag(c), floats({2}, {4, -1}));
  f.expect("conj", conj(c), array<C>({2}, {C(3, -4), C(1, 1)}));
  f.expect("complex multiply", multiply(c, c), array<C>({2}, {C(-7, 24), C(0, -2)}));
  f.expect("complex to real", convert(c, DType::kF32), floats({2}, {3, 1}));
  f.expect("real to complex", convert(f.operand(floats({1}, {2})), DType::kC64), array<C>({1}, {C(2, 0)}));
  f.run();
}

void shapes() {
  Forms f;
  const Value x = f.operand(ints({2, 3}, {1, 2, 3, 4, 5, 6})), zero = constant(f.b, 0, Type(DType::kI32, {}));
  auto at = [&](int v) { return constant(f.b, v, Type(DType::kI32, {})); };
  f.expect("broadcast_in_dim", broadcast_in_dim(f.operand(ints({2}, {1, 2})), Type(DType::kI32, {2, 2}), {0}),
           ints({2, 2}, {1, 1, 2, 2}));
  f.expect("broadcast_to", broadcast_to(f.operand(ints({2, 1}, {1, 2})), Dims{2, 2, 2}),
           ints({2, 2, 2}, {1, 1, 2, 2, 1, 1, 2, 2}));
  f.expect("reshape", reshape(x, {3, 2}), ints({3, 2}, {1, 2, 3, 4, 5, 6}));
  f.expect("unsqueeze", unsqueeze(x, 1), ints({2, 1, 3}, {1, 2, 3, 4, 5, 6}));
  f.expect("squeeze", squeeze(unsqueeze(x, 2), 2), ints({2, 3}, {1, 2, 3, 4, 5, 6}));
  f.expect("transpose", transpose(x, {1, 0}), ints({3, 2}, {1, 4, 2, 5, 3, 6}));
  f.expect("slice", slice(x, {0, 0}, {2, 3}, {1, 2}), ints({2, 2}, {1, 3, 4, 6}));
  f.expect("slice_in_dim", slice_in_dim(x, 1, 1, 3), ints({2, 2}, {2, 3, 5, 6}));
  f.expect("an empty slice", slice_in_dim(x, 1, 3, 3), ints({2, 0}, {}));
  f.expect("dynamic_slice", dynamic_slice(x, {at(1), at(1)}, {1, 2}), ints({1, 2}, {5, 6}));
  f.expect("dynamic_slice is clamped", dynamic_slice(x, {at(-5), at(9)}, {1, 2}), ints({1, 2}, {2, 3}));
  f.expect("dynamic_update_slice", dynamic_update_slice(x, f.operand(ints({1, 2}, {8, 9})), {at(0), at(1)}),
           ints({2, 3}, {1, 8, 9, 4, 5, 6}));
  f.expect("pad", pad(x, zero, {0, 1}, {1, -1}, {0, 1}), ints({3, 5}, {0, 1, 0, 2, 0, 0, 4, 0, 5, 0, 0, 0, 0, 0, 0}));
  f.expect("concatenate", concatenate({x, x}, 0), ints({4, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  f.expect("reverse", reverse(x, {1}), ints({2, 3}, {3, 2, 1, 6, 5, 4}));
  f.expect("size of a fixed dimension", size(x, 1), ints({}, {3}));
  f.expect("count of fixed dimensions", count(x, {0, 1}, DType::kF32), floats({}, {6}));
  f.run();
}

void reductions_windows_and_sorts() {
  Forms f;
  Builder& b = f.b;
  const Value x = f.operand(floats({2, 3}, {3, 1, 2, -1, kNan, 5}));
  const Value zero = constant(b, 0, Type(DType::kF32, {}));
  f.expect("sum", ir::reduce(x, zero, {0}, "add"), floats({3}, {2, kNan, 7}));
  f.expect("maximum keeps NaN", ir::reduce(x, lowest(b, Type(DType::kF32, {})), {1}, "maximum"),
           floats({2}, {3, kNan}));
  f.expect("minimum keeps NaN", ir::reduce(x, highest(b, Type(DType::kF32, {})), {1}, "minimum"),
           floats({2}, {1, kNan}));
  f.expect("product", ir::reduce(x, constant(b, 1, Type(DType::kF32, {})), {1}, "multiply"), floats({2}, {6, kNan}));
  const Value p = f.operand(bools({2, 2}, {true, false, true, true}));
  f.expect("and", ir::reduce(p, constant_bool(b, true, Type(DType::kI1, {})), {1}, "and"), bools({2}, {false, true}));
  f.expect("or", ir::reduce(p, constant_bool(b, false, Type(DType::kI1, {})), {0, 1}, "or"), bools({}, {true}));
  f.expect("reduction of nothing", ir::reduce(f.operand(floats({0, 2}, {})), zero, {0}, "add"), floats({2}, {0, 0}));
  // argmax as a reduction of pairs.
  const Value i = iota(b, Type(DType::kI32, {2, 3}), 1), y = f.operand(floats({2, 3}, {3, 1, 9, 7, 7, 5}));
  const Values best = ir::reduce({y, i}, {lowest(b, Type(DType::kF32, {})), constant(b, 0, Type(DType::kI32, {}))}, {1},
                                 [](const Values& a) {
                                   const Value take = compare(a[2], a[0], "GT");
                                   return Values{select(take, a[2], a[0]), select(take, a[3], a[1])};
                                 });
  f.expect("largest", best[0], floats({2}, {9, 7}));
  f.expect("where", best[1], ints({2}, {2, 0}));

  const Window window{.dimensions = {1, 2},
                      .strides = {1, 1},
                      .base_dilations = {},
                      .window_dilations = {},
                      .padding = {{0, 0}, {1, 0}}};
  f.expect("reduce_window",
           reduce_window({y}, {zero}, window, [](const Values& a) { return Values{add(a[0], a[1])}; })[0],
           floats({2, 3}, {3, 4, 10, 7, 14, 12}));
  const Window dilated{
      .dimensions = {2, 1}, .strides = {}, .base_dilations = {2, 1}, .window_dilations = {2, 1}, .padding = {}};
  f.expect("a dilated window",
           reduce_window({y}, {zero}, dilated, [](const Values& a) { return Values{add(a[0], a[1])}; })[0],
           floats({1, 3}, {10, 8, 14}));
  const Window pool{
      .dimensions = {1, 3}, .strides = {1, 3}, .base_dilations = {}, .window_dilations = {}, .padding = {}};
  f.expect("select_and_scatter", select_and_scatter(y, f.operand(floats({2, 1}, {10, 20})), zero, pool),
           floats({2, 3}, {0, 0, 10, 20, 0, 0}));

  const Values sorted = sort({y, i}, 1, true, [](const Values& a) { return Values{compare(a[0], a[1], "LT")}; });
  f.expect("sort", sorted[0], floats({2, 3}, {1, 3, 9, 5, 7, 7}));
  f.expect("sort's indices", sorted[1], ints({2, 3}, {1, 0, 2, 2, 0, 1}));
  const Values top = chlo_top_k(y, 2);
  f.expect("top_k", top[0], floats({2, 2}, {9, 3, 7, 7}));
  f.expect("top_k's indices", top[1], ints({2, 2}, {2, 0, 0, 1}));
  f.run();
}

void contractions_and_linear_algebra() {
  Forms f;
  Builder& b = f.b;
  const Value x = f.operand(floats({2, 3}, {1, 2, 3, 4, 5, 6})), y = f.operand(floats({3, 2}, {1, 0, 2, 1, 0, 3}));
  const DotDims matrix{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {1}, .rhs_contracting = {0}};
  f.expect("dot_general", dot_general(x, y, matrix, DType::kF32), floats({2, 2}, {5, 11, 14, 23}));
  const Value batched = f.operand(floats({2, 1, 2}, {1, 2, 3, 4}));
  const DotDims batch{.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {2}};
  f.expect("a batched dot", dot_general(batched, batched, batch, DType::kF32, "DEFAULT"), floats({2, 1, 1}, {5, 25}));
  const Value image = f.operand(floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})),
              kernel = f.operand(floats({1, 1, 2, 2}, {1, 0, 0, 1}));
  ConvolutionDims conv{.input = "b, f, 0, 1",
                       .kernel = "o, i, 0, 1",
                       .output = "b, f, 0, 1",
                       .strides = {1, 1},
                       .lhs_dilation = {1, 1},
                       .rhs_dilation = {1, 1},
                       .padding = {{0, 0}, {0, 0}},
                       .reversal = {}};
  f.expect("convolution", convolution(image, kernel, conv, Type(DType::kF32, {1, 1, 2, 2})),
           floats({1, 1, 2, 2}, {6, 8, 12, 14}));
  conv.padding = {{1, 1}, {1, 1}};
  conv.strides = {2, 2};
  conv.reversal = {true, true};
  f.expect("a strided, padded, reversed one", convolution(image, kernel, conv, Type(DType::kF32, {1, 1, 2, 2})),
           floats({1, 1, 2, 2}, {1, 3, 7, 14}));
  const Value c = f.operand(floats({2, 2}, {4, 2, 2, 5}));
  f.expect("cholesky", select(f.operand(bools({2, 2}, {true, false, true, true})), cholesky(c, true), zeros_like(c)),
           floats({2, 2}, {2, 0, 1, 2}), 1e-6);
  f.expect("triangular_solve",
           triangular_solve(f.operand(floats({2, 2}, {2, 0, 1, 2})), f.operand(floats({2, 1}, {2, 5})), true, true,
                            false, "NO_TRANSPOSE"),
           floats({2, 1}, {1, 2}), 1e-6);
  f.expect("fft", fft(f.operand(array<C>({4}, {1, 2, 3, 4})), "FFT", {4}, Type(DType::kC64, {4})),
           array<C>({4}, {C(10, 0), C(-2, 2), C(-2, 0), C(-2, -2)}));
  f.expect("rfft", real(fft(f.operand(floats({4}, {1, 2, 3, 4})), "RFFT", {4}, Type(DType::kC64, {3}))),
           floats({3}, {10, -2, -2}), 1e-6);
  const Values qr = custom_call("Qr", {c}, {Type(DType::kF32, {2, 2}), Type(DType::kF32, {2})}, "", b);
  f.expect("custom_call", abs(slice(qr[0], {0, 0}, {1, 1}, {1, 1})), floats({1, 1}, {std::sqrt(20.f)}), 1e-5);
  f.run();
}

void indexing() {
  Forms f;
  const Value x = f.operand(ints({3, 2}, {1, 2, 3, 4, 5, 6})), i = f.operand(ints({4}, {2, 0, 2, 1}));
  const GatherDims rows{.offset_dims = {1},
                        .collapsed_slice_dims = {0},
                        .operand_batching_dims = {},
                        .start_indices_batching_dims = {},
                        .start_index_map = {0},
                        .index_vector_dim = 1,
                        .slice_sizes = {1, 2}};
  f.expect("gather", gather(x, i, rows, Type(DType::kI32, {4, 2})), ints({4, 2}, {5, 6, 1, 2, 5, 6, 3, 4}));
  const GatherDims batched{.offset_dims = {},
                           .collapsed_slice_dims = {1},
                           .operand_batching_dims = {0},
                           .start_indices_batching_dims = {0},
                           .start_index_map = {1},
                           .index_vector_dim = 2,
                           .slice_sizes = {1, 1}};
  f.expect("a batched gather", gather(x, f.operand(ints({3, 1}, {1, 0, 1})), batched, Type(DType::kI32, {3, 1})),
           ints({3, 1}, {2, 3, 6}));
  const ScatterDims into{.update_window_dims = {1},
                         .inserted_window_dims = {0},
                         .input_batching_dims = {},
                         .scatter_indices_batching_dims = {},
                         .scatter_dims_to_operand_dims = {0},
                         .index_vector_dim = 1};
  const Value updates = f.operand(ints({3, 2}, {10, 20, 30, 40, 50, 60}));
  f.expect("scatter adds, and drops what is outside",
           scatter(x, f.operand(ints({3}, {1, 1, 7})), updates, into,
                   [](const Values& a) { return Values{add(a[0], a[1])}; }),
           ints({3, 2}, {1, 2, 43, 64, 5, 6}));
  const ScatterDims batched_into{.update_window_dims = {},
                                 .inserted_window_dims = {1},
                                 .input_batching_dims = {0},
                                 .scatter_indices_batching_dims = {0},
                                 .scatter_dims_to_operand_dims = {1},
                                 .index_vector_dim = 2,
                                 .unique_indices = true};
  f.expect("a batched scatter",
           scatter(x, f.operand(ints({3, 1}, {1, 0, 1})), f.operand(ints({3, 1}, {7, 8, 9})), batched_into,
                   [](const Values& a) { return Values{a[1]}; }),
           ints({3, 2}, {1, 7, 8, 4, 5, 9}));
  f.run();
}

void control_flow() {
  Forms f;
  Builder& b = f.b;
  const Value n = f.operand(ints({}, {5})), one = constant(b, 1, Type(DType::kI32, {}));
  const Values found = while_loop(
      {n, one}, [&](const Values& v) { return Values{compare(v[0], one, "GT")}; },
      [&](const Values& v) { return Values{subtract(v[0], one), multiply(v[1], v[0])}; });
  f.expect("while", found[1], ints({}, {120}));
  for (bool yes : {true, false}) {
    f.expect("if",
             if_(
                 f.operand(bools({}, {yes})), [&](const Values&) { return Values{n}; },
                 [&](const Values&) { return Values{negate(n)}; }, {Type(DType::kI32, {})})[0],
             ints({}, {yes ? 5 : -5}));
  }
  f.run();
}

void a_module_without_results_or_parameters_parses() {
  Builder nothing;
  CHECK(test::run(test::compile(nothing, {}), {}).empty());
  Builder b;
  const Value x = b.parameter(Type(DType::kF32, {3}));
  b.alias_parameter(0, 0);
  CHECK(b.module({x}).find("tf.aliasing_output = 0") != std::string::npos);
}

void an_exception_in_a_body_leaves_the_builder_as_it_was() {
  Builder b;
  const Value x = b.parameter(Type(DType::kF32, {3}));
  const std::string before = b.body();
  try {
    b.region({Type(DType::kF32, {})}, [&](const Values& a) -> Values {
      add(a[0], a[0]);
      throw StaticShapeRequired("no");
    });
    CHECK(false);
  } catch (const StaticShapeRequired&) {
  }
  CHECK(b.body() == before);
  test::run(test::compile(b, {add(x, x)}), {floats({3}, {1, 2, 3})});
}

// ---- bounds ----

template <class F>
bool needs_static(F&& f) {
  try {
    f();
  } catch (const StaticShapeRequired&) {
    return true;
  }
  return false;
}

void a_bounded_dimension_cannot_be_read_as_a_number() {
  test::Bounded t({{DType::kF32, {-1, 8}}});
  const Value v = t.operands[0];
  CHECK(v.dim(1) == 8 && v.type().bound(0) == 16 && v.type().is_dynamic(0));
  CHECK(needs_static([&] { v.dim(0); }));
  CHECK(needs_static([&] { v.dims(); }));
  CHECK(needs_static([&] { v.type().numel(); }));
  CHECK(needs_static([&] { reshape(v, {128}); }));
  CHECK(needs_static([&] { slice_in_dim(v, 0, 0, 3); }));
  CHECK(needs_static([&] { squeeze(v, 0); }));
  CHECK(needs_static([&] { pad(v, constant(t.b, 0, Type(DType::kF32, {})), {1, 0}, {0, 0}, {0, 0}); }));
  CHECK(needs_static([&] { broadcast_to(v, Dims{4, 16, 8}); }));
  CHECK(needs_static([&] { broadcast_in_dim(constant(t.b, 0, Type(DType::kF32, {})), v.type(), {}); }));
  CHECK(needs_static([&] { chlo_top_k(transpose(v, {1, 0}), 2); }));
  CHECK(needs_static([&] { cholesky(v, true); }));
  CHECK(needs_static([&] { fft(v, "FFT", {8}, v.type()); }));
  CHECK(needs_static([&] { while_loop({v}, [](const Values& a) { return a; }, [](const Values& a) { return a; }); }));
  CHECK(needs_static([&] { dynamic_update_slice(v, v, {t.sizes[0], t.sizes[0]}); }));
  CHECK(!needs_static([&] { slice_in_dim(v, 1, 0, 3); }));
  CHECK(v.type().text() == "tensor<?x8xf32, #stablehlo.bounds<16, ?>>");
}

constexpr double kClose = 1e-5;
const Shape kRows{DType::kF32, {-1, 8}}, kColumns{DType::kF32, {4, -1}}, kPlane{DType::kF32, {-1, -2}},
    kRow{DType::kF32, {8}};

Value sum(const Value& v, const Dims& dims) {
  return ir::reduce(v, constant(v.builder(), 0, Type(v.dtype(), {})), dims, "add");
}
Value kept(const Value& reduced, int64_t d, const Value& like) { return broadcast_to(unsqueeze(reduced, d), like); }
Value softmax(const Value& v, int64_t d) {
  const Value top = ir::reduce(v, lowest(v.builder(), Type(v.dtype(), {})), {d}, "maximum");
  const Value e = exponential(subtract(v, kept(top, d, v)));
  return divide(e, kept(sum(e, {d}), d, v));
}

// By plain loops, over dimension d of two.
Array softmax_of(const Array& a, int64_t d) {
  Array r = a;
  const int64_t n = a.dims[d], stride = d == 0 ? a.dims[1] : 1;
  for (int64_t row = 0; row < a.numel() / n; ++row) {
    const int64_t first = d == 0 ? row : row * n;
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(as_double(a, first + i * stride));
    for (int64_t i = 0; i < n; ++i)
      r.set<float>(first + i * stride, static_cast<float>(std::exp(as_double(a, first + i * stride)) / total));
  }
  return r;
}
Array mean_of(const Array& a) {
  double total = 0;
  for (int64_t i = 0; i < a.numel(); ++i) total += as_double(a, i);
  return floats({}, {static_cast<float>(total / static_cast<double>(a.numel()))});
}

void elementwise_with_bounds() {
  both(
      "add, constants, compare, select", {kRows, kRows},
      [](Builder&, const Values& v) {
        const Value y = add(multiply(v[0], full_like(v[0], 2)), v[1]);
        return Values{y, select(compare(y, zeros_like(y), "LT"), zeros_like(y), tanh(y)), convert(y, DType::kI32),
                      is_nan(y)};
      },
      numbers, 0);
  both(
      "two sizes", {kPlane, kPlane},
      [](Builder&, const Values& v) { return Values{subtract(v[0], v[1]), clamp(v[0], v[1], full_like(v[0], 1.5))}; },
      numbers, 0);
  both(
      "a 0-d operand on either side", {kRows, {DType::kF32, {}}},
      [](Builder&, const Values& v) { return Values{divide(v[0], v[1]), divide(v[1], v[0])}; }, numbers, 0);
  // One operand knows one size and the other the other: the result has both.
  both(
      "sizes from several operands", {{DType::kF32, {-1, 8}}, {DType::kF32, {16, -2}}, kPlane},
      [](Builder& b, const Values& v) {
        if (v[0].type().is_static()) return Values{sum(v[2], {0, 1})};
        const Value zero = constant(b, 0, Type(DType::kF32, {16, 8}));
        const Value rows = with_sizes_of(zero, v[0]), columns = with_sizes_of(zero, v[1]);
        const Value all = add(rows, columns);
        CHECK(all.type().is_dynamic(0) && all.type().is_dynamic(1));
        return Values{sum(add(to_bound(v[2]), all), {0, 1})};
      },
      numbers, kClose);
}

void broadcasts_with_bounds() {
  both(
      "a row to rows", {kRow, kRows},
      [](Builder&, const Values& v) {
        const Value y = broadcast_to(v[0], v[1]);
        return Values{y, sum(y, {0}), add(y, v[1])};
      },
      numbers, kClose);
  both(
      "a bounded row to fixed rows", {{DType::kF32, {-1}}, kColumns},
      [](Builder&, const Values& v) { return Values{broadcast_to(v[0], v[1])}; }, numbers, 0);
  both(
      "a bounded column to a plane of two sizes", {{DType::kF32, {-1, 1}}, kPlane},
      [](Builder&, const Values& v) {
        const Value y = broadcast_to(v[0], v[1]);
        return Values{y, sum(y, {0, 1})};
      },
      numbers, kClose);
  both(
      "a bounded dimension beside a new one", {{DType::kF32, {-1}}},
      [](Builder&, const Values& v) {
        const int64_t n = v[0].type().bound(0);
        const Value y = broadcast_in_dim(v[0], Type(DType::kF32, {3, n}), {1});
        return Values{y, sum(y, {0, 1})};
      },
      numbers, kClose);
  both(
      "filled", {kPlane},
      [](Builder&, const Values& v) { return Values{sum(full_like(v[0], 1), {0, 1}), full_like(v[0], 7)}; }, numbers,
      0);
  // Another dimension is bounded than the one that the operand is bounded in.
  both(
      "from one bounded dimension to another", {{DType::kF32, {8, 1}}, {DType::kF32, {8, -1}}},
      [](Builder&, const Values& v) {
        const Value y = broadcast_to(v[0], v[1]);
        return Values{y, sum(y, {1})};
      },
      numbers, kClose);
}

void reductions_with_bounds() {
  for (const Shape& shape : {kRows, kColumns, kPlane}) {
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{0, 1}}) {
      both(
          "reductions", {shape},
          [&](Builder& b, const Values& v) {
            return Values{sum(v[0], dims), ir::reduce(v[0], lowest(b, Type(DType::kF32, {})), dims, "maximum"),
                          ir::reduce(v[0], highest(b, Type(DType::kF32, {})), dims, "minimum"),
                          ir::reduce(v[0], constant(b, 1, Type(DType::kF32, {})), dims, "multiply"),
                          divide(sum(v[0], dims), count(v[0], dims, DType::kF32))};
          },
          numbers, kClose);
    }
  }
  both(
      "the mean of all", {kPlane},
      [](Builder&, const Values& v) { return Values{divide(sum(v[0], {0, 1}), count(v[0], {0, 1}, DType::kF32))}; },
      numbers, kClose, [](const std::vector<Array>& a) { return std::vector<Array>{mean_of(a[0])}; });
  both(
      "integers and bools", {{DType::kI32, {-1, 8}}, {DType::kI1, {-1, 8}}},
      [](Builder& b, const Values& v) {
        return Values{sum(v[0], {0}), ir::reduce(v[1], constant_bool(b, true, Type(DType::kI1, {})), {0}, "and"),
                      ir::reduce(not_(v[1]), constant_bool(b, false, Type(DType::kI1, {})), {0}, "or"), size(v[0], 0)};
      },
      numbers, 0);
  both(
      "several operands", {kRows},
      [](Builder& b, const Values& v) {
        // The place is known to its bound only; the values have the size.
        const Value place = iota(b, Type(DType::kI32, v[0].type().bounds()), 0);
        return ir::reduce({with_sizes_of(place, v[0]), v[0]},
                          {constant(b, 0, Type(DType::kI32, {})), lowest(b, Type(DType::kF32, {}))}, {0},
                          [](const Values& a) {
                            const Value take = compare(a[3], a[1], "GT");
                            return Values{select(take, a[2], a[0]), select(take, a[3], a[1])};
                          });
      },
      numbers, 0);
}

void softmax_with_bounds() {
  for (int64_t d : {0, 1}) {
    for (const Shape& shape : {kRows, kColumns, kPlane}) {
      both(
          "softmax", {shape}, [&](Builder&, const Values& v) { return Values{softmax(v[0], d)}; }, numbers, kClose,
          [&](const std::vector<Array>& a) { return std::vector<Array>{softmax_of(a[0], d)}; });
    }
  }
}

void contractions_with_bounds() {
  const DotDims matrix{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {1}, .rhs_contracting = {0}};
  auto product = [&](Builder&, const Values& v) {
    const Value y = dot_general(v[0], v[1], matrix, DType::kF32);
    return Values{y, sum(y, {0, 1})};
  };
  both("free lhs", {kRows, {DType::kF32, {8, 3}}}, product, numbers, kClose);
  both("free rhs", {{DType::kF32, {3, 8}}, {DType::kF32, {8, -1}}}, product, numbers, kClose);
  both("both free", {kPlane, {DType::kF32, {-2, -1}}}, product, numbers, kClose);
  both("contracted", {kColumns, {DType::kF32, {-1, 5}}}, product, numbers, kClose);
  const DotDims batch{.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {2}};
  both(
      "batched", {{DType::kF32, {-1, 2, 4}}, {DType::kF32, {-1, -2, 4}}},
      [&](Builder&, const Values& v) { return Values{dot_general(v[0], v[1], batch, DType::kF32)}; }, numbers, kClose);
  // Attention over a bounded number of keys for a bounded number of queries.
  both(
      "attention", {{DType::kF32, {-1, 4}}, {DType::kF32, {-2, 4}}, {DType::kF32, {-2, 4}}},
      [&](Builder&, const Values& v) {
        const DotDims scores{.lhs_batching = {}, .rhs_batching = {}, .lhs_contracting = {1}, .rhs_contracting = {1}};
        return Values{dot_general(softmax(dot_general(v[0], v[1], scores, DType::kF32), 1), v[2], matrix, DType::kF32)};
      },
      numbers, kClose);
}

void shapes_with_bounds() {
  both(
      "transpose, reverse, unit dimensions", {kPlane},
      [](Builder&, const Values& v) {
        return Values{transpose(v[0], {1, 0}), reverse(v[0], {0, 1}), unsqueeze(v[0], 1),
                      squeeze(unsqueeze(v[0], 0), 0), sum(transpose(v[0], {1, 0}), {0})};
      },
      numbers, kClose);
  both(
      "slices and padding of a fixed dimension", {kRows},
      [](Builder& b, const Values& v) {
        const Value zero = constant(b, 0, Type(DType::kF32, {})), at = constant(b, 2, Type(DType::kI32, {}));
        return Values{slice_in_dim(v[0], 1, 1, 7, 2), pad(v[0], zero, {0, 1}, {0, 2}, {0, 1}),
                      dynamic_slice(v[0], {constant(b, 0, Type(DType::kI32, {})), at}, {v[0].type().bound(0), 3})};
      },
      numbers, 0);
  both(
      "an update of a fixed dimension", {kColumns, {DType::kF32, {1, 1}}},
      [](Builder& b, const Values& v) {
        const Value at = constant(b, 0, Type(DType::kI32, {}));
        return Values{dynamic_update_slice(v[0], v[1], {constant(b, 2, Type(DType::kI32, {})), at})};
      },
      numbers, 0);
  both(
      "concatenate along a fixed dimension", {kRows, kRows},
      [](Builder&, const Values& v) { return Values{concatenate({v[0], v[1]}, 1)}; }, numbers, 0);
  // The parts lie one after the other at their run-time sizes.
  both(
      "concatenate along the bounded one", {kRows, {DType::kF32, {3, 8}}, kRows},
      [](Builder&, const Values& v) {
        const Value y = concatenate({v[0], v[1], v[2]}, 0);
        return Values{y, sum(y, {0}), size(y, 0)};
      },
      numbers, kClose);
  both(
      "the barrier", {kPlane}, [](Builder&, const Values& v) { return Values{sum(optimization_barrier(v[0]), {0})}; },
      numbers, kClose);
}

void sorts_windows_and_indexing_with_bounds() {
  both(
      "sort along both", {kPlane},
      [](Builder&, const Values& v) {
        auto less = [](const Values& a) { return Values{compare(a[0], a[1], "LT")}; };
        return Values{sort({v[0]}, 0, true, less)[0], sort({v[0]}, 1, true, less)[0]};
      },
      numbers, 0);
  both("top_k of bounded rows", {kRows}, [](Builder&, const Values& v) { return chlo_top_k(v[0], 3); }, numbers, 0);
  both(
      "windows beside the bounded dimension", {kRows},
      [](Builder& b, const Values& v) {
        const Window w{
            .dimensions = {1, 3}, .strides = {1, 2}, .base_dilations = {}, .window_dilations = {}, .padding = {}};
        const Value y = reduce_window({v[0]}, {constant(b, 0, Type(DType::kF32, {}))}, w,
                                      [](const Values& a) { return Values{add(a[0], a[1])}; })[0];
        return Values{y, sum(y, {0})};
      },
      numbers, kClose);
  const GatherDims rows{.offset_dims = {1},
                        .collapsed_slice_dims = {0},
                        .operand_batching_dims = {},
                        .start_indices_batching_dims = {},
                        .start_index_map = {0},
                        .index_vector_dim = 1,
                        .slice_sizes = {1, 8}};
  both(
      "a gather of bounded many", {{DType::kF32, {20, 8}}, {DType::kI32, {-1}}},
      [&](Builder&, const Values& v) {
        const Value y = gather(v[0], v[1], rows, Type(DType::kF32, {v[1].type().bound(0), 8}));
        return Values{y, sum(y, {0})};
      },
      numbers, kClose);
  const ScatterDims into{.update_window_dims = {1},
                         .inserted_window_dims = {0},
                         .input_batching_dims = {},
                         .scatter_indices_batching_dims = {},
                         .scatter_dims_to_operand_dims = {0},
                         .index_vector_dim = 1};
  both(
      "a scatter of bounded many", {{DType::kF32, {20, 8}}, {DType::kI32, {-1}}, kRows},
      [&](Builder&, const Values& v) {
        return Values{scatter(v[0], v[1], v[2], into, [](const Values& a) { return Values{add(a[0], a[1])}; })};
      },
      numbers, kClose);
}

}  // namespace
}  // namespace tpu::ir

#define TEST(name) {#name, tpu::ir::name}
int main(int argc, char** argv) {
  if (!std::getenv("TORCH_TPU_PLUGIN")) return std::puts("skipped: TORCH_TPU_PLUGIN is not set"), 77;
  return tpu::test::run_all(
      {
          TEST(constants_are_exact),
          TEST(elementwise_ops_of_floats),
          TEST(elementwise_ops_of_other_dtypes),
          TEST(shapes),
          TEST(reductions_windows_and_sorts),
          TEST(contractions_and_linear_algebra),
          TEST(indexing),
          TEST(control_flow),
          TEST(a_module_without_results_or_parameters_parses),
          TEST(an_exception_in_a_body_leaves_the_builder_as_it_was),
          TEST(a_bounded_dimension_cannot_be_read_as_a_number),
          TEST(elementwise_with_bounds),
          TEST(broadcasts_with_bounds),
          TEST(reductions_with_bounds),
          TEST(softmax_with_bounds),
          TEST(contractions_with_bounds),
          TEST(shapes_with_bounds),
          TEST(sorts_windows_and_indexing_with_bounds),
      },
      argc, argv);
}
