// SPDX-License-Identifier: Apache-2.0
#include "gil.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace mpscnn::bindings {

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

namespace {

/// Runs `call`; a thread that Python ends in it stays there. Not sanitized: the exception by which glibc ends a thread
/// is no object, and catching a reference to it looks like a null reference.
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

}  // namespace

ReleaseGil::~ReleaseGil() {
  or_stay([this] { PyEval_RestoreThread(state_); });
}

AcquireGil::AcquireGil() {
  or_stay([this] { state_ = PyGILState_Ensure(); });
}

std::shared_ptr<void> keep_python_object(py::object object) {
  return {object.release().ptr(), [](void* held) { with_gil([held] { Py_DECREF(static_cast<PyObject*>(held)); }); }};
}

}  // namespace mpscnn::bindings
