// SPDX-License-Identifier: Apache-2.0
// Losses that take LossLabels.
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/yolo_loss.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using LossShape = LossLabels::LossShape;

std::optional<ArrayView> view_or_null(const py::object& array, const char* name) {
  return array.is_none() ? std::nullopt : std::optional(view_of(array, name));
}

LossShape loss_shape_from(const py::object& object) {
  if (object.is_none()) return {1, 1, 1};
  const auto extents = extents_from(object, "LossLabels: loss_shape");
  check(extents.size() == 3, "LossLabels: len(loss_shape) (", extents.size(), ") is not 3 (H, W, C).");
  return {extents[0], extents[1], extents[2]};
}

/// Images are used as they are, float32 arrays are copied.
std::shared_ptr<LossLabels> make_labels(const py::object& labels, const py::object& weights,
                                        const py::object& loss_shape, const OptionalArg<Device, "device">& device) {
  const auto target = device_or_default(device);
  const auto shape = loss_shape_from(loss_shape);
  if (py::isinstance<Image>(labels)) {
    const auto image = object_of<Image>(labels, "labels"), factors = object_or_null<Image>(weights, "weights");
    const ReleaseGil release;
    return LossLabels::from_images(target, image, factors, shape);
  }
  const auto view = view_of(labels, "labels");
  const auto factors = view_or_null(weights, "weights");
  const ReleaseGil release;
  return LossLabels::make(target, view, factors, shape);
}

py::array loss_of(const LossLabels& labels) {
  const auto [h, w, c] = labels.loss_shape();
  auto values = empty_array({labels.shape().n, h, w, c}, DType::float32);
  auto* to = static_cast<float*>(values.mutable_data());
  const ReleaseGil release;
  labels.loss(to);
  return values;
}

Int3 hwc_of(const LossShape& shape) { return py::make_tuple(shape[0], shape[1], shape[2]); }

void bind_labels(py::module_& module) {
  py::class_<LossLabels, std::shared_ptr<LossLabels>>(module, "_LossLabels")
      .def(py::init(&make_labels))
      .def("_write",
           [](LossLabels& object, const py::object& labels, const py::object& weights) {
             const auto view = view_of(labels, "labels");
             const auto factors = view_or_null(weights, "weights");
             const ReleaseGil release;
             object.write(view, factors);
           })
      .def_property_readonly("loss", &loss_of,
                             "Shape (N, *loss_shape), float32: a copy of the last result. With reduce_across_batch the "
                             "sum is the first image's, and the others are 0.")
      .def_property_readonly(
          "shape", [](const LossLabels& labels) { return tuple_of(labels.shape()); }, "(N, H, W, C) of the labels.")
      .def_property_readonly(
          "loss_shape", [](const LossLabels& labels) { return hwc_of(labels.loss_shape()); },
          "(H, W, C) of the loss of each image.")
      .def_property_readonly("has_weights", &LossLabels::has_weights, "Whether there are weights.")
      .def_property_readonly("device", &LossLabels::device, "The device that the labels are on.")
      .def("__repr__", [](const LossLabels& labels) {
        return say("<mpscnn.LossLabels ", labels.shape(), labels.has_weights() ? " with weights" : "", ">");
      });
}

/// Compute loss and gradient of an Image and wait.
py::object call_with_image(const LossKernel& kernel, const std::shared_ptr<Image>& x, LossLabels& labels,
                           const py::object& out) {
  check<TypeError>(out.is_none() || py::isinstance<Image>(out), kernel.name(), ": x is an Image; out (", type_name(out),
                   ") is not.");
  auto result = object_or_null<Image>(out, "out");
  {
    const ReleaseGil release;
    result = run(kernel, x, labels, result);
  }
  return py::make_tuple(loss_of(labels), result);
}

/// Compute loss and gradient of an Image or an array and wait.
py::object call_loss(const LossKernel& kernel, const py::object& x, const Arg<LossLabels, "labels">& labels,
                     const py::object& out) {
  if (py::isinstance<Image>(x)) return call_with_image(kernel, x.cast<std::shared_ptr<Image>>(), *labels, out);
  const auto view = pixels_of(x, "x");
  kernel.check_labels({view.shape[0], view.shape[1], view.shape[2], view.shape[3]}, *labels);
  const auto result = loss_result(kernel.name(), "x.shape", out, view.shape, gradient_dtype(view.dtype));
  {
    const ReleaseGil release;
    run(kernel, view, *labels, result.view);
  }
  return py::make_tuple(loss_of(*labels), result.array);
}

/// Check the shape of predictions; return it, and that of each image's loss.
std::pair<Int4, Int3> shapes_of(const LossKernel& kernel, const py::object& x) {
  ImageShape shape;
  if (py::isinstance<Image>(x)) {
    shape = object_of<Image>(x, "x")->shape();
  } else {
    check_made(x, "x");
    const auto view = pixels_of(x, "x");
    check(view.ndim() == 4, kernel.name(), ": x.ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
    shape = {view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
    Image::bytes(*kernel.device(), shape, view.dtype);  // throws for a wrong shape
  }
  kernel.check_predictions(shape);
  return {tuple_of(shape), hwc_of(kernel.loss_shape(shape))};
}

YOLOLoss::AnchorBoxes boxes_from(const py::array_t<double, py::array::c_style>& numbers) {
  YOLOLoss::AnchorBoxes boxes(static_cast<std::size_t>(numbers.shape(0)));
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t axis = 0; axis < 2; ++axis) boxes[i][axis] = static_cast<float>(numbers.data()[2 * i + axis]);
  return boxes;
}

}  // namespace

void bind_loss(py::module_& module) {
  bind_labels(module);
  py::class_<LossKernel, std::shared_ptr<LossKernel>>(module, "_LossKernel")
      .def("_call", &call_loss)
      .def("_encode",
           [](const LossKernel& kernel, const Arg<CommandBuffer, "command_buffer">& buffer, const Arg<Image, "x">& x,
              const Arg<LossLabels, "labels">& labels, const OptionalArg<Image, "out">& out,
              Bool<"temporary"> temporary) {
             const ReleaseGil release;
             return encode(kernel, *buffer, x.value, *labels, out.value, temporary);
           })
      .def("_shapes", &shapes_of)
      .def_property_readonly("device", &LossKernel::device, "The device that computes the loss.");
  py::class_<Loss, LossKernel, std::shared_ptr<Loss>>(module, "_Loss")
      .def(py::init([](const py::dict& options, const OptionalArg<Device, "device">& device) {
        return Loss::make(device_or_default(device), options_from(options));
      }));
  py::class_<YOLOLoss, LossKernel, std::shared_ptr<YOLOLoss>>(module, "_YOLOLoss")
      .def(py::init([](const py::array_t<double, py::array::c_style>& boxes,
                       const std::array<std::shared_ptr<Loss>, 4>& terms, const py::dict& options,
                       const OptionalArg<Device, "device">& device) {
        return YOLOLoss::make(device_or_default(device), boxes_from(boxes), {terms[0], terms[1], terms[2], terms[3]},
                              options_from(options));
      }));
}

}  // namespace mpscnn::bindings
