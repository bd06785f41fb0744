// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/buffer.hpp>

#include <optional>

#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

py::array numpy_view(const std::shared_ptr<Buffer>& buffer, py::handle dtype_like, const py::object& shape) {
  const auto dtype = dtype_from(dtype_like, "dtype", DType::uint8);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto bytes = static_cast<std::int64_t>(buffer->bytes());
  Extents extents;
  if (shape.is_none()) {
    check(bytes % size == 0, "Buffer.numpy: length (", bytes, " bytes) is not a multiple of dtype's ", size, " bytes.");
    extents = {bytes / size};
  } else {
    std::int64_t wanted = size;
    extents = extents_from(shape, "Buffer.numpy: shape");
    for (auto extent : extents)
      check(extent >= 0 && !__builtin_mul_overflow(wanted, extent, &wanted), "Buffer.numpy: shape ", as_tuple(extents),
            " is negative or too large.");
    check(wanted <= bytes, "Buffer.numpy: shape ", as_tuple(extents), " of ", name_of(dtype), " needs ", wanted,
          " bytes; the buffer has ", bytes, ".");
  }
  return array_from({.data = buffer->contents(),
                     .dtype = dtype,
                     .shape = extents,
                     .strides = contiguous_strides(extents, dtype),
                     .owner = buffer});
}

py::array bytes_of(const std::shared_ptr<Buffer>& buffer) { return numpy_view(buffer, py::str("uint8"), py::none()); }

py::object bytes_of_object(py::handle self) { return bytes_of(self.cast<std::shared_ptr<Buffer>>()); }

/// NumPy prefers the buffer protocol; other libraries use only this.
py::object buffer_array(const std::shared_ptr<Buffer>& buffer, const py::object& dtype_like,
                        std::optional<Boolean> copy) {
  const py::array bytes = bytes_of(buffer);
  const py::dtype dtype = dtype_like.is_none() ? bytes.dtype() : dtype_object(dtype_like, "dtype");
  const bool always = copy && *copy, never = copy && !*copy;
  check(!never || bytes.dtype().equal(dtype), "Buffer: dtype (", py::str(py::handle(dtype)).cast<std::string>(),
        ") is not uint8, which copy=False asks for.");
  return bytes.attr("astype")(dtype, py::arg("copy") = always);
}

}  // namespace

void bind_buffer(py::module_& module) {
  py::class_<Buffer, std::shared_ptr<Buffer>>(module, "Buffer",
                                              py::custom_type_setup(&set_up_buffer_protocol<&bytes_of_object>),
                                              R"(Memory that the device and NumPy share.

    Parameters
    ----------
    source : int or array
        Length in bytes, >= 1 (zero-filled), or an array whose own memory becomes the buffer: C-contiguous, writable, on
        whole pages, as ``mpscnn.empty()`` makes them.
    device : Device, optional

    Sharing
    -------
    ``np.asarray(buffer)``, ``memoryview(buffer)``, ``torch.from_dlpack(buffer)`` and whatever else takes the buffer protocol
    or DLPack see the same bytes, shape (nbytes,), uint8, writable, and hold the buffer. ``buffer.numpy()`` reads them as
    another dtype and shape; ``np.asarray(buffer, dtype)`` converts each byte to a number of that dtype, which is a copy.

    Raises
    ------
    ValueError   "Buffer: length (0) is less than the minimum (1)."
    BufferError  "Buffer: the array cannot be shared: its address (…) is not a multiple of the page size (4096); …"
    MemoryError  "Buffer: length (…) is greater than the device's max_buffer_bytes (…)."

    Source
    ------
    Metal/MTLBuffer.h, MTLBuffer.)")
      .def(py::init([](const py::object& source, const std::shared_ptr<Device>& device) {
             const auto target = device_or_default(device);
             check<TypeError>(!PyBool_Check(source.ptr()), "Buffer: source (", py::repr(source).cast<std::string>(),
                              ") is not a length in bytes or an array.");
             if (!is_integer(source)) return Buffer::share(target, view_of(source, "source"));
             const auto length = py::int_(py::reinterpret_steal<py::object>(PyNumber_Index(source.ptr())));
             int overflow = 0;
             const auto bytes = PyLong_AsLongLongAndOverflow(length.ptr(), &overflow);
             check<MemoryError>(overflow <= 0, "Buffer: length (", py::str(py::handle(length)).cast<std::string>(),
                                ") is beyond 64 bits.");
             check(bytes >= 1, "Buffer: length (", bytes, ") is less than the minimum (1).");
             return Buffer::make(target, static_cast<std::uint64_t>(bytes));
           }),
           py::arg("source"), py::kw_only(), py::arg("device") = nullptr)
      .def("numpy", &numpy_view, py::arg("dtype") = "uint8", py::arg("shape") = py::none(),
           "array: a view of the buffer's memory, not a copy; dtype and shape may be given.")
      .def("__array__", &buffer_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack__", [](const std::shared_ptr<Buffer>& buffer,
                            const py::kwargs& options) { return bytes_of(buffer).attr("__dlpack__")(**options); })
      .def("__dlpack_device__", [](const Buffer&) { return py::make_tuple(1, 0); })
      .def("__len__", &Buffer::bytes)
      .def_property_readonly("nbytes", &Buffer::bytes, "int: length in bytes.")
      .def("__repr__", [](const Buffer& buffer) { return say("<mpscnn.Buffer of ", buffer.bytes(), " bytes>"); });
}

}  // namespace mpscnn::bindings
