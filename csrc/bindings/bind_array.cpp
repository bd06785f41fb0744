// SPDX-License-Identifier: Apache-2.0
// Conversion of arrays. NumPy arrays are read through their C struct, in about 50 ns.
#include "bind_array.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <mpscnn/array_protocols.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/pages.hpp>
#include <mpscnn/watched_memory.hpp>

#include "arguments.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

namespace {

using Npy = py::detail::npy_api;

constexpr const char* kPages = "mpscnn.pages";

/// Whether no base array or buffer of a read-only array is writable. Bases without the buffer protocol (capsules) count
/// as read-only.
bool nobody_writes(const py::detail::PyArray_Proxy* array) {
  while (array->base && Npy::get().PyArray_Check_(array->base)) {
    array = reinterpret_cast<const py::detail::PyArray_Proxy*>(array->base);
    if (array->flags & Npy::NPY_ARRAY_WRITEABLE_) return false;
  }
  if (!array->base || !PyObject_CheckBuffer(array->base)) return true;
  Py_buffer buffer;
  if (PyObject_GetBuffer(array->base, &buffer, PyBUF_WRITABLE) != 0) {
    PyErr_Clear();
    return true;
  }
  PyBuffer_Release(&buffer);
  return false;
}

/// Whether the memory is neither NumPy's nor our pages, so that it may be a mapped file.
bool may_be_of_file(const py::detail::PyArray_Proxy* array) {
  while (array->base && Npy::get().PyArray_Check_(array->base))
    array = reinterpret_cast<const py::detail::PyArray_Proxy*>(array->base);
  return array->base && !PyCapsule_IsValid(array->base, kPages);
}

/// Watch the view's memory while its owner, or else the view, is held.
void watch(ArrayView& view) {
  if (view.size() == 0) return;
  struct Watched {
    std::shared_ptr<void> owner;
    WatchedMemory memory;
  };
  const auto memory = memory_of(view);
  view.owner = std::shared_ptr<Watched>(new Watched{std::move(view.owner), WatchedMemory(memory)});
}

ArrayView view_of_array(py::handle object, const char* name, Keep keep) {
  const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object.ptr());
  const auto* descr = reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(array->descr);
  const auto dtype = dtype_of(descr);
  if (!dtype) refuse_dtype(py::str(py::handle(array->descr)).cast<std::string>(), name);
  ArrayView view;
  view.data = array->data;
  view.dtype = *dtype;
  view.shape.assign(array->dimensions, array->dimensions + array->nd);
  view.strides.assign(array->strides, array->strides + array->nd);
  view.read_only = !(array->flags & Npy::NPY_ARRAY_WRITEABLE_);
  if (keep == Keep::owner) {
    view.owner = keep_python_object(py::reinterpret_borrow<py::object>(object));
    view.is_constant = view.read_only && nobody_writes(array);
  }
  if (may_be_of_file(array)) watch(view);
  return view;
}

ArrayView view_by_protocol(py::handle object, const char* name, const Device* device) {
  if (py::hasattr(object, "__dlpack__")) {
    try {
      return view_of_dlpack(object, name, device);
    } catch (py::error_already_set& error) {
      // PyTorch refuses tensors of other GPUs than the current one.
      if (!error.matches(PyExc_BufferError) || !py::hasattr(object, kCudaInterface)) throw;
    }
    return view_of_interface(object, name, kCudaInterface, device);
  }
  for (const char* interface : {kHostInterface, kCudaInterface})
    if (py::hasattr(object, interface)) return view_of_interface(object, name, interface, device);
  if (PyObject_CheckBuffer(object.ptr())) return view_of_buffer(object, name);
  throw TypeError(say(name, " (", type_name(object),
                      ") is not an array: it has neither DLPack, __array_interface__ nor the buffer protocol."));
}

}  // namespace

ArrayView view_of(py::handle object, const char* name, Keep keep, const Device* device) {
  if (Npy::get().PyArray_Check_(object.ptr())) return view_of_array(object, name, keep);
  auto view = view_by_protocol(object, name, device);
  check(view.data || view.size() == 0, name, " (", type_name(object), ") has no memory: its address is NULL.");
  if (view.space.is_host()) watch(view);
  return view;
}

std::shared_ptr<const WatchedMemory> watch_array(py::handle object, WatchedMemory::Kind kind) {
  if (!Npy::get().PyArray_Check_(object.ptr()))
    return std::make_shared<const WatchedMemory>(memory_of(view_of_buffer(object, "array")), kind);
  const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object.ptr());
  if (!may_be_of_file(array)) return {};
  // View elements of any dtype as bytes.
  ArrayView bytes{.data = array->data, .dtype = DType::uint8, .shape = {}, .strides = {}};
  bytes.shape.assign(array->dimensions, array->dimensions + array->nd);
  bytes.strides.assign(array->strides, array->strides + array->nd);
  bytes.shape.push_back(py::reinterpret_borrow<py::array>(object).itemsize());
  bytes.strides.push_back(1);
  return std::make_shared<const WatchedMemory>(memory_of(bytes), kind);
}

namespace {

/// Throw for tensors that PyTorch's functions reject as `out`, or that would not show the written values.
void check_writable_tensor(py::handle object, const char* name) {
  check(!is_negated(object), name, " is a negated view: its memory has the other sign; give a tensor of its own.");
  check(!py::hasattr(object, "requires_grad") || !py::bool_(object.attr("requires_grad")), name,
        " requires grad, and what is written is not recorded: give out.detach().");
}

}  // namespace

ArrayView writable_view_of(py::handle object, const char* name, Keep keep, const Device* device) {
  if (!Npy::get().PyArray_Check_(object.ptr())) check_writable_tensor(object, name);
  ArrayView view = view_of(object, name, keep, device);
  check(!view.read_only, name, " is read-only.");
  for (std::size_t i = 0; i < view.ndim() && view.size() > 0; ++i)
    check(view.strides[i] != 0 || view.shape[i] == 1, name, ": indices along axis ", i,
          " name the same element twice (its stride is 0), which cannot hold several results.");
  return view;
}

namespace {

constexpr const char* kNoPixels = ") is not float32, float16, uint8 or uint16";

bool are_pixels(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::uint8 || dtype == DType::uint16;
}

/// Python expression that converts an array to float32.
const char* conversion_of(py::handle object) {
  if (py::hasattr(object, "astype")) return ".astype(\"float32\")";
  return py::hasattr(object, "untyped_storage") ? ".float()" : "numpy.asarray(array, \"float32\")";  // PyTorch, others
}

}  // namespace

ArrayView pixels_of(py::handle object, const char* name, const Device* device) {
  auto view = view_of(object, name, Keep::owner, device);
  if (!are_pixels(view.dtype))
    throw TypeError(
        say(name, ".dtype (", name_of(view.dtype), kNoPixels, ": convert the array with ", conversion_of(object), "."));
  return view;
}

ArrayView writable_pixels_of(py::handle object, const char* name, const Device* device) {
  auto view = writable_view_of(object, name, Keep::owner, device);
  check<TypeError>(are_pixels(view.dtype), name, ".dtype (", name_of(view.dtype), kNoPixels, ".");
  return view;
}

py::array array_from(const ArrayView& view) {
  const auto& npy = Npy::get();
  const auto ndim = static_cast<int>(view.ndim());
  check(ndim <= 32, "array: ndim (", ndim, ") is greater than the maximum 32.");
  py::dtype dtype = numpy_dtype(view.dtype);
  Py_intptr_t shape[32], strides[32];
  for (int i = 0; i < ndim; ++i) {
    shape[i] = view.shape[static_cast<std::size_t>(i)];
    strides[i] = view.strides[static_cast<std::size_t>(i)];
  }
  PyObject* array = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, dtype.release().ptr(), ndim, shape, strides, view.data,
                                              view.read_only ? 0 : Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!array) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::array>(array);
  if (view.owner && npy.PyArray_SetBaseObject_(array, to_python_owner(view.owner).release().ptr()) != 0)
    throw py::error_already_set();
  return result;
}

py::object object_from(const ArrayView& view, const std::shared_ptr<Device>& device) {
  return view.space.is_host() ? py::object(array_from(view)) : py::cast(DeviceArray{view, device});
}

LossResult loss_result(const char* who, const char* whose, const py::object& out, const Extents& shape, DType dtype) {
  check_made(out, "out");
  LossResult result{out.is_none() ? py::object(empty_array(shape, dtype)) : out, {}};
  auto& view = result.view = writable_view_of(result.array, "out");
  check(view.shape == shape, who, ": out.shape ", as_tuple(view.shape), " is not ", whose, " ", as_tuple(shape), ".");
  check<TypeError>(view.dtype == DType::float32 || view.dtype == DType::float16, who, ": out.dtype (",
                   name_of(view.dtype), ") is not float32 or float16.");
  return result;
}

py::array array_from(std::vector<float>& values, std::shared_ptr<void> owner, bool read_only) {
  const Extents shape{static_cast<std::int64_t>(values.size())};
  return array_from({.data = values.data(),
                     .dtype = DType::float32,
                     .shape = shape,
                     .strides = contiguous_strides(shape, DType::float32),
                     .read_only = read_only,
                     .owner = std::move(owner)});
}

namespace {

/// Steals `descr`.
py::object array_on_pages(PyObject* descr, int ndim, const Py_intptr_t* shape, std::size_t bytes, void** data) {
  const auto& npy = Npy::get();
  auto dtype = py::reinterpret_steal<py::object>(descr);
  Pages pages;
  try {
    pages = take_pages(bytes);
  } catch (const std::bad_alloc&) {
    throw MemoryError(
        say(bytes, " bytes for an array of shape ", as_tuple(Extents(shape, shape + ndim)), " are not available."));
  }
  // One allocation less than a shared_ptr in a capsule: every result is allocated here.
  auto* held = new Pages(pages);
  const auto release = [](PyObject* capsule) {
    auto* freed = static_cast<Pages*>(PyCapsule_GetPointer(capsule, kPages));
    give_pages(*freed);
    delete freed;
  };
  auto owner = py::reinterpret_steal<py::object>(PyCapsule_New(held, kPages, release));
  if (!owner) {
    give_pages(pages);
    delete held;
    throw py::error_already_set();
  }
  *data = pages.data;
  PyObject* array =
      npy.PyArray_NewFromDescr_(npy.PyArray_Type_, dtype.release().ptr(), ndim, shape, nullptr, pages.data,
                                Npy::NPY_ARRAY_C_CONTIGUOUS_ | Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!array) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::object>(array);
  if (npy.PyArray_SetBaseObject_(array, owner.release().ptr()) != 0) throw py::error_already_set();
  return result;
}

}  // namespace

bool read_numpy(py::handle object, NumpyFields& fields) {
  if (Py_TYPE(object.ptr()) != Npy::get().PyArray_Type_) return false;
  const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object.ptr());
  const auto dtype = dtype_of(reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(array->descr));
  if (!dtype || may_be_of_file(array)) return false;
  fields = {array->data, array->nd, array->dimensions, array->strides, *dtype};
  return true;
}

py::object empty_like_numpy(py::handle like, int ndim, const Py_intptr_t* shape, std::int64_t bytes, void** data) {
  const auto& npy = Npy::get();
  PyObject* descr = reinterpret_cast<const py::detail::PyArray_Proxy*>(like.ptr())->descr;
  Py_INCREF(descr);
  if (bytes >= 64 << 10) return array_on_pages(descr, ndim, shape, static_cast<std::size_t>(bytes), data);
  PyObject* array = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, descr, ndim, shape, nullptr, nullptr, 0, nullptr);
  if (!array) throw py::error_already_set();
  *data = reinterpret_cast<const py::detail::PyArray_Proxy*>(array)->data;
  return py::reinterpret_steal<py::object>(array);
}

py::object view_of_numpy(py::handle array, int ndim, const Py_intptr_t* shape) {
  const auto& npy = Npy::get();
  const auto* fields = reinterpret_cast<const py::detail::PyArray_Proxy*>(array.ptr());
  Py_INCREF(fields->descr);
  PyObject* view = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, fields->descr, ndim, shape, nullptr, fields->data,
                                             fields->flags & Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!view) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::object>(view);
  // Steals the reference, even on failure.
  if (npy.PyArray_SetBaseObject_(view, array.inc_ref().ptr()) != 0) throw py::error_already_set();
  return result;
}

py::array empty_array(const Extents& shape, DType dtype) {
  check(shape.size() <= 32, "empty: ndim (", shape.size(), ") is greater than the maximum 32.");
  const std::size_t bytes = bytes_of(shape, dtype, "empty: shape ");
  Py_intptr_t extents[32];
  std::ranges::copy(shape, extents);
  void* data = nullptr;
  return array_on_pages(numpy_dtype(dtype).release().ptr(), static_cast<int>(shape.size()), extents, bytes, &data);
}

py::object to_python_owner(std::shared_ptr<void> owner) {
  auto* held = new std::shared_ptr<void>(std::move(owner));
  PyObject* capsule = PyCapsule_New(held, "mpscnn.owner", [](PyObject* self) {
    delete static_cast<std::shared_ptr<void>*>(PyCapsule_GetPointer(self, "mpscnn.owner"));
  });
  if (!capsule) {
    delete held;
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace mpscnn::bindings
