#include "tpu/torch/process_group_bindings.h"

#include <torch/csrc/utils/pybind.h>

#include "tpu/torch/process_group.h"

namespace py = pybind11;

namespace tpu {

void bind_process_group(py::module_& m) {
  // The base class is known to pybind11 once torch.distributed is; where torch is built without it there are no groups.
  try {
    py::module_::import("torch._C._distributed_c10d");
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    return;
  }
  py::class_<HostStagedBackend, c10d::Backend, c10::intrusive_ptr<HostStagedBackend>>(m, "HostStagedBackend")
      .def(py::init([](c10::intrusive_ptr<c10d::Backend> host) {
             return c10::make_intrusive<HostStagedBackend>(std::move(host));
           }),
           py::arg("host"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("host", &HostStagedBackend::host);
  m.def("_wait_for_completions", &wait_for_completions, py::call_guard<py::gil_scoped_release>());
}

}  // namespace tpu
