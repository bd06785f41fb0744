// SPDX-License-Identifier: Apache-2.0
// Python objects as ArrayViews and back, without copying. Used by every other binding.
// All functions need the GIL, unless they say otherwise.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>

#include <mpscnn/array.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// Who keeps the memory of a view alive.
enum class Keep {
  owner,     ///< the view itself, through `owner`
  borrowed,  ///< the caller, who holds the object for as long as the view (cheaper; DLPack and buffers are owned even
             ///< so)
};

/// The memory of a NumPy array, of anything with DLPack, `__array_interface__` or the buffer protocol. Throws
/// TypeError, naming what was given, for anything else and for element types that DType lacks.
ArrayView view_of(py::handle object, const char* name, Keep keep = Keep::owner);

/// The same for memory to be written: std::invalid_argument "out is read-only." where it cannot be.
ArrayView writable_view_of(py::handle object, const char* name, Keep keep = Keep::owner);

/// The same for arrays that are read or written as images. Throws TypeError for element types that images lack; of what
/// is read, it says how to convert it.
ArrayView pixels_of(py::handle object, const char* name);
ArrayView writable_pixels_of(py::handle object, const char* name);

/// What a NumPy array's C struct says, without a copy of its extents: for calls that must not cost more than they do.
/// Py_intptr_t is `long` everywhere, std::int64_t is `long long` on macOS: pointers to them do not convert.
struct NumpyFields {
  void* data;
  int ndim;
  const Py_intptr_t* shape;    ///< elements
  const Py_intptr_t* strides;  ///< bytes
  DType dtype;
};

/// Fills `fields` if `object` is exactly a NumPy array (no subclass) of a known dtype.
bool read_numpy(py::handle object, NumpyFields& fields);

/// Uninitialized C-contiguous array of the dtype object of `like`, a NumPy array. From 64 KB on as empty_array() makes
/// them; below, from NumPy's own allocator, which is faster than whole pages are.
py::object empty_like_numpy(py::handle like, int ndim, const Py_intptr_t* shape, std::int64_t bytes, void** data);

/// C-contiguous view of the memory of `array`, a NumPy array, which it keeps alive; as writable as that is.
py::object view_of_numpy(py::handle array, int ndim, const Py_intptr_t* shape);

/// Uninitialized C-contiguous array on whole pages of its own, which a device can always share.
py::array empty_array(const Extents& shape, DType dtype);

/// NumPy view of that memory; its base holds `view.owner`. Writable unless the view is read-only.
py::array array_from(const ArrayView& view);

/// A capsule that holds `owner`: the base of NumPy arrays over memory that C++ owns.
py::object to_python_owner(std::shared_ptr<void> owner);

}  // namespace mpscnn::bindings
