// SPDX-License-Identifier: Apache-2.0
// mpscnn._core: the extension module. One line per topic, and the translation of exceptions.
#include <pybind11/pybind11.h>

#include <exception>
#include <new>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {

void set_python_error() noexcept {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const BufferError& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const KeyError& error) {
    PyErr_SetString(PyExc_KeyError, error.what());
  } catch (const MemoryError& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type");
  }
}

}  // namespace mpscnn::bindings

// pybind11's entry point requests the GIL of the main interpreter, which deadlocks in a sub-interpreter. So it is
// renamed, not exported, and called by ours.
#define PyInit__core initialize_core
#pragma push_macro("PYBIND11_EXPORT")
#undef PYBIND11_EXPORT
#define PYBIND11_EXPORT
PYBIND11_MODULE(_core, module) {
  using namespace mpscnn::bindings;
  module.doc() = "The compiled core of mpscnn; use the package mpscnn.";
  module.attr("__version__") = MPSCNN_VERSION;
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (...) {
      set_python_error();
    }
  });
  bind_weights(module);
  bind_table(module);
  bind_device(module);
  bind_device_array(module);
  bind_buffer(module);
  bind_command_buffer(module);
  bind_image(module);
  bind_image_conversion(module);
  bind_metal_function(module);
  bind_loss(module);
  bind_forward_loss(module);
  bind_matrix(module);
  bind_descriptor(module);
  bind_data_source(module);
  bind_state(module);
  bind_optimizer(module);
  bind_kernel(module);
  bind_graph(module);
  bind_network(module);
  bind_training_plan(module);
  bind_profile(module);
  refuse_unmade(module);
}
#pragma pop_macro("PYBIND11_EXPORT")
#undef PyInit__core

extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return initialize_core();
  PyErr_SetString(PyExc_ImportError,
                  "mpscnn cannot be imported in a sub-interpreter: import it in the main one (mod_wsgi: "
                  "WSGIApplicationGroup %{GLOBAL}).");
  return nullptr;
}
