// SPDX-License-Identifier: Apache-2.0
// DLPack, __array_interface__ and the buffer protocol.
#include "bind_array.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

namespace {

// ---- DLPack: https://dmlc.github.io/dlpack/latest/c_api.html

struct DLDevice {
  std::int32_t type;
  std::int32_t id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // elements; null: C-contiguous
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};

constexpr std::uint64_t kDLReadOnly = 1;
constexpr std::int32_t kDLCPU = 1, kDLCUDAHost = 3, kDLROCMHost = 11;
constexpr std::int32_t kMostAxes = 64;  // limit of PyTorch's tensors and NumPy's arrays

void check_device(std::int32_t type, py::handle object, const char* name) {
  check<TypeError>(type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost, name, " (", type_name(object),
                   ") lies on DLPack device ", type, ", not in the memory of the CPU (1).");
}

std::optional<DType> dtype_of_dlpack(const DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  enum : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };
  switch (type.code << 8 | type.bits) {
    case kUInt << 8 | 8: return DType::uint8;
    case kUInt << 8 | 16: return DType::uint16;
    case kUInt << 8 | 32: return DType::uint32;
    case kInt << 8 | 32: return DType::int32;
    case kInt << 8 | 64: return DType::int64;
    case kFloat << 8 | 16: return DType::float16;
    case kFloat << 8 | 32: return DType::float32;
    case kFloat << 8 | 64: return DType::float64;
    case kBfloat << 8 | 16: return DType::bfloat16;
    default: return std::nullopt;
  }
}

/// Take ownership of the capsule's tensor as the protocol requires: rename the capsule, and call the deleter when done.
template <class Managed>
ArrayView view_of_managed(py::handle object, py::handle capsule, const char* capsule_name, const char* used_name,
                          const char* name, bool read_only) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), capsule_name));
  if (!managed) throw py::error_already_set();
  const DLTensor& tensor = managed->tensor;
  check_device(tensor.device.type, object, name);
  check(tensor.ndim >= 0 && tensor.ndim <= kMostAxes, name, " (", type_name(object), "): ndim (", tensor.ndim,
        ") of its DLPack capsule is not within 0 to ", kMostAxes, ".");
  check(tensor.shape || tensor.ndim == 0, name, " (", type_name(object), "): shape of its DLPack capsule is NULL.");
  const auto dtype = dtype_of_dlpack(tensor.dtype);
  if (!dtype) {
    refuse_dtype(say("DLPack code ", int{tensor.dtype.code}, ", ", int{tensor.dtype.bits}, " bits, ",
                     tensor.dtype.lanes, " lanes"),
                 name);
  }
  ArrayView view;
  view.dtype = *dtype;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.read_only = read_only;
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  bytes_of(view.shape, *dtype, name);
  check(tensor.data || view.size() == 0, name, " (", type_name(object), ") has no memory: its address is NULL.");
  if (tensor.strides) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
    for (auto& stride : view.strides) stride *= static_cast<std::int64_t>(size_of(*dtype));
  } else {
    view.strides = contiguous_strides(view.shape, *dtype);
  }
  if (PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw py::error_already_set();
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
ArrayView view_of_capsule(py::handle object, py::handle source, const char* name) {
  static const auto* version = new py::tuple(py::make_tuple(1, 0));
  py::object capsule;
  try {
    capsule = source.attr("__dlpack__")(py::arg("max_version") = *version);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = source.attr("__dlpack__")();  // exporters without the argument
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    check<TypeError>(managed->version.major == 1, name, " (", type_name(object), ") speaks DLPack ",
                     managed->version.major, ", not 1.");
    return view_of_managed<DLManagedTensorVersioned>(object, capsule, "dltensor_versioned", "used_dltensor_versioned",
                                                     name, managed->flags & kDLReadOnly);
  }
  return view_of_managed<DLManagedTensor>(object, capsule, "dltensor", "used_dltensor", name, false);
}

}  // namespace

ArrayView view_of_dlpack(py::handle object, const char* name) {
  if (py::hasattr(object, "__dlpack_device__")) {
    const auto device = py::tuple(object.attr("__dlpack_device__")());
    check_device(py::int_(device[0]).cast<std::int32_t>(), object, name);
  }
  py::object source = py::reinterpret_borrow<py::object>(object);
  // PyTorch does not export tensors that require grad; detach() returns the same memory.
  if (py::hasattr(source, "requires_grad") && py::bool_(source.attr("requires_grad"))) source = source.attr("detach")();
  // PyTorch exports the memory, which has the opposite sign.
  if (is_negated(source)) source = source.attr("resolve_neg")();
  auto view = view_of_capsule(object, source, name);
  check_storage(source, view, name);
  return view;
}

namespace {

// ---- __array_interface__ and the buffer protocol

/// The element type of a format such as "f", "<f4" or "|u1".
std::optional<DType> dtype_of_format(std::string_view format, std::size_t bytes) {
  if (!format.empty() && std::string_view("@=<>|!").find(format[0]) != std::string_view::npos) {
    if ((format[0] == '>' || format[0] == '!') && bytes > 1) return std::nullopt;
    format.remove_prefix(1);
  }
  if (format.empty()) return std::nullopt;
  const bool typestr = format.size() > 1;  // "f4" (array interface) against "f" (struct)
  const char kind = format[0];
  if (typestr && format.substr(1) != std::to_string(bytes)) return std::nullopt;
  const bool is_unsigned = typestr ? kind == 'u' : std::string_view("BHILQNc").find(kind) < 6;
  const bool is_signed = typestr ? kind == 'i' : std::string_view("bhilqn").find(kind) != std::string_view::npos;
  const bool is_float = typestr ? kind == 'f' : std::string_view("efd").find(kind) != std::string_view::npos;
  if (is_unsigned && bytes == 1) return DType::uint8;
  if (is_unsigned && bytes == 2) return DType::uint16;
  if (is_unsigned && bytes == 4) return DType::uint32;
  if (is_signed && bytes == 4) return DType::int32;
  if (is_signed && bytes == 8) return DType::int64;
  if (is_float && bytes == 2) return DType::float16;
  if (is_float && bytes == 4) return DType::float32;
  if (is_float && bytes == 8) return DType::float64;
  return std::nullopt;
}

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

ArrayView view_of_interface_fields(py::handle object, const char* name) {
  const py::dict interface = object.attr("__array_interface__");
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
  check<TypeError>(view.strides.size() == view.shape.size(), name, ".__array_interface__ has ", view.strides.size(),
                   " strides for ", view.shape.size(), " axes.");
  py::object data = interface.contains("data") ? py::object(interface["data"]) : py::none();
  if (py::isinstance<py::tuple>(data)) {
    const py::tuple pair = data;
    view.data = reinterpret_cast<void*>(pair[0].cast<std::uintptr_t>());
    view.read_only = pair[1].cast<bool>();
    view.owner = keep_python_object(py::reinterpret_borrow<py::object>(object));
    return view;
  }
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

ArrayView view_of_interface(py::handle object, const char* name) {
  try {
    return view_of_interface_fields(object, name);
  } catch (const py::cast_error&) {
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_KeyError)) throw;
  }
  throw TypeError(
      say(name, ".__array_interface__ of ", type_name(object), " is not version 3 of NumPy's array interface."));
}

}  // namespace mpscnn::bindings
