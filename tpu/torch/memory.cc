#include "tpu/torch/memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>
#include <map>

#include "tpu/torch/cell.h"
#include "tpu/torch/device.h"
#include "tpu/torch/kernel.h"

namespace tpu {
namespace {

constexpr int kMaxDevices = 256;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct Limits {
  std::atomic<int64_t> bytes{kNoLimit};
  std::atomic<double> fraction{1.0};
  std::atomic<int64_t> retries{0}, failures{0};
};
std::atomic<bool> any_limit{false};

Limits& limits(int device) {
  static auto* all = new std::array<Limits, kMaxDevices>;
  return all->at(device);
}

std::string in_units(int64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double n = static_cast<double>(bytes);
  int unit = 0;
  while (n >= 1024 && unit < 4) n /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", n, kUnits[unit]);
  return text;
}

int64_t bytes_of(const runtime::DeviceBuffer& b) { return b.numel() * static_cast<int64_t>(ir::size_bytes(b.dtype())); }

// The ops whose results hold the most.
std::string biggest_holders(int device) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_producer;  // bytes, buffers
  const std::lock_guard lock(launch_mutex());
  for_each_cell([&](const Cell& cell) {
    if (!cell.buffer || cell.device != device) return;
    auto& [bytes, count] = by_producer[cell.producer ? cell.producer : "a copy"];
    bytes += bytes_of(*cell.buffer);
    ++count;
  });
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> sorted(by_producer.begin(), by_producer.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(sorted.size(), 5); ++i) {
    text += (i ? ", " : " Most is held by results of ") + sorted[i].first + " (" +
            std::to_string(sorted[i].second.second) + " of them, " + in_units(sorted[i].second.first) + ")";
  }
  return text.empty() ? text : text + ".";
}

}  // namespace

void set_memory_fraction(double fraction, int device) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1,
                    "set_per_process_memory_fraction: the fraction must be from 0 to 1, but got ", fraction);
  const int index = check_device_index(device);
  Limits& l = limits(index);
  l.fraction = fraction;
  l.bytes = fraction == 1
                ? kNoLimit
                : static_cast<int64_t>(fraction * static_cast<double>(allocator().getMemoryInfo(index).second));
  if (fraction < 1) any_limit = true;
}

double memory_fraction(int device) { return limits(check_device_index(device)).fraction; }

bool memory_is_limited() { return any_limit.load(std::memory_order_relaxed); }

std::string lacks_memory(int device, int64_t bytes) {
  if (!memory_is_limited() || bytes <= 0) return {};
  Limits& l = limits(device);
  runtime::Session& session = runtime::Session::get();
  if (session.memory(device).allocated + bytes <= l.bytes) return {};
  session.synchronize(device);
  if (session.memory(device).allocated + bytes <= l.bytes) {
    ++l.retries;
    return {};
  }
  return "it needs " + in_units(bytes) + ", and set_per_process_memory_fraction allows " + in_units(l.bytes);
}

void require_memory(int device, int64_t bytes, const std::string& op) {
  if (const std::string why = lacks_memory(device, bytes); !why.empty()) out_of_memory(op, why, device);
}

void out_of_memory(const std::string& op, const std::string& why, int device) {
  ++limits(device).failures;
  const runtime::MemoryUse& use = runtime::Session::get().memory(device);
  const auto [free, total] = allocator().getMemoryInfo(static_cast<c10::DeviceIndex>(device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, "The tpu device is out of memory in ", op, ": ", why, ". tpu:", device,
                   " has ", in_units(static_cast<int64_t>(total)), ", of which ", in_units(static_cast<int64_t>(free)),
                   " are free; this process holds ", in_units(use.allocated), " in ", use.buffers.load(), " buffers, ",
                   in_units(use.peak), " at its peak.", biggest_holders(device),
                   " torch.tpu.memory_snapshot() lists them all; drop what is not needed, or use smaller batches.");
}

MemoryTrouble memory_trouble(int device) { return {limits(device).retries, limits(device).failures}; }
void count_retry(int device) { ++limits(device).retries; }
void reset_memory_trouble(int device) { limits(device).retries = limits(device).failures = 0; }

std::vector<HeldBuffer> held_buffers() {
  std::vector<HeldBuffer> held;
  const std::lock_guard lock(launch_mutex());
  for_each_cell([&](const Cell& cell) {
    if (!cell.buffer) return;
    const runtime::DeviceBuffer& b = *cell.buffer;
    held.push_back({.buffer = reinterpret_cast<uint64_t>(&b),
                    .address = reinterpret_cast<uint64_t>(cell.address),
                    .device = cell.device,
                    .storage_bytes = static_cast<int64_t>(cell.nbytes),
                    .buffer_bytes = bytes_of(b),
                    .dtype = std::string(ir::text(b.dtype())),
                    .dims = b.dims(),
                    .producer = cell.producer ? cell.producer : "",
                    .line = cell.line ? cell.line : ""});
  });
  return held;
}

}  // namespace tpu
