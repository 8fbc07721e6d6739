// Programs made with ir::Builder, compiled and run on the plugin that TORCH_TPU_PLUGIN names.
#pragma once

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/check.h"
#include "tpu/ir/builder.h"
#include "tpu/runtime/session.h"

namespace tpu::test {

using ir::Dims;
using ir::DType;
using ir::Type;
using ir::Value;
using ir::Values;

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::kI1;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kI8;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kUI8;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kUI32;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kUI64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DType::kC64;
}

// A dense row-major array in host memory.
struct Array {
  DType dtype = DType::kF32;
  Dims dims;
  std::vector<std::byte> bytes;

  Array() = default;
  Array(DType dtype, Dims dims) : dtype(dtype), dims(std::move(dims)), bytes(numel() * ir::size_bytes(dtype)) {}
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  template <typename T>
  T at(int64_t i) const {
    T v;
    std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
    return v;
  }
  template <typename T>
  void set(int64_t i, T v) {
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
  bool operator==(const Array&) const = default;
};

template <typename T>
Array array(Dims dims, const std::vector<T>& values) {
  Array a(dtype_of<T>(), std::move(dims));
  if (a.numel() != static_cast<int64_t>(values.size())) throw std::logic_error("array: the number of values is wrong");
  for (size_t i = 0; i < values.size(); ++i) a.set<T>(i, values[i]);
  return a;
}

inline double as_double(const Array& a, int64_t i) {
  switch (a.dtype) {
    case DType::kF32:
      return a.at<float>(i);
    case DType::kF64:
      return a.at<double>(i);
    case DType::kI32:
      return a.at<int32_t>(i);
    case DType::kI64:
      return static_cast<double>(a.at<int64_t>(i));
    case DType::kI1:
      return a.at<uint8_t>(i);
    default:
      throw std::logic_error("as_double: " + std::string(ir::text(a.dtype)));
  }
}

inline std::string show(const Array& a) {
  std::string s = std::string(ir::text(a.dtype)) + "[";
  for (int64_t d : a.dims) s += std::to_string(d) + " ";
  s += "] ";
  for (int64_t i = 0; i < std::min<int64_t>(a.numel(), 24); ++i) {
    if (a.dtype == DType::kF32 || a.dtype == DType::kF64 || a.dtype == DType::kI32 || a.dtype == DType::kI64 ||
        a.dtype == DType::kI1) {
      s += std::to_string(as_double(a, i)) + " ";
    } else {
      const size_t n = ir::size_bytes(a.dtype);
      for (size_t k = 0; k < n; ++k) {
        char text[4];
        std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(a.bytes[i * n + k]));
        s += text;
      }
      s += " ";
    }
  }
  return s;
}

// Equal, or for floats within `tolerance`, relative above 1. NaN equals NaN.
inline bool close(const Array& a, const Array& b, double tolerance) {
  if (a.dtype != b.dtype || a.dims != b.dims) return false;
  if (a.bytes == b.bytes) return true;
  if (a.dtype != DType::kF32 && a.dtype != DType::kF64) return false;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = as_double(a, i), y = as_double(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= tolerance * std::max(1.0, std::abs(y)))) return false;
  }
  return true;
}

// The first dims of a larger array: what a bounded result holds.
inline Array crop(const Array& a, const Dims& dims) {
  Array r(a.dtype, dims);
  const size_t n = ir::size_bytes(a.dtype);
  for (int64_t i = 0; i < r.numel(); ++i) {
    int64_t rest = i, from = 0, stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      from += rest % dims[d] * stride;
      rest /= dims[d];
      stride *= a.dims[d];
    }
    std::memcpy(r.bytes.data() + i * n, a.bytes.data() + from * n, n);
  }
  return r;
}

// `a` with its dimensions enlarged; the new places hold `filler` in every byte.
inline Array enlarge(const Array& a, const Dims& dims, std::byte filler) {
  Array r(a.dtype, dims);
  std::fill(r.bytes.begin(), r.bytes.end(), filler);
  const size_t n = ir::size_bytes(a.dtype);
  for (int64_t i = 0; i < a.numel(); ++i) {
    int64_t rest = i, to = 0, stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      to += rest % a.dims[d] * stride;
      rest /= a.dims[d];
      stride *= dims[d];
    }
    std::memcpy(r.bytes.data() + to * n, a.bytes.data() + i * n, n);
  }
  return r;
}

struct Compiled {
  runtime::Session::Program program;
  std::vector<Type> outputs;  // static
};

// What `results` are, as a program of the builder's parameters.
inline Compiled compile(ir::Builder& b, const Values& results) {
  const std::string text = b.module(results);
  Compiled c;
  for (const Value& v : results) c.outputs.emplace_back(v.dtype(), v.type().bounds());
  try {
    c.program = runtime::Session::get().compile(text, runtime::Effort::kQuick, {"test", "test"});
  } catch (const std::exception& e) {
    throw std::runtime_error(std::string(e.what()) + " in\n" + text);
  }
  return c;
}

inline std::vector<Array> run(const Compiled& c, const std::vector<Array>& arguments) {
  runtime::Session& s = runtime::Session::get();
  std::vector<runtime::BufferPtr> buffers;
  std::vector<pjrt::c::Buffer*> raw, out(c.outputs.size());
  for (const Array& a : arguments) {
    buffers.push_back(
        s.to_device(a.bytes.data(), a.dtype, a.dims, 0, pjrt::HostBufferSemantics::kImmutableOnlyDuringCall));
    raw.push_back(buffers.back()->raw());
  }
  s.execute(*c.program, raw, {}, out, 0, 0);
  std::vector<Array> results;
  for (size_t i = 0; i < out.size(); ++i) {
    const pjrt::Buffer buffer(c.program->client(), out[i]);
    Array r(c.outputs[i].dtype(), c.outputs[i].bounds());
    if (buffer.to_host_size() != r.bytes.size())
      throw std::runtime_error("result " + std::to_string(i) + " has another size than its type");
    if (!r.bytes.empty()) buffer.read(r.bytes.data(), r.bytes.size());
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace tpu::test
