// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>

#include <pybind11/stl.h>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

ImageShape shape_from(const py::object& shape) {
  const auto extents = extents_from(shape, "Image: shape");
  check(extents.size() == 4, "Image: len(shape) (", extents.size(), ") is not 4 (N, H, W, C).");
  return {extents[0], extents[1], extents[2], extents[3]};
}

using CopyArgument = std::optional<Bool<"copy">>;

CopyMode copy_mode(const CopyArgument& copy) { return copy ? CopyMode(copy->value) : std::nullopt; }

DType image_dtype(const py::object& dtype) { return dtype_from(dtype, "dtype", DType::float32); }

py::object numpy_of(const std::shared_ptr<Image>& image, ImageLayout layout, const py::object& out, CopyMode copy) {
  image->check_readable();
  if (!out.is_none()) {
    const auto view = writable_view_of(out, "out", Keep::owner, image->device().get());
    const ReleaseGil release;
    image->to_array(view, layout);
  } else {
    const auto shared = image->shared_array();
    if (shared && layout == ImageLayout::NHWC && !copy.value_or(false)) {
      auto view = *shared;
      // The array holds the image, which holds the memory's owner.
      view.owner = image;
      return array_from(view);
    }
    check<BufferError>(!copy.has_value() || *copy, "Image.numpy: the image cannot be shared: ",
                       shared ? "its layout is not NHWC." : "its memory is not an array's.");
    const auto s = image->shape();
    const auto array =
        empty_array(layout == ImageLayout::NHWC ? s.nhwc() : Extents{s.n, s.c, s.h, s.w}, image->dtype());
    const auto view = writable_view_of(array, "out");
    {
      const ReleaseGil release;
      image->to_array(view, layout);
    }
    return array;
  }
  return out;
}

/// A buffer of a memoryview has the memory of the image.
py::object pixels_of_object(py::handle self) {
  return numpy_of(object_of<Image>(self, "self"), ImageLayout::NHWC, py::none(), /*copy=*/false);
}

std::shared_ptr<Image> image_from_array(const py::object& x, const Str<"layout">& layout, CopyArgument copy_or_none,
                                        const OptionalArg<Device, "device">& device) {
  const auto copy = copy_mode(copy_or_none);
  const auto target = device_or_default(device);
  const auto order = image_layout_from_name(layout.value);
  const auto view = pixels_of(x, "x", target.get());
  const ReleaseGil release;
  return make_image(target, view, order, copy);
}

}  // namespace

py::object numpy_of(const std::shared_ptr<Image>& image) {
  return numpy_of(image, ImageLayout::NHWC, py::none(), std::nullopt);
}

void bind_image(py::module_& module) {
  py::class_<Image, std::shared_ptr<Image>> kind(module, "_Image",
                                                 py::custom_type_setup(&set_up_buffer_protocol<&pixels_of_object>));
  kind.def(py::init([](const py::object& shape, const py::object& dtype, const OptionalArg<Device, "device">& device) {
        return make_visible_image(device_or_default(device), shape_from(shape), image_dtype(dtype));
      }))
      .def_static("_from_array", &image_from_array)
      .def_static("_temporary",
                  [](Arg<CommandBuffer, "command_buffer"> buffer, const py::object& shape, const py::object& dtype) {
                    return Image::temporary(*buffer, shape_from(shape), image_dtype(dtype));
                  })
      .def_static("_most_images",
                  [](Int<"channels"> channels) {
                    check(channels >= 1, "channels (", channels.value, ") is less than the minimum (1).");
                    return Image::most_images(channels);
                  })
      .def("_numpy",
           [](const Arg<Image, "self">& image, const Str<"layout">& layout, const py::object& out, CopyArgument copy) {
             return numpy_of(image, image_layout_from_name(layout.value), out, copy_mode(copy));
           })
      .def("_write",
           [](Image& image, const py::object& x, const Str<"layout">& layout) {
             const auto view = view_of(x, "x", Keep::owner, image.device().get());
             const ReleaseGil release;
             image.write(view, image_layout_from_name(layout.value));
           })
      .def("_device_array",
           [](const Arg<Image, "self">& image) { return object_from(Image::device_array(image), image->device()); })
      .def_property_readonly("_is_visible", [](const Image& image) { return image.device()->memory_space().is_host(); })
      .def("_channels",
           [](const Image& image, Int<"first"> first, Int<"count"> count) { return image.channels(first, count); })
      .def_property_readonly(
          "shape", [](const Image& image) { return tuple_of(image.shape()); }, "(N, H, W, C).")
      .def_property_readonly(
          "dtype", [](const Image& image) { return numpy_dtype(image.dtype()); }, "The type of the pixels' values.")
      .def_property_readonly("is_temporary", &Image::is_temporary, "Whether the image is valid on one command buffer.")
      .def_property(
          "read_count", &Image::read_count, [](Image& image, Int<"read_count"> count) { image.set_read_count(count); },
          "Reads left before a temporary image's storage is recycled.")
      .def_property(
          "label", [](const Image& image) { return optional_text(image.label()); },
          [](Image& image, const std::optional<Str<"label">>& label) { image.set_label(label ? label->value : ""); },
          "Name in errors and traces.")
      .def_property_readonly("device", &Image::device, "The device that the image is on.");
  kind.def("__repr__", [](const Image& image) {
    return say("<mpscnn.", image.is_temporary() ? "temporary " : "", "Image ", image.shape(), " ",
               name_of(image.dtype()), ">");
  });
}

}  // namespace mpscnn::bindings
