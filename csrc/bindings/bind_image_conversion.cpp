// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

py::object call_conversion(const ImageConversion& kernel, const py::object& x, const py::object& out) {
  if (py::isinstance<Image>(x)) {
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), "ImageConversion: x is an Image; out is not.");
    const auto source = object_of<Image>(x, "x");
    auto result = object_or_null<Image>(out, "out");
    {
      const ReleaseGil release;
      result = run(kernel, *source, result);
    }
    return py::cast(result);
  }
  const auto view = pixels_of(x, "x", kernel.device().get());
  std::optional<ArrayView> target;
  if (!out.is_none()) target = writable_view_of(out, "out", Keep::owner, kernel.device().get());
  {
    const ReleaseGil release;
    target = run(kernel, view, target);
  }
  return out.is_none() ? object_from(*target, kernel.device()) : out;
}

const ParamSpec& attribute(const char* name) {
  for (const auto* spec : ImageConversion::row().params)
    if (spec->name == name) return *spec;
  throw KeyError(name);
}

}  // namespace

void bind_image_conversion(py::module_& module) {
  py::class_<ImageConversion, std::shared_ptr<ImageConversion>> kind(module, "_ImageConversion");
  kind.def(py::init([](const py::object& dtype, const Str<"source_alpha">& source_alpha,
                       const Str<"destination_alpha">& destination_alpha, const std::array<double, 3>& background_color,
                       const OptionalArg<Device, "device">& device) {
        return ImageConversion::make(device_or_default(device), dtype_from(dtype, "dtype", DType::float32),
                                     alpha_type_from_name(source_alpha.value, "source_alpha"),
                                     alpha_type_from_name(destination_alpha.value, "destination_alpha"),
                                     background_color);
      }))
      .def("_get",
           [](const ImageConversion& kernel, const char* name) {
             Value value;
             {
               const ReleaseGil release;
               value = kernel.get(name);
             }
             return to_python(attribute(name), value);
           })
      .def("_set",
           [](ImageConversion& kernel, const char* name, const py::object& object) {
             const auto value = value_of(ImageConversion::row(), attribute(name), object);
             const ReleaseGil release;
             kernel.set(name, value);
           })
      .def("_call", &call_conversion)
      .def("_encode",
           [](const ImageConversion& kernel, const Arg<CommandBuffer, "command_buffer">& buffer,
              const Arg<Image, "x">& x, const OptionalArg<Image, "out">& out, Bool<"temporary"> temporary) {
             const ReleaseGil release;
             return encode(kernel, *buffer, *x, out.value, temporary);
           })
      .def_property_readonly(
          "dtype", [](const ImageConversion& kernel) { return numpy_dtype(kernel.dtype()); }, "The type of results.")
      .def_property_readonly("_source_alpha",
                             [](const ImageConversion& kernel) { return name_of(kernel.source_alpha()); })
      .def_property_readonly("_destination_alpha",
                             [](const ImageConversion& kernel) { return name_of(kernel.destination_alpha()); })
      .def_property_readonly("device", &ImageConversion::device, "The device that converts.");
  kind.def("__repr__", [](const ImageConversion& kernel) {
    return say("<mpscnn.ImageConversion to ", name_of(kernel.dtype()), ", alpha ", name_of(kernel.source_alpha()),
               " to ", name_of(kernel.destination_alpha()), ">");
  });
}

}  // namespace mpscnn::bindings
