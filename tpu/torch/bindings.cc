// The Python module torch_tpu._C. Thin: it names what the C++ side offers.
#include <ATen/core/Generator.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include "tpu/pjrt/plugin.h"
#include "tpu/runtime/counters.h"
#include "tpu/runtime/shutdown.h"
#include "tpu/torch/check.h"
#include "tpu/torch/debug.h"
#include "tpu/torch/device.h"
#include "tpu/torch/generator.h"
#include "tpu/torch/graph_bindings.h"
#include "tpu/torch/interchange.h"
#include "tpu/torch/memory.h"
#include "tpu/torch/process_group_bindings.h"
#include "tpu/torch/python_hooks.h"
#include "tpu/torch/registry.h"

namespace py = pybind11;

namespace tpu {
namespace {

py::dict counters_dict() {
  const runtime::Counters& c = runtime::counters();
  py::dict d;
  d["compiles"] = c.compiles.load();
  d["compile_seconds"] = static_cast<double>(c.compile_nanoseconds.load()) * 1e-9;
  d["memory_hits"] = c.memory_hits.load();
  d["memory_misses"] = c.memory_misses.load();
  d["disk_hits"] = c.disk_hits.load();
  d["disk_misses"] = c.disk_misses.load();
  d["disk_stores"] = c.disk_stores.load();
  d["disk_failures"] = c.disk_failures.load();
  d["executes"] = c.executes.load();
  d["bytes_to_device"] = c.bytes_to_device.load();
  d["bytes_to_host"] = c.bytes_to_host.load();
  d["scalar_reads"] = c.scalar_reads.load();
  d["fallbacks"] = c.fallbacks();
  d["decompositions"] = c.decompositions();
  return d;
}

py::dict platform_info() {
  runtime::Session& s = runtime::Session::get();
  py::dict d;
  d["plugin"] = s.client().plugin().path();
  d["platform"] = s.client().platform_name();
  d["platform_version"] = s.client().platform_version();
  d["api_version"] = "0." + std::to_string(s.client().plugin().api_minor());
  py::list devices;
  for (const pjrt::Device& device : s.client().devices()) {
    py::dict e;
    e["id"] = device.id();
    e["kind"] = device.kind();
    e["description"] = device.description().text;
    devices.append(e);
  }
  d["devices"] = devices;
  return d;
}

py::dict cache_info() {
  // Without a session there is no cache to ask, so that asking starts nothing.
  static auto* unstarted = new runtime::DiskCache;
  const runtime::DiskCache::Info i =
      (runtime::Session::is_started() ? runtime::Session::get().disk_cache() : *unstarted).info();
  py::dict d;
  d["directory"] = i.directory;
  d["enabled"] = i.enabled;
  d["bytes"] = i.bytes;
  d["files"] = i.files;
  d["limit_bytes"] = i.limit_bytes;
  d["problem"] = i.problem.empty() ? py::object(py::none()) : py::object(py::str(i.problem));
  return d;
}

py::list held_buffers_list() {
  std::vector<HeldBuffer> held;
  {
    py::gil_scoped_release release;
    held = held_buffers();
  }
  py::list list;
  for (const HeldBuffer& b : held) {
    py::dict d;
    d["buffer"] = b.buffer;
    d["address"] = b.address;
    d["device"] = b.device;
    d["storage_bytes"] = b.storage_bytes;
    d["buffer_bytes"] = b.buffer_bytes;
    d["dtype"] = b.dtype;
    d["dims"] = b.dims;
    d["producer"] = b.producer;
    d["line"] = b.line;
    list.append(d);
  }
  return list;
}

py::list rows() {
  py::list list;
  for (const OpEntry* e : registered_entries()) {
    py::dict d;
    d["op"] = e->name;
    d["family"] = std::string(e->family);
    d["row"] = e->row->name;
    d["kind"] = e->form == Form::kFunctional ? "native" : "derived";
    d["internal"] = e->row->traits.internal;
    list.append(d);
  }
  return list;
}

runtime::PluginChoice resolve(const py::function& resolver) {
  py::gil_scoped_acquire gil;
  try {
    const py::tuple t = resolver();
    runtime::PluginChoice choice{t[0].cast<std::string>(), t[1].cast<std::string>(), {}};
    for (auto [key, value] : t[2].cast<py::dict>()) {
      if (py::isinstance<py::int_>(value)) {
        choice.options[key.cast<std::string>()] = value.cast<int64_t>();
      } else {
        choice.options[key.cast<std::string>()] = value.cast<std::string>();
      }
    }
    return choice;
  } catch (py::error_already_set& e) {
    throw std::runtime_error(py::str(e.value()).cast<std::string>());
  }
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  register_device();
  register_ops();
  install_python_hooks();

  m.def("_set_plugin_resolver", [](py::function f) {
    auto* kept = new py::function(std::move(f));  // lives as long as the process
    runtime::Session::set_resolver([kept] { return resolve(*kept); });
  });
  m.def("_init", [] {
    // Asked before everything that torch makes on the device: mostly there is nothing to wait for.
    if (runtime::Session::is_started() && !runtime::Session::is_in_bad_fork()) return;
    py::gil_scoped_release release;
    runtime::Session::get();
  });
  m.def("_is_initialized", &runtime::Session::is_started);
  m.def("_is_in_bad_fork", &runtime::Session::is_in_bad_fork);
  m.def("_device_count", &device_count);
  m.def("_shutdown", [] {
    py::gil_scoped_release release;
    runtime::shut_down();
  });
  m.def("_default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(index)));
  });
  m.def("_counters", &counters_dict);
  m.def("_live_programs", [] { return runtime::Session::get().live_programs(); });
  m.def("_reset_counters", [] { runtime::counters().reset(); });
  m.def("_platform_info", &platform_info);
  m.def("_cache_info", &cache_info);
  m.def("_cache_clear", [] { return runtime::Session::get().disk_cache().clear(); });
  m.def("_held_buffers", &held_buffers_list);
  m.def("_set_memory_fraction", &set_memory_fraction);
  m.def("_memory_fraction", &memory_fraction);
  m.def("_launch_blocking", &launch_blocking);
  m.def("_set_launch_blocking", &set_launch_blocking);
  m.def("_sync_debug_mode", &sync_debug_mode);
  m.def("_set_sync_debug_mode", &set_sync_debug_mode);
  bind_interchange(m);
  m.def("_rows", &rows);
  m.def("_table_problems", &table_problems);
  bind_graph(m);
  bind_process_group(m);
}

}  // namespace tpu
