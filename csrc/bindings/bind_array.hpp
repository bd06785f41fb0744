// SPDX-License-Identifier: Apache-2.0
// Python objects as ArrayViews and back, without copying. Used by every other binding.
// All functions need the GIL, unless they say otherwise.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <memory>

#include <mpscnn/array.hpp>

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

/// What a NumPy array's C struct says, without a copy of its extents: for calls that must not cost more than they do.
struct NumpyFields {
  void* data;
  int ndim;
  const std::int64_t* shape;    ///< elements
  const std::int64_t* strides;  ///< bytes
  DType dtype;
};

/// Fills `fields` if `object` is exactly a NumPy array (no subclass) of a known dtype.
bool read_numpy(py::handle object, NumpyFields& fields);

/// Uninitialized C-contiguous array of the dtype object of `like`, a NumPy array. From 64 KB on as empty_array() makes
/// them; below, from NumPy's own allocator, which is faster than whole pages are.
py::object empty_like_numpy(py::handle like, int ndim, const std::int64_t* shape, std::int64_t bytes, void** data);

/// C-contiguous view of the memory of `array`, a NumPy array, which it keeps alive; as writable as that is.
py::object view_of_numpy(py::handle array, int ndim, const std::int64_t* shape);

/// Uninitialized C-contiguous array on whole pages of its own, which a device can always share.
py::array empty_array(const Extents& shape, DType dtype);

/// NumPy view of that memory; its base holds `view.owner`. Writable unless the view is read-only.
py::array array_from(const ArrayView& view);

/// Whole pages, at least one. Freed ones are kept for the next request of about the same size, up to 64 MB in total,
/// because the kernel clears fresh pages more slowly than they are written. No GIL needed. Throws std::bad_alloc.
std::shared_ptr<void> allocate_pages(std::size_t bytes);

/// Holds a reference. The last copy may go away on any thread, with or without the GIL, and after the interpreter.
std::shared_ptr<void> keep_python_object(py::object object);

/// A capsule that holds `owner`: the base of NumPy arrays over memory that C++ owns.
py::object to_python_owner(std::shared_ptr<void> owner);

/// numpy.dtype(dtype). Throws TypeError "dtype ('nothing') is not a dtype."
py::dtype dtype_object(py::handle dtype, const char* name);

/// The element type of a NumPy dtype, or of anything that numpy.dtype() takes. Throws TypeError.
DType dtype_from(py::handle dtype, const char* name);

/// The same; None is `otherwise`.
DType dtype_from(py::handle dtype, const char* name, DType otherwise);

/// numpy.dtype of that element type; bfloat16 imports ml_dtypes.
py::dtype numpy_dtype(DType dtype);

/// An int or a scalar that is one; no bool, and no array, whatever its __index__ says.
bool is_integer(py::handle object);

/// A float, an int or a scalar that is a number; no bool, no complex number and no array, whatever its __float__ says.
bool is_number(py::handle object);

/// The integers of a shape: an int, or a sequence of them. Throws TypeError, naming what was given;
/// std::invalid_argument beyond 64 bits.
Extents extents_from(py::handle object, const char* name);

/// To be called inside `catch (...)` of functions that pybind11 does not wrap: sets the Python error.
void set_python_error() noexcept;

}  // namespace mpscnn::bindings
