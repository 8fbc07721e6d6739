// Registers the op table with PyTorch's dispatcher.
#pragma once

#include "tpu/torch/entry.h"

namespace tpu {

// A boxed kernel for every overload that a row serves, and the fallback for the rest.
void register_ops();
// Rows that could not be registered, one sentence each; a test holds that there are none.
const std::vector<std::string>& table_problems();

}  // namespace tpu
