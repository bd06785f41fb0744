// SPDX-License-Identifier: Apache-2.0
// DLPack, __array_interface__, __cuda_array_interface__ and the buffer protocol.
#include "bind_array.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <mpscnn/array_protocols.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

namespace {

// ---- DLPack

constexpr std::uintptr_t kLegacyStream = 1;

template <class Managed>
constexpr const char* kCapsule = "dltensor";
template <>
constexpr const char* kCapsule<DLManagedTensorVersioned> = "dltensor_versioned";
template <class Managed>
constexpr const char* kUsedCapsule = "used_dltensor";
template <>
constexpr const char* kUsedCapsule<DLManagedTensorVersioned> = "used_dltensor_versioned";

/// Throw unless a device, or the host for null, can use the memory. Wait for `stream`, whose work may write it.
void check_memory(ArrayView& view, py::handle object, const char* name, const Device* device, std::uintptr_t stream) {
  const auto what = say(name, " (", type_name(object), ")");
  if (!device || device->memory_space().is_host())
    check<TypeError>(view.space.is_host(), what, " lies on DLPack device ", view.space.type,
                     ", not in the memory of the CPU (1).");
  if (view.space.is_host() || view.size() == 0) return;
  device->check_memory(view, what);
  const ReleaseGil release;
  if (stream != 0) device->wait_for_stream(stream);
}

/// Take ownership of the capsule's tensor as the protocol requires: rename the capsule, and call the deleter when done.
template <class Managed>
ArrayView view_of_managed(py::handle object, py::handle capsule, const char* name, const Device* device,
                          bool read_only) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule<Managed>));
  if (!managed) throw py::error_already_set();
  auto view = view_of_tensor(managed->tensor, say(name, " (", type_name(object), ")"), name);
  view.read_only = read_only;
  check_memory(view, object, name, device, 0);
  if (PyCapsule_SetName(capsule.ptr(), kUsedCapsule<Managed>) != 0) throw py::error_already_set();
  view.owner = std::shared_ptr<void>(managed, [](void* pointer) {
    with_gil([pointer] {
      auto* held = static_cast<Managed*>(pointer);
      if (held->deleter) or_stay([held] { held->deleter(held); });
    });
  });
  return view;
}

}  // namespace

bool is_negated(py::handle object) { return py::hasattr(object, "is_neg") && py::bool_(object.attr("is_neg")()); }

namespace {

/// Throw for tensors whose storage has no memory (FakeTensor) or was shrunk; PyTorch exports them too.
void check_storage(py::handle tensor, const ArrayView& view, const char* name) {
  if (view.size() == 0 || !py::hasattr(tensor, "untyped_storage")) return;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  auto end = py::int_(tensor.attr("storage_offset")()).cast<std::int64_t>() * size;
  check(reinterpret_cast<std::intptr_t>(view.data) != end, name, " (", type_name(tensor),
        ") has no memory: its storage is at NULL.");
  for (std::size_t i = 0; i < view.ndim(); ++i) end += (view.shape[i] - 1) * view.strides[i];
  const auto available = py::int_(tensor.attr("untyped_storage")().attr("nbytes")()).cast<std::int64_t>();
  check(end + size <= available, name, " (", type_name(tensor), ") has no memory: it needs ", end + size,
        " bytes of its storage, which has ", available, ".");
}

/// Return a view of `source`, which is `object` or replaces it.
ArrayView view_of_capsule(py::handle object, py::handle source, const char* name, const Device* device) {
  static const auto* version = new py::tuple(py::make_tuple(1, 0));
  py::dict stream;
  ArrayView place;
  if (py::hasattr(source, "__dlpack_device__")) {
    const auto pair = py::tuple(source.attr("__dlpack_device__")());
    place.space = memory_space_of({py::int_(pair[0]).cast<std::int32_t>(), py::int_(pair[1]).cast<std::int32_t>()});
    if (place.space.type == MemorySpace::kCuda) stream["stream"] = kLegacyStream;
  }
  place.shape = {1};
  check_memory(place, object, name, device, 0);
  py::object capsule;
  try {
    capsule = source.attr("__dlpack__")(py::arg("max_version") = *version, **stream);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = source.attr("__dlpack__")(**stream);  // exporters without the argument
  }
  ArrayView view;
  if (PyCapsule_IsValid(capsule.ptr(), kCapsule<DLManagedTensorVersioned>)) {
    const auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule<DLManagedTensorVersioned>));
    check<TypeError>(managed->version.major == 1, name, " (", type_name(object), ") speaks DLPack ",
                     managed->version.major, ", not 1.");
    view = view_of_managed<DLManagedTensorVersioned>(object, capsule, name, device, managed->flags & kDLReadOnly);
  } else {
    view = view_of_managed<DLManagedTensor>(object, capsule, name, device, false);
  }
  if (place.space.type == MemorySpace::kCuda) check_memory(view, object, name, device, kLegacyStream);
  return view;
}

template <class Managed>
py::object new_capsule(const ArrayView& view) {
  auto* tensor = new_tensor<Managed>(view);
  PyObject* capsule = PyCapsule_New(tensor, kCapsule<Managed>, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, kCapsule<Managed>)) return;  // taken over
    auto* unused = static_cast<Managed*>(PyCapsule_GetPointer(self, kCapsule<Managed>));
    unused->deleter(unused);
  });
  if (!capsule) {
    tensor->deleter(tensor);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

py::object capsule_of(const ArrayView& view, bool is_versioned) {
  return is_versioned ? new_capsule<DLManagedTensorVersioned>(view) : new_capsule<DLManagedTensor>(view);
}

ArrayView view_of_dlpack(py::handle object, const char* name, const Device* device) {
  py::object source = py::reinterpret_borrow<py::object>(object);
  // PyTorch does not export tensors that require grad; detach() returns the same memory.
  if (py::hasattr(source, "requires_grad") && py::bool_(source.attr("requires_grad"))) source = source.attr("detach")();
  // PyTorch exports the memory, which has the opposite sign.
  if (is_negated(source)) source = source.attr("resolve_neg")();
  auto view = view_of_capsule(object, source, name, device);
  check_storage(source, view, name);
  return view;
}

namespace {

// ---- __array_interface__ and the buffer protocol

struct HeldBuffer {
  Py_buffer buffer{};
  bool held = false;
  ~HeldBuffer() {
    if (held) with_gil([this] { or_stay([this] { PyBuffer_Release(&buffer); }); });
  }
};

}  // namespace

ArrayView view_of_buffer(py::handle object, const char* name) {
  auto held = std::make_shared<HeldBuffer>();
  Py_buffer& buffer = held->buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FULL_RO) != 0) throw py::error_already_set();
  held->held = true;
  check<TypeError>(!buffer.suboffsets, name, " (", type_name(object), ") has suboffsets: its rows are pointers.");
  const std::string_view format = buffer.format ? buffer.format : "B";
  const auto dtype = dtype_of_format(format, static_cast<std::size_t>(buffer.itemsize));
  if (!dtype) refuse_dtype("buffer format '" + std::string(format) + "'", name);
  ArrayView view;
  view.data = buffer.buf;
  view.dtype = *dtype;
  view.read_only = buffer.readonly;
  if (buffer.shape && buffer.strides) {
    view.shape.assign(buffer.shape, buffer.shape + buffer.ndim);
    view.strides.assign(buffer.strides, buffer.strides + buffer.ndim);
  } else {
    view.shape = {static_cast<std::int64_t>(buffer.len / buffer.itemsize)};
    view.strides = {static_cast<std::int64_t>(buffer.itemsize)};
  }
  view.owner = std::move(held);
  return view;
}

namespace {

ArrayView view_of_interface_fields(py::handle object, const char* name, const char* attribute, const Device* device) {
  const py::dict interface = object.attr(attribute);
  const auto typestr = py::str(interface["typestr"]).cast<std::string>();
  const auto bytes = typestr.size() > 2 ? std::strtoul(typestr.c_str() + 2, nullptr, 10) : 0;
  const auto dtype = dtype_of_format(typestr, bytes);
  if (!dtype) refuse_dtype("'" + typestr + "'", name);
  ArrayView view;
  view.dtype = *dtype;
  view.shape = interface["shape"].cast<Extents>();
  bytes_of(view.shape, *dtype, name);
  const bool strided = interface.contains("strides") && !interface["strides"].is_none();
  view.strides = strided ? interface["strides"].cast<Extents>() : contiguous_strides(view.shape, *dtype);
  check<TypeError>(view.strides.size() == view.shape.size(), name, ".", attribute, " has ", view.strides.size(),
                   " strides for ", view.shape.size(), " axes.");
  py::object data = interface.contains("data") ? py::object(interface["data"]) : py::none();
  if (py::isinstance<py::tuple>(data)) {
    const py::tuple pair = data;
    view.data = reinterpret_cast<void*>(pair[0].cast<std::uintptr_t>());
    view.read_only = pair[1].cast<bool>();
    view.owner = keep_python_object(py::reinterpret_borrow<py::object>(object));
    if (attribute != kCudaInterface) return view;
    view.space = {MemorySpace::kCuda, MemorySpace::kUnknown};
    // None: the memory is ready. Version 2 has no stream, and the default stream is the producer's.
    const auto stream = interface.contains("stream") ? py::object(interface["stream"]) : py::int_(kLegacyStream);
    check_memory(view, object, name, device, stream.is_none() ? 0 : stream.cast<std::uintptr_t>());
    return view;
  }
  check<TypeError>(attribute != kCudaInterface, name, ".", attribute, " has no address.");
  const ArrayView memory = view_of_buffer(data.is_none() ? object : py::handle(data), name);
  const auto offset = interface.contains("offset") ? interface["offset"].cast<std::int64_t>() : 0;
  const std::int64_t available = memory.size() * static_cast<std::int64_t>(size_of(memory.dtype));
  std::int64_t low = offset, high = offset + static_cast<std::int64_t>(size_of(*dtype));
  for (std::size_t i = 0; i < view.ndim(); ++i) {
    std::int64_t reach = 0;
    check<TypeError>(!__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach), name, ".strides overflow.");
    (view.strides[i] < 0 ? low : high) += reach;
  }
  check<TypeError>(view.size() == 0 || (low >= 0 && high <= available), name,
                   ".__array_interface__ reaches over bytes ", low, " to ", high, " of a buffer of ", available, ".");
  view.data = static_cast<char*>(memory.data) + offset;
  view.read_only = memory.read_only;
  view.owner = memory.owner;
  return view;
}

}  // namespace

ArrayView view_of_interface(py::handle object, const char* name, const char* attribute, const Device* device) {
  try {
    return view_of_interface_fields(object, name, attribute, device);
  } catch (const py::cast_error&) {
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_KeyError)) throw;
  }
  throw TypeError(
      say(name, ".", attribute, " of ", type_name(object), " is not version 3 of NumPy's array interface."));
}

}  // namespace mpscnn::bindings
