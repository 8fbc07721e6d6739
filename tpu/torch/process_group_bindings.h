// torch_tpu._C.HostStagedBackend.
#pragma once

#include <pybind11/pybind11.h>

namespace tpu {

void bind_process_group(pybind11::module_& m);

}  // namespace tpu
