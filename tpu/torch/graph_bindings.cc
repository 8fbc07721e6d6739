// torch_tpu._C.Graph: a compiled graph as AOTAutograd calls it, with one list of inputs that it empties.
#include "tpu/torch/graph_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "tpu/torch/graph.h"

namespace tpu {
namespace py = pybind11;
namespace {

c10::IValue to_value(PyObject* o) {
  if (THPVariable_Check(o)) return THPVariable_Unpack(o);
  if (o == Py_None) return {};
  if (PyLong_Check(o)) {
    const int64_t i = PyLong_AsLongLong(o);
    if (i == -1 && PyErr_Occurred()) throw py::error_already_set();
    return i;
  }
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  throw py::type_error(std::string("A compiled graph takes and returns tensors and numbers, but got ") +
                       Py_TYPE(o)->tp_name);
}

py::object to_object(const c10::IValue& v) {
  if (v.isTensor()) {
    if (!v.toTensor().defined()) return py::none();
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(v.toTensor()));
  }
  if (v.isInt()) return py::int_(v.toInt());
  if (v.isDouble()) return py::float_(v.toDouble());
  return py::none();
}

Graph::Values to_values(const py::list& list) {
  Graph::Values values;
  values.reserve(list.size());
  for (py::handle h : list) values.push_back(to_value(h.ptr()));
  return values;
}

class PythonGraph {
 public:
  PythonGraph(std::string name, size_t num_inputs, py::function record, bool is_step)
      : graph_(std::move(name), num_inputs, is_step ? Graph::Kind::kStep : Graph::Kind::kFunction),
        record_(std::move(record)) {}

  py::list call(const py::list& inputs) {
    const Graph::Values values = to_values(inputs);
    Graph::Values outputs;
    {
      py::gil_scoped_release release;
      outputs = graph_.run(values, [this](const Graph::Values& own) { return record(own); });
    }
    // The caller gives its references away; after an error it may want to go another way with them.
    if (PyList_SetSlice(inputs.ptr(), 0, PyList_GET_SIZE(inputs.ptr()), nullptr) != 0) throw py::error_already_set();
    py::list list(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) list[i] = to_object(outputs[i]);
    return list;
  }

  py::list outside(const py::list& inputs) {
    const Graph::Values values = to_values(inputs);
    std::vector<at::Tensor> tensors;
    {
      py::gil_scoped_release release;
      tensors = graph_.outside(values, [this](const Graph::Values& own) { return record(own); });
    }
    py::list list;
    for (const at::Tensor& t : tensors) list.append(to_object(t));
    return list;
  }

  const std::string& name() const { return graph_.name(); }
  std::vector<std::string> programs() { return graph_.programs(); }

 private:
  Graph::Values record(const Graph::Values& own) {
    py::gil_scoped_acquire gil;
    py::list list(own.size());
    for (size_t i = 0; i < own.size(); ++i) list[i] = to_object(own[i]);
    Graph::Values outputs;
    for (py::handle h : record_(list)) outputs.push_back(to_value(h.ptr()));
    return outputs;
  }

  Graph graph_;
  py::function record_;
};

}  // namespace

void bind_graph(py::module_& m) {
  py::class_<PythonGraph>(m, "Graph")
      .def(py::init<std::string, size_t, py::function, bool>(), py::arg("name"), py::arg("num_inputs"),
           py::arg("record"), py::arg("is_step") = false)
      .def("__call__", torch::wrap_pybind_function(&PythonGraph::call))
      .def_property_readonly("name", &PythonGraph::name)
      .def("outside", torch::wrap_pybind_function(&PythonGraph::outside))
      .def_property_readonly("programs", &PythonGraph::programs)
      // How AOTAutograd calls it.
      .attr("_boxed_call") = true;
}

}  // namespace tpu
