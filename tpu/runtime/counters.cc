#include "tpu/runtime/counters.h"

namespace tpu::runtime {

void Counters::reset() {
  for (auto* c : {&compiles, &compile_nanoseconds, &memory_hits, &memory_misses, &disk_hits, &disk_misses, &disk_stores,
                  &disk_failures, &executes, &bytes_to_device, &bytes_to_host, &scalar_reads}) {
    *c = 0;
  }
  std::lock_guard lock(mutex_);
  fallbacks_.clear();
  decompositions_.clear();
}

Counters& counters() {
  static Counters* c = new Counters;
  return *c;
}

}  // namespace tpu::runtime
