// Tests of runtime::DiskCache in folders of their own.

#include "tpu/runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "tests/cpp/check.h"
#include "tpu/runtime/counters.h"

namespace tpu::runtime {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test, and caches in its "cache".
struct Folder {
  fs::path root;
  std::string cache;

  Folder() {
    char name[] = "/tmp/disk_cache_test.XXXXXX";
    if (!::mkdtemp(name)) throw std::runtime_error("mkdtemp");
    root = name;
    ::chmod(name, 0711);  // a child that gave up its rights must get through
    cache = name + std::string("/cache");
    ::setenv("TORCH_TPU_CACHE_DIR", cache.c_str(), 1);
    ::unsetenv("TORCH_TPU_CACHE");
    ::unsetenv("TORCH_TPU_CACHE_SIZE_BYTES");
    counters().reset();
  }
  ~Folder() {
    std::error_code ignored;
    fs::permissions(cache, fs::perms::owner_all, ignored);
    fs::remove_all(root, ignored);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> f;
    for (const auto& e : fs::directory_iterator(cache)) f.push_back(e.path());
    return f;
  }
  fs::path only() const {
    const auto all = files();
    if (all.size() != 1) throw std::runtime_error(std::to_string(all.size()) + " files instead of one");
    return all[0];
  }
};

const std::string kKey = std::string("key\0with a zero", 15);
const std::string kProgram(10000, 'p');

// Whether f, run in a child without the rights of root, returns true.
bool in_child(const Folder& folder, const std::function<bool()>& f) {
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::geteuid() == 0) {
      for (const fs::path& p : {folder.root, fs::path(folder.cache)}) {
        if (fs::exists(p) && ::lchown(p.c_str(), 65534, 65534) != 0) ::_exit(3);
      }
      if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
    }
    bool ok = false;
    try {
      ok = f();
    } catch (...) {
    }
    std::fflush(stdout);
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void what_is_stored_is_loaded_also_by_another_process() {
  const Folder folder;
  DiskCache cache;
  CHECK(!cache.load(kKey));
  cache.store(kKey, kProgram);
  CHECK(cache.load(kKey) == kProgram);
  CHECK(!cache.load(kKey + "x"));
  CHECK(DiskCache().load(kKey) == kProgram);
  CHECK(counters().disk_stores == 1 && counters().disk_hits == 2 && counters().disk_misses == 2);
  const DiskCache::Info info = cache.info();
  CHECK(info.enabled && info.problem.empty() && info.files == 1 && info.bytes > 10000);
  CHECK(info.directory == folder.cache);
}

void the_folder_and_its_files_are_the_owners_alone() {
  const Folder folder;
  const mode_t before = ::umask(0);
  DiskCache().store(kKey, kProgram);
  ::umask(before);
  struct stat s;
  CHECK(::stat(folder.cache.c_str(), &s) == 0 && (s.st_mode & 0777) == 0700);
  CHECK(::stat(folder.only().c_str(), &s) == 0 && (s.st_mode & 0777) == 0600);
}

void storing_again_replaces_and_an_empty_program_is_a_program() {
  const Folder folder;
  DiskCache cache;
  cache.store(kKey, kProgram);
  cache.store(kKey, "");
  CHECK(cache.load(kKey) == "");
  CHECK(folder.files().size() == 1);
}

std::string read(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(f), {});
}
void write(const fs::path& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

void a_file_cut_short_anywhere_is_no_program() {
  const Folder folder;
  DiskCache cache;
  cache.store(kKey, std::string(200, 'p'));
  const std::string whole = read(folder.only());
  for (size_t n = 0; n < whole.size(); ++n) {
    write(folder.only(), whole.substr(0, n));
    CHECK(!cache.load(kKey));
  }
  write(folder.only(), whole + "x");
  CHECK(!cache.load(kKey));
  write(folder.only(), whole);
  CHECK(cache.load(kKey).has_value());
}

void a_file_with_any_bit_flipped_is_no_program() {
  const Folder folder;
  DiskCache cache;
  cache.store(kKey, std::string(100, 'p'));
  const std::string whole = read(folder.only());
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int bit : {0, 7}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      write(folder.only(), damaged);
      if (cache.load(kKey)) test::fail("byte " + std::to_string(i) + " may be anything");
    }
  }
  cache.store(kKey, kProgram);
  CHECK(cache.load(kKey) == kProgram);
}

void another_keys_file_under_this_keys_name_is_no_program() {
  const Folder folder;
  DiskCache cache;
  cache.store("another", kProgram);
  const fs::path other = folder.only();
  cache.store(kKey, kProgram);
  for (const fs::path& p : folder.files()) {
    if (p != other) fs::copy_file(other, p, fs::copy_options::overwrite_existing);
  }
  CHECK(!cache.load(kKey));
  CHECK(cache.load("another") == kProgram);
}

void what_is_not_a_private_regular_file_is_not_read() {
  const Folder folder;
  DiskCache cache;
  cache.store(kKey, kProgram);
  const fs::path path = folder.only(), elsewhere = folder.root / "elsewhere";
  for (mode_t mode : {0620, 0602, 0666}) {
    ::chmod(path.c_str(), mode);
    CHECK(!cache.load(kKey));
  }
  ::chmod(path.c_str(), 0600);
  CHECK(cache.load(kKey).has_value());
  if (::geteuid() == 0) {
    CHECK(::chown(path.c_str(), 65534, -1) == 0);
    CHECK(!cache.load(kKey));
    CHECK(::chown(path.c_str(), 0, -1) == 0);
  }
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  CHECK(!cache.load(kKey));
  fs::remove(path);
  fs::create_directory(path);
  CHECK(!cache.load(kKey));
  fs::remove(path);
  CHECK(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(!cache.load(kKey));
  fs::remove(path);
  fs::rename(elsewhere, path);
  CHECK(cache.load(kKey) == kProgram);
}

void a_folder_that_others_can_write_is_not_used() {
  const Folder folder;
  for (mode_t mode : {0770, 0707, 0777}) {
    ::mkdir(folder.cache.c_str(), 0700);
    ::chmod(folder.cache.c_str(), mode);
    DiskCache cache;
    cache.store(kKey, kProgram);
    CHECK(!cache.load(kKey));
    CHECK(folder.files().empty());
    CHECK(!cache.info().enabled);
    CHECK(cache.info().problem.find("can be written by other users") != std::string::npos);
  }
}

void a_folder_of_somebody_else_is_not_used() {
  const Folder folder;
  if (::geteuid() != 0) return;  // only root can make one
  ::mkdir(folder.cache.c_str(), 0700);
  CHECK(::chown(folder.cache.c_str(), 65534, -1) == 0);
  DiskCache cache;
  cache.store(kKey, kProgram);
  CHECK(folder.files().empty() && !cache.info().enabled);
}

void a_folder_that_cannot_be_made_is_one_sentence() {
  const Folder folder;
  write(folder.cache, "a file");
  DiskCache file;
  file.store(kKey, kProgram);
  CHECK(!file.load(kKey) && file.info().problem.find("is not a folder") != std::string::npos);
  ::setenv("TORCH_TPU_CACHE_DIR", (folder.cache + "/below").c_str(), 1);
  DiskCache below;
  below.store(kKey, kProgram);
  CHECK(!below.load(kKey) && below.info().problem.find("cannot make the folder") != std::string::npos);
}

void a_read_only_folder_is_read_and_failures_to_store_are_counted() {
  const Folder folder;
  CHECK(in_child(folder, [&] {
    DiskCache().store(kKey, kProgram);
    if (::chmod(folder.cache.c_str(), 0500) != 0) return false;
    DiskCache cache;
    const bool read = cache.load(kKey) == kProgram;
    cache.store("another", kProgram);
    const bool told = cache.info().problem.find("cannot be stored") != std::string::npos;
    const bool ok = read && told && counters().disk_failures == 1 && !cache.load("another") && cache.load(kKey);
    ::chmod(folder.cache.c_str(), 0700);
    return ok;
  }));
}

void a_full_disk_leaves_no_file_and_is_counted() {
  const Folder folder;
  CHECK(in_child(folder, [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    DiskCache cache;
    cache.store("small", "fits");
    cache.store(kKey, kProgram);
    return counters().disk_failures == 1 && counters().disk_stores == 1 && !cache.load(kKey) &&
           cache.load("small") == "fits" && folder.files().size() == 1 &&
           cache.info().problem.find("File too large") != std::string::npos;
  }));
}

void a_folder_that_vanishes_is_made_again() {
  const Folder folder;
  DiskCache cache;
  cache.store(kKey, kProgram);
  fs::remove_all(folder.cache);
  CHECK(!cache.load(kKey));
  cache.store(kKey, kProgram);
  CHECK(cache.load(kKey) == kProgram);
  struct stat s;
  CHECK(::stat(folder.cache.c_str(), &s) == 0 && (s.st_mode & 0777) == 0700);
}

void above_the_limit_the_longest_unused_go_first() {
  const Folder folder;
  ::setenv("TORCH_TPU_CACHE_SIZE_BYTES", "105000", 1);
  DiskCache cache;
  auto key = [](int i) { return "key" + std::to_string(i); };
  auto age = [&] {  // so that file times tell an order
    for (const fs::path& p : folder.files()) fs::last_write_time(p, fs::last_write_time(p) - std::chrono::seconds(10));
  };
  for (int i = 0; i < 10; ++i) {
    cache.store(key(i), kProgram);
    age();
  }
  CHECK(folder.files().size() == 10);
  CHECK(cache.load(key(0)).has_value());  // used just now
  age();
  cache.store(key(10), kProgram);
  CHECK(cache.info().bytes <= 105000);
  CHECK(cache.load(key(0)) && cache.load(key(10)) && !cache.load(key(1)));
  for (int i = 11; i < 60; ++i) {
    cache.store(key(i), kProgram);
    CHECK(cache.info().bytes <= 105000);
    CHECK(cache.load(key(i)).has_value());
  }
}

void files_of_another_process_count_too_and_other_files_are_left_alone() {
  const Folder folder;
  {
    DiskCache().store("from before", std::string(90000, 'q'));
  }
  write(folder.cache + "/notes.txt", "mine");
  ::setenv("TORCH_TPU_CACHE_SIZE_BYTES", "95000", 1);
  DiskCache cache;
  cache.store(kKey, kProgram);
  CHECK(cache.info().bytes <= 95000);
  CHECK(cache.clear() >= 0);
  CHECK(folder.files().size() == 1 && read(folder.cache + "/notes.txt") == "mine");
}

void many_processes_share_one_folder() {
  const Folder folder;
  ::setenv("TORCH_TPU_CACHE_SIZE_BYTES", "300000", 1);  // so that they evict, too
  std::vector<pid_t> children;
  std::fflush(stdout);
  for (int p = 0; p < 8; ++p) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      DiskCache cache;
      bool ok = true;
      for (int i = 0; i < 100; ++i) {
        const int k = (i * 7 + p * 13) % 40;
        const std::string key = "key" + std::to_string(k), program(5000 + 300 * k, static_cast<char>('a' + k % 26));
        const auto found = cache.load(key);
        ok = ok && (!found || *found == program);
        if (!found || i % 3 == 0) cache.store(key, program);
      }
      ::_exit(ok ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  DiskCache cache;
  cache.store(kKey, kProgram);
  CHECK(cache.info().bytes <= 300000 && cache.info().files > 10);
  for (const fs::path& p : folder.files()) CHECK(p.extension() == ".tpuprog");  // no rest of an unfinished one
}

void the_cache_can_be_switched_off() {
  const Folder folder;
  ::setenv("TORCH_TPU_CACHE", "0", 1);
  DiskCache cache;
  cache.store(kKey, kProgram);
  CHECK(!cache.load(kKey) && !fs::exists(folder.cache) && !cache.info().enabled && cache.info().problem.empty());
  CHECK(cache.clear() == 0);
}

}  // namespace
}  // namespace tpu::runtime

#define TEST(name) {#name, tpu::runtime::name}
int main(int argc, char** argv) {
  return tpu::test::run_all(
      {
          TEST(what_is_stored_is_loaded_also_by_another_process),
          TEST(the_folder_and_its_files_are_the_owners_alone),
          TEST(storing_again_replaces_and_an_empty_program_is_a_program),
          TEST(a_file_cut_short_anywhere_is_no_program),
          TEST(a_file_with_any_bit_flipped_is_no_program),
          TEST(another_keys_file_under_this_keys_name_is_no_program),
          TEST(what_is_not_a_private_regular_file_is_not_read),
          TEST(a_folder_that_others_can_write_is_not_used),
          TEST(a_folder_of_somebody_else_is_not_used),
          TEST(a_folder_that_cannot_be_made_is_one_sentence),
          TEST(a_read_only_folder_is_read_and_failures_to_store_are_counted),
          TEST(a_full_disk_leaves_no_file_and_is_counted),
          TEST(a_folder_that_vanishes_is_made_again),
          TEST(above_the_limit_the_longest_unused_go_first),
          TEST(files_of_another_process_count_too_and_other_files_are_left_alone),
          TEST(many_processes_share_one_folder),
          TEST(the_cache_can_be_switched_off),
      },
      argc, argv);
}
