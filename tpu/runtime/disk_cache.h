// Compiled programs on disk. Loading a program runs code, so the folder must belong to the user
// alone; a file holds its whole key, so that neither a hash collision nor a foreign or cut-short file
// is ever taken for a program. Safe with many processes: files appear by rename.
// TORCH_TPU_CACHE_DIR, TORCH_TPU_CACHE_SIZE_BYTES, TORCH_TPU_CACHE=0 (docs/env.md).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tpu::runtime {

// Thread-safe. Nothing here throws: a cache that cannot be used is reported by problem().
class DiskCache {
 public:
  // Reads the environment; touches the disk at the first use.
  DiskCache();

  std::optional<std::string> load(std::string_view key);
  void store(std::string_view key, std::string_view program);
  // Removes every program; returns how many.
  int64_t clear();

  struct Info {
    std::string directory;
    bool enabled = false;
    int64_t bytes = 0, files = 0, limit_bytes = 0;
    std::string problem;  // one sentence, empty when all is well
  };
  Info info();

 private:
  bool prepare();
  void fail(std::string problem);
  void evict();

  std::mutex mutex_;
  std::string directory_;
  int64_t limit_bytes_;
  bool enabled_, prepared_ = false;
  int64_t bytes_ = -1;  // -1: not counted yet
  std::string problem_;
};

}  // namespace tpu::runtime
