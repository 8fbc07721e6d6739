// How a strided tensor lies in a dense row-major buffer, and the programs that read and write it there.
// A view is a window of the buffer reshaped to `extents`: its starts are run-time operands, so that
// x[0], x[1], ... share one program. What no window expresses (overlapping strides) is a gather.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tpu/ir/builder.h"

namespace tpu::ops {

struct ViewPlan {
  static constexpr int kMaxSegments = 16;
  enum class Kind : uint8_t { kEmpty, kWindow, kGather };
  Kind kind = Kind::kEmpty;
  // Segments of the buffer, outermost first. kGather: none.
  int num_segments = 0;
  std::array<int64_t, kMaxSegments> extents, lengths, steps, starts;
  // Tensor dimensions that walk a segment, by descending stride, and the segment each walks.
  int num_walks = 0;
  std::array<int8_t, kMaxSegments> walk_dim, walk_segment;
  // The starts that differ between calls: segments not taken whole; kGather: the offset alone.
  int num_starts = 0;
  std::array<int64_t, kMaxSegments> run_time_starts;
  // Every element of the buffer is taken exactly once.
  bool is_whole = false;
};

// buffer: dimensions of the dense buffer, in elements of the tensor's dtype. The tensor must lie inside.
// Allocates nothing: it runs on every call with a view operand.
ViewPlan plan_view(std::span<const int64_t> buffer, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                   int64_t offset);

// The tensor's value. starts: one 0-d integer per run-time start.
ir::Value read_view(const ir::Value& buffer, const ViewPlan& plan, std::span<const int64_t> sizes,
                    std::span<const int64_t> strides, const ir::Values& starts);
// The buffer after the tensor was set to value (which has `sizes`).
ir::Value write_view(const ir::Value& buffer, const ViewPlan& plan, std::span<const int64_t> sizes,
                     std::span<const int64_t> strides, const ir::Values& starts, const ir::Value& value);

// The bytes of a dense value seen as another dtype. Dimensions: the last one is rescaled where it
// divides, else all are flattened.
ir::Dims reinterpreted_dims(std::span<const int64_t> dims, ir::DType from, ir::DType to);
ir::Value reinterpret(const ir::Value& v, ir::DType to);

}  // namespace tpu::ops
