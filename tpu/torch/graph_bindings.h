// See graph_bindings.cc.
#pragma once

#include <pybind11/pybind11.h>

namespace tpu {

void bind_graph(pybind11::module_& m);

}  // namespace tpu
