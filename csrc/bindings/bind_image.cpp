// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>

#include <pybind11/stl.h>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

ImageShape shape_from(const py::object& shape) {
  const auto extents = extents_from(shape, "Image: shape");
  check(extents.size() == 4, "Image: len(shape) (", extents.size(), ") is not 4 (N, H, W, C).");
  return {extents[0], extents[1], extents[2], extents[3]};
}

CopyMode copy_mode(const std::optional<Boolean>& copy) { return copy ? CopyMode(copy->value) : std::nullopt; }

DType image_dtype(const py::object& dtype) { return dtype_from(dtype, "dtype", DType::float32); }

py::object numpy_of(const std::shared_ptr<Image>& image, const std::string& layout_name, const py::object& out,
                    CopyMode copy) {
  const auto layout = image_layout_from_name(layout_name);
  image->check_readable();
  if (!out.is_none()) {
    const auto view = writable_view_of(out, "out");
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
  return numpy_of(self.cast<std::shared_ptr<Image>>(), "NHWC", py::none(), /*copy=*/false);
}

}  // namespace

void bind_image(py::module_& module) {
  py::class_<Image, std::shared_ptr<Image>>(module, "Image",
                                            py::custom_type_setup(&set_up_buffer_protocol<&pixels_of_object>),
                                            R"(Pixels on the device: N images of H x W pixels of C channels.

    ``Image(shape, dtype)`` makes one with undefined contents, ``Image.from_array(x)`` one that shows an array.

    Parameters
    ----------
    shape : (int, int, int, int), >= 1
        N, H, W, C.
    dtype : dtype, default float32
        float32, float16, or uint8 and uint16, whose values the device sees as 0...1.
    device : Device, optional

    Sharing
    -------
    ``memoryview(image)`` is a view of the pixels, shape (N, H, W, C), if the image shares the memory of an array, as
    all images of a device with shares_images do unless they are temporary; otherwise it raises BufferError.
    ``np.asarray(image)`` is a view or a copy.

    Raises
    ------
    ValueError   "Image: shape (1, 0, 2, 3) has an extent (0) less than the minimum (1)."
    TypeError    "Image: dtype (int32) is not float32, float16, uint8 or uint16."
    BufferError  "Image: the array cannot be shared: its channels are not adjacent (stride 8 bytes)."
    MemoryError  "Image: shape … needs … bytes, more than the device's recommended_max_working_set_bytes (…)."
    RuntimeError "Image: the command buffer that writes it has not completed …"

    Source
    ------
    MPSCore/MPSImage.h, MPSImage and MPSTemporaryImage.)")
      .def(py::init([](const py::object& shape, const py::object& dtype, const std::shared_ptr<Device>& device) {
             return make_visible_image(device_or_default(device), shape_from(shape), image_dtype(dtype));
           }),
           py::arg("shape"), py::arg("dtype") = "float32", py::kw_only(), py::arg("device") = nullptr)
      .def_static(
          "from_array",
          [](const py::object& x, const Text& layout, std::optional<Boolean> copy_or_none,
             const std::shared_ptr<Device>& device) {
            const auto copy = copy_mode(copy_or_none);
            const auto target = device_or_default(device);
            const auto order = image_layout_from_name(layout.value);
            const auto view = pixels_of(x, "x");
            const ReleaseGil release;
            check(view.ndim() == 4, "Image: x.ndim (", view.ndim(), ") is not 4.");
            const bool shares = !copy.value_or(false) && Image::why_not_shared(*target, view, order).empty();
            if (shares || copy == false) return Image::from_array(target, view, order, copy);
            const auto& s = view.shape;
            const auto image = make_visible_image(
                target,
                order == ImageLayout::NHWC ? ImageShape{s[0], s[1], s[2], s[3]} : ImageShape{s[0], s[2], s[3], s[1]},
                view.dtype);
            image->write(view, order);
            return image;
          },
          py::arg("x"), py::arg("layout") = "NHWC", py::kw_only(), py::arg("copy") = py::none(),
          py::arg("device") = nullptr,
          R"(Return an image of an array: NumPy, PyTorch (CPU), DLPack, __array_interface__ or buffer.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or (N, C, H, W) with layout "NCHW"
        layout : "NHWC" or "NCHW"
        copy : bool, optional
            None shares the memory if it can, True copies, False shares or raises BufferError with the reason.)")
      .def_static(
          "temporary",
          [](CommandBuffer& buffer, const py::object& shape, const py::object& dtype) {
            return Image::temporary(buffer, shape_from(shape), image_dtype(dtype));
          },
          py::arg("command_buffer"), py::arg("shape"), py::arg("dtype") = "float32",
          "Return an image that is valid on one command buffer, until its read_count is 0 (MPSTemporaryImage).")
      .def_static(
          "most_images",
          [](Integer channels) {
            check(channels >= 1, "channels (", channels.value, ") is less than the minimum (1).");
            return Image::most_images(channels);
          },
          py::arg("channels"),
          R"(Return the max number of images of so many channels that one Image holds.

        On macOS an MPSImage has 2048 slices of four channels; larger batches are processed in chunks. On Linux only
        memory limits the number: 2147483647. 0: too many channels for a single image.)")
      .def(
          "numpy",
          [](const std::shared_ptr<Image>& image, const Text& layout, const py::object& out,
             std::optional<Boolean> copy) { return numpy_of(image, layout, out, copy_mode(copy)); },
          py::arg("layout") = "NHWC", py::kw_only(), py::arg("out") = py::none(), py::arg("copy") = py::none(),
          R"(Return the pixels as an array: a view if the image shares an array's memory (copy=None), else a copy.

        ``out`` is written in place (any strides) and returned. copy=False raises BufferError rather than copy.)")
      .def(
          "write",
          [](Image& image, const py::object& x, const Text& layout) {
            const auto view = view_of(x, "x");
            const ReleaseGil release;
            image.write(view, image_layout_from_name(layout.value));
          },
          py::arg("x"), py::arg("layout") = "NHWC", "Replace the pixels; shape and dtype must be the image's.")
      .def(
          "channels", [](const Image& image, Integer first, Integer count) { return image.channels(first, count); },
          py::arg("first"), py::arg("count"),
          "Image: a view of consecutive channels; both multiples of 4, or the rest.")
      .def_property_readonly(
          "shape",
          [](const Image& image) {
            const auto s = image.shape();
            return py::make_tuple(s.n, s.h, s.w, s.c);
          },
          "(N, H, W, C)")
      .def_property_readonly(
          "dtype", [](const Image& image) { return numpy_dtype(image.dtype()); }, "numpy.dtype")
      .def_property_readonly("is_temporary", &Image::is_temporary, "bool")
      .def_property(
          "read_count", &Image::read_count, [](Image& image, Integer count) { image.set_read_count(count); },
          "int: reads left before a temporary image's storage is recycled.")
      .def_property(
          "label", [](const Image& image) { return text_or_none(image.label()); },
          [](Image& image, const std::optional<Text>& label) { image.set_label(label.value_or(Text{})); },
          "str or None")
      .def_property_readonly("device", &Image::device, "Device")
      .def(
          "__array__",
          [](const std::shared_ptr<Image>& image, const py::object& dtype_like,
             std::optional<Boolean> copy) -> py::object {
            if (dtype_like.is_none()) return numpy_of(image, "NHWC", py::none(), copy_mode(copy));
            const auto dtype = dtype_object(dtype_like, "dtype");
            const auto array = numpy_of(image, "NHWC", py::none(), copy_mode(copy));
            check(!copy || *copy || numpy_dtype(image->dtype()).equal(dtype), "Image: dtype (",
                  py::str(py::handle(dtype)).cast<std::string>(), ") is not the image's (", name_of(image->dtype()),
                  "), which copy=False asks for.");
            return array.attr("astype")(dtype, py::arg("copy") = false);
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack__",
           [](const std::shared_ptr<Image>& image, const py::kwargs& options) {
             return numpy_of(image, "NHWC", py::none(), std::nullopt).attr("__dlpack__")(**options);
           })
      .def("__dlpack_device__", [](const Image&) { return py::make_tuple(1, 0); })
      .def("__repr__", [](const Image& image) {
        return say("<mpscnn.", image.is_temporary() ? "temporary " : "", "Image ", image.shape(), " ",
                   name_of(image.dtype()), ">");
      });
}

}  // namespace mpscnn::bindings
