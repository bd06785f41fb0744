// SPDX-License-Identifier: Apache-2.0
// Translation of C++ exceptions to Python exceptions.
#include <exception>
#include <new>

#include <mpscnn/error.hpp>

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

void bind_error(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (...) {
      set_python_error();
    }
  });
}

}  // namespace mpscnn::bindings
