// Element types, named as StableHLO names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tpu::ir {

enum class DType : uint8_t {
  kI1,
  kI4,
  kI8,
  kI16,
  kI32,
  kI64,
  kUI4,
  kUI8,
  kUI16,
  kUI32,
  kUI64,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
};

// The spelling inside tensor<...>: "f32", "i1", "complex<f32>".
std::string_view text(DType dtype);
// Bytes of one element in a host buffer (packed 4-bit types take one byte each there).
size_t size_bytes(DType dtype);

bool is_complex(DType dtype);
bool is_floating(DType dtype);
// Signed and unsigned integers, without i1.
bool is_integer(DType dtype);
bool is_unsigned(DType dtype);
inline bool is_bool(DType dtype) { return dtype == DType::kI1; }
inline bool is_integral(DType dtype) { return is_integer(dtype) || is_bool(dtype); }

// f32 of c64, f64 of c128, anything else itself.
DType real_of(DType dtype);
// c64 of f32, c128 of f64.
DType complex_of(DType dtype);
// The type PyTorch computes in: f32 for 16-bit and smaller floats, itself otherwise (ATen/OpMathType.h).
DType opmath(DType dtype);

}  // namespace tpu::ir
