// SPDX-License-Identifier: Apache-2.0
// Element types: NumPy's and ours.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// numpy.dtype(dtype). Throws TypeError "dtype ('nothing') is not a dtype."
py::dtype dtype_object(py::handle dtype, const char* name);

/// The element type of a NumPy dtype, or of anything that numpy.dtype() takes. Throws TypeError.
DType dtype_from(py::handle dtype, const char* name);

/// The same; None is `otherwise`.
DType dtype_from(py::handle dtype, const char* name, DType otherwise);

/// numpy.dtype of that element type; bfloat16 imports ml_dtypes.
py::dtype numpy_dtype(DType dtype);

/// The element type of a NumPy array's descriptor; nullopt if DType lacks it.
std::optional<DType> dtype_of(const py::detail::PyArrayDescr_Proxy* descr);

/// Throws TypeError "x.dtype (complex64) is not uint8, …".
[[noreturn]] void refuse_dtype(const std::string& given, const char* name);

/// Bytes of an array; throws std::invalid_argument or MemoryError where they cannot be counted.
std::size_t bytes_of(const Extents& shape, DType dtype, const char* what);

}  // namespace mpscnn::bindings
