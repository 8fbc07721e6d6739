// Work that some ops need before their row can run; see prepare.cc.
#pragma once

#include <ATen/core/stack.h>

#include <map>
#include <string>

namespace tpu {

using Prepare = bool (*)(torch::jit::Stack* stack);
// Of the op "aten::index.Tensor"; null for most.
Prepare find_prepare(const std::string& name);

// Samplers, whose numbers are checked on every call.
const std::map<std::string, Prepare>& random_checks();

// Factorizations that are asked to raise what `info` says.
const std::map<std::string, Prepare>& info_checks();

}  // namespace tpu
