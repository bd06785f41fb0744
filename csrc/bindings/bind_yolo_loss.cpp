// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/yolo_loss.hpp>

#include <mpscnn/error.hpp>

#include "bind_array.hpp"
#include "bind_loss.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

std::vector<std::array<float, 2>> anchors_from(const py::object& object) {
  check_made(object, "anchor_boxes");
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) view_of(object, "anchor_boxes");  // throws TypeError
  const py::array given = py::module_::import("numpy").attr("asarray")(object);
  const auto kind = given.dtype().kind();
  check<TypeError>(kind == 'f' || kind == 'i' || kind == 'u', YOLOLoss::kName, ": anchor_boxes.dtype (",
                   py::str(given.dtype()).cast<std::string>(), ") is not a type of numbers.");
  const Extents shape{given.shape(), given.shape() + given.ndim()};
  check(shape.size() == 2 && shape[1] == 2, YOLOLoss::kName, ": anchor_boxes.shape ", as_tuple(shape),
        " is not (number of boxes, 2), width and height of each.");
  const py::array_t<double, py::array::c_style> numbers = given.attr("astype")("float64");
  std::vector<std::array<float, 2>> boxes(static_cast<std::size_t>(shape[0]));
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t axis = 0; axis < 2; ++axis) boxes[i][axis] = static_cast<float>(numbers.data()[2 * i + axis]);
  return boxes;
}

/// Return the Loss, or a new one for the name of its type.
std::shared_ptr<Loss> loss_from(const py::object& object, const char* name, const std::shared_ptr<Device>& device) {
  check_made(object, name);
  if (py::isinstance<Loss>(object)) return object.cast<std::shared_ptr<Loss>>();
  Text type;
  check<TypeError>(load(object, type), YOLOLoss::kName, ": ", name, " (", type_name(object),
                   ") is not a Loss or its type, a str.");
  LossOptions options{.type = loss_type_from_name(type.value, name)};
  check(options.type != LossType::cosine_distance, YOLOLoss::kName, ": ", name,
        " has type \"cosine_distance\", which is a loss of whole images.");
  return Loss::make(device, options);
}

py::array anchors_of(const YOLOLoss& kernel) {
  const auto& boxes = kernel.options().anchor_boxes;
  auto array = empty_array({static_cast<std::int64_t>(boxes.size()), 2}, DType::float32);
  auto* to = static_cast<float*>(array.mutable_data());
  for (const auto& box : boxes) *to++ = box[0], *to++ = box[1];
  return array;
}

}  // namespace

void bind_yolo_loss(py::module_& module) {
  using Options = YOLOLossOptions;
  py::class_<YOLOLoss, std::shared_ptr<YOLOLoss>> kind(module, "YOLOLoss",
                                                       R"(Loss of YOLO's box predictions, and its gradient.

    Each pixel of the predictions is a cell of the grid that an image is divided into, and each cell predicts a box for
    each anchor box: its channels are X, Y, W, H, C, F0, F1, ... of the first anchor box, then of the second, and so
    on. Labels have the same channels: the box's centre in its cell (0 to 1), its width and height in cells, more than 0
    where there is an object, and the classes' probabilities. Cells without an object have 0 for all but the classes.
    The labels of a cell are repeated for each anchor box; which one of them they count for is found here:

    ==========  =======================================================================================================
    fit         intersection over union of anchor box and label, both with the same centre
    object      label's c > 0, and no other anchor box of the cell fits better, or fit > min_iou_for_object_presence
    absent      no object, and fit < max_iou_for_object_absence; what is neither costs nothing of its confidence
    iou         of the label and the box (sigmoid(X), sigmoid(Y), exp(W) anchor width, exp(H) anchor height)
    ==========  =======================================================================================================

    The loss of an anchor box is the sum of these terms, and the gradient that of the sum over all, iou being a constant:

    =====================================================  ============================================================
    object                                                 scale_xy xy_loss(sigmoid(X), x), likewise Y;
                                                           scale_wh wh_loss(W, log(w / anchor width + 1e-5)), likewise
                                                           H; scale_class classes_loss(F, f)
    object, absent                                         scale_object, or scale_no_object, times confidence_loss(C, iou
                                                           or, without rescore, 1; 0 where absent)
    =====================================================  ============================================================

    Apple's header says little of this; the rest follows a twin of models that run on MPS
    (docs/differences_from_apple.md).

    Parameters
    ----------
    anchor_boxes : array or sequence, shape (A, 2), > 0
        Width and height of each, in cells.
    xy_loss, wh_loss, confidence_loss, classes_loss : Loss or str
        What the terms are made of: a type, or a Loss with that, weight, label_smoothing, number_of_classes, epsilon and
        delta; its reduction does not count. Any but "cosine_distance".
    reduction : "none", "sum", "mean" or "sum_by_nonzero_weights"
        Of each image's losses to its loss. The gradient is that of the sum.
    rescore : bool, default True
        The label of an object's confidence is its iou.
    scale_xy, scale_wh, scale_no_object, scale_object, scale_class : float
        Factors of the terms.
    min_iou_for_object_presence, max_iou_for_object_absence : float, 0 to 1
    reduce_across_batch : bool, default False
        The first image's loss is that of all images, the others' are 0. "none" reduces nothing.
    device : Device, optional

    Raises
    ------
    ValueError   "YOLOLoss: x has 26 channels, which are not 5 or more for each of 3 anchor boxes."
                 "YOLOLoss: anchor_boxes.shape (3,) is not (number of boxes, 2), width and height of each."
                 "YOLOLoss: anchor_boxes[1, 0] (0) is not a finite number greater than 0."
                 "YOLOLoss: labels.shape (1, 7, 7, 50) is not x.shape (1, 7, 7, 75)."
    TypeError    "YOLOLoss: labels.dtype (int64) is not a floating point type."
                 "YOLOLoss: wh_loss (int) is not a Loss or its type, a str."
    RuntimeError "YOLOLoss: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSCNNYOLOLoss and MPSCNNYOLOLossDescriptor.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> loss = mpscnn.YOLOLoss([[1, 1], [3, 2]], wh_loss=mpscnn.Loss("huber", delta=0.5))
    >>> labels = np.zeros((1, 1, 1, 2, 5), np.float32)
    >>> labels[0, 0, 0, :] = 0.5, 0.5, 3, 2, 1  # a box in the middle of the cell, as large as the second anchor box
    >>> value, grad = loss(np.zeros((1, 1, 1, 10), np.float32), labels.reshape(1, 1, 1, 10))
    >>> bool(np.isclose(value.item(), (100 + 5) * np.log(2), rtol=1e-5)), np.abs(grad).max(), grad.argmin().item()
    (True, np.float32(50.0), 9))");
  kind.def(py::init([](const py::object& anchor_boxes, const py::object& xy_loss, const py::object& wh_loss,
                       const py::object& confidence_loss, const py::object& classes_loss, const Text& reduction,
                       Boolean rescore, Real scale_xy, Real scale_wh, Real scale_no_object, Real scale_object,
                       Real scale_class, Real min_iou, Real max_iou, Boolean reduce_across_batch,
                       const std::shared_ptr<Device>& device) {
             const auto target = device_or_default(device);
             const auto boxes = anchors_from(anchor_boxes);
             return YOLOLoss::make(target, {.xy = loss_from(xy_loss, "xy_loss", target),
                                            .wh = loss_from(wh_loss, "wh_loss", target),
                                            .confidence = loss_from(confidence_loss, "confidence_loss", target),
                                            .classes = loss_from(classes_loss, "classes_loss", target),
                                            .reduction = loss_reduction_from_name(reduction.value, "reduction"),
                                            .rescore = rescore,
                                            .reduce_across_batch = reduce_across_batch,
                                            .scale_xy = scale_xy,
                                            .scale_wh = scale_wh,
                                            .scale_no_object = scale_no_object,
                                            .scale_object = scale_object,
                                            .scale_class = scale_class,
                                            .min_iou_for_object_presence = min_iou,
                                            .max_iou_for_object_absence = max_iou,
                                            .anchor_boxes = boxes});
           }),
           py::arg("anchor_boxes"), py::kw_only(), py::arg("xy_loss") = "mean_squared_error",
           py::arg("wh_loss") = "huber", py::arg("confidence_loss") = "sigmoid_cross_entropy",
           py::arg("classes_loss") = "softmax_cross_entropy", py::arg("reduction") = "sum", py::arg("rescore") = true,
           py::arg("scale_xy") = 10.0, py::arg("scale_wh") = 10.0, py::arg("scale_no_object") = 5.0,
           py::arg("scale_object") = 100.0, py::arg("scale_class") = 2.0, py::arg("min_iou_for_object_presence") = 0.7,
           py::arg("max_iou_for_object_absence") = 0.3, py::arg("reduce_across_batch") = false,
           py::arg("device") = nullptr)
      .def(
          "__call__",
          [](const YOLOLoss& kernel, const py::object& x, const py::object& labels, const py::object& weights,
             const py::object& out) {
            return call_loss(kernel, x, labels, weights, out, /*takes_class_numbers=*/false);
          },
          py::arg("x"), py::arg("labels"), py::arg("weights") = py::none(), py::kw_only(), py::arg("out") = py::none(),
          R"(Compute loss and gradient, and wait.

        Parameters
        ----------
        x : array, shape (N, H, W, A * (5 + classes)), or Image
            Predictions.
        labels : LossLabels, array or sequence
            Floating point, of x's shape.
        weights : array or sequence, optional
            Beside labels that are arrays, of their shape: further factors of each value's loss and gradient.
        out : array or Image of x's shape, float32 or float16, optional
            Takes the gradient.

        Returns
        -------
        (array, array or Image)
            The loss, float32, of shape (N, 1, 1, 1), or x's with reduction "none"; and the gradient, as x is, float16
            where x is float16, else float32.)")
      .def(
          "encode",
          [](const YOLOLoss& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x, LossLabels& labels,
             const std::shared_ptr<Image>& out,
             Boolean temporary) { return encode_loss(kernel, buffer, x, labels, out, temporary); },
          py::arg("command_buffer"), py::arg("x").none(false), py::arg("labels"), py::arg("out") = nullptr,
          py::arg("temporary") = false,
          R"(Append the computation of loss and gradient to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
            Predictions.
        labels : LossLabels
            Of x's shape, made of arrays or Images of that shape. ``labels.loss`` is the loss when the command buffer has
            completed; another encode with the same object replaces it.
        out : Image, optional
            Takes the gradient: x's shape, float32 or float16.
        temporary : bool, default False
            The gradient is read on this command buffer only, never by the CPU.

        Returns
        -------
        Image
            The gradient, which may be read when the command buffer has completed.)")
      .def_property_readonly("anchor_boxes", &anchors_of, "array, shape (A, 2), float32: width and height; a copy.")
      .def_property_readonly(
          "number_of_anchor_boxes", [](const YOLOLoss& kernel) { return kernel.options().anchor_boxes.size(); }, "int")
      .def_property_readonly(
          "reduction", [](const YOLOLoss& kernel) { return name_of(kernel.options().reduction); }, "str")
      .def_property_readonly("device", &LossKernel::device, "Device")
      .def("__repr__", [](const YOLOLoss& kernel) {
        return say("<mpscnn.YOLOLoss of ", kernel.options().anchor_boxes.size(), " anchor boxes, reduction \"",
                   name_of(kernel.options().reduction), "\">");
      });
  const auto add = [&kind](const char* name, auto member, const char* doc) {
    kind.def_property_readonly(name, [member](const YOLOLoss& kernel) { return kernel.options().*member; }, doc);
  };
  add("xy_loss", &Options::xy, "Loss");
  add("wh_loss", &Options::wh, "Loss");
  add("confidence_loss", &Options::confidence, "Loss");
  add("classes_loss", &Options::classes, "Loss");
  add("rescore", &Options::rescore, "bool");
  add("reduce_across_batch", &Options::reduce_across_batch, "bool");
  add("scale_xy", &Options::scale_xy, "float");
  add("scale_wh", &Options::scale_wh, "float");
  add("scale_no_object", &Options::scale_no_object, "float");
  add("scale_object", &Options::scale_object, "float");
  add("scale_class", &Options::scale_class, "float");
  add("min_iou_for_object_presence", &Options::min_iou_for_object_presence, "float");
  add("max_iou_for_object_absence", &Options::max_iou_for_object_absence, "float");
}

}  // namespace mpscnn::bindings
