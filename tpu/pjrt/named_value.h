// Named values: options and attributes that plugins take and give.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tpu/pjrt/c_api.h"

namespace tpu::pjrt {

using NamedValue = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;
using NamedValues = std::map<std::string, NamedValue>;

NamedValues from_c(const c::NamedValue* values, size_t count);

// The result points into `values`, which must outlive it.
std::vector<c::NamedValue> to_c(const NamedValues& values);

}  // namespace tpu::pjrt
