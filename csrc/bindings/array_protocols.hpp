// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries, without a copy. Each throws TypeError, naming what was given, for what it cannot read.
#pragma once

#include <pybind11/pybind11.h>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Whether it is a tensor of PyTorch's that shows its memory with the other sign.
bool is_negated(py::handle object);

/// Of an object with __dlpack__. A copy of a negated one.
ArrayView view_of_dlpack(py::handle object, const char* name);

/// Of one with the buffer protocol.
ArrayView view_of_buffer(py::handle object, const char* name);

/// Of one with __array_interface__.
ArrayView view_of_interface(py::handle object, const char* name);

}  // namespace mpscnn::bindings
