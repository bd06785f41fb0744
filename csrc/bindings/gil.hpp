// SPDX-License-Identifier: Apache-2.0
// Acquiring and releasing the GIL on any thread, and Python objects owned by C++.
#pragma once

#include <pybind11/pybind11.h>

#include <cxxabi.h>
#include <unistd.h>

#include <memory>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Run `call`; a thread that Python terminates in it blocks forever instead. During finalization, Python terminates
/// threads that reacquire the GIL, including those that release an object whose destructor releases the GIL, such as an
/// mmap. Not sanitized: the exception by which glibc terminates a thread is not an object, and catching a reference to
/// it looks like a null reference.
template <class Call>
__attribute__((no_sanitize("undefined"))) void or_stay(const Call& call) {
#if defined(__GLIBCXX__)
  try {
    call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  call();
#endif
}

/// Releases the GIL, and reacquires it in the destructor. During finalization, Python terminates threads that acquire
/// the GIL by unwinding their stack, which in a destructor would end the process. Such a thread blocks forever instead.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

/// Acquires the GIL on any thread, whether or not it holds it already; blocks forever during finalization, as above.
class AcquireGil {
 public:
  AcquireGil();
  ~AcquireGil() { PyGILState_Release(state_); }
  AcquireGil(const AcquireGil&) = delete;
  AcquireGil& operator=(const AcquireGil&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_LOCKED;
};

/// Return whether the interpreter is initialized and not finalizing.
bool interpreter_runs();

/// Run `release` with the GIL, from any thread. Does nothing, and so leaks, when the interpreter is finalizing, since
/// nothing can be freed then.
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

/// Hold a reference. The last copy may be destroyed on any thread, with or without the GIL, even after finalization.
std::shared_ptr<void> keep_python_object(py::object object);

}  // namespace mpscnn::bindings
