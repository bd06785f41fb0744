// SPDX-License-Identifier: Apache-2.0
// Conversion between NumPy's dtypes and DType.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Return numpy.dtype(dtype). Throw TypeError "dtype ('nothing') is not a dtype."
py::dtype dtype_object(py::handle dtype, const char* name);

/// Return the element type of a NumPy dtype, or of anything that numpy.dtype() accepts. Throw TypeError.
DType dtype_from(py::handle dtype, const char* name);

/// The same; return `otherwise` for None.
DType dtype_from(py::handle dtype, const char* name, DType otherwise);

/// Return the numpy.dtype of the element type; bfloat16 imports ml_dtypes.
py::dtype numpy_dtype(DType dtype);

/// Return the element type of a NumPy array's descriptor; nullopt if DType lacks it.
std::optional<DType> dtype_of(const py::detail::PyArrayDescr_Proxy* descr);

}  // namespace mpscnn::bindings
