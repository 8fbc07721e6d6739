// The Python side of shared memory: views, DLPack capsules, and the GIL.
#include "tpu/torch/interchange.h"

#include <ATen/DLConvertor.h>
#include <torch/csrc/utils/pybind.h>

#include "tpu/torch/device.h"
#include "tpu/torch/dlpack.h"

namespace tpu {
namespace py = pybind11;

namespace {

constexpr const char* kVersioned = "dltensor_versioned";

// A capsule that nobody took owns its tensor still.
void destroy_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kVersioned)) return;
  auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
  if (managed->deleter) managed->deleter(managed);
}

py::object read_only_capsule(const at::Tensor& t) {
  DLManagedTensorVersioned* managed = at::toDLPackVersioned(t);
  managed->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  return py::reinterpret_steal<py::object>(PyCapsule_New(managed, kVersioned, &destroy_capsule));
}

// Pending calls run on Python's main thread. When their queue is full, the next import of host memory does it.
void drop_soon() {
  static std::atomic<bool> is_due{false};
  if (is_due.exchange(true)) return;
  auto drop = [](void*) {
    is_due = false;
    drop_returned();
    return 0;
  };
  if (!Py_IsInitialized() || Py_AddPendingCall(drop, nullptr) != 0) is_due = false;
}

}  // namespace

void bind_interchange(py::module_& m) {
  set_drop_later_hook(&drop_soon);
  m.def("_host_view", [](const at::Tensor& t) {
    py::gil_scoped_release release;
    return host_view(t);
  });
  m.def("_over_host_memory", [](const at::Tensor& host, int device) {
    py::gil_scoped_release release;
    return over_host_memory(host, check_device_index(device));
  });
  m.def("_read_only_capsule", &read_only_capsule);
}

}  // namespace tpu
