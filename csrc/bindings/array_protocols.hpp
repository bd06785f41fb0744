// SPDX-License-Identifier: Apache-2.0
// Views of arrays of other libraries, without a copy. All throw TypeError with the argument for unsupported objects.
#pragma once

#include <pybind11/pybind11.h>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Return whether the object is a PyTorch tensor with the negative bit set, whose memory has the opposite sign.
bool is_negated(py::handle object);

/// View an object with __dlpack__; a negated tensor is copied.
ArrayView view_of_dlpack(py::handle object, const char* name);

/// View an object with the buffer protocol.
ArrayView view_of_buffer(py::handle object, const char* name);

/// View an object with __array_interface__.
ArrayView view_of_interface(py::handle object, const char* name);

}  // namespace mpscnn::bindings
