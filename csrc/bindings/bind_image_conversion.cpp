// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

constexpr const char* kConversion = "ImageConversion";

std::array<double, 3> colour_from(const py::object& background) {
  std::array<double, 3> colour = {0, 0, 0};
  if (background.is_none()) return colour;
  check<TypeError>(PySequence_Check(background.ptr()) && !PyUnicode_Check(background.ptr()), "background_color (",
                   py::repr(background).cast<std::string>(), ") is not a sequence of numbers.");
  const auto values = py::reinterpret_borrow<py::sequence>(background);
  check(values.size() == 3, kConversion, ": len(background_color) (", values.size(), ") is not 3 (red, green, blue).");
  for (std::size_t i = 0; i < 3; ++i) {
    const py::object value = values[i];
    check<TypeError>(is_number(value), "background_color (", py::repr(background).cast<std::string>(),
                     ") is not a sequence of numbers.");
    colour[i] = value.cast<double>();
  }
  return colour;
}

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

void set(ImageConversion& kernel, const char* name, const py::object& object) {
  const auto value = value_of(ImageConversion::row(), attribute(name), object);
  const ReleaseGil release;
  kernel.set(name, value);
}

/// Add an attribute as on kernels of the table, with docstring `doc`.
template <class Class>
void add_attribute(Class& type, const char* name, const char* doc) {
  type.def_property(
      name,
      [name](const ImageConversion& kernel) {
        Value value;
        {
          const ReleaseGil release;
          value = kernel.get(name);
        }
        return to_python(attribute(name), value);
      },
      [name](ImageConversion& kernel, const py::object& value) { set(kernel, name, value); }, doc);
}

}  // namespace

void bind_image_conversion(py::module_& module) {
  py::class_<ImageConversion, std::shared_ptr<ImageConversion>> type(
      module, "ImageConversion",
      R"(Conversion of images to another dtype and alpha convention.

    Values stay what they are; uint8 and uint16 hold 0...1 in steps of 1/255 and 1/65535, rounded to the nearest and
    clamped.

    Parameters
    ----------
    dtype : dtype, default float32
        Of the result: float32, float16, uint8 or uint16.
    source_alpha, destination_alpha : "non_premultiplied", "alpha_is_one" or "premultiplied"
        What channel 3 of images of four channels says about the others. The default leaves all channels as they are;
        "alpha_is_one" ignores it in the source, and puts the result on the background and makes it 1.
    background_color : (float, float, float), default black
        What shows through where alpha is below 1.
    offset : (y, x) or (y, x, image), pixels, optional
        Source pixel, and first source image, under the first pixel that is written; None: (0, 0, 0).
    clip_rect : ((y, x, image), (height, width, images)), pixels, optional
        Part of the destination that is written; None: all of it. The other pixels are kept, so that it needs ``out``,
        which may then be of another size than x.
    edge_mode : "zero" or "clamp"
        Pixels outside of the source: zero, or the nearest pixel.
    device : Device, optional

    Raises
    ------
    ValueError   "ImageConversion: source_alpha ("…") and destination_alpha ("…") ask for a change of alpha, which images
                 of 5 channels have not."
                 "ImageConversion: clip_rect reaches 9 along the height of out (8)."
    TypeError    "ImageConversion: out.dtype (float16) is not dtype (uint8)."

    Source
    ------
    MPSImage/MPSImageConversion.h, MPSImageConversion; MPSImage/MPSImageKernel.h, MPSUnaryImageKernel.)");
  add_attribute(type, "offset", "(y, x), (y, x, image) or None: source pixel under the first that is written.");
  add_attribute(type, "clip_rect", "((y, x, image), (height, width, images)) or None: what is written.");
  add_attribute(type, "edge_mode", "str: \"zero\" or \"clamp\", pixels outside of the source.");
  type.def(py::init([](const py::object& dtype, const Text& source_alpha, const Text& destination_alpha,
                       const py::object& background, const py::object& offset, const py::object& clip_rect,
                       const py::object& edge_mode, const std::shared_ptr<Device>& device) {
             const auto kernel = ImageConversion::make(
                 device_or_default(device), dtype_from(dtype, "dtype", DType::float32),
                 alpha_type_from_name(source_alpha.value, "source_alpha"),
                 alpha_type_from_name(destination_alpha.value, "destination_alpha"), colour_from(background));
             set(*kernel, "offset", offset);
             set(*kernel, "clip_rect", clip_rect);
             set(*kernel, "edge_mode", edge_mode);
             return kernel;
           }),
           py::arg("dtype") = "float32", py::kw_only(), py::arg("source_alpha") = "non_premultiplied",
           py::arg("destination_alpha") = "non_premultiplied", py::arg("background_color") = py::none(),
           py::arg("offset") = py::none(), py::arg("clip_rect") = py::none(), py::arg("edge_mode") = "zero",
           py::arg("device") = nullptr)
      .def("__call__", &call_conversion, py::arg("x"), py::arg("out") = py::none(),
           R"(Convert and wait.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            float32, float16, uint8 or uint16.
        out : array or Image of x's shape and of dtype, optional
            Written in place and returned; with ``clip_rect`` only in part, and of any height, width and number of
            images.

        Returns
        -------
        array or Image, as x is)")
      .def(
          "encode",
          [](const ImageConversion& kernel, CommandBuffer& buffer, const Image& x, const std::shared_ptr<Image>& out,
             Boolean temporary) {
            check(!out || !temporary, kConversion, ": temporary (True) was given together with out.");
            const ReleaseGil release;
            if (out || temporary) return kernel.encode(buffer, x, out, temporary);
            kernel.check_channels(x.shape().c);
            kernel.check_no_clip();
            const auto shape = kernel.result_shape(x.shape());
            return kernel.encode(buffer, x, make_visible_image(kernel.device(), shape, kernel.dtype()));
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("out") = nullptr, py::arg("temporary") = false,
          R"(Append the conversion to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        out : Image, optional
            Destination.
        temporary : bool, default False
            The result is read on this command buffer only, never by the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.)")
      .def_property_readonly(
          "dtype", [](const ImageConversion& kernel) { return numpy_dtype(kernel.dtype()); }, "numpy.dtype")
      .def_property_readonly(
          "source_alpha", [](const ImageConversion& kernel) { return name_of(kernel.source_alpha()); }, "str")
      .def_property_readonly(
          "destination_alpha", [](const ImageConversion& kernel) { return name_of(kernel.destination_alpha()); }, "str")
      .def_property_readonly("device", &ImageConversion::device, "Device")
      .def("__repr__", [](const ImageConversion& kernel) {
        return say("<mpscnn.ImageConversion to ", name_of(kernel.dtype()), ", alpha ", name_of(kernel.source_alpha()),
                   " to ", name_of(kernel.destination_alpha()), ">");
      });
}

}  // namespace mpscnn::bindings
