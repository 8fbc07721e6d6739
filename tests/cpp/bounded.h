// One rule, run with fixed sizes and with bounds: the results must be the same.
#pragma once

#include <functional>

#include "tests/cpp/machine.h"

namespace tpu::test {

// Shape of an operand: negative numbers are bounded dimensions, -1 the first run-time size, -2 the
// second.
struct Shape {
  DType dtype = DType::kF32;
  Dims dims;
};

using Rule = std::function<Values(ir::Builder& b, const Values& operands)>;
using Fill = std::function<Array(size_t operand, const Type& type)>;

// Bounds of the run-time sizes, and the sizes that each program runs with.
constexpr int64_t kBounds[] = {16, 8};
inline const std::vector<std::vector<int64_t>> kSizes = {{1, 1}, {5, 3}, {16, 8}, {9, 8}};

inline Dims with_sizes(const Dims& dims, const std::vector<int64_t>& sizes) {
  Dims r = dims;
  for (int64_t& d : r) {
    if (d < 0) d = sizes[-d - 1];
  }
  return r;
}

// A parameter at its bound, and its sizes as further parameters.
struct Bounded {
  ir::Builder b;
  Values sizes, operands;

  explicit Bounded(const std::vector<Shape>& shapes) {
    for (size_t i = 0; i < std::size(kBounds); ++i) sizes.push_back(b.parameter(Type(DType::kI32, {})));
    for (const Shape& s : shapes) {
      Value v = b.parameter(Type(s.dtype, with_sizes(s.dims, {std::begin(kBounds), std::end(kBounds)})));
      for (size_t d = 0; d < s.dims.size(); ++d) {
        if (s.dims[d] < 0) v = ir::set_dimension_size(v, d, sizes[-s.dims[d] - 1]);
      }
      operands.push_back(v);
    }
  }
  Type type(const Shape& s) const {
    Type t(s.dtype, with_sizes(s.dims, {std::begin(kBounds), std::end(kBounds)}));
    for (size_t d = 0; d < s.dims.size(); ++d) t.set_dynamic(d, s.dims[d] < 0);
    return t;
  }
};

// Runs the rule with each of the sizes, fixed and bounded, and compares all results within `tolerance`.
// expected (may be null): what the fixed program must give.
inline void both(const std::string& name, const std::vector<Shape>& shapes, const Rule& rule, const Fill& fill,
                 double tolerance,
                 const std::function<std::vector<Array>(const std::vector<Array>&)>& expected = nullptr) {
  Bounded bounded(shapes);
  const Values results = rule(bounded.b, bounded.operands);
  const Compiled program = compile(bounded.b, results);
  for (const std::vector<int64_t>& sizes : kSizes) {
    ir::Builder b;
    Values operands;
    std::vector<Array> arguments, padded;
    for (int64_t n : sizes) padded.push_back(array<int32_t>({}, {static_cast<int32_t>(n)}));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Type type(shapes[i].dtype, with_sizes(shapes[i].dims, sizes));
      operands.push_back(b.parameter(type));
      arguments.push_back(fill(i, type));
      // What lies beyond the sizes must not matter: NaN, or a large number, or true.
      const std::byte filler = ir::is_floating(type.dtype()) ? std::byte{0xff}
                               : ir::is_bool(type.dtype())   ? std::byte{1}
                                                             : std::byte{0x3f};
      padded.push_back(enlarge(
          arguments.back(),
          program.outputs.empty() ? Dims{} : with_sizes(shapes[i].dims, {std::begin(kBounds), std::end(kBounds)}),
          filler));
    }
    const std::vector<Array> fixed = run(compile(b, rule(b, operands)), arguments);
    const std::vector<Array> got = run(program, padded);
    const std::string where = name + " with sizes " + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]);
    for (size_t i = 0; i < fixed.size(); ++i) {
      for (int64_t d = 0; d < results[i].rank(); ++d) {
        const bool same = fixed[i].dims[d] == results[i].type().bound(d);
        if (!results[i].type().is_dynamic(d) && !same)
          fail(where + ": dimension " + std::to_string(d) + " of result " + std::to_string(i) + " lost its size");
      }
      const Array part = crop(got[i], fixed[i].dims);
      if (!close(part, fixed[i], tolerance))
        fail(where + ": result " + std::to_string(i) + "\n    got " + show(part) + "\n    not " + show(fixed[i]));
    }
    if (!expected) continue;
    const std::vector<Array> right = expected(arguments);
    for (size_t i = 0; i < right.size(); ++i) {
      if (!close(fixed[i], right[i], std::max(tolerance, 1e-6)))
        fail(where + ": result " + std::to_string(i) + " is\n    " + show(fixed[i]) + "\n    not " + show(right[i]));
    }
  }
}

// Numbers of both signs, different everywhere; small integers for integer types.
inline Array numbers(size_t operand, const Type& type) {
  Array a(type.dtype(), type.dims());
  uint64_t state = 88172645463325252ull + operand * 977;
  for (int64_t i = 0; i < a.numel(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double u = static_cast<double>(state >> 11) / 9007199254740992.0;
    switch (type.dtype()) {
      case DType::kF32:
        a.set<float>(i, static_cast<float>(4 * u - 2));
        break;
      case DType::kF64:
        a.set<double>(i, 4 * u - 2);
        break;
      case DType::kI32:
        a.set<int32_t>(i, static_cast<int32_t>(20 * u));
        break;
      case DType::kI64:
        a.set<int64_t>(i, static_cast<int64_t>(20 * u));
        break;
      case DType::kI1:
        a.set<uint8_t>(i, u > 0.5);
        break;
      default:
        throw std::logic_error("numbers");
    }
  }
  return a;
}

}  // namespace tpu::test
