// SPDX-License-Identifier: Apache-2.0
// Devices, command buffers, and what mpscnn.profile() collects of them.
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/profile.hpp>

#include <unistd.h>

#include <functional>

#include "arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

std::shared_ptr<Device> device_or_default(const std::shared_ptr<Device>& device) {
  return device ? device : Device::system_default();
}

void bind_device(py::module_& module) {
  py::class_<Device, std::shared_ptr<Device>> kind(module, "_Device");
  kind.def(py::init([](const std::optional<Str<"name">>& name) {
        return name ? Device::named(name->value) : Device::system_default();
      }))
      .def_static("_all", &Device::all)
      .def_property_readonly("name", &Device::name, "Name of the device.")
      .def_property_readonly("allocated_bytes", &Device::allocated_bytes, "Memory in use on the device.")
      .def_property_readonly("peak_bytes", &Device::peak_bytes, "Max of allocated_bytes since reset_peak_bytes().")
      .def("_reset_peak_bytes", &Device::reset_peak_bytes)
      .def_property_readonly(
          "cached_bytes", &Device::cached_bytes,
          "Free memory cached for later; raises NotImplementedError if the device does not report it.")
      .def("_free_cached_bytes", &Device::free_cached_bytes, py::call_guard<ReleaseGil>())
      .def_property_readonly("recommended_max_working_set_bytes", &Device::recommended_max_working_set_bytes,
                             "No image may be larger.")
      .def_property_readonly("max_buffer_bytes", &Device::max_buffer_bytes, "No buffer may be larger.")
      .def_property_readonly("shares_images", &Device::shares_images, "Whether images can share the memory of arrays.")
      .def_property_readonly("is_supported", &Device::is_supported, "Whether MPSSupportsMTLDevice() is true.")
      .def_property_readonly("_differentiates_bounds", &Device::differentiates_bounds)
      .def("_set_most_work", &Device::set_most_work)
      .def_property_readonly("_threads", &Device::threads)
      .def("_set_threads", &Device::set_threads)
      .def("__eq__",
           [](const Device& device, const py::object& other) {
             return py::isinstance<Device>(other) && &device == other.cast<const Device*>();
           })
      .def("__hash__", [](const Device& device) { return std::hash<const void*>{}(&device); });
  kind.def("__repr__", [](const Device& device) { return say("<mpscnn.Device \"", device.name(), "\">"); });
}

// ---- command buffers

namespace {

/// Report an exception of a handler, which has no caller. A Ctrl-C on the main thread, which may run handlers while it
/// waits, is not meant for the handler, and is raised again after the wait.
void report(PyObject* handler) {
  const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  PyErr_WriteUnraisable(handler);
  if (!interrupted) return;
  const auto threading = py::module_::import("threading");
  if (threading.attr("current_thread")().is(threading.attr("main_thread")())) PyErr_SetInterrupt();
}

void add_completed_handler(CommandBuffer& buffer, const py::object& handler) {
  check<TypeError>(!handler.is_none(), "CommandBuffer: handler (NoneType) is not callable.");
  auto function = completed_handler(handler);
  const ReleaseGil release;
  buffer.add_completed_handler(std::move(function));
}

/// Wait at exit: running work must not outlive the libraries that it uses.
void finish_at_exit() {
  const auto process = getpid();
  const auto finish = [process] {
    if (getpid() != process) return;  // worker threads do not survive a fork
    const ReleaseGil release;
    finish_all_work();
  };
  py::module_::import("atexit").attr("register")(py::cpp_function(finish));
}

}  // namespace

std::function<void()> completed_handler(const py::object& handler) {
  if (handler.is_none()) return {};
  if (!PyCallable_Check(handler.ptr()))
    throw TypeError(say("CommandBuffer: handler (", Py_TYPE(handler.ptr())->tp_name, ") is not callable."));
  return [kept = keep_python_object(handler), callable = handler.ptr()] {
    if (!interpreter_runs()) return;
    const AcquireGil acquire;
    PyObject* result = PyObject_CallNoArgs(callable);
    if (result == nullptr) {
      try {
        report(callable);
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("CommandBuffer: handler");
      }
    }
    Py_XDECREF(result);
  };
}

void bind_command_buffer(py::module_& module) {
  finish_at_exit();
  py::class_<CommandBuffer, std::shared_ptr<CommandBuffer>> kind(module, "_CommandBuffer");
  kind.def(py::init([](const OptionalArg<Device, "device">& device, const std::optional<Str<"label">>& label) {
        const auto chosen = device_or_default(device);
        const ReleaseGil release;  // may wait for handlers on other threads
        return CommandBuffer::make(chosen, label ? label->value : "");
      }))
      .def("_commit", &CommandBuffer::commit, py::call_guard<ReleaseGil>())
      .def("_wait", &CommandBuffer::wait, py::call_guard<ReleaseGil>())
      .def("_add_completed_handler", &add_completed_handler)
      .def("_finish",
           [](CommandBuffer& buffer) {
             const ReleaseGil release;
             if (buffer.status() < CommandBufferStatus::committed)
               buffer.run();
             else
               buffer.wait();
           })
      .def_property_readonly("_status", [](const CommandBuffer& buffer) { return name_of(buffer.status()); })
      .def_property_readonly(
          "error", [](const CommandBuffer& buffer) { return optional_text(buffer.error()); },
          "Error message of the device.")
      .def_property_readonly(
          "gpu_time", [](const CommandBuffer& buffer) { return buffer.gpu_end_time() - buffer.gpu_start_time(); },
          "Seconds that the work ran; 0 until completed.")
      .def_property_readonly("device", &CommandBuffer::device, "The device that runs it.")
      .def_property(
          "label", [](const CommandBuffer& buffer) { return optional_text(buffer.label()); },
          [](CommandBuffer& buffer, const std::optional<Str<"label">>& label) {
            buffer.set_label(label ? label->value : "");
          },
          "Name in errors and traces.");
  kind.def("__repr__", [](const CommandBuffer& buffer) {
    return std::string("<mpscnn.CommandBuffer ") + name_of(buffer.status()) + ">";
  });
}

void bind_profile(py::module_& module) {
  py::class_<Profile, std::shared_ptr<Profile>>(module, "_Profile", "Times of command buffers.")
      .def(py::init<bool>(), py::arg("per_kernel"))
      .def("start", &Profile::start)
      .def("stop", &Profile::stop)
      .def(
          "events",
          [](const Profile& profile) {
            py::list list;
            for (const auto& e : profile.events())
              list.append(py::make_tuple(e.name, e.kernel, e.kind, e.start, e.end, e.command_buffer, e.thread));
            return list;
          },
          "(name, kernel, kind, start, end, command_buffer, thread) of each, in the order in which they ended.");
}

}  // namespace mpscnn::bindings
