// SPDX-License-Identifier: Apache-2.0
// The GIL on any thread, and Python objects that C++ keeps.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace mpscnn::bindings {

namespace py = pybind11;

/// The GIL is let go, and taken back at the end. Once the interpreter ends, a thread that wants it back is ended by
/// Python, by unwinding its stack: out of a destructor that would end the process. Such a thread stays where it is
/// instead.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

/// The GIL on any thread, with or without it so far; the same holds at the end of the interpreter.
class AcquireGil {
 public:
  AcquireGil();
  ~AcquireGil() { PyGILState_Release(state_); }
  AcquireGil(const AcquireGil&) = delete;
  AcquireGil& operator=(const AcquireGil&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_LOCKED;
};

/// Whether there is an interpreter to call into.
bool interpreter_runs();

/// Runs `release` with the GIL, from any thread; leaks once the interpreter is going down, since nothing can be freed
/// then.
template <class Release>
void with_gil(const Release& release) {
  if (!interpreter_runs()) return;
  if (PyGILState_Check()) {
    release();
    return;
  }
  const AcquireGil gil;
  release();
}

/// Holds a reference. The last copy may go away on any thread, with or without the GIL, and after the interpreter.
std::shared_ptr<void> keep_python_object(py::object object);

}  // namespace mpscnn::bindings
