// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

constexpr const char* kConversion = "ImageConversion";

py::object call_conversion(const ImageConversion& kernel, const py::object& x, const py::object& out) {
  if (py::isinstance<Image>(x)) {
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), kConversion, ": x is an Image; out is not.");
    const auto source = x.cast<std::shared_ptr<Image>>();
    auto result = out.is_none() ? nullptr : out.cast<std::shared_ptr<Image>>();
    {
      const ReleaseGil release;
      kernel.check_channels(source->shape().c);
      if (!result) {
        kernel.check_no_clip();
        result = make_visible_image(kernel.device(), kernel.result_shape(source->shape()), kernel.dtype());
      }
      run(kernel, *source, result);
    }
    return py::cast(result);
  }
  const auto view = pixels_of(x, "x");
  check(view.ndim() == 4, kConversion, ": x.ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  const auto& s = view.shape;
  kernel.check_channels(s[3]);
  const ImageShape shape{s[0], s[1], s[2], s[3]};
  Image::bytes(*kernel.device(), shape, view.dtype);  // throws for a wrong shape
  if (out.is_none()) kernel.check_no_clip();
  const py::object result =
      out.is_none() ? py::object(empty_array(kernel.result_shape(shape).nhwc(), kernel.dtype())) : out;
  const auto target = writable_view_of(result, "out");
  check(target.ndim() == 4, kConversion, ": out.ndim (", target.ndim(), ") is not 4 (N, H, W, C).");
  const auto& t = target.shape;
  kernel.check_destination(shape, {t[0], t[1], t[2], t[3]});
  check<TypeError>(target.dtype == kernel.dtype(), kConversion, ": out.dtype (", name_of(target.dtype),
                   ") is not dtype (", name_of(kernel.dtype()), ").");
  {
    const ReleaseGil release;
    run(kernel, view, target);
  }
  return result;
}

const ParamSpec& attribute(const char* name) {
  for (const auto* spec : ImageConversion::row().params)
    if (spec->name == name) return *spec;
  throw KeyError(name);
}

std::shared_ptr<Image> encode_conversion(const ImageConversion& kernel,
                                         const Arg<CommandBuffer, "command_buffer">& buffer, const Arg<Image, "x">& x,
                                         const OptionalArg<Image, "out">& out, Bool<"temporary"> temporary) {
  check(!out || !temporary, kConversion, ": temporary (True) was given together with out.");
  const ReleaseGil release;
  if (out || temporary) return kernel.encode(*buffer, *x, out, temporary);
  kernel.check_channels(x->shape().c);
  kernel.check_no_clip();
  const auto shape = kernel.result_shape(x->shape());
  return kernel.encode(*buffer, *x, make_visible_image(kernel.device(), shape, kernel.dtype()));
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
      .def("_encode", &encode_conversion)
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
