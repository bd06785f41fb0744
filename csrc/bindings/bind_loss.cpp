// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>

#include <algorithm>
#include <cstring>

#include <mpscnn/error.hpp>
#include <mpscnn/yolo_loss.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

using LossShape = LossLabels::LossShape;

py::module_ numpy() { return py::module_::import("numpy"); }

// ------------------------------------------------------------------------------------------------------------- labels

/// Return the object as a NumPy array. Throw if it is not an array.
py::array numpy_array_of(const py::object& object, const char* name) {
  check_made(object, name);
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) view_of(object, name);  // throws for other objects
  return numpy().attr("ascontiguousarray")(object);
}

char kind_of(const py::array& array) { return array.dtype().kind(); }

Extents extents_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

/// Return the index of the element at a C-order offset: "[1, 0, 3]".
std::string place_of(std::int64_t element, const Extents& shape) {
  std::string place;
  for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    place = say(element % shape[axis], place.empty() ? "" : ", ", place);
  return say("[", place, "]");
}

/// One-hot encode class numbers of shape (N,) or (N, H, W) as (N, H, W, C).
py::array one_hot(const std::string& who, const py::array& numbers, std::int64_t classes, const Device& device) {
  const auto given = extents_of(numbers);
  check(given.size() == 1 || given.size() == 3, who, ": labels.ndim (", given.size(),
        ") is not 1 (N) or 3 (N, H, W), as class numbers have.");
  check(classes >= 1, who, ": number_of_classes (", classes, ") is less than the minimum (1).");
  Extents shape = given;
  if (shape.size() == 1) shape.insert(shape.end(), {1, 1});
  shape.push_back(classes);
  Image::bytes(device, {shape[0], shape[1], shape[2], shape[3]}, DType::float32);  // throws if too large
  const auto classes_of = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(numbers);
  auto hot = empty_array(shape, DType::float32);
  auto* pixel = static_cast<float*>(hot.mutable_data());
  std::fill_n(pixel, hot.size(), 0.0F);
  for (std::int64_t i = 0; i < classes_of.size(); ++i, pixel += classes) {
    const auto value = classes_of.data()[i];
    if (value < 0 || value >= classes) {  // build the message only for invalid values
      check(value >= 0, who, ": labels", place_of(i, given), " (", value, ") is less than the minimum (0).");
      check(false, who, ": labels", place_of(i, given), " (", value, ") is not less than the number of classes (",
            classes, ").");
    }
    pixel[value] = 1;
  }
  return hot;
}

/// Labels and weights as float32 arrays of shape (N, H, W, C).
struct LabelArrays {
  py::array labels;
  std::optional<py::array> weights;

  ArrayView labels_view() const { return view_of(labels, "labels"); }
  std::optional<ArrayView> weights_view() const {
    return weights ? std::optional(view_of(*weights, "weights")) : std::nullopt;
  }
};

LabelArrays arrays_of(const std::string& who, const py::object& labels, const py::object& weights,
                      const std::optional<std::int64_t>& classes, const Device& device) {
  LabelArrays arrays;
  const auto given = numpy_array_of(labels, "labels");
  const bool are_numbers = kind_of(given) == 'i' || kind_of(given) == 'u';
  if (are_numbers) {
    check<TypeError>(classes.has_value(), who, ": number_of_classes is missing: labels are class numbers (",
                     py::str(given.dtype()).cast<std::string>(), ").");
    arrays.labels = one_hot(who, given, *classes, device);
  } else {
    check<TypeError>(kind_of(given) == 'f', who, ": labels.dtype (", py::str(given.dtype()).cast<std::string>(),
                     ") is neither a floating point nor an integer type.");
    check(given.ndim() == 4, who, ": labels.ndim (", given.ndim(), ") is not 4 (N, H, W, C).");
    check(!classes || *classes == given.shape(3), who, ": number_of_classes (", classes.value_or(0),
          ") is not that of labels (", given.shape(3), ").");
    arrays.labels = given.attr("astype")("float32", py::arg("copy") = false);
  }
  if (weights.is_none()) return arrays;
  py::object values = numpy_array_of(weights, "weights");
  const auto kind = kind_of(values);
  check<TypeError>(kind == 'f' || kind == 'i' || kind == 'u', who, ": weights.dtype (",
                   py::str(values.attr("dtype")).cast<std::string>(), ") is not a type of numbers.");
  const auto wanted = extents_of(given), shape = extents_of(values), whole = extents_of(arrays.labels);
  check(shape == wanted || shape == whole, who, ": weights.shape ", as_tuple(shape), " is not labels.shape ",
        as_tuple(wanted), ".");
  if (shape != whole) {  // one weight per pixel, for all classes
    auto pixels = whole;
    pixels.back() = 1;
    values = numpy().attr("broadcast_to")(values.attr("reshape")(pixels), whole);
  }
  arrays.weights = numpy().attr("ascontiguousarray")(values, "float32");
  return arrays;
}

std::shared_ptr<LossLabels> make_labels(const std::string& who, const std::shared_ptr<Device>& device,
                                        const py::object& labels, const py::object& weights,
                                        const std::optional<std::int64_t>& classes, const LossShape& loss_shape) {
  const auto arrays = arrays_of(who, labels, weights, classes, *device);
  const auto view = arrays.labels_view();
  const auto weights_view = arrays.weights_view();
  const ReleaseGil release;
  return LossLabels::make(device, view, weights_view, loss_shape);
}

LossShape loss_shape_from(const py::object& object) {
  if (object.is_none()) return {1, 1, 1};
  const auto extents = extents_from(object, "LossLabels: loss_shape");
  check(extents.size() == 3, "LossLabels: len(loss_shape) (", extents.size(), ") is not 3 (H, W, C).");
  return {extents[0], extents[1], extents[2]};
}

std::shared_ptr<LossLabels> labels_from(const py::object& labels, const py::object& weights,
                                        const std::optional<Integer>& number_of_classes, const py::object& loss_shape,
                                        const std::shared_ptr<Device>& device) {
  const auto target = device_or_default(device);
  const auto shape = loss_shape_from(loss_shape);
  const auto classes = number_of_classes ? std::optional(number_of_classes->value) : std::nullopt;
  check_made(labels, "labels");
  if (!py::isinstance<Image>(labels)) return make_labels("LossLabels", target, labels, weights, classes, shape);
  check_made(weights, "weights");
  check<TypeError>(weights.is_none() || py::isinstance<Image>(weights), "LossLabels: labels is an Image; weights (",
                   type_name(weights), ") is not.");
  const auto image = labels.cast<std::shared_ptr<Image>>();
  check(!classes || *classes == image->shape().c, "LossLabels: number_of_classes (", classes.value_or(0),
        ") is not that of labels (", image->shape().c, ").");
  const auto weights_image = weights.is_none() ? nullptr : weights.cast<std::shared_ptr<Image>>();
  const ReleaseGil release;
  return LossLabels::from_images(target, image, weights_image, shape);
}

void write(LossLabels& object, const py::object& labels, const py::object& weights) {
  const auto arrays = arrays_of("LossLabels.write", labels, weights, object.shape().c, *object.device());
  const auto view = arrays.labels_view();
  const auto weights_view = arrays.weights_view();
  const ReleaseGil release;
  object.write(view, weights_view);
}

py::array loss_of(const LossLabels& labels) {
  const auto [h, w, c] = labels.loss_shape();
  const Extents shape = {labels.shape().n, h, w, c};
  auto values = empty_array(shape, DType::float32);
  auto* to = static_cast<float*>(values.mutable_data());
  const ReleaseGil release;
  labels.loss(to);
  return values;
}

py::tuple loss_shape_tuple(const LossShape& shape) { return py::make_tuple(shape[0], shape[1], shape[2]); }

void bind_labels(py::module_& module) {
  py::class_<LossLabels, std::shared_ptr<LossLabels>>(
      module, "LossLabels",
      R"(Targets of a loss: labels and weights, and storage for the result.

    Arrays are copied into images of the device; ``write()`` puts the next batch there. Images are used as they are, so
    that kernels may compute them.

    Parameters
    ----------
    labels : array or sequence, or Image, shape (N, H, W, C)
        Of the shape of the predictions; numbers of any floating point type, copied as float32. Integers are class
        numbers, 0...number_of_classes - 1, of shape (N,) for images of one pixel or (N, H, W): they become 1 for the
        class and 0 for the others.
    weights : as labels, optional
        Factors of each value's loss and gradient, which take the place of the loss's ``weight``. Those of class numbers
        may have the shape of these: one for all channels of a pixel.
    number_of_classes : int, >= 1, channels, optional
        Needed where labels are class numbers.
    loss_shape : (int, int, int), optional
        H, W, C of an image's loss: (1, 1, 1), the default, for losses that are reduced; that of the labels for
        reduction "none".
    device : Device, optional

    Raises
    ------
    ValueError   "LossLabels: labels[1, 0, 3] (12) is not less than the number of classes (10)."
                 "LossLabels: weights.shape (2, 3, 3, 1) is not labels.shape (2, 3, 3, 4)."
                 "LossLabels: loss_shape (3, 3, 1) is neither (1, 1, 1) nor (3, 3, 4), that of labels (H, W, C)."
    TypeError    "LossLabels: number_of_classes is missing: labels are class numbers (int64)."
    RuntimeError "LossLabels: no loss has been encoded to it.", and before the command buffer that computes the loss has
                 completed.

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSCNNLossLabels; an object of Apple's for each image.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> labels = mpscnn.LossLabels([2, 0], number_of_classes=3)
    >>> labels.shape, labels.loss_shape
    ((2, 1, 1, 3), (1, 1, 1))
    >>> loss = mpscnn.Loss("softmax_cross_entropy")
    >>> with mpscnn.CommandBuffer() as commands:
    ...     grad = loss.encode(commands, mpscnn.Image.from_array(np.zeros((2, 1, 1, 3), np.float32)), labels)
    >>> labels.loss.shape, bool(np.allclose(labels.loss, np.log(3)))
    ((2, 1, 1, 1), True)
    >>> labels.write([1, 1]))")
      .def(py::init(&labels_from), py::arg("labels"), py::arg("weights") = py::none(), py::kw_only(),
           py::arg("number_of_classes") = py::none(), py::arg("loss_shape") = py::none(), py::arg("device") = nullptr)
      .def("write", &write, py::arg("labels"), py::arg("weights") = py::none(),
           R"(Replace labels and weights by those of another batch of the same shape.

        Raises RuntimeError while a command buffer that uses them has not completed, ValueError for labels in Images.

        Parameters
        ----------
        labels, weights : arrays or sequences
            As of the constructor; weights if and only if the object has some.)")
      .def_property_readonly("loss", &loss_of,
                             "array, shape (N, \\*loss_shape), float32: a copy of the last result. With "
                             "reduce_across_batch the sum is the first image's, and the others are 0.")
      .def_property_readonly(
          "shape",
          [](const LossLabels& labels) {
            const auto s = labels.shape();
            return py::make_tuple(s.n, s.h, s.w, s.c);
          },
          "(N, H, W, C), of the labels")
      .def_property_readonly(
          "loss_shape", [](const LossLabels& labels) { return loss_shape_tuple(labels.loss_shape()); },
          "(H, W, C), of the loss of each image")
      .def_property_readonly("has_weights", &LossLabels::has_weights, "bool")
      .def_property_readonly("device", &LossLabels::device, "Device")
      .def("__repr__", [](const LossLabels& labels) {
        return say("<mpscnn.LossLabels ", labels.shape(), labels.has_weights() ? " with weights" : "", ">");
      });
}

// ------------------------------------------------------------------------------------------------------------- kernel

/// Return the LossLabels itself, or one made from arrays for predictions of this shape.
std::shared_ptr<LossLabels> labels_for(const LossKernel& kernel, const py::object& labels, const py::object& weights,
                                       ImageShape predictions, bool takes_class_numbers) {
  const char* const name = kernel.name();
  kernel.check_predictions(predictions);
  check_made(labels, "labels");
  if (py::isinstance<LossLabels>(labels)) {
    check(weights.is_none(), name, ": weights were given together with LossLabels, which have their own.");
    return labels.cast<std::shared_ptr<LossLabels>>();
  }
  check<TypeError>(!py::isinstance<Image>(labels), name, ": labels is an Image; LossLabels(labels) takes it.");
  const auto given = numpy_array_of(labels, "labels");
  const bool are_numbers = kind_of(given) != 'f';
  check<TypeError>(!are_numbers || takes_class_numbers, name, ": labels.dtype (",
                   py::str(given.dtype()).cast<std::string>(), ") is not a floating point type.");
  if (!are_numbers) {
    const auto shape = extents_of(given);
    check(shape == predictions.nhwc(), name, ": labels.shape ", as_tuple(shape), " is not x.shape ", predictions, ".");
  }
  return make_labels(name, kernel.device(), labels, weights, predictions.c, kernel.loss_shape(predictions));
}

/// Compute loss and gradient and wait.
py::object call_loss(const LossKernel& kernel, const py::object& x, const py::object& labels, const py::object& weights,
                     const py::object& out, bool takes_class_numbers) {
  const char* const name = kernel.name();
  check_made(x, "x");
  check_made(out, "out");
  if (py::isinstance<Image>(x)) {
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), name, ": x is an Image; out (", type_name(out),
                     ") is not.");
    const auto source = x.cast<std::shared_ptr<Image>>();
    const auto compared = labels_for(kernel, labels, weights, source->shape(), takes_class_numbers);
    auto result = out.is_none() ? nullptr : out.cast<std::shared_ptr<Image>>();
    {
      const ReleaseGil release;
      kernel.check_labels(source->shape(), *compared);
      if (!result) result = make_visible_image(kernel.device(), source->shape(), gradient_dtype(source->dtype()));
      run(kernel, source, *compared, result);
    }
    return py::make_tuple(loss_of(*compared), result);
  }
  const auto view = pixels_of(x, "x");
  check(view.ndim() == 4, name, ": x.ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  const ImageShape shape{view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
  Image::bytes(*kernel.device(), shape, view.dtype);  // throws for a wrong shape
  const auto compared = labels_for(kernel, labels, weights, shape, takes_class_numbers);
  kernel.check_labels(shape, *compared);
  const py::object result = out.is_none() ? py::object(empty_array(shape.nhwc(), gradient_dtype(view.dtype))) : out;
  const auto target = writable_view_of(result, "out");
  check(target.shape == view.shape, name, ": out.shape ", as_tuple(target.shape), " is not x.shape ", shape, ".");
  check<TypeError>(target.dtype == DType::float32 || target.dtype == DType::float16, name, ": out.dtype (",
                   name_of(target.dtype), ") is not float32 or float16.");
  {
    const ReleaseGil release;
    run(kernel, view, *compared, target);
  }
  return py::make_tuple(loss_of(*compared), result);
}

std::shared_ptr<Image> encode_loss(const LossKernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x,
                                   LossLabels& labels, const std::shared_ptr<Image>& out, Boolean temporary) {
  check(!out || !temporary, kernel.name(), ": temporary (True) was given together with out.");
  const ReleaseGil release;
  if (out || temporary) return kernel.encode(buffer, x, labels, out, temporary);
  kernel.check_labels(x->shape(), labels);
  return kernel.encode(buffer, x, labels, make_visible_image(kernel.device(), x->shape(), gradient_dtype(x->dtype())));
}

/// Add the members of a loss that takes LossLabels. `takes_class_numbers`: labels that are arrays may be class numbers.
template <class Kernel>
void add_members(py::class_<Kernel, std::shared_ptr<Kernel>> kind, bool takes_class_numbers) {
  kind.def(
          "_call",
          [takes_class_numbers](const Kernel& kernel, const py::object& x, const py::object& labels,
                                const py::object& weights, const py::object& out) {
            return call_loss(kernel, x, labels, weights, out, takes_class_numbers);
          },
          py::arg("x"), py::arg("labels"), py::arg("weights"), py::arg("out"))
      .def(
          "_encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x, LossLabels& labels,
             const std::shared_ptr<Image>& out,
             Boolean temporary) { return encode_loss(kernel, buffer, x, labels, out, temporary); },
          py::arg("command_buffer"), py::arg("x").none(false), py::arg("labels"), py::arg("out") = nullptr,
          py::arg("temporary") = false)
      .def_property_readonly("device", &LossKernel::device, "Device");
}

YOLOLoss::AnchorBoxes boxes_from(const py::array_t<double, py::array::c_style>& numbers) {
  YOLOLoss::AnchorBoxes boxes(static_cast<std::size_t>(numbers.shape(0)));
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t axis = 0; axis < 2; ++axis) boxes[i][axis] = static_cast<float>(numbers.data()[2 * i + axis]);
  return boxes;
}

void bind_kernels(py::module_& module) {
  py::class_<Loss, std::shared_ptr<Loss>> loss(module, "_Loss", "The core of a mpscnn.Loss.");
  loss.def(py::init([](const py::dict& options, const std::shared_ptr<Device>& device) {
             return Loss::make(device_or_default(device), options_from(options));
           }),
           py::arg("options"), py::arg("device") = nullptr);
  add_members(loss, true);
  py::class_<YOLOLoss, std::shared_ptr<YOLOLoss>> yolo(module, "_YOLOLoss", "The core of a mpscnn.YOLOLoss.");
  yolo.def(py::init([](const py::array_t<double, py::array::c_style>& boxes,
                       const std::array<std::shared_ptr<Loss>, 4>& terms, const py::dict& options,
                       const std::shared_ptr<Device>& device) {
             return YOLOLoss::make(device_or_default(device), boxes_from(boxes),
                                   {terms[0], terms[1], terms[2], terms[3]}, options_from(options));
           }),
           py::arg("anchor_boxes"), py::arg("terms"), py::arg("options"), py::arg("device") = nullptr);
  add_members(yolo, false);
}

}  // namespace

void bind_loss(py::module_& module) {
  bind_labels(module);
  bind_kernels(module);
}

}  // namespace mpscnn::bindings
