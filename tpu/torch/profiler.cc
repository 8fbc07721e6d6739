// The device's part of torch.profiler: what the runtime recorded, as activities of Kineto that are linked to the ops
// which caused them. Calls of the PJRT API appear on the threads that made them, runs and copies in rows of the device.
#include <c10/core/Device.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tpu/runtime/activity.h"

namespace tpu {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using runtime::Activity;
using Kind = Activity::Kind;

// Rows of a device: its streams by number, and one for each direction of copies.
constexpr int kCopyRow = 1000;

int row_of(const Activity& a) {
  return a.kind == Kind::kExecute ? a.stream
                                  : kCopyRow + static_cast<int>(a.kind) - static_cast<int>(Kind::kCopyToDevice);
}

std::string row_name(int row) {
  switch (row - kCopyRow) {
    case 0:
      return "copies from the host";
    case 1:
      return "copies to the host";
    case 2:
      return "copies from other devices";
    default:
      return "stream " + std::to_string(row);
  }
}

// The call, as the PJRT API names it.
const char* call_name(Kind kind) {
  switch (kind) {
    case Kind::kCompile:
      return "PJRT_Client_Compile";
    case Kind::kLoad:
      return "PJRT_Executable_DeserializeAndLoad";
    case Kind::kExecute:
      return "PJRT_LoadedExecutable_Execute";
    case Kind::kCopyToDevice:
      return "PJRT_Client_BufferFromHostBuffer";
    case Kind::kCopyToHost:
      return "PJRT_Buffer_ToHostBuffer";
    case Kind::kCopyBetweenDevices:
      return "PJRT_Buffer_CopyToDevice";
    case Kind::kWait:
      return "PJRT_Event_Await";
  }
  return "";
}

std::string device_name(const Activity& a) {
  switch (a.kind) {
    case Kind::kCopyToDevice:
      return "Memcpy HtoD";
    case Kind::kCopyToHost:
      return "Memcpy DtoH";
    case Kind::kCopyBetweenDevices:
      return "Memcpy DtoD";
    default:
      return "XLA " + a.name;
  }
}

// Kineto writes metadata into JSON as it is.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

class ProfilerSession final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    runtime::start_recording();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    recording_ = runtime::stop_recording();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, std::numeric_limits<int64_t>::max());
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback cpu_activity,
                    int64_t start_ns, int64_t end_ns) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start_ns, end_ns, "tpu");
    buffer_->span.iteration = 0;
    buffer_->gpuOpCount = 0;
    end_ns_ = end_ns;
    std::map<Row, std::vector<const Activity*>> rows;
    for (const auto& a : recording_.activities) {
      if (a->begin_ns < start_ns || a->end_ns > end_ns) continue;
      const bool has_device_part = a->done_ns != Activity::kNever;
      add_call(*a, cpu_activity, has_device_part);
      if (has_device_part) rows[{a->device, row_of(*a)}].push_back(a.get());
    }
    logger_ = &logger;
    start_ns_ = start_ns;
    for (auto& [row, activities] : rows) {
      devices_.insert(row.device);
      logger.handleResourceInfo({row.number, row.number, row.device, row_name(row.number)}, start_ns);
      add_row(row, activities, cpu_activity);
    }
    buffer_->span.opCount = static_cast<int>(buffer_->activities.size());
    for (const auto& activity : buffer_->activities) activity->log(logger);
    recording_ = {};
    status_ = libkineto::TraceStatus::READY;
  }

  // Asked after Kineto has called the first 16 devices "GPU n". There is room for one in the answer.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (devices_.empty()) return nullptr;
    const auto info = [](int d) {
      return libkineto::DeviceInfo{d, libkineto::kExceedMaxPid + d, "tpu:" + std::to_string(d), "PJRT"};
    };
    for (const int d : devices_) {
      if (d != *devices_.begin()) logger_->handleDeviceInfo(info(d), start_ns_);
    }
    return std::make_unique<libkineto::DeviceInfo>(info(*devices_.begin()));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  // Ids of the ops and of the record_function ranges that begin on this thread.
  void pushCorrelationId(uint64_t id) override { runtime::push_op(id); }
  void popCorrelationId() override { runtime::pop_op(); }
  void pushUserCorrelationId(uint64_t id) override { runtime::push_range(id); }
  void popUserCorrelationId() override { runtime::pop_range(); }

 private:
  using Link = libkineto::getLinkedActivityCallback;
  struct Row {
    int device, number;
    auto operator<=>(const Row&) const = default;
  };
  struct Span {
    int64_t begin_ns, end_ns;
  };

  GenericTraceActivity& add(ActivityType type, const std::string& name, Span span) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& t = *buffer_->activities.back();
    t.startTime = span.begin_ns;
    t.endTime = span.end_ns;
    return t;
  }

  static void link(GenericTraceActivity& t, const Activity& a, const Link& cpu_activity, int32_t id, bool is_call) {
    t.id = id;
    t.linked = a.op != 0 ? cpu_activity(static_cast<int32_t>(a.op)) : nullptr;
    t.flow.id = static_cast<uint32_t>(id);
    t.flow.type = libkineto::kLinkAsyncCpuGpu;
    t.flow.start = is_call;
    t.addMetadata("correlation", id);
  }

  int32_t id_of(const Activity& a) {
    // Above those that PyTorch gives to ops, which are numbered from 1.
    return ids_.try_emplace(&a, (1 << 30) + static_cast<int32_t>(ids_.size())).first->second;
  }

  void add_call(const Activity& a, const Link& cpu_activity, bool has_device_part) {
    GenericTraceActivity& t =
        add(ActivityType::PRIVATEUSE1_RUNTIME, call_name(a.kind), {a.begin_ns, std::max(a.end_ns, a.begin_ns + 1)});
    t.device = ::getpid();
    t.resource = static_cast<int32_t>(a.thread);
    t.threadId = static_cast<int32_t>(a.thread);
    link(t, a, cpu_activity, id_of(a), /*is_call=*/true);
    if (!has_device_part) t.flow = {};
    if (!a.name.empty()) t.addMetadataQuoted("op", escaped(a.name));
    if (!a.detail.empty()) t.addMetadataQuoted("reason", escaped(a.detail));
  }

  // PJRT tells when work was done, not when it began. The work of a row is taken to begin when it was asked for or,
  // if that is later, when what ended before it had ended.
  void add_row(Row row, std::vector<const Activity*>& activities, const Link& cpu_activity) {
    std::stable_sort(activities.begin(), activities.end(),
                     [](const Activity* a, const Activity* b) { return a->done_ns < b->done_ns; });
    std::map<uint64_t, Span> ranges;
    int64_t last_end = 0;
    for (const Activity* a : activities) {
      const int64_t begin = std::max(a->begin_ns, last_end);
      // The plugin's thread that told the time may have been late. What still runs at the end is cut there.
      const int64_t done = std::min<int64_t>(a->done_ns, end_ns_);
      const Span span{begin, last_end = std::max(done, begin + 1)};
      const bool is_run = a->kind == Kind::kExecute;
      GenericTraceActivity& t =
          add(is_run ? ActivityType::CONCURRENT_KERNEL : ActivityType::GPU_MEMCPY, device_name(*a), span);
      place(t, row);
      link(t, *a, cpu_activity, id_of(*a), /*is_call=*/false);
      ++buffer_->gpuOpCount;
      if (!is_run) {
        t.addMetadata("bytes", a->bytes);
        t.addMetadata("memory bandwidth (GB/s)",
                      static_cast<double>(a->bytes) / static_cast<double>(span.end_ns - span.begin_ns));
        continue;
      }
      for (uint64_t range = a->range; range != 0; range = parent_of(range)) {
        const auto [it, is_new] = ranges.try_emplace(range, span);
        if (!is_new) it->second.end_ns = span.end_ns;
      }
    }
    for (const auto& [id, span] : ranges) {
      // Without a link: the time of the runs is counted where they are.
      const libkineto::ITraceActivity* range = cpu_activity(static_cast<int32_t>(id));
      if (!range) continue;
      GenericTraceActivity& t = add(ActivityType::GPU_USER_ANNOTATION, range->name(), span);
      t.id = static_cast<int32_t>(id);
      place(t, row);
    }
  }

  static void place(GenericTraceActivity& t, Row row) {
    t.device = row.device;
    t.resource = row.number;
    t.addMetadata("device", row.device);
    if (row.number < kCopyRow) t.addMetadata("stream", row.number);
  }

  uint64_t parent_of(uint64_t range) const {
    const auto it = recording_.range_parents.find(range);
    return it == recording_.range_parents.end() ? 0 : it->second;
  }

  runtime::Recording recording_;
  libkineto::ActivityLogger* logger_ = nullptr;  // Kineto's, until it has the trace buffer
  int64_t start_ns_ = 0, end_ns_ = 0;
  std::set<int> devices_;
  std::map<const Activity*, int32_t> ids_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    // Activities of the CPU alone include the types of calls.
    if (!types.contains(ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<ProfilerSession>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "tpu";
  const std::set<ActivityType> types_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                         ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace tpu
