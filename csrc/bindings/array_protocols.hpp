// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries, without a copy. Each throws TypeError, naming what was given, for what it cannot read.
#pragma once

#include <pybind11/pybind11.h>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Of an object with __dlpack__.
ArrayView view_of_dlpack(py::handle object, const char* name);

/// Of one with the buffer protocol.
ArrayView view_of_buffer(py::handle object, const char* name);

/// Of one with __array_interface__.
ArrayView view_of_interface(py::handle object, const char* name);

}  // namespace mpscnn::bindings
