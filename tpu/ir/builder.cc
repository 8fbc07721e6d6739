#include "tpu/ir/builder.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace tpu::ir {
namespace {

const Type kI32Scalar(DType::kI32, {});

std::string hex(uint64_t bits, int bytes) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "0x%0*llX", bytes * 2, static_cast<unsigned long long>(bits));
  return buffer;
}

std::string array(const Dims& values) {
  std::string s = "array<i64";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : ": ") + std::to_string(values[i]);
  return s + ">";
}

std::string list(const Dims& values) {
  std::string s = "[";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + std::to_string(values[i]);
  return s + "]";
}

std::string padding_text(const std::vector<std::pair<int64_t, int64_t>>& padding) {
  std::string s = "dense<";
  if (!padding.empty()) {
    s += "[";
    for (size_t i = 0; i < padding.size(); ++i) {
      s += (i ? ", " : "") + list({padding[i].first, padding[i].second});
    }
    s += "]";
  }
  return s + "> : tensor<" + std::to_string(padding.size()) + "x2xi64>";
}

std::string stablehlo(std::string_view name) { return "stablehlo." + std::string(name); }

Value shape_source(const Values& operands) {
  const Value* best = &operands.at(0);
  for (const Value& v : operands) {
    if (v.rank() > best->rank() || (v.rank() == best->rank() && best->type().is_static())) best = &v;
  }
  return *best;
}

[[noreturn]] void mismatch(std::string_view name, const Values& operands) {
  std::string s = "stablehlo." + std::string(name) + ": operands must have one shape and dtype, but got";
  for (const Value& v : operands) s += " " + v.type().text();
  throw std::logic_error(s);
}

// The operand with the dimensions of `like`: 0-d operands are broadcast.
Value match(const Value& v, const Value& like) {
  if (v.rank() == like.rank()) return v;
  return broadcast_to(v, like);
}

Type unbounded(const Type& t) { return Type(t.dtype(), t.bounds()); }

void copy_sizes(const Value& from, int64_t d_from, Value& to, int64_t d_to) {
  if (from.type().is_dynamic(d_from)) to.set_size_id(d_to, from.size_ids().at(d_from));
}

Type dynamic_like(const Value& from, const Type& type, const Dims& map) {
  Type t = type;
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] >= 0 && from.type().is_dynamic(map[d])) t.set_dynamic(d);
  }
  return t;
}

// Emits an op whose result dimension d has the size of from's dimension map[d] (-1: static).
Value mapped(std::string_view name, const Values& operands, const Value& from, const Type& type, const Dims& map,
             std::string_view attributes = {}) {
  Value r = from.builder().op(stablehlo(name), operands, dynamic_like(from, type, map), attributes);
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] >= 0) copy_sizes(from, map[d], r, d);
  }
  return r;
}

Dims identity(int64_t rank) {
  Dims d(rank);
  for (int64_t i = 0; i < rank; ++i) d[i] = i;
  return d;
}

// The operand that gives dimension d its size: one that is bounded there, where there is one.
const Value& sized_in(const Values& operands, int64_t d) {
  for (const Value& v : operands) {
    if (v.type().is_dynamic(d)) return v;
  }
  return operands.at(0);
}

// Operands of one shape, 0-d ones broadcast, to a result of that shape: bounded where any operand is.
Value pointwise(std::string_view name, const Values& operands, DType dtype, std::string_view attributes = {}) {
  const Value like = shape_source(operands);
  Values matched;
  for (const Value& v : operands) {
    matched.push_back(match(v, like));
    if (matched.back().type().bounds() != like.type().bounds()) mismatch(name, operands);
  }
  Type type(dtype, like.type().bounds());
  for (int64_t d = 0; d < like.rank(); ++d) type.set_dynamic(d, sized_in(matched, d).type().is_dynamic(d));
  Value r = like.builder().op(name.find('.') == name.npos ? stablehlo(name) : name, matched, type, attributes);
  for (int64_t d = 0; d < like.rank(); ++d) copy_sizes(sized_in(matched, d), d, r, d);
  return r;
}

// XLA aborts on it.
bool is_too_large(const Type& type) {
  int64_t bytes = static_cast<int64_t>(size_bytes(type.dtype()));
  bool overflows = false;
  for (int64_t d : type.bounds()) {
    if (d == 0) return false;
    overflows = overflows || __builtin_mul_overflow(bytes, d, &bytes);
  }
  return overflows;
}

int bit_width(DType dtype) {
  return dtype == DType::kI4 || dtype == DType::kUI4 ? 4 : 8 * static_cast<int>(size_bytes(dtype));
}

}  // namespace

void Value::set_size_id(int64_t d, int id) {
  if (size_ids_.empty()) size_ids_.assign(rank(), -1);
  size_ids_[d] = id;
  type_.set_dynamic(d, id >= 0);
}

// ---- Builder ----

Value Builder::parameter(const Type& type) {
  parameters_.push_back({type});
  parameter_ids_.push_back(next_id_);
  return Value(this, next_id_++, type);
}

void Builder::alias_parameter(int parameter, int output) { parameters_.at(parameter).aliased_output = output; }

Value Builder::op(std::string_view name, const Values& operands, const Type& result, std::string_view attributes) {
  return ops(name, operands, {result}, attributes).front();
}

Values Builder::ops(std::string_view name, const Values& operands, const std::vector<Type>& results,
                    std::string_view attributes, const std::vector<std::string>& regions,
                    std::string_view discardable_attributes) {
  Values out;
  std::string line;
  const int first = next_id_;
  if (!results.empty()) {
    line += "%v" + std::to_string(first);
    if (results.size() > 1) line += ":" + std::to_string(results.size());
    line += " = ";
  }
  line += "\"" + std::string(name) + "\"(";
  std::string types;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i) line += ", ", types += ", ";
    line += reference(operands[i]);
    types += operands[i].type().text();
  }
  line += ")";
  if (!attributes.empty()) line += " <{" + std::string(attributes) + "}>";
  if (!regions.empty()) {
    line += " (";
    for (size_t i = 0; i < regions.size(); ++i) line += (i ? ", " : "") + regions[i];
    line += ")";
  }
  if (!discardable_attributes.empty()) line += " {" + std::string(discardable_attributes) + "}";
  line += " : (" + types + ") -> ";
  if (results.size() != 1) line += "(";
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_too_large(results[i]))
      throw std::length_error("a value of " + results[i].text() + " has no address in any memory");
    line += (i ? ", " : "") + results[i].text();
    const int id = next_id_++;
    if (results.size() > 1) names_[id] = "%v" + std::to_string(first) + "#" + std::to_string(i);
    out.emplace_back(this, id, results[i]);
  }
  if (results.size() != 1) line += ")";
  body_ += line + "\n";
  return out;
}

std::string Builder::region(const std::vector<Type>& arguments, const Body& body) {
  std::string outer;
  outer.swap(body_);
  Values args;
  std::string header = "{\n^bb0(";
  for (size_t i = 0; i < arguments.size(); ++i) {
    header += (i ? ", " : "") + ("%v" + std::to_string(next_id_)) + ": " + arguments[i].text();
    args.emplace_back(this, next_id_++, arguments[i]);
  }
  header += "):\n";
  if (arguments.empty()) header = "{\n";
  Values results;
  try {
    results = body(args);
    ops("stablehlo.return", results, {});
  } catch (...) {
    body_.swap(outer);
    throw;
  }
  std::string text = header + body_ + "}";
  body_.swap(outer);
  return text;
}

std::string Builder::module(const Values& results) {
  Values final_results;
  for (const Value& r : results) final_results.push_back(to_bound(r));
  std::string s = "module @main {\nfunc.func public @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    s += (i ? ", " : "") + ("%v" + std::to_string(parameter_ids_[i])) + ": " + p.type.text();
    if (p.aliased_output >= 0) {
      s += " {tf.aliasing_output = " + std::to_string(p.aliased_output) + " : i32}";
    }
  }
  s += ") -> (";
  std::string names, types;
  for (size_t i = 0; i < final_results.size(); ++i) {
    const Value& r = final_results[i];
    names += (i ? ", " : "") + reference(r);
    types += (i ? ", " : "") + r.type().text();
  }
  s += types + ") {\n" + body_ + "return";
  if (!final_results.empty()) s += " " + names + " : " + types;
  return s + "\n}\n}\n";
}

std::string Builder::reference(const Value& v) const {
  auto it = names_.find(v.id());
  return it != names_.end() ? it->second : "%v" + std::to_string(v.id());
}

// ---- constants ----

Value constant(Builder& b, double value, const Type& type) {
  if (!type.is_static()) throw std::logic_error("constant: the type must be static: " + type.text());
  const DType dtype = type.dtype();
  std::string element;
  if (dtype == DType::kF64) {
    element = hex(std::bit_cast<uint64_t>(value), 8);
  } else if (dtype == DType::kF32) {
    element = hex(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
  } else if (is_floating(dtype)) {
    return convert(constant(b, value, type.with(DType::kF32)), dtype);
  } else if (is_complex(dtype)) {
    return constant_complex(b, value, 0.0, type);
  } else if (is_bool(dtype)) {
    return constant_bool(b, value != 0, type);
  } else {
    return constant(b, static_cast<int64_t>(value), type);
  }
  return b.op("stablehlo.constant", {}, type, "value = dense<" + element + "> : " + type.text());
}

Value constant(Builder& b, int64_t value, const Type& type) {
  const DType dtype = type.dtype();
  if (is_bool(dtype)) return constant_bool(b, value != 0, type);
  if (!is_integer(dtype)) return constant(b, static_cast<double>(value), type);
  const int bits = bit_width(dtype);
  std::string element;
  if (is_unsigned(dtype)) {
    const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    element = std::to_string(static_cast<uint64_t>(value) & mask);
  } else {
    const int shift = 64 - bits;
    element = std::to_string(static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift);
  }
  return b.op("stablehlo.constant", {}, type, "value = dense<" + element + "> : " + type.text());
}

Value constant(Builder& b, int value, const Type& type) { return constant(b, static_cast<int64_t>(value), type); }

Value constant_bool(Builder& b, bool value, const Type& type) {
  return b.op("stablehlo.constant", {}, type,
              std::string("value = dense<") + (value ? "true" : "false") + "> : " + type.text());
}

Value constant_i64(Builder& b, const std::vector<int64_t>& values, const Type& type) {
  if (static_cast<int64_t>(values.size()) != type.numel()) {
    throw std::logic_error("constant_i64: " + std::to_string(values.size()) + " values for " + type.text());
  }
  // The flat list form needs a rank-1 type; reshape gives the rest.
  const Type flat = type.with(Dims{type.numel()});
  const std::string text = values.empty() ? "" : list(values);
  return reshape(b.op("stablehlo.constant", {}, flat, "value = dense<" + text + "> : " + flat.text()), type.dims());
}

Value constant_complex(Builder& b, double re, double im, const Type& type) {
  const Type part = type.with(real_of(type.dtype()));
  return complex(constant(b, re, part), constant(b, im, part));
}

namespace {
template <typename T>
Value full_like_impl(const Value& x, T value) {
  Value v = constant(x.builder(), value, unbounded(x.type()));
  return with_sizes_of(v, x);
}
}  // namespace

Value full_like(const Value& x, double value) { return full_like_impl(x, value); }
Value full_like(const Value& x, int64_t value) { return full_like_impl(x, value); }
Value full_like(const Value& x, int value) { return full_like_impl(x, value); }
Value zeros_like(const Value& x) { return full_like(x, 0); }

Value highest(Builder& b, const Type& type) {
  const DType dtype = type.dtype();
  if (is_floating(dtype)) return constant(b, std::numeric_limits<double>::infinity(), type);
  if (is_bool(dtype)) return constant_bool(b, true, type);
  if (is_unsigned(dtype)) return constant(b, int64_t{-1}, type);
  return constant(b, static_cast<int64_t>(~uint64_t{0} >> (65 - bit_width(dtype))), type);
}

Value lowest(Builder& b, const Type& type) {
  const DType dtype = type.dtype();
  if (is_floating(dtype)) return constant(b, -std::numeric_limits<double>::infinity(), type);
  if (is_bool(dtype)) return constant_bool(b, false, type);
  if (is_unsigned(dtype)) return constant(b, int64_t{0}, type);
  return constant(b, static_cast<int64_t>(~uint64_t{0} << (bit_width(dtype) - 1)), type);
}

Value iota(Builder& b, const Type& type, int64_t dimension) {
  if (is_bool(type.dtype())) return convert(iota(b, type.with(DType::kI32), dimension), DType::kI1);
  return b.op("stablehlo.iota", {}, unbounded(type), "iota_dimension = " + std::to_string(dimension) + " : i64");
}

// ---- elementwise ----

Value elementwise(std::string_view name, const Values& operands) {
  return elementwise(name, operands, operands.at(0).dtype());
}

Value elementwise(std::string_view name, const Values& operands, DType result) {
  return pointwise(name, operands, result);
}

#define TPU_UNARY(function, name) \
  Value function(const Value& a) { return elementwise(name, {a}); }
#define TPU_BINARY(function, name)                      \
  Value function(const Value& a, const Value& b) {      \
    if (a.dtype() != b.dtype()) mismatch(name, {a, b}); \
    return elementwise(name, {a, b});                   \
  }
TPU_BINARY(add, "add")
TPU_BINARY(subtract, "subtract")
TPU_BINARY(multiply, "multiply")
TPU_BINARY(divide, "divide")
TPU_BINARY(remainder, "remainder")
TPU_BINARY(maximum, "maximum")
TPU_BINARY(minimum, "minimum")
TPU_BINARY(power, "power")
TPU_BINARY(atan2, "atan2")
TPU_BINARY(and_, "and")
TPU_BINARY(or_, "or")
TPU_BINARY(xor_, "xor")
TPU_BINARY(shift_left, "shift_left")
TPU_BINARY(shift_right_logical, "shift_right_logical")
TPU_BINARY(shift_right_arithmetic, "shift_right_arithmetic")
TPU_UNARY(not_, "not")
TPU_UNARY(negate, "negate")
TPU_UNARY(sign, "sign")
TPU_UNARY(exponential, "exponential")
TPU_UNARY(exponential_minus_one, "exponential_minus_one")
TPU_UNARY(log, "log")
TPU_UNARY(log_plus_one, "log_plus_one")
TPU_UNARY(logistic, "logistic")
TPU_UNARY(sqrt, "sqrt")
TPU_UNARY(rsqrt, "rsqrt")
TPU_UNARY(cbrt, "cbrt")
TPU_UNARY(tanh, "tanh")
TPU_UNARY(cosine, "cosine")
TPU_UNARY(sine, "sine")
TPU_UNARY(tan, "tan")
TPU_UNARY(floor, "floor")
TPU_UNARY(ceil, "ceil")
TPU_UNARY(round_nearest_even, "round_nearest_even")
#undef TPU_UNARY
#undef TPU_BINARY

Value abs(const Value& a) {
  if (is_unsigned(a.dtype()) || is_bool(a.dtype())) return a;
  return elementwise("abs", {a}, real_of(a.dtype()));
}
Value is_finite(const Value& a) { return elementwise("is_finite", {a}, DType::kI1); }
Value is_nan(const Value& a) { return compare(a, a, "NE"); }
Value real(const Value& a) { return is_complex(a.dtype()) ? elementwise("real", {a}, real_of(a.dtype())) : a; }
Value imag(const Value& a) {
  return is_complex(a.dtype()) ? elementwise("imag", {a}, real_of(a.dtype())) : zeros_like(a);
}
Value complex(const Value& re, const Value& im) { return elementwise("complex", {re, im}, complex_of(re.dtype())); }
Value conj(const Value& a) { return is_complex(a.dtype()) ? complex(real(a), negate(imag(a))) : a; }
Value chlo(std::string_view name, const Value& a) { return elementwise("chlo." + std::string(name), {a}); }

Value compare(const Value& a, const Value& b, std::string_view direction, std::string_view order) {
  if (a.dtype() != b.dtype()) mismatch("compare", {a, b});
  std::string kind = std::string(order);
  if (kind.empty()) {
    kind = is_floating(a.dtype()) || is_complex(a.dtype()) ? "FLOAT"
           : is_unsigned(a.dtype()) || is_bool(a.dtype())  ? "UNSIGNED"
                                                           : "SIGNED";
  }
  return pointwise("compare", {a, b}, DType::kI1,
                   "comparison_direction = #stablehlo<comparison_direction " + std::string(direction) +
                       ">, compare_type = #stablehlo<comparison_type " + kind + ">");
}

Value select(const Value& predicate, const Value& on_true, const Value& on_false) {
  if (on_true.dtype() != on_false.dtype()) mismatch("select", {predicate, on_true, on_false});
  return pointwise("select", {predicate, on_true, on_false}, on_true.dtype());
}

Value clamp(const Value& low, const Value& x, const Value& high) {
  return pointwise("clamp", {low, x, high}, x.dtype());
}

Value convert(const Value& a, DType dtype) {
  if (a.dtype() == dtype) return a;
  if (is_bool(dtype)) return compare(a, zeros_like(a), "NE");
  if (is_complex(a.dtype()) && !is_complex(dtype)) return convert(real(a), dtype);
  return elementwise("convert", {a}, dtype);
}

Value bitcast_convert(const Value& a, DType dtype) {
  if (a.dtype() == dtype) return a;
  return elementwise("bitcast_convert", {a}, dtype);
}

Value reduce_precision(const Value& a, DType dtype) {
  const char* bits = dtype == DType::kBF16  ? "exponent_bits = 8 : i32, mantissa_bits = 7 : i32"
                     : dtype == DType::kF16 ? "exponent_bits = 5 : i32, mantissa_bits = 10 : i32"
                     : dtype == DType::kF32 ? "exponent_bits = 8 : i32, mantissa_bits = 23 : i32"
                                            : nullptr;
  if (a.dtype() == dtype || bits == nullptr) return a;
  return mapped("reduce_precision", {a}, a, a.type(), identity(a.rank()), bits);
}

// ---- shape ----

namespace {
// Static at the bounds. The verifier allows one bounded dimension here, and inference sees none.
Value broadcast_at_bound(const Value& a, const Dims& bounds, const Dims& map) {
  return a.builder().op("stablehlo.broadcast_in_dim", {to_bound(a)}, Type(a.dtype(), bounds),
                        "broadcast_dimensions = " + array(map));
}
}  // namespace

Value broadcast_in_dim(const Value& a, const Type& type, const Dims& broadcast_dimensions) {
  Type sized(a.dtype(), type.bounds());
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (a.type().is_dynamic(d)) sized.set_dynamic(broadcast_dimensions[d]);
  }
  for (int64_t d = 0; d < type.rank(); ++d) {
    if (type.is_dynamic(d) && !sized.is_dynamic(d))
      throw StaticShapeRequired("broadcast to " + type.text() + ", whose size is not known");
  }
  Value r = broadcast_at_bound(a, type.bounds(), broadcast_dimensions);
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (a.type().is_dynamic(d)) r = set_dimension_size(r, broadcast_dimensions[d], size(a, d));
  }
  return r;
}

Value broadcast_to(const Value& a, const Value& like) {
  const int64_t skip = like.rank() - a.rank();
  bool same = a.type().bounds() == like.type().bounds();
  for (int64_t d = 0; d < like.rank() && same; ++d) same = a.type().is_dynamic(d) || !like.type().is_dynamic(d);
  if (same) return a;
  Dims map;
  for (int64_t d = 0; d < a.rank(); ++d) map.push_back(skip + d);
  Value r = with_sizes_of(broadcast_at_bound(a, like.type().bounds(), map), like);
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (a.type().is_dynamic(d) && !like.type().is_dynamic(map[d])) r = set_dimension_size(r, map[d], size(a, d));
  }
  return r;
}

Value broadcast_to(const Value& a, const Dims& dims) {
  if (a.dims() == dims) return a;
  Dims map;
  const int64_t rank = static_cast<int64_t>(dims.size());
  for (int64_t d = 0; d < a.rank(); ++d) map.push_back(rank - a.rank() + d);
  return broadcast_in_dim(a, Type(a.dtype(), dims), map);
}

Value reshape(const Value& a, const Dims& dims) {
  if (a.type().is_static() && a.type().bounds() == dims) return a;
  a.dims();  // a bounded operand has no static reshape
  return a.builder().op("stablehlo.reshape", {a}, Type(a.dtype(), dims));
}

namespace {
// The verifier allows one bounded dimension here: with more, through the bound.
Value reshape_keeping(const Value& a, const Dims& bounds, const Dims& map) {
  int64_t dynamic = 0;
  for (int64_t d = 0; d < a.rank(); ++d) dynamic += a.type().is_dynamic(d);
  if (dynamic <= 1) return mapped("reshape", {a}, a, Type(a.dtype(), bounds), map);
  Value r = a.builder().op("stablehlo.reshape", {to_bound(a)}, Type(a.dtype(), bounds));
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] >= 0 && a.type().is_dynamic(map[d])) r = set_dimension_size(r, d, size(a, map[d]));
  }
  return r;
}
}  // namespace

Value unsqueeze(const Value& a, int64_t d) {
  Dims bounds = a.type().bounds(), map = identity(a.rank());
  bounds.insert(bounds.begin() + d, 1);
  map.insert(map.begin() + d, -1);
  return reshape_keeping(a, bounds, map);
}

Value squeeze(const Value& a, int64_t d) {
  if (a.dim(d) != 1) throw std::logic_error("squeeze: dimension is not 1 in " + a.type().text());
  Dims bounds = a.type().bounds(), map = identity(a.rank());
  bounds.erase(bounds.begin() + d);
  map.erase(map.begin() + d);
  return reshape_keeping(a, bounds, map);
}

Value transpose(const Value& a, const Dims& permutation) {
  if (permutation == identity(a.rank())) return a;
  Dims bounds;
  for (int64_t d : permutation) bounds.push_back(a.type().bound(d));
  return mapped("transpose", {a}, a, Type(a.dtype(), bounds), permutation, "permutation = " + array(permutation));
}

Value slice(const Value& a, const Dims& starts, const Dims& limits, const Dims& strides) {
  // A head slice of a bounded dimension corrupts memory in XLA: only whole dimensions stay bounded.
  Value x = a;
  Dims map(a.rank(), -1), bounds;
  for (int64_t d = 0; d < a.rank(); ++d) {
    const bool whole = starts[d] == 0 && strides[d] == 1 && limits[d] == a.type().bound(d);
    if (whole) map[d] = d;
    if (!whole && a.type().is_dynamic(d)) {
      throw StaticShapeRequired("slice of a bounded dimension of " + a.type().text());
    }
    bounds.push_back((limits[d] - starts[d] + strides[d] - 1) / strides[d]);
  }
  if (map == identity(a.rank())) return a;
  return mapped(
      "slice", {x}, a, Type(a.dtype(), bounds), map,
      "start_indices = " + array(starts) + ", limit_indices = " + array(limits) + ", strides = " + array(strides));
}

Value slice_in_dim(const Value& a, int64_t d, int64_t start, int64_t limit, int64_t stride) {
  Dims starts(a.rank(), 0), limits = a.type().bounds(), strides(a.rank(), 1);
  starts[d] = start;
  limits[d] = limit;
  strides[d] = stride;
  return slice(a, starts, limits, strides);
}

Value dynamic_slice(const Value& a, const Values& starts, const Dims& sizes) {
  Values operands = {to_bound(a)};
  operands.insert(operands.end(), starts.begin(), starts.end());
  Value r =
      a.builder().op("stablehlo.dynamic_slice", operands, Type(a.dtype(), sizes), "slice_sizes = " + array(sizes));
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (!a.type().is_dynamic(d)) continue;
    if (sizes[d] != a.type().bound(d)) throw StaticShapeRequired("dynamic_slice of " + a.type().text());
    r = set_dimension_size(r, d, size(a, d));
  }
  return r;
}

Value dynamic_update_slice(const Value& a, const Value& update, const Values& starts) {
  Values operands = {a, to_bound(update)};
  if (!update.type().is_static()) throw StaticShapeRequired("dynamic_update_slice with a bounded update");
  operands.insert(operands.end(), starts.begin(), starts.end());
  return mapped("dynamic_update_slice", operands, a, a.type(), identity(a.rank()));
}

Value pad(const Value& a, const Value& value, const Dims& low, const Dims& high, const Dims& interior) {
  Dims bounds, map(a.rank(), -1);
  for (int64_t d = 0; d < a.rank(); ++d) {
    const int64_t n = a.type().bound(d);
    bounds.push_back(n + low[d] + high[d] + std::max<int64_t>(n - 1, 0) * interior[d]);
    if (low[d] == 0 && high[d] == 0 && interior[d] == 0) {
      map[d] = d;
    } else if (a.type().is_dynamic(d)) {
      throw StaticShapeRequired("pad of a bounded dimension of " + a.type().text());
    }
  }
  if (map == identity(a.rank())) return a;
  return mapped("pad", {a, value}, a, Type(a.dtype(), bounds), map,
                "edge_padding_low = " + array(low) + ", edge_padding_high = " + array(high) +
                    ", interior_padding = " + array(interior));
}

Value concatenate(const Values& parts, int64_t d) {
  if (parts.size() == 1) return parts[0];
  const Value first = shape_source(parts);
  Builder& b = first.builder();
  Dims bounds = first.type().bounds();
  bounds[d] = 0;
  bool dynamic = false;
  for (const Value& p : parts) {
    bounds[d] += p.type().bound(d);
    dynamic |= p.type().is_dynamic(d);
  }
  Type type(first.dtype(), bounds);
  for (int64_t k = 0; k < first.rank(); ++k) type.set_dynamic(k, sized_in(parts, k).type().is_dynamic(k));
  Value r = b.op("stablehlo.concatenate", parts, type, "dimension = " + std::to_string(d) + " : i64");
  for (int64_t k = 0; k < first.rank(); ++k) {
    if (k != d) copy_sizes(sized_in(parts, k), k, r, k);
  }
  if (dynamic) {
    Value total = size(parts[0], d);
    for (size_t i = 1; i < parts.size(); ++i) total = add(total, size(parts[i], d));
    r.set_size_id(d, total.id());
  }
  return r;
}

Value reverse(const Value& a, const Dims& dimensions) {
  if (dimensions.empty()) return a;
  return mapped("reverse", {a}, a, a.type(), identity(a.rank()), "dimensions = " + array(dimensions));
}

// ---- bounds ----

Value size(const Value& a, int64_t d) {
  if (a.type().is_dynamic(d)) return Value(&a.builder(), a.size_ids().at(d), kI32Scalar);
  return constant(a.builder(), a.type().bound(d), kI32Scalar);
}

Value count(const Value& a, const Dims& dims, DType dtype) {
  int64_t fixed = 1;
  Value n;
  for (int64_t d : dims) {
    if (!a.type().is_dynamic(d)) {
      fixed *= a.type().bound(d);
    } else {
      const Value s = convert(size(a, d), dtype);
      n = n ? multiply(n, s) : s;
    }
  }
  const Value f = constant(a.builder(), fixed, Type(dtype, {}));
  return n ? multiply(n, f) : f;
}

Value set_dimension_size(const Value& a, int64_t d, const Value& size) {
  Type t = a.type();
  t.set_dynamic(d);
  Value r = a.builder().op("stablehlo.set_dimension_size", {a, size}, t, "dimension = " + std::to_string(d) + " : i64");
  for (int64_t k = 0; k < a.rank(); ++k) copy_sizes(a, k, r, k);
  r.set_size_id(d, size.id());
  return r;
}

Value to_bound(const Value& a) {
  Value v = a;
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (!v.type().is_dynamic(d)) continue;
    const Value bound = constant(a.builder(), a.type().bound(d), kI32Scalar);
    Type t = v.type();
    t.set_dynamic(d, false);
    Value r =
        a.builder().op("stablehlo.set_dimension_size", {v, bound}, t, "dimension = " + std::to_string(d) + " : i64");
    for (int64_t k = d + 1; k < a.rank(); ++k) copy_sizes(a, k, r, k);
    v = r;
  }
  return v;
}

Value with_sizes_of(const Value& a, const Value& like) {
  Value v = a;
  for (int64_t d = 0; d < like.rank(); ++d) {
    if (like.type().is_dynamic(d)) v = set_dimension_size(v, d, size(like, d));
  }
  return v;
}

// ---- reductions and windows ----

namespace {

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> t;
  for (const Value& v : values) t.push_back(v.type());
  return t;
}

std::string window_text(const Window& w) {
  const size_t n = w.dimensions.size();
  auto ones = [n](const Dims& d) { return d.empty() ? Dims(n, 1) : d; };
  return "window_dimensions = " + array(w.dimensions) + ", window_strides = " + array(ones(w.strides)) +
         ", padding = " +
         padding_text(w.padding.empty() ? std::vector<std::pair<int64_t, int64_t>>(n, {0, 0}) : w.padding);
}

std::string dilation_text(const Window& w) {
  const size_t n = w.dimensions.size();
  auto ones = [n](const Dims& d) { return d.empty() ? Dims(n, 1) : d; };
  return ", base_dilations = " + array(ones(w.base_dilations)) +
         ", window_dilations = " + array(ones(w.window_dilations));
}

int64_t window_extent(const Window& w, size_t d, int64_t input) {
  auto one = [d](const Dims& v) { return v.empty() ? int64_t{1} : v[d]; };
  const std::pair<int64_t, int64_t> p = w.padding.empty() ? std::pair<int64_t, int64_t>{0, 0} : w.padding[d];
  const int64_t base = input == 0 ? 0 : (input - 1) * one(w.base_dilations) + 1;
  const int64_t window = (w.dimensions[d] - 1) * one(w.window_dilations) + 1;
  const int64_t padded = base + p.first + p.second;
  return padded < window ? 0 : (padded - window) / one(w.strides) + 1;
}

}  // namespace

Value reduce(const Value& a, const Value& init, const Dims& dimensions, std::string_view reducer) {
  auto plain = [&](const Value& v, const Value& start, std::string_view op) {
    return reduce({v}, {start}, dimensions, [&](const Values& args) { return Values{elementwise(op, args)}; })[0];
  };
  const Value r = plain(a, init, reducer);
  if ((reducer != "maximum" && reducer != "minimum") || !is_floating(a.dtype())) return r;
  // Whether a NaN survives is up to the plugin, and a body that compares does not compile for a TPU
  // where 16-bit floats are widened around the reduction: NaN are looked for by themselves.
  Builder& b = a.builder();
  const Value none = constant_bool(b, false, Type(DType::kI1, {}));
  const Value nan = constant(b, std::numeric_limits<double>::quiet_NaN(), Type(a.dtype(), {}));
  return select(plain(is_nan(a), none, "or"), nan, r);
}

Values reduce(const Values& operands, const Values& inits, const Dims& dimensions, const Body& body) {
  const Value first = shape_source(operands);
  Builder& b = first.builder();
  std::vector<bool> reduced(first.rank(), false);
  for (int64_t d : dimensions) reduced.at(d) = true;
  Dims bounds, map;
  for (int64_t d = 0; d < first.rank(); ++d) {
    if (reduced[d]) continue;
    bounds.push_back(first.type().bound(d));
    map.push_back(d);
  }
  std::vector<Type> scalars, results;
  for (const Value& v : operands) {
    scalars.emplace_back(v.dtype(), Dims{});
    results.push_back(dynamic_like(first, Type(v.dtype(), bounds), map));
  }
  std::vector<Type> arguments = scalars;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  Values all = operands;
  all.insert(all.end(), inits.begin(), inits.end());
  Values out =
      b.ops("stablehlo.reduce", all, results, "dimensions = " + array(dimensions), {b.region(arguments, body)});
  for (Value& r : out) {
    for (size_t d = 0; d < map.size(); ++d) copy_sizes(first, map[d], r, d);
  }
  return out;
}

Values reduce_window(const Values& operands, const Values& inits, const Window& window, const Body& body) {
  const Value& first = operands.at(0);
  Builder& b = first.builder();
  Dims bounds, map(first.rank(), -1);
  for (int64_t d = 0; d < first.rank(); ++d) {
    bounds.push_back(window_extent(window, d, first.type().bound(d)));
    const bool trivial = window.dimensions[d] == 1 && bounds[d] == first.type().bound(d);
    if (trivial) map[d] = d;
    if (!trivial && first.type().is_dynamic(d)) throw StaticShapeRequired("reduce_window over a bounded dimension");
  }
  std::vector<Type> arguments, results;
  for (const Value& v : operands) {
    arguments.emplace_back(v.dtype(), Dims{});
    results.push_back(dynamic_like(first, Type(v.dtype(), bounds), map));
  }
  const std::vector<Type> once = arguments;
  arguments.insert(arguments.end(), once.begin(), once.end());
  Values all = operands;
  all.insert(all.end(), inits.begin(), inits.end());
  Values out = b.ops("stablehlo.reduce_window", all, results, window_text(window) + dilation_text(window),
                     {b.region(arguments, body)});
  for (Value& r : out) {
    for (int64_t d = 0; d < first.rank(); ++d) {
      if (map[d] >= 0) copy_sizes(first, d, r, d);
    }
  }
  return out;
}

Value select_and_scatter(const Value& operand, const Value& source, const Value& init, const Window& window) {
  Builder& b = operand.builder();
  operand.dims();
  source.dims();
  const Type scalar(operand.dtype(), {});
  const std::string ge =
      b.region({scalar, scalar}, [](const Values& a) { return Values{or_(compare(a[0], a[1], "GE"), is_nan(a[0]))}; });
  const std::string sum = b.region({scalar, scalar}, [](const Values& a) { return Values{add(a[0], a[1])}; });
  return b.ops("stablehlo.select_and_scatter", {operand, source, init}, {operand.type()}, window_text(window),
               {ge, sum})[0];
}

Values sort(const Values& operands, int64_t dimension, bool stable, const Body& comparator) {
  Builder& b = operands.at(0).builder();
  std::vector<Type> arguments;
  for (const Value& v : operands) {
    arguments.emplace_back(v.dtype(), Dims{});
    arguments.emplace_back(v.dtype(), Dims{});
  }
  Values out = b.ops("stablehlo.sort", operands, types_of(operands),
                     "dimension = " + std::to_string(dimension) + " : i64, is_stable = " + (stable ? "true" : "false"),
                     {b.region(arguments, comparator)});
  for (size_t i = 0; i < out.size(); ++i) {
    for (int64_t d = 0; d < operands[i].rank(); ++d) copy_sizes(operands[i], d, out[i], d);
  }
  return out;
}

// ---- contractions ----

Value dot_general(const Value& lhs, const Value& rhs, const DotDims& dims, DType result, std::string_view precision) {
  Dims bounds;
  std::vector<std::pair<const Value*, int64_t>> source;
  auto contains = [](const Dims& v, int64_t d) {
    for (int64_t x : v) {
      if (x == d) return true;
    }
    return false;
  };
  for (size_t i = 0; i < dims.lhs_batching.size(); ++i) {
    const int64_t l = dims.lhs_batching[i], r = dims.rhs_batching[i];
    bounds.push_back(lhs.type().bound(l));
    source.emplace_back(lhs.type().is_dynamic(l) ? &lhs : &rhs, lhs.type().is_dynamic(l) ? l : r);
  }
  for (int64_t d = 0; d < lhs.rank(); ++d) {
    if (contains(dims.lhs_batching, d) || contains(dims.lhs_contracting, d)) continue;
    bounds.push_back(lhs.type().bound(d));
    source.emplace_back(&lhs, d);
  }
  for (int64_t d = 0; d < rhs.rank(); ++d) {
    if (contains(dims.rhs_batching, d) || contains(dims.rhs_contracting, d)) continue;
    bounds.push_back(rhs.type().bound(d));
    source.emplace_back(&rhs, d);
  }
  Type type(result, bounds);
  for (size_t d = 0; d < source.size(); ++d) type.set_dynamic(d, source[d].first->type().is_dynamic(source[d].second));
  const std::string p = "#stablehlo<precision " + std::string(precision) + ">";
  Value r =
      lhs.builder().op("stablehlo.dot_general", {lhs, rhs}, type,
                       "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + list(dims.lhs_batching) +
                           ", rhs_batching_dimensions = " + list(dims.rhs_batching) +
                           ", lhs_contracting_dimensions = " + list(dims.lhs_contracting) +
                           ", rhs_contracting_dimensions = " + list(dims.rhs_contracting) + ">, precision_config = [" +
                           p + ", " + p + "]");
  for (size_t d = 0; d < source.size(); ++d) copy_sizes(*source[d].first, source[d].second, r, d);
  return r;
}

Value convolution(const Value& lhs, const Value& rhs, const ConvolutionDims& dims, const Type& result,
                  std::string_view precision) {
  lhs.dims();
  rhs.dims();
  std::string reversal = "array<i1";
  for (size_t i = 0; i < dims.reversal.size(); ++i) {
    reversal += std::string(i ? ", " : ": ") + (dims.reversal[i] ? "true" : "false");
  }
  const std::string p = "#stablehlo<precision " + std::string(precision) + ">";
  return lhs.builder().op(
      "stablehlo.convolution", {lhs, rhs}, result,
      "window_strides = " + array(dims.strides) + ", padding = " + padding_text(dims.padding) +
          ", lhs_dilation = " + array(dims.lhs_dilation) + ", rhs_dilation = " + array(dims.rhs_dilation) +
          (dims.reversal.empty() ? "" : ", window_reversal = " + reversal + ">") +
          ", dimension_numbers = #stablehlo.conv<[" + dims.input + "]x[" + dims.kernel + "]->[" + dims.output +
          "]>, feature_group_count = " + std::to_string(dims.feature_group_count) + " : i64, batch_group_count = " +
          std::to_string(dims.batch_group_count) + " : i64, precision_config = [" + p + ", " + p + "]");
}

// ---- indexing ----

Value gather(const Value& operand, const Value& indices, const GatherDims& dims, const Type& result) {
  Builder& b = operand.builder();
  Type type = result;
  std::vector<std::pair<int64_t, int64_t>> batch;  // result dim, indices dim
  int64_t next = 0;
  for (int64_t d = 0; d < indices.rank(); ++d) {
    if (d == dims.index_vector_dim) continue;
    auto is_offset = [&](int64_t r) {
      for (int64_t o : dims.offset_dims) {
        if (o == r) return true;
      }
      return false;
    };
    while (is_offset(next)) ++next;
    batch.emplace_back(next++, d);
  }
  // From the bound of the operand: sizes of what is left of it are the caller's to set.
  type = unbounded(type);
  for (auto [r, d] : batch) type.set_dynamic(r, indices.type().is_dynamic(d));
  Value out = b.op("stablehlo.gather", {to_bound(operand), indices}, type,
                   "dimension_numbers = #stablehlo.gather<offset_dims = " + list(dims.offset_dims) +
                       ", collapsed_slice_dims = " + list(dims.collapsed_slice_dims) +
                       ", operand_batching_dims = " + list(dims.operand_batching_dims) +
                       ", start_indices_batching_dims = " + list(dims.start_indices_batching_dims) +
                       ", start_index_map = " + list(dims.start_index_map) +
                       ", index_vector_dim = " + std::to_string(dims.index_vector_dim) +
                       ">, indices_are_sorted = false, slice_sizes = " + array(dims.slice_sizes));
  for (auto [r, d] : batch) copy_sizes(indices, d, out, r);
  return out;
}

Value scatter(const Value& operand, const Value& indices, const Value& updates, const ScatterDims& dims,
              const Body& body) {
  Builder& b = operand.builder();
  const Type scalar(operand.dtype(), {});
  Value r =
      b.ops("stablehlo.scatter", {operand, indices, updates}, {operand.type()},
            "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " + list(dims.update_window_dims) +
                ", inserted_window_dims = " + list(dims.inserted_window_dims) +
                ", input_batching_dims = " + list(dims.input_batching_dims) +
                ", scatter_indices_batching_dims = " + list(dims.scatter_indices_batching_dims) +
                ", scatter_dims_to_operand_dims = " + list(dims.scatter_dims_to_operand_dims) +
                ", index_vector_dim = " + std::to_string(dims.index_vector_dim) +
                ">, indices_are_sorted = false, unique_indices = " + (dims.unique_indices ? "true" : "false"),
            {b.region({scalar, scalar}, body)})[0];
  for (int64_t d = 0; d < operand.rank(); ++d) copy_sizes(operand, d, r, d);
  return r;
}

// ---- control flow, linear algebra, other ----

Values while_loop(const Values& init, const Body& condition, const Body& body) {
  Builder& b = init.at(0).builder();
  const std::vector<Type> types = types_of(init);
  for (const Value& v : init) v.dims();
  const std::string cond = b.region(types, condition);
  return b.ops("stablehlo.while", init, types, {}, {cond, b.region(types, body)});
}

Values if_(const Value& predicate, const Body& then_branch, const Body& else_branch, const std::vector<Type>& results) {
  Builder& b = predicate.builder();
  for (const Type& t : results) t.dims();
  const std::string yes = b.region({}, then_branch);
  return b.ops("stablehlo.if", {predicate}, results, {}, {yes, b.region({}, else_branch)});
}

Value fft(const Value& a, std::string_view kind, const Dims& lengths, const Type& result) {
  a.dims();
  return a.builder().op("stablehlo.fft", {a}, result,
                        "fft_type = #stablehlo<fft_type " + std::string(kind) + ">, fft_length = " + array(lengths));
}

Value cholesky(const Value& a, bool lower) {
  a.dims();
  return a.builder().op("stablehlo.cholesky", {a}, a.type(), std::string("lower = ") + (lower ? "true" : "false"));
}

Value triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                       std::string_view transpose_a) {
  a.dims();
  b.dims();
  auto flag = [](bool v) { return std::string(v ? "true" : "false"); };
  return a.builder().op("stablehlo.triangular_solve", {a, b}, b.type(),
                        "left_side = " + flag(left_side) + ", lower = " + flag(lower) +
                            ", unit_diagonal = " + flag(unit_diagonal) + ", transpose_a = #stablehlo<transpose " +
                            std::string(transpose_a) + ">");
}

Values custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                   std::string_view backend_config, Builder& b) {
  for (const Value& v : operands) v.dims();
  return b.ops(
      "stablehlo.custom_call", operands, results,
      "call_target_name = \"" + std::string(target) + "\", backend_config = \"" + std::string(backend_config) + "\"");
}

Values chlo_top_k(const Value& a, int64_t k) {
  Dims bounds = a.type().bounds();
  if (a.type().is_dynamic(a.rank() - 1)) throw StaticShapeRequired("top_k along a bounded dimension");
  bounds.back() = k;
  // Rows of padding are sorted for nothing: XLA expands the op to a sort with an index that has no size.
  Values out = a.builder().ops("chlo.top_k", {to_bound(a)}, {Type(a.dtype(), bounds), Type(DType::kI32, bounds)},
                               "k = " + std::to_string(k) + " : i64");
  for (Value& r : out) r = with_sizes_of(r, a);
  return out;
}

Value optimization_barrier(const Value& a) {
  return with_sizes_of(a.builder().op("stablehlo.optimization_barrier", {to_bound(a)}, unbounded(a.type())), a);
}

}  // namespace tpu::ir
