// Conversion of named values from and to the C ABI.

#include "tpu/pjrt/named_value.h"

namespace tpu::pjrt {
namespace {

NamedValue value_of(const c::NamedValue& from) {
  using Type = c::NamedValue_Type;
  switch (from.type) {
    case Type::kString:
      return std::string(from.string_value, from.value_size);
    case Type::kInt64:
      return from.int64_value;
    case Type::kInt64List:
      return std::vector<int64_t>(from.int64_array_value, from.int64_array_value + from.value_size);
    case Type::kFloat:
      return from.float_value;
    case Type::kBool:
      return from.bool_value;
  }
  return std::string();  // a type newer than this code
}

struct Setter {
  c::NamedValue& to;

  void operator()(const std::string& value) const {
    to.type = c::NamedValue_Type::kString;
    to.string_value = value.data();
    to.value_size = value.size();
  }
  void operator()(int64_t value) const {
    to.type = c::NamedValue_Type::kInt64;
    to.int64_value = value;
    to.value_size = 1;
  }
  void operator()(const std::vector<int64_t>& value) const {
    to.type = c::NamedValue_Type::kInt64List;
    to.int64_array_value = value.data();
    to.value_size = value.size();
  }
  void operator()(float value) const {
    to.type = c::NamedValue_Type::kFloat;
    to.float_value = value;
    to.value_size = 1;
  }
  void operator()(bool value) const {
    to.type = c::NamedValue_Type::kBool;
    to.bool_value = value;
    to.value_size = 1;
  }
};

}  // namespace

NamedValues from_c(const c::NamedValue* values, size_t count) {
  NamedValues result;
  for (size_t i = 0; i < count; ++i) {
    result.emplace(std::string(values[i].name, values[i].name_size), value_of(values[i]));
  }
  return result;
}

std::vector<c::NamedValue> to_c(const NamedValues& values) {
  std::vector<c::NamedValue> result;
  result.reserve(values.size());
  for (const auto& [name, value] : values) {
    c::NamedValue& to = result.emplace_back();
    to.name = name.data();
    to.name_size = name.size();
    std::visit(Setter{to}, value);
  }
  return result;
}

}  // namespace tpu::pjrt
