// SPDX-License-Identifier: Apache-2.0
#include "gil.hpp"

namespace mpscnn::bindings {

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

ReleaseGil::~ReleaseGil() {
  or_stay([this] { PyEval_RestoreThread(state_); });
}

AcquireGil::AcquireGil() {
  or_stay([this] { state_ = PyGILState_Ensure(); });
}

std::shared_ptr<void> keep_python_object(py::object object) {
  return {object.release().ptr(),
          [](void* held) { with_gil([held] { or_stay([held] { Py_DECREF(static_cast<PyObject*>(held)); }); }); }};
}

}  // namespace mpscnn::bindings
