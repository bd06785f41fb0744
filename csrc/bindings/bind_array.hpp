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
#include <mpscnn/device.hpp>
#include <mpscnn/watched_memory.hpp>

#include "arguments.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {

namespace py = pybind11;

/// How the memory of a view is kept alive.
enum class Keep {
  owner,     ///< by the view's `owner`
  borrowed,  ///< the caller, who holds the object for as long as the view (cheaper; DLPack and buffers are owned even
             ///< so)
};

/// Return a view of a NumPy array or an object with DLPack, `__array_interface__`, `__cuda_array_interface__` or the
/// buffer protocol. Throw TypeError with the argument for other objects, for element types that DType lacks, and for
/// memory that neither the host nor `device` (may be null) can access. Work that writes the memory is complete.
ArrayView view_of(py::handle object, const char* name, Keep keep = Keep::owner, const Device* device = nullptr);

// Views of objects of other libraries; throw TypeError with the argument for unsupported objects.

/// Return whether the object is a PyTorch tensor with the negative bit set, whose memory has the opposite sign.
bool is_negated(py::handle object);

/// View an object with __dlpack__; a negated tensor is copied.
ArrayView view_of_dlpack(py::handle object, const char* name, const Device* device);

/// Return a capsule of the view for __dlpack__, of DLPack 1.0 or of the version before.
py::object capsule_of(const ArrayView& view, bool is_versioned);

/// View an object with the buffer protocol.
ArrayView view_of_buffer(py::handle object, const char* name);

inline constexpr const char *kHostInterface = "__array_interface__", *kCudaInterface = "__cuda_array_interface__";

/// View an object with the attribute, one of these two.
ArrayView view_of_interface(py::handle object, const char* name, const char* attribute, const Device* device);

/// Watch a NumPy array of any dtype or a buffer of bytes. Return null if it cannot be a mapped file. Does not keep it
/// alive.
std::shared_ptr<const WatchedMemory> watch_array(py::handle array, WatchedMemory::Kind kind);

/// Return a view for writing. Throw std::invalid_argument "out is read-only." if the memory is read-only.
ArrayView writable_view_of(py::handle object, const char* name, Keep keep = Keep::owner,
                           const Device* device = nullptr);

/// The same for arrays that are read or written as images. Throw TypeError for element types that images lack; for
/// arrays that are read, the message says how to convert them.
ArrayView pixels_of(py::handle object, const char* name, const Device* device = nullptr);
ArrayView writable_pixels_of(py::handle object, const char* name, const Device* device);

/// An array in the memory of a device that the host cannot access.
struct DeviceArray {
  ArrayView view;
  std::shared_ptr<Device> device;
};
/// Return a NumPy view of an array in the host's memory, or a DeviceArray.
py::object object_from(const ArrayView& view, const std::shared_ptr<Device>& device);

/// Fields of a NumPy array's C struct, without a copy of its extents, for time-critical calls. Py_intptr_t is `long`
/// everywhere, std::int64_t is `long long` on macOS: pointers to them do not convert.
struct NumpyFields {
  void* data;
  int ndim;
  const Py_intptr_t* shape;    ///< elements
  const Py_intptr_t* strides;  ///< bytes
  DType dtype;
};

/// Fill `fields` if `object` is exactly a NumPy array (no subclass) of a known dtype.
bool read_numpy(py::handle object, NumpyFields& fields);

/// Return an uninitialized C-contiguous array with the dtype object of `like`, a NumPy array. From 64 KB on it is
/// allocated like empty_array(); below, by NumPy's allocator, which is faster than whole pages.
py::object empty_like_numpy(py::handle like, int ndim, const Py_intptr_t* shape, std::int64_t bytes, void** data);

/// Return a C-contiguous view of the memory of `array`, a NumPy array, which it keeps alive; writable if `array` is.
py::object view_of_numpy(py::handle array, int ndim, const Py_intptr_t* shape);

/// Return an uninitialized C-contiguous array on its own whole pages, which a device can always share.
py::array empty_array(const Extents& shape, DType dtype);

/// The array that takes a result of losses, and its view.
struct LossResult {
  py::object array;
  ArrayView view;
};

/// Return `out`, or for None a new array. Throw unless it has the shape, and is float32 or float16; `who` is the class,
/// and `whose` the owner of the shape: "x.shape", "the result's".
LossResult loss_result(const char* who, const char* whose, const py::object& out, const Extents& shape, DType dtype);

/// Return a NumPy view of the memory; its base holds `view.owner`. Writable unless the view is read-only.
py::array array_from(const ArrayView& view);

/// Return a NumPy view of the values, which keeps `owner` alive.
py::array array_from(std::vector<float>& values, std::shared_ptr<void> owner, bool read_only = false);

/// Return a capsule that holds `owner`: the base of NumPy arrays over memory owned by C++.
py::object to_python_owner(std::shared_ptr<void> owner);

/// Set up a type's buffer protocol: a buffer is that of the array that `view(self)` returns, and holds it.
template <py::object (*view)(py::handle)>
void set_up_buffer_protocol(PyHeapTypeObject* type) {
  type->ht_type.tp_as_buffer = &type->as_buffer;
  type->as_buffer.bf_getbuffer = [](PyObject* self, Py_buffer* buffer, int flags) {
    try {
      check_made(self, "self");
      return PyObject_GetBuffer(view(self).ptr(), buffer, flags);
    } catch (...) {
      buffer->obj = nullptr;
      set_python_error();
      return -1;
    }
  };
}

}  // namespace mpscnn::bindings
