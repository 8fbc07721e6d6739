// What the library asks of the interpreter: decompositions and Meta kernels written in Python.
// The one file that converts between IValues and Python objects.
#include "tpu/torch/python_hooks.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <optional>
#include <thread>

#include "tpu/torch/debug.h"
#include "tpu/torch/decompose.h"

namespace tpu {
namespace py = pybind11;

namespace {

py::object& python_helper() {
  static auto* module = new py::object(py::module_::import("torch_tpu._decompositions"));
  return *module;
}

// The schema's positional arguments as Python objects; dtypes and the like are ints still, which the
// Python side puts right by the schema.
void call_decomposition(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t n = op.schema().arguments().size();
  std::vector<c10::IValue> args(stack->end() - static_cast<int64_t>(n), stack->end());
  torch::jit::drop(*stack, n);
  py::gil_scoped_acquire gil;
  py::list list;
  for (c10::IValue& v : args) list.append(torch::jit::toPyObject(std::move(v)));
  py::object overload = py::reinterpret_borrow<py::object>(torch::detail::getTorchApiFunction(op));
  py::object out;
  try {
    out = python_helper().attr("call")(overload, list);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    // The traceback would say more of PyTorch's internals than of the call.
    std::string text = py::str(e.value());
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
  const auto& returns = op.schema().returns();
  if (returns.empty()) return;
  if (returns.size() == 1) {
    torch::jit::push(*stack, torch::jit::toIValue(out, returns[0].type()));
    return;
  }
  size_t i = 0;
  for (py::handle h : out) torch::jit::push(*stack, torch::jit::toIValue(h, returns.at(i++).type()));
}

bool has_decomposition(const c10::OperatorHandle& op) {
  py::gil_scoped_acquire gil;
  try {
    py::object overload = py::reinterpret_borrow<py::object>(torch::detail::getTorchApiFunction(op));
    return python_helper().attr("has")(overload).cast<bool>();
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    return false;
  }
}

bool is_interrupt(const std::exception& e) {
  py::gil_scoped_acquire gil;
  if (const auto* p = dynamic_cast<const py::error_already_set*>(&e)) return !p->matches(PyExc_Exception);
  if (const auto* p = dynamic_cast<const python_error*>(&e))
    return !PyErr_GivenExceptionMatches(p->type, PyExc_Exception);
  return false;
}

// The innermost frame that is neither torch's nor ours.
std::string calling_python_line() {
  if (!Py_IsInitialized()) return {};
  py::gil_scoped_acquire gil;
  static const auto* internal = new std::vector<std::string>{
      py::str(py::module_::import("os.path").attr("dirname")(py::module_::import("torch").attr("__file__"))),
      py::str(py::module_::import("os.path").attr("dirname")(py::module_::import("torch_tpu").attr("__file__")))};
  auto frame =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    const std::string file = py::str(code.attr("co_filename"));
    const bool is_internal = std::any_of(internal->begin(), internal->end(),
                                         [&](const std::string& folder) { return file.starts_with(folder + "/"); });
    if (!is_internal) {
      return file + ":" + std::to_string(PyFrame_GetLineNumber(f)) + " in " +
             std::string(py::str(code.attr("co_name")));
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return {};
}

// In a thread of its own: Ctrl-C interrupts the main one, and what it tears of these imports (SymPy's swallow it, or
// stay broken) would be torn for as long as the process runs.
void import_meta_kernels() {
  std::exception_ptr failed;
  const auto import_all = [&failed] {
    py::gil_scoped_acquire gil;
    try {
      for (const char* name : {"torch._meta_registrations", "torch.fx.experimental.symbolic_shapes"})
        py::module_::import(name);
    } catch (py::error_already_set& e) {
      failed = std::make_exception_ptr(std::runtime_error(py::str(e.value()).cast<std::string>()));
    }
  };
  {
    std::optional<py::gil_scoped_release> released;
    if (PyGILState_Check()) released.emplace();
    std::thread(import_all).join();
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

void install_python_hooks() {
  set_python_line_hook(&calling_python_line);
  set_python_hooks({&import_meta_kernels, &has_decomposition, &call_decomposition, &is_interrupt});
}

}  // namespace tpu
