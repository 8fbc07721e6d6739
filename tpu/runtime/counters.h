// What the runtime did so far in this process. Plain numbers; reading is not a snapshot.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace tpu::runtime {

struct Counters {
  std::atomic<int64_t> compiles{0}, compile_nanoseconds{0};
  // Calls whose program was in memory / was made or read because it was not.
  std::atomic<int64_t> memory_hits{0}, memory_misses{0};
  std::atomic<int64_t> disk_hits{0}, disk_misses{0}, disk_stores{0}, disk_failures{0};
  std::atomic<int64_t> executes{0};
  std::atomic<int64_t> bytes_to_device{0}, bytes_to_host{0};
  std::atomic<int64_t> scalar_reads{0};

  void add_fallback(const std::string& op) { add(fallbacks_, op); }
  void add_decomposition(const std::string& op) { add(decompositions_, op); }
  std::map<std::string, int64_t> fallbacks() const { return copy(fallbacks_); }
  std::map<std::string, int64_t> decompositions() const { return copy(decompositions_); }
  void reset();

 private:
  using Map = std::map<std::string, int64_t>;
  void add(Map& map, const std::string& op) {
    std::lock_guard lock(mutex_);
    ++map[op];
  }
  Map copy(const Map& map) const {
    std::lock_guard lock(mutex_);
    return map;
  }
  mutable std::mutex mutex_;
  Map fallbacks_, decompositions_;
};

Counters& counters();

}  // namespace tpu::runtime
