#include "tpu/runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "tpu/runtime/counters.h"

namespace tpu::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'P', 'U', 'P', 'R', 'O', 'G', '1'};
constexpr int64_t kDefaultLimitBytes = int64_t{2} << 30;
constexpr std::string_view kSuffix = ".tpuprog";

struct Header {
  char magic[8];
  uint64_t key_bytes, program_bytes, checksum;
};

uint64_t hash(std::string_view s, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull ^ seed;
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3ull;
  return h ^ (h >> 29);
}

uint64_t checksum(std::string_view key, std::string_view program) { return hash(program, hash(key, 1)); }

std::string file_name(std::string_view key) {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(hash(key, 0)),
                static_cast<unsigned long long>(hash(key, 0x9e3779b97f4a7c15ull)));
  return std::string(name) + std::string(kSuffix);
}

std::string default_directory() {
  if (const char* d = std::getenv("TORCH_TPU_CACHE_DIR"); d && *d) return d;
  if (const char* d = std::getenv("XDG_CACHE_HOME"); d && *d) return std::string(d) + "/torchtpu";
  if (const char* d = std::getenv("HOME"); d && *d) return std::string(d) + "/.cache/torchtpu";
  return {};
}

bool read_all(int fd, char* data, size_t n) {
  while (n > 0) {
    const ssize_t got = ::read(fd, data, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    n -= got;
  }
  return true;
}

bool write_all(int fd, const char* data, size_t n) {
  while (n > 0) {
    const ssize_t put = ::write(fd, data, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    data += put;
    n -= put;
  }
  return true;
}

struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

DiskCache::DiskCache() : directory_(default_directory()), limit_bytes_(kDefaultLimitBytes), enabled_(true) {
  if (const char* s = std::getenv("TORCH_TPU_CACHE"); s && std::strcmp(s, "0") == 0) enabled_ = false;
  if (const char* s = std::getenv("TORCH_TPU_CACHE_SIZE_BYTES"); s && *s) limit_bytes_ = std::atoll(s);
  if (enabled_ && directory_.empty()) fail("there is no home folder for the compile cache; set TORCH_TPU_CACHE_DIR");
}

void DiskCache::fail(std::string problem) {
  problem_ = std::move(problem);
  enabled_ = false;
}

// Makes the folder, and refuses one that others could write programs into.
bool DiskCache::prepare() {
  if (prepared_ || !enabled_) return enabled_;
  prepared_ = true;
  std::error_code error;
  const fs::path parent = fs::path(directory_).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    fail("the compile cache is off: cannot make the folder " + directory_ + " (" + std::strerror(errno) + ")");
    return false;
  }
  struct stat s;
  if (::stat(directory_.c_str(), &s) != 0 || !S_ISDIR(s.st_mode)) {
    fail("the compile cache is off: " + directory_ + " is not a folder");
  } else if (s.st_uid != ::geteuid() || (s.st_mode & 022) != 0) {
    fail("the compile cache is off: the folder " + directory_ +
         " can be written by other users, and loading a program runs code; make it yours with mode 700");
  }
  return enabled_;
}

std::optional<std::string> DiskCache::load(std::string_view key) {
  {
    std::lock_guard lock(mutex_);
    if (!prepare()) return std::nullopt;
  }
  const std::string path = directory_ + "/" + file_name(key);
  // Not blocking: what lies there may be a pipe.
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  struct stat s;
  Header header;
  std::string content;
  const bool opened = file.fd >= 0 && ::fstat(file.fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() &&
                      (s.st_mode & 022) == 0;
  if (opened && read_all(file.fd, reinterpret_cast<char*>(&header), sizeof header) &&
      std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.key_bytes == key.size() &&
      header.program_bytes <= static_cast<uint64_t>(s.st_size) &&
      sizeof header + header.key_bytes + header.program_bytes == static_cast<uint64_t>(s.st_size)) {
    content.resize(header.key_bytes + header.program_bytes);
    if (read_all(file.fd, content.data(), content.size())) {
      const std::string_view all = content;
      const std::string_view program = all.substr(key.size());
      if (all.substr(0, key.size()) == key && header.checksum == checksum(key, program)) {
        ::futimens(file.fd, nullptr);  // eviction goes by age of use
        ++counters().disk_hits;
        return std::string(program);
      }
    }
  }
  ++counters().disk_misses;
  return std::nullopt;
}

void DiskCache::store(std::string_view key, std::string_view program) {
  std::lock_guard lock(mutex_);
  if (!prepare()) return;
  const std::string path = directory_ + "/" + file_name(key);
  std::string temporary = path + ".XXXXXX";
  Header header{{}, key.size(), program.size(), checksum(key, program)};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  File file{::mkostemp(temporary.data(), O_CLOEXEC)};
  if (file.fd < 0 && errno == ENOENT) {
    // Somebody emptied the caches while we ran.
    prepared_ = false;
    if (!prepare()) return;
    temporary = path + ".XXXXXX";
    file.fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  }
  if (file.fd < 0 || !write_all(file.fd, reinterpret_cast<const char*>(&header), sizeof header) ||
      !write_all(file.fd, key.data(), key.size()) || !write_all(file.fd, program.data(), program.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (file.fd >= 0) ::unlink(temporary.c_str());
    ++counters().disk_failures;
    problem_ = "programs cannot be stored in the compile cache " + directory_ + " (" + std::strerror(error) + ")";
    return;
  }
  ++counters().disk_stores;
  if (bytes_ < 0) {
    evict();
  } else if ((bytes_ += sizeof header + key.size() + program.size()) > limit_bytes_) {
    evict();
  }
}

// Counts what is there and, above the limit, removes what was used longest ago. Other processes may do
// the same at the same time: a file that is gone is not an error.
void DiskCache::evict() {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::error_code error;
  bytes_ = 0;
  for (const auto& e : fs::directory_iterator(directory_, error)) {
    if (e.path().filename().string().find(kSuffix) == std::string::npos) continue;
    std::error_code ignored;
    Entry entry{e.last_write_time(ignored), static_cast<int64_t>(e.file_size(ignored)), e.path()};
    if (ignored) continue;
    bytes_ += entry.bytes;
    entries.push_back(std::move(entry));
  }
  if (bytes_ <= limit_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (bytes_ <= limit_bytes_ / 5 * 4) break;
    std::error_code ignored;
    fs::remove(e.path, ignored);
    bytes_ -= e.bytes;
  }
}

int64_t DiskCache::clear() {
  std::lock_guard lock(mutex_);
  if (!prepare()) return 0;
  int64_t n = 0;
  std::error_code error;
  for (const auto& e : fs::directory_iterator(directory_, error)) {
    if (e.path().filename().string().find(kSuffix) == std::string::npos) continue;
    std::error_code ignored;
    n += fs::remove(e.path(), ignored);
  }
  bytes_ = 0;
  return n;
}

DiskCache::Info DiskCache::info() {
  std::lock_guard lock(mutex_);
  Info info{directory_, prepare(), 0, 0, limit_bytes_, problem_};
  std::error_code error;
  if (enabled_) {
    for (const auto& e : fs::directory_iterator(directory_, error)) {
      std::error_code ignored;
      if (e.path().extension() != kSuffix) continue;
      info.bytes += static_cast<int64_t>(e.file_size(ignored));
      ++info.files;
    }
  }
  return info;
}

}  // namespace tpu::runtime
