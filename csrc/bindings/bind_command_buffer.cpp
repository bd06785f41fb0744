// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
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

void add_completed_handler(CommandBuffer& buffer, py::object handler) {
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
  py::class_<CommandBuffer, std::shared_ptr<CommandBuffer>>(module, "CommandBuffer",
                                                            R"(A list of encoded kernels that the device runs in order.

    As a context manager it commits and waits on exit, unless an exception is on its way: then nothing is run.

    Parameters
    ----------
    device : Device, optional
    label : str, optional
        Name in errors and traces.

    Raises
    ------
    TypeError
        "label (int) is not a str.", "CommandBuffer: handler (int) is not callable."
    RuntimeError
        "CommandBuffer: 64 command buffers of the device are open, the maximum: …" (made, neither committed nor
        dropped), "CommandBuffer: commit() was called already; …", "CommandBuffer: wait() was called before commit().",
        and from ``wait()`` whatever the device says when the work has failed.

    Source
    ------
    Metal/MTLCommandBuffer.h, MTLCommandBuffer.)")
      .def(py::init([](const std::shared_ptr<Device>& device, const std::optional<Text>& label) {
             const auto chosen = device_or_default(device);
             const ReleaseGil release;  // may wait for handlers on other threads
             return CommandBuffer::make(chosen, label.value_or(Text{}));
           }),
           py::arg("device") = nullptr, py::arg("label") = py::none())
      .def_static(
          "_in_parts",
          [](const std::shared_ptr<Device>& device, const std::string& label) {
            const auto chosen = device_or_default(device);
            const ReleaseGil release;
            return CommandBuffer::make(chosen, label, {}, true);
          },
          py::arg("device"), py::arg("label"))
      .def("commit", &CommandBuffer::commit, py::call_guard<ReleaseGil>(),
           "Submit the work to the device; once. Other Python threads run meanwhile.")
      .def("wait", &CommandBuffer::wait, py::call_guard<ReleaseGil>(),
           "Wait until the work is done; raise RuntimeError if it failed.")
      .def(
          "add_completed_handler", &add_completed_handler, py::arg("handler"),
          "Call ``handler()`` when the work is done, on a thread of the device or one that waits; before commit(). Its "
          "exceptions go to "
          "sys.unraisablehook.")
      .def_property_readonly(
          "status", [](const CommandBuffer& buffer) { return name_of(buffer.status()); },
          "str: not_enqueued, enqueued, committed, scheduled, completed or error.")
      .def_property_readonly(
          "error", [](const CommandBuffer& buffer) { return text_or_none(buffer.error()); },
          "str or None: error message of the device.")
      .def_property_readonly(
          "gpu_time", [](const CommandBuffer& buffer) { return buffer.gpu_end_time() - buffer.gpu_start_time(); },
          "float, seconds: how long the work ran; 0 until completed.")
      .def_property_readonly("device", &CommandBuffer::device, "Device")
      .def_property(
          "label", [](const CommandBuffer& buffer) { return text_or_none(buffer.label()); },
          [](CommandBuffer& buffer, const std::optional<Text>& label) { buffer.set_label(label.value_or(Text{})); },
          "str or None")
      .def("__enter__", [](py::object self) { return self; })
      .def(
          "__exit__",
          [](CommandBuffer& buffer, const py::object& type, const py::object&, const py::object&) {
            if (!type.is_none()) return;
            const ReleaseGil release;
            if (buffer.status() < CommandBufferStatus::committed)
              buffer.run();
            else
              buffer.wait();
          },
          py::arg("type"), py::arg("value"), py::arg("traceback"))
      .def("__repr__", [](const CommandBuffer& buffer) {
        return std::string("<mpscnn.CommandBuffer ") + name_of(buffer.status()) + ">";
      });
}

}  // namespace mpscnn::bindings
