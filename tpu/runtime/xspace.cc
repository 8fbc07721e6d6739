#include "tpu/runtime/xspace.h"

#include <charconv>
#include <map>
#include <stdexcept>

namespace tpu::runtime {
namespace {

// The fields of one message, in the order in which they lie there.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    // libtpu counts a NUL at the end, and there is no field 0.
    if (key == 0 && rest_.empty()) return false;
    number = key >> 3;
    value = 0;
    bytes = {};
    switch (key & 7) {
      case 0:
        value = static_cast<int64_t>(varint());
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail();
    }
    return true;
  }

  uint64_t number = 0;
  int64_t value = 0;
  std::string_view bytes;

 private:
  [[noreturn]] static void fail() { throw std::invalid_argument("The plugin's profile is not a valid XSpace"); }

  uint64_t varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto b = static_cast<unsigned char>(take(1)[0]);
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return v;
    }
    fail();
  }
  std::string_view take(uint64_t n) {
    if (n > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  std::string_view rest_;
};

// "/device:TPU:3" is 3. Parts of a device ("... SparseCore 0") have planes of their own, which are left out.
bool parse_device(std::string_view plane, int64_t& device) {
  constexpr std::string_view kPrefix = "/device:TPU:";
  if (!plane.starts_with(kPrefix)) return false;
  const char* end = plane.data() + plane.size();
  const auto [stop, error] = std::from_chars(plane.data() + kPrefix.size(), end, device);
  return error == std::errc() && stop == end;
}

using Names = std::map<int64_t, std::string>;

void read_name(std::string_view entry, Names& names) {
  std::string name, display_name;
  int64_t key = 0;
  for (Fields f(entry); f.next();) {
    if (f.number == 1) key = f.value;
    if (f.number != 2) continue;
    for (Fields m(f.bytes); m.next();) {
      if (m.number == 2) name = m.bytes;
      if (m.number == 4) display_name = m.bytes;
    }
  }
  names[key] = display_name.empty() ? name : display_name;
}

DeviceLine read_line(std::string_view bytes, int64_t device, const Names& names) {
  DeviceLine line{device, 0, "", {}};
  int64_t start_ns = 0;
  std::string display_name;
  for (Fields f(bytes); f.next();) {
    if (f.number == 1) line.id = f.value;
    if (f.number == 2) line.name = f.bytes;
    if (f.number == 3) start_ns = f.value;
    if (f.number == 11) display_name = f.bytes;
    if (f.number != 4) continue;
    int64_t name = 0, offset_ps = 0, duration_ps = 0;
    for (Fields e(f.bytes); e.next();) {
      if (e.number == 1) name = e.value;
      if (e.number == 2) offset_ps = e.value;
      if (e.number == 3) duration_ps = e.value;
    }
    const auto found = names.find(name);
    line.events.push_back(
        {offset_ps / 1000, duration_ps / 1000, found == names.end() ? std::to_string(name) : found->second});
  }
  if (!display_name.empty()) line.name = display_name;
  for (DeviceEvent& e : line.events) e.begin_ns += start_ns;
  return line;
}

}  // namespace

std::vector<DeviceLine> read_xspace(std::string_view bytes) {
  std::vector<DeviceLine> lines;
  for (Fields space(bytes); space.next();) {
    if (space.number != 1) continue;
    int64_t device = -1;
    bool is_device = false;
    Names names;
    std::vector<std::string_view> found;
    for (Fields plane(space.bytes); plane.next();) {
      if (plane.number == 2) is_device = parse_device(plane.bytes, device);
      if (plane.number == 3) found.push_back(plane.bytes);
      if (plane.number == 4) read_name(plane.bytes, names);
    }
    if (!is_device) continue;
    for (const std::string_view line : found) lines.push_back(read_line(line, device, names));
  }
  return lines;
}

}  // namespace tpu::runtime
