// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/buffer.hpp>

#include <optional>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"

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

/// Return an array of the buffer's bytes, to be copied.
const py::array& checked(const Buffer& buffer, const py::array& array) {
  check(static_cast<std::uint64_t>(array.nbytes()) == buffer.bytes() && (array.flags() & py::array::c_style),
        "Buffer: the array has ", array.nbytes(), " bytes, or gaps; the buffer has ", buffer.bytes(), " bytes.");
  return array;
}

py::object bytes_of_object(py::handle self) {
  return numpy_view(object_of<Buffer>(self, "self"), py::none(), py::none());
}

}  // namespace

void bind_buffer(py::module_& module) {
  py::class_<Buffer, std::shared_ptr<Buffer>> kind(module, "_Buffer",
                                                   py::custom_type_setup(&set_up_buffer_protocol<&bytes_of_object>));
  kind.def(py::init([](const py::object& source, const OptionalArg<Device, "device">& device) {
        const auto target = device_or_default(device);
        check<TypeError>(!PyBool_Check(source.ptr()), "Buffer: source (", py::repr(source).cast<std::string>(),
                         ") is not a length in bytes or an array.");
        if (!is_integer(source)) return Buffer::share(target, view_of(source, "source", Keep::owner, target.get()));
        const Index length = index_of(source);
        check<MemoryError>(length.value || length.number < py::int_(0), "Buffer: length (",
                           py::str(length.number).cast<std::string>(), ") is beyond 64 bits.");
        check(length.value.value_or(-1) >= 1, "Buffer: length (", py::str(length.number).cast<std::string>(),
              ") is less than the minimum (1).");
        return Buffer::make(target, static_cast<std::uint64_t>(*length.value));
      }))
      .def("_numpy", [](const Arg<Buffer, "self">& buffer, const py::object& dtype,
                        const py::object& shape) { return numpy_view(buffer, dtype, shape); })
      .def(
          "_device_array",
          [](const Arg<Buffer, "self">& buffer) { return object_from(Buffer::device_array(buffer), buffer->device()); })
      .def_property_readonly("_is_visible", &Buffer::is_visible)
      .def_property_readonly("device", &Buffer::device, "The device that the buffer is for.")
      .def("_read",
           [](const Buffer& buffer, py::array into) {
             checked(buffer, into);
             buffer.read(into.mutable_data());
           })
      .def("_write", [](Buffer& buffer, const py::array& from) { buffer.write(checked(buffer, from).data()); })
      .def_property_readonly("nbytes", &Buffer::bytes, "Length in bytes.");
  kind.def("__repr__", [](const Buffer& buffer) { return say("<mpscnn.Buffer of ", buffer.bytes(), " bytes>"); });
}

}  // namespace mpscnn::bindings
