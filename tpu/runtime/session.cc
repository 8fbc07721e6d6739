#include "tpu/runtime/session.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "tpu/pjrt/compile_options.h"
#include "tpu/pjrt/error.h"
#include "tpu/pjrt/plugin.h"
#include "tpu/runtime/activity.h"
#include "tpu/runtime/counters.h"
#include "tpu/runtime/element_type.h"
#include "tpu/runtime/log.h"
#include "tpu/runtime/shutdown.h"

namespace tpu::runtime {
namespace {

std::mutex start_mutex;
std::atomic<Session*> session{nullptr};
std::atomic<bool> bad_fork{false};
std::function<PluginChoice()>& resolver() {
  static auto* r = new std::function<PluginChoice()>;
  return *r;
}

int64_t most_programs() {
  if (const char* text = std::getenv("TORCH_TPU_MAX_PROGRAMS")) {
    if (const int64_t n = std::atoll(text); n > 0) return n;
    throw std::runtime_error(std::string("TORCH_TPU_MAX_PROGRAMS is '") + text + "': set it to a number above 0.");
  }
  return 8192;
}

int64_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

PluginChoice choose() {
  // The resolver may need the GIL, so nothing is locked while it runs.
  std::function<PluginChoice()> resolve;
  {
    std::lock_guard lock(start_mutex);
    resolve = resolver();
  }
  if (resolve) return resolve();
  if (const char* path = std::getenv("TORCH_TPU_PLUGIN"); path && *path) return {path, "", {}};
  throw std::runtime_error("No PJRT plugin was named: set TORCH_TPU_PLUGIN to the path of one");
}

// How much is in progress, and whether the process ends. Never destroyed: threads may stand in it then.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int busy = 0;
  std::thread::id open_to;
  std::atomic<bool> closed{false};

  void pass() {
    if (!closed.load(std::memory_order_acquire)) [[likely]]
      return;
    std::unique_lock lock(mutex);
    if (std::this_thread::get_id() != open_to) changed.wait(lock, [] { return false; });
  }
};
Gate& gate() {
  static auto* g = new Gate;
  return *g;
}
thread_local int busy_depth = 0;

// What a stored program depends on besides its text and options.
std::string machine_identity(const pjrt::Client& client) {
  const pjrt::Plugin& plugin = client.plugin();
  struct stat s{};
  ::stat(plugin.path().c_str(), &s);
  std::string id = plugin.path() + "|" + std::to_string(s.st_size) + "|" + std::to_string(s.st_mtime) + "|" +
                   std::to_string(plugin.api_minor()) + "|" + client.platform_name() + "|" + client.platform_version() +
                   "|" + std::to_string(client.devices().size());
  for (const pjrt::Device& d : client.devices()) id += "|" + d.kind();
  // XLA:CPU compiles for the features of this machine's CPU.
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
      id += "|" + line;
      break;
    }
  }
  return id;
}

}  // namespace

void MemoryUse::add(int64_t bytes) {
  const int64_t now = allocated.fetch_add(bytes) + bytes;
  ++buffers;
  ++allocations;
  total_allocated += bytes;
  int64_t old = peak.load();
  while (now > old && !peak.compare_exchange_weak(old, now)) {
  }
}

void MemoryUse::remove(int64_t bytes) {
  allocated -= bytes;
  --buffers;
}

DeviceBuffer::DeviceBuffer(pjrt::Buffer buffer, ir::DType dtype, std::vector<int64_t> dims, int device)
    : buffer_(std::move(buffer)), dtype_(dtype), device_(device), dims_(std::move(dims)) {
  bytes_ = numel() * static_cast<int64_t>(ir::size_bytes(dtype));
  Session::get().memory(device_).add(bytes_);
}

DeviceBuffer::~DeviceBuffer() {
  if (bad_fork) {
    // It is the parent's: the plugin, whose threads are gone here, must not be called.
    buffer_.release();
    return;
  }
  session.load(std::memory_order_acquire)->memory(device_).remove(bytes_);
}

int64_t DeviceBuffer::numel() const {
  int64_t n = 1;
  for (int64_t d : dims_) n *= d;
  return n;
}

void Session::set_resolver(std::function<PluginChoice()> r) {
  std::lock_guard lock(start_mutex);
  resolver() = std::move(r);
}

int Session::count_devices() {
  if (is_started() && !bad_fork) return session.load()->num_devices();
  const PluginChoice choice = choose();
  if (const auto it = choice.options.find("cpu_device_count"); it != choice.options.end()) {
    if (const int64_t* n = std::get_if<int64_t>(&it->second)) return static_cast<int>(*n);
  }
  return get().num_devices();
}

bool Session::is_started() { return session.load() != nullptr; }
bool Session::is_in_bad_fork() { return bad_fork; }

Session& Session::get() {
  Session* s = session.load(std::memory_order_acquire);
  if (s && !bad_fork.load(std::memory_order_relaxed)) [[likely]]
    return *s;
  if (bad_fork) {
    throw std::runtime_error(
        "Cannot use the tpu device in a forked process after it was used in the parent; start the process with the "
        "'spawn' method instead");
  }
  const Busy busy;
  const PluginChoice choice = choose();
  std::lock_guard lock(start_mutex);
  if (Session* other = session.load()) return *other;
  session.store(new Session(choice), std::memory_order_release);
  pthread_atfork(nullptr, nullptr, [] { bad_fork = session.load() != nullptr; });
  return *session.load();
}

Session::Session(const PluginChoice& choice) {
  client_ = pjrt::Client::create(pjrt::Plugin::load(choice.path), choice.options);
  platform_ = &runtime::platform(client_->platform_name());
  identity_ = machine_identity(*client_);
  for (size_t i = 0; i < client_->devices().size(); ++i) {
    memory_.push_back(std::make_unique<MemoryUse>());
    streams_.push_back(std::make_unique<std::array<Stream, kStreams>>());
  }
  if (const char* text = std::getenv("TORCH_TPU_XLA_OPTIONS")) extra_options_ = parse_options(text);
  max_programs_ = most_programs();
  max_mappings_ = 65530;
  std::ifstream("/proc/sys/vm/max_map_count") >> max_mappings_;
}

Session::Program Session::keep(pjrt::LoadedExecutable program) {
  ++live_programs_;
  return Program(new pjrt::LoadedExecutable(std::move(program)), [this](const pjrt::LoadedExecutable* p) {
    delete p;
    --live_programs_;
  });
}

Session::Room Session::room(bool count_now) {
  // More often than programs of a hundred mappings can take up a quarter of all.
  constexpr unsigned kEvery = 64;
  if (count_now || asked_for_room_++ % kEvery == 0) mappings_ = count_mappings();
  const int64_t programs = live_programs_, mappings = mappings_;
  if (programs > max_programs_ || mappings > max_mappings_ / 4 * 3) return Room::kNone;
  if (programs > max_programs_ / 4 * 3 || mappings > max_mappings_ / 2) return Room::kScarce;
  return Room::kPlenty;
}

std::string Session::options(Effort effort) {
  pjrt::CompileOptions o;
  o.compile_portable_executable = num_devices() > 1;
  std::lock_guard lock(options_mutex_);
  auto take = [&](const std::vector<XlaOption>& from) {
    for (const XlaOption& option : from) {
      bool known = true;
      for (const std::string& u : unknown_options_) known = known && u != option.first;
      if (known) o.env_option_overrides.push_back(option);
    }
  };
  take(platform_->options);
  if (effort == Effort::kQuick) take(platform_->quick_options);
  for (const XlaOption& option : extra_options_) o.env_option_overrides.push_back(option);
  return o.serialize();
}

void Session::forget_option(const std::string& name) {
  std::lock_guard lock(options_mutex_);
  unknown_options_.push_back(name);
}

Session::Program Session::compile(const std::string& text, Effort effort, const CompileReason& reason) {
  const auto start = std::chrono::steady_clock::now();
  const Busy busy;
  for (;;) {
    const std::string opts = options(effort);
    const std::string key = identity_ + '\0' + opts + '\0' + text;
    const bool log = log_enabled("compiles");
    auto ms = [&] {
      return std::to_string(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    };
    if (std::optional<std::string> stored = disk_cache_.load(key)) {
      try {
        const ActivityScope scope(Activity::Kind::kLoad);
        if (scope) scope->name = reason.op, scope->detail = reason.why;
        auto program = keep(client_->deserialize(*stored, opts));
        if (log) log_line("compiles", reason.op + ": from disk in " + ms() + " ms; " + reason.why);
        return program;
      } catch (const pjrt::Error&) {
        // A plugin that no longer reads its own file compiles again.
      }
    }
    try {
      std::shared_ptr<const pjrt::LoadedExecutable> program;
      {
        const ActivityScope scope(Activity::Kind::kCompile);
        if (scope) scope->name = reason.op, scope->detail = reason.why;
        program = keep(client_->compile(text, opts));
      }
      ++counters().compiles;
      counters().compile_nanoseconds +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
      if (log) log_line("compiles", reason.op + ": compiled in " + ms() + " ms; " + reason.why);
      if (log_enabled("programs")) log_line("programs", text);
      try {
        disk_cache_.store(key, program->serialize());
      } catch (const pjrt::Error&) {
        ++counters().disk_failures;
      }
      return program;
    } catch (const pjrt::Error& e) {
      // "No such compile option: 'xla_...'": drop it for good and try again.
      const std::string what = e.what();
      bool dropped = false;
      if (what.find("No such compile option") != std::string::npos) {
        for (const auto* list : {&platform_->options, &platform_->quick_options}) {
          for (const XlaOption& option : *list) {
            if (what.find(option.first) == std::string::npos) continue;
            forget_option(option.first);
            dropped = true;
          }
        }
      }
      if (!dropped) {
        if (log_enabled("programs")) log_line("programs", text);
        throw;
      }
    }
  }
}

void Session::execute(const pjrt::LoadedExecutable& program, std::span<pjrt::c::Buffer* const> arguments,
                      std::span<const int64_t> non_donatable, std::span<pjrt::c::Buffer*> outputs, int device,
                      int stream) {
  auto done = std::make_shared<pjrt::Event>();
  gate().pass();
  {
    ActivityScope scope(Activity::Kind::kExecute, device, stream);
    program.execute(arguments, non_donatable, outputs, num_devices() > 1 ? client_->devices()[device].raw() : nullptr,
                    done.get());
    if (scope) {
      scope->name = ExecuteName::current();
      scope.done_when(*done);
    }
  }
  counters().executes.fetch_add(1, std::memory_order_relaxed);
  gate().pass();
  this->stream(device, stream).add(std::move(done));
}

void Session::synchronize(int device) {
  for (Stream& s : *streams_[device]) runtime::synchronize(s.mark());
}

void Session::synchronize() {
  for (int d = 0; d < num_devices(); ++d) synchronize(d);
}

void stop_if_shut_down() { gate().pass(); }

Busy::Busy() {
  if (busy_depth++ > 0) return;
  gate().pass();
  std::lock_guard lock(gate().mutex);
  ++gate().busy;
}

Busy::~Busy() {
  if (--busy_depth > 0) return;
  {
    std::lock_guard lock(gate().mutex);
    --gate().busy;
  }
  gate().changed.notify_all();
  gate().pass();
}

void shut_down() {
  if (bad_fork) return;
  {
    std::unique_lock lock(gate().mutex);
    gate().open_to = std::this_thread::get_id();
    gate().closed = true;
    gate().changed.wait(lock, [] { return gate().busy == 0; });
  }
  if (Session* s = session.load()) s->synchronize();
}

BufferPtr Session::to_device(const void* data, ir::DType dtype, std::vector<int64_t> dims, int device,
                             pjrt::HostBufferSemantics semantics, pjrt::Event* done_with_host) {
  ActivityScope scope(Activity::Kind::kCopyToDevice, device);
  pjrt::HostTransfer t =
      client_->buffer_from_host(data, element_type(dtype), dims, semantics, client_->devices().at(device));
  if (done_with_host) *done_with_host = std::move(t.done_with_host);
  auto buffer = std::make_shared<DeviceBuffer>(std::move(t.buffer), dtype, std::move(dims), device);
  const int64_t bytes = buffer->numel() * static_cast<int64_t>(ir::size_bytes(dtype));
  counters().bytes_to_device += bytes;
  if (scope) {
    scope->bytes = bytes;
    scope.done_when(buffer->pjrt().ready_event());
  }
  return buffer;
}

BufferPtr Session::host_operand(std::span<const std::byte> bytes, ir::DType dtype, int device) {
  struct Slot {
    std::array<std::byte, 16> bytes;
    size_t size = 0;
    ir::DType dtype;
    int device;
    BufferPtr buffer;
  };
  constexpr size_t kSlots = 512;
  // Leaked with the thread's last use: buffers must not be destroyed by static destructors at exit.
  static thread_local std::vector<Slot>* cache = new std::vector<Slot>(kSlots);
  uint64_t h = static_cast<uint64_t>(dtype) * 31 + device;
  for (std::byte b : bytes) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001b3ull;
  Slot& slot = (*cache)[(h ^ (h >> 32)) % kSlots];
  if (slot.buffer && slot.dtype == dtype && slot.device == device && slot.size == bytes.size() &&
      std::memcmp(slot.bytes.data(), bytes.data(), bytes.size()) == 0) {
    return slot.buffer;
  }
  slot.buffer = to_device(bytes.data(), dtype, {}, device, pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  slot.dtype = dtype;
  slot.device = device;
  slot.size = bytes.size();
  std::memcpy(slot.bytes.data(), bytes.data(), bytes.size());
  return slot.buffer;
}

}  // namespace tpu::runtime
