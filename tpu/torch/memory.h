// Memory of the devices: the limit that the user sets, what happens when memory runs out, and who holds what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpu {

// How much of a device's memory this process may use, from 0 to 1. Allocations beyond it raise OutOfMemoryError.
void set_memory_fraction(double fraction, int device);
double memory_fraction(int device);

// Whether a fraction was set at all.
bool memory_is_limited();
// Why `bytes` more may not be used; nothing where they may. Before it says so, it waits for what is in flight, which
// gives its memory back.
std::string lacks_memory(int device, int64_t bytes);
// Throws OutOfMemoryError where lacks_memory.
void require_memory(int device, int64_t bytes, const std::string& op);

// Throws OutOfMemoryError: what failed, then what the device's memory holds. Not under launch_mutex.
[[noreturn]] void out_of_memory(const std::string& op, const std::string& why, int device);

// Times that memory was found after waiting, and that it was not.
struct MemoryTrouble {
  int64_t retries = 0, failures = 0;
};
MemoryTrouble memory_trouble(int device);
void count_retry(int device);
void reset_memory_trouble(int device);

// A live buffer and the storage that holds it.
struct HeldBuffer {
  uint64_t buffer;   // the same for storages that share one until either is written
  uint64_t address;  // data_ptr() of the storage
  int device;
  int64_t storage_bytes, buffer_bytes;
  std::string dtype;  // of the buffer, in the words of StableHLO
  std::vector<int64_t> dims;
  std::string producer, line;  // what computed it, and the Python line that called that (debug mode)
};
std::vector<HeldBuffer> held_buffers();

}  // namespace tpu
