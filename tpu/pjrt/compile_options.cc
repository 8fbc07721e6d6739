// CompileOptions: a writer for the part of protobuf's wire format that they need.

#include "tpu/pjrt/compile_options.h"

#include <bit>
#include <string_view>

namespace tpu::pjrt {
namespace {

// The protobuf wire format: each field is a tag (number and wire type), then its value.
// https://protobuf.dev/programming-guides/encoding/
class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }

  void real(int field, double value) {
    tag(field, 1);
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }

  void bytes(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_.append(value);
  }

  void message(int field, const Message& value) { bytes(field, value.bytes_); }

  std::string take() && { return std::move(bytes_); }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// DeviceAssignmentProto: a list for each partition (there "computation") of its replicas' devices.
Message device_assignment_message(const CompileOptions& options) {
  Message result;
  result.integer(1, options.num_replicas);
  result.integer(2, options.num_partitions);
  for (int partition = 0; partition < options.num_partitions; ++partition) {
    Message devices;
    for (int replica = 0; replica < options.num_replicas; ++replica) {
      devices.integer(1, options.device_assignment.at(replica * options.num_partitions + partition));
    }
    result.message(3, devices);
  }
  return result;
}

// ExecutableBuildOptionsProto.
Message build_options_message(const CompileOptions& options) {
  Message result;
  result.integer(4, options.num_replicas);
  result.integer(5, options.num_partitions);
  if (options.use_spmd_partitioning) result.integer(6, 1);
  if (!options.device_assignment.empty()) result.message(9, device_assignment_message(options));
  if (options.use_shardy_partitioner) result.integer(19, 1);
  return result;
}

// One entry of a map from names to OptionOverrideProto.
Message override_message(const std::string& name, const CompileOptions::Override& value) {
  struct Setter {
    Message& to;
    void operator()(const std::string& text) const { to.bytes(1, text); }
    void operator()(bool truth) const { to.integer(2, truth ? 1 : 0); }
    void operator()(int64_t integer) const { to.integer(3, integer); }
    void operator()(double real) const { to.real(4, real); }
  };
  Message field;
  std::visit(Setter{field}, value);
  Message result;
  result.bytes(1, name);
  result.message(2, field);
  return result;
}

}  // namespace

std::string CompileOptions::serialize() const {
  Message result;
  result.message(3, build_options_message(*this));
  if (compile_portable_executable) result.integer(4, 1);
  for (const auto& [name, value] : env_option_overrides) {
    result.message(7, override_message(name, value));
  }
  return std::move(result).take();
}

}  // namespace tpu::pjrt
