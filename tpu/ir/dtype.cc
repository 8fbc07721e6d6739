#include "tpu/ir/dtype.h"

#include <stdexcept>

namespace tpu::ir {

std::string_view text(DType dtype) {
  switch (dtype) {
    case DType::kI1:
      return "i1";
    case DType::kI4:
      return "i4";
    case DType::kI8:
      return "i8";
    case DType::kI16:
      return "i16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kUI4:
      return "ui4";
    case DType::kUI8:
      return "ui8";
    case DType::kUI16:
      return "ui16";
    case DType::kUI32:
      return "ui32";
    case DType::kUI64:
      return "ui64";
    case DType::kF8E4M3FN:
      return "f8E4M3FN";
    case DType::kF8E4M3FNUZ:
      return "f8E4M3FNUZ";
    case DType::kF8E5M2:
      return "f8E5M2";
    case DType::kF8E5M2FNUZ:
      return "f8E5M2FNUZ";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kC64:
      return "complex<f32>";
    case DType::kC128:
      return "complex<f64>";
  }
  throw std::logic_error("text: unknown DType");
}

size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kI1:
    case DType::kI4:
    case DType::kUI4:
    case DType::kI8:
    case DType::kUI8:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
      return 1;
    case DType::kI16:
    case DType::kUI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kUI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kUI64:
    case DType::kF64:
    case DType::kC64:
      return 8;
    case DType::kC128:
      return 16;
  }
  throw std::logic_error("size_bytes: unknown DType");
}

bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }
bool is_floating(DType dtype) { return dtype >= DType::kF8E4M3FN && dtype <= DType::kF64; }
bool is_integer(DType dtype) { return dtype >= DType::kI4 && dtype <= DType::kUI64; }
bool is_unsigned(DType dtype) { return dtype >= DType::kUI4 && dtype <= DType::kUI64; }

DType real_of(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  if (dtype == DType::kC128) return DType::kF64;
  return dtype;
}

DType complex_of(DType dtype) {
  if (is_complex(dtype)) return dtype;
  return dtype == DType::kF64 ? DType::kC128 : DType::kC64;
}

DType opmath(DType dtype) { return is_floating(dtype) && size_bytes(dtype) < 4 ? DType::kF32 : dtype; }

}  // namespace tpu::ir
