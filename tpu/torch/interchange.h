// See interchange.cc.
#pragma once

#include <pybind11/pybind11.h>

namespace tpu {

void bind_interchange(pybind11::module_& m);

}  // namespace tpu
