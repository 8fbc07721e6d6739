// Random words as a pure function of (seed, offset, flat index): Threefry-2x32 with 20 rounds
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), in integer ops only, so that
// every device, plugin and shape of program draws the same numbers.
#pragma once

#include "tpu/ops/op.h"

namespace tpu::ops {

// Two 32-bit words for each element.
struct Words {
  Value first, second;
};

// The words of counters offset, offset + 1, ... in row-major order of `shape`; seed and offset are
// 0-d ui64.
Words threefry(const Value& seed, const Value& offset, const Dims& shape);

// Multiples of 2^-digits in [0, 1), in `dtype` (f32 or f64).
Value unit_interval(const Words& words, DType dtype, int digits);

// Odd multiples of half a step: never 0 or 1, so that logarithms and tangents stay finite.
Value open_interval(const Words& words, DType dtype);

// Two independent standard normals for each element (Box and Muller): radius from one word, angle
// from the other.
std::pair<Value, Value> standard_normals(const Value& seed, const Value& offset, const Dims& shape, DType real);

// True with the probability `p` (0-d f64 in [0, 1]).
Value bernoulli_mask(const Words& words, const Value& p);

}  // namespace tpu::ops
