// SPDX-License-Identifier: Apache-2.0
// Losses as kernels that take only images, and the initial gradient of the backward pass.
#include <mpscnn/forward_loss.hpp>

#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "bind_array.hpp"
#include "bind_loss.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// Arguments of one call: all arrays, or all Images.
class Sources {
 public:
  Sources(const char* who, const std::shared_ptr<Device>& device) : who_(who), device_(device), call_(device) {}

  /// Return the image of an argument; null for None if it is optional.
  std::shared_ptr<Image> take(const py::object& object, const char* name, bool optional = false) {
    check_made(object, name);
    if (optional && object.is_none()) return nullptr;
    const bool is_image = py::isinstance<Image>(object);
    if (first_ == nullptr) {
      first_ = name;
      are_images_ = is_image;
    }
    if (are_images_ && !is_image)
      throw TypeError(say(who_, ": ", first_, " is an Image; ", name, " (", type_name(object), ") is not."));
    if (is_image) {
      check<TypeError>(are_images_, who_, ": ", first_, " is an array; ", name, " (Image) is not.");
      return object.cast<std::shared_ptr<Image>>();
    }
    const auto view = pixels_of(object, name);
    check(view.ndim() == 4, who_, ": ", name, ".ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
    const ReleaseGil release;
    return call_.source(view);
  }

  /// Run `encode(commands, out)` and return the result; `out` may be an array, an Image or None.
  template <class Encode>
  py::object run(const py::object& out, ImageShape shape, DType dtype, const Encode& encode) {
    check_made(out, "out");
    if (are_images_) {
      check<TypeError>(out.is_none() || py::isinstance<Image>(out), who_, ": ", first_, " is an Image; out (",
                       type_name(out), ") is not.");
      auto result = out.is_none() ? nullptr : out.cast<std::shared_ptr<Image>>();
      {
        const ReleaseGil release;
        if (!result) result = make_visible_image(device_, shape, dtype);
        const auto buffer = CommandBuffer::make(device_);
        encode(*buffer, result);
        buffer->run();
      }
      return py::cast(result);
    }
    const py::object array = out.is_none() ? py::object(empty_array(shape.nhwc(), dtype)) : out;
    const auto view = writable_view_of(array, "out");
    check(view.shape == shape.nhwc(), who_, ": out.shape ", as_tuple(view.shape), " is not the result's ", shape, ".");
    check<TypeError>(view.dtype == DType::float32 || view.dtype == DType::float16, who_, ": out.dtype (",
                     name_of(view.dtype), ") is not float32 or float16.");
    {
      const ReleaseGil release;
      const auto buffer = CommandBuffer::make(device_);
      encode(*buffer, call_.result(view));
      call_.run(*buffer);
    }
    return array;  // copied with the GIL held
  }

 private:
  const char* who_;
  std::shared_ptr<Device> device_;
  ArrayCall call_;
  const char* first_ = nullptr;
  bool are_images_ = false;
};

void check_destination(const char* who, const std::shared_ptr<Image>& out, bool temporary) {
  check(!out || !temporary, who, ": temporary (True) was given together with out.");
}

template <class Kernel, class Class>
void add_options(Class& kind) {
  kind.def_property_readonly(
          "type", [](const Kernel& kernel) { return name_of(kernel.options().type); }, "str")
      .def_property_readonly(
          "weight", [](const Kernel& kernel) { return kernel.options().weight; }, "float")
      .def_property_readonly(
          "label_smoothing", [](const Kernel& kernel) { return kernel.options().label_smoothing; }, "float")
      .def_property_readonly(
          "number_of_classes", [](const Kernel& kernel) { return kernel.options().number_of_classes; }, "int")
      .def_property_readonly(
          "epsilon", [](const Kernel& kernel) { return kernel.options().epsilon; }, "float")
      .def_property_readonly(
          "delta", [](const Kernel& kernel) { return kernel.options().delta; }, "float")
      .def_property_readonly("device", &Kernel::device, "Device");
}

void bind_forward(py::module_& module) {
  using Kernel = ForwardLoss;
  py::class_<Kernel, std::shared_ptr<Kernel>> kind(module, "ForwardLoss",
                                                   R"(Loss of predictions in an image; LossGradient has its gradient.

    Labels and weights are images or arrays of the shape of the predictions. The losses are those of Loss.

    Parameters
    ----------
    type, reduction, weight, label_smoothing, number_of_classes, epsilon, delta, reduce_across_batch, device
        As of Loss.

    Raises
    ------
    ValueError   "ForwardLoss: labels.shape (2, 1, 1, 3) is not x.shape (2, 1, 1, 4)."
    TypeError    "ForwardLoss: x is an Image; labels (ndarray) is not."
    RuntimeError "ForwardLoss: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNForwardLoss.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> loss = mpscnn.ForwardLoss("mean_squared_error", reduction="mean")
    >>> loss(np.array([[[[1.0, 2.0]]]], np.float32), np.array([[[[0.0, 4.0]]]], np.float32)).tolist()
    [[[[2.5]]]])");
  kind.def(py::init([](const Text& type, const Text& reduction, Real weight, Real label_smoothing,
                       Integer number_of_classes, Real epsilon, Real delta, Boolean reduce_across_batch,
                       const std::shared_ptr<Device>& device) {
             return Kernel::make(device_or_default(device),
                                 options_from(type, reduction, weight, label_smoothing, number_of_classes, epsilon,
                                              delta, reduce_across_batch));
           }),
           py::arg("type"), py::kw_only(), py::arg("reduction") = "sum", py::arg("weight") = 1.0,
           py::arg("label_smoothing") = 0.0, py::arg("number_of_classes") = 1, py::arg("epsilon") = 1e-7,
           py::arg("delta") = 1.0, py::arg("reduce_across_batch") = false, py::arg("device") = nullptr)
      .def(
          "__call__",
          [](const Kernel& kernel, const py::object& x, const py::object& labels, const py::object& weights,
             const py::object& out) {
            Sources given("ForwardLoss", kernel.device());
            const auto source = given.take(x, "x"), compared = given.take(labels, "labels");
            const auto factors = given.take(weights, "weights", true);
            return given.run(out, kernel.result_shape(source->shape()), DType::float32,
                             [&](CommandBuffer& buffer, const std::shared_ptr<Image>& to) {
                               kernel.encode(buffer, *source, *compared, factors.get(), to, false);
                             });
          },
          py::arg("x"), py::arg("labels"), py::arg("weights") = py::none(), py::kw_only(), py::arg("out") = py::none(),
          R"(Compute the loss and wait.

        Parameters
        ----------
        x, labels, weights : arrays or Images, shape (N, H, W, C)
            weights may be left out.
        out : array or Image of the result's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as x is
            Shape (N, 1, 1, 1), or x's with reduction "none"; float32. With reduce_across_batch the sum is the first
            image's, and the others are 0.)")
      .def(
          "encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& x, const Image& labels,
             const std::shared_ptr<Image>& weights, const std::shared_ptr<Image>& out, Boolean temporary) {
            check_destination("ForwardLoss", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, x, labels, weights.get(), out, temporary);
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("labels"), py::arg("weights") = nullptr, py::kw_only(),
          py::arg("out") = nullptr, py::arg("temporary") = false,
          R"(Append the computation of the loss to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x, labels, weights : Image
            Of one shape; weights may be left out.
        out : Image, optional
            Takes the loss.
        temporary : bool, default False
            The result is read on this command buffer only, never by the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.)")
      .def_property_readonly(
          "reduction", [](const Kernel& kernel) { return name_of(kernel.options().reduction); }, "str")
      .def_property_readonly(
          "reduce_across_batch", [](const Kernel& kernel) { return kernel.options().reduce_across_batch; }, "bool")
      .def("__repr__", [](const Kernel& kernel) {
        return say("<mpscnn.ForwardLoss \"", name_of(kernel.options().type), "\", reduction \"",
                   name_of(kernel.options().reduction), "\">");
      });
  add_options<Kernel>(kind);
}

void bind_gradient(py::module_& module) {
  using Kernel = LossGradient;
  py::class_<Kernel, std::shared_ptr<Kernel>> kind(module, "LossGradient",
                                                   R"(Gradient of a ForwardLoss with respect to predictions or labels.

    The derivative of the weighted losses, times the gradient that comes in. Nothing divides it, whatever the reduction
    of the ForwardLoss: it is that of a sum.

    Parameters
    ----------
    type, weight, label_smoothing, number_of_classes, epsilon, delta, device
        As of the ForwardLoss.
    compute_label_gradients : bool, default False
        With respect to the labels, not to the predictions.

    Raises
    ------
    ValueError   "LossGradient: grad.shape (2, 3, 1, 1) is neither (2, 1, 1, 1) nor x.shape (2, 3, 3, 4)."
    TypeError    "LossGradient: grad is an array; x (Image) is not."
    RuntimeError "LossGradient: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNLossGradient.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> x, labels = np.array([[[[1.0, 2.0]]]], np.float32), np.array([[[[0.0, 4.0]]]], np.float32)
    >>> loss = mpscnn.ForwardLoss("mean_squared_error")(x, labels)
    >>> grad = mpscnn.InitialGradient()(loss)
    >>> mpscnn.LossGradient("mean_squared_error")(grad, x, labels).tolist()
    [[[[2.0, -4.0]]]])");
  kind.def(py::init([](const Text& type, Real weight, Real label_smoothing, Integer number_of_classes, Real epsilon,
                       Real delta, Boolean compute_label_gradients, const std::shared_ptr<Device>& device) {
             return Kernel::make(device_or_default(device),
                                 options_from(type, Text{"sum"}, weight, label_smoothing, number_of_classes, epsilon,
                                              delta, Boolean{false}),
                                 compute_label_gradients);
           }),
           py::arg("type"), py::kw_only(), py::arg("weight") = 1.0, py::arg("label_smoothing") = 0.0,
           py::arg("number_of_classes") = 1, py::arg("epsilon") = 1e-7, py::arg("delta") = 1.0,
           py::arg("compute_label_gradients") = false, py::arg("device") = nullptr)
      .def(
          "__call__",
          [](const Kernel& kernel, const py::object& grad, const py::object& x, const py::object& labels,
             const py::object& weights, const py::object& out) {
            Sources given("LossGradient", kernel.device());
            const auto incoming = given.take(grad, "grad"), source = given.take(x, "x");
            const auto compared = given.take(labels, "labels"), factors = given.take(weights, "weights", true);
            return given.run(out, source->shape(), gradient_dtype(source->dtype()),
                             [&](CommandBuffer& buffer, const std::shared_ptr<Image>& to) {
                               kernel.encode(buffer, *incoming, *source, *compared, factors.get(), to, false);
                             });
          },
          py::arg("grad"), py::arg("x"), py::arg("labels"), py::arg("weights") = py::none(), py::kw_only(),
          py::arg("out") = py::none(),
          R"(Compute the gradient and wait.

        Parameters
        ----------
        grad : array or Image, shape (N, H, W, C) or (N, 1, 1, 1)
            Gradient with respect to the losses, or to each image's loss.
        x, labels, weights : arrays or Images, shape (N, H, W, C)
            What the ForwardLoss was given.
        out : array or Image of x's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as grad is
            x's shape; float16 where x is float16, else float32.)")
      .def(
          "encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& grad, const Image& x, const Image& labels,
             const std::shared_ptr<Image>& weights, const std::shared_ptr<Image>& out, Boolean temporary) {
            check_destination("LossGradient", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, grad, x, labels, weights.get(), out, temporary);
          },
          py::arg("command_buffer"), py::arg("grad"), py::arg("x"), py::arg("labels"), py::arg("weights") = nullptr,
          py::kw_only(), py::arg("out") = nullptr, py::arg("temporary") = false,
          R"(Append the computation of the gradient to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        grad : Image, shape (N, H, W, C) or (N, 1, 1, 1)
        x, labels, weights : Image, shape (N, H, W, C)
            What the ForwardLoss was given.
        out : Image, optional
            Takes the gradient.
        temporary : bool, default False
            The result is read on this command buffer only, never by the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.)")
      .def_property_readonly("compute_label_gradients", &Kernel::of_labels, "bool")
      .def("__repr__",
           [](const Kernel& kernel) { return say("<mpscnn.LossGradient \"", name_of(kernel.options().type), "\">"); });
  add_options<Kernel>(kind);
}

void bind_initial(py::module_& module) {
  using Kernel = InitialGradient;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "InitialGradient",
                                              R"(Ones of the shape of a source: the initial gradient of a backward pass.

    Parameters
    ----------
    device : Device, optional

    Raises
    ------
    ValueError   "InitialGradient: out.shape (1, 1, 1, 2) is not the result's (1, 1, 1, 1)."
    TypeError    "InitialGradient: x is an Image; out (ndarray) is not."
    RuntimeError "InitialGradient: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNInitialGradient.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> mpscnn.InitialGradient()(np.zeros((1, 1, 2, 1), np.float32)).tolist()
    [[[[1.0], [1.0]]]])")
      .def(py::init([](const std::shared_ptr<Device>& device) { return Kernel::make(device_or_default(device)); }),
           py::arg("device") = nullptr)
      .def(
          "__call__",
          [](const Kernel& kernel, const py::object& x, const py::object& out) {
            Sources given("InitialGradient", kernel.device());
            const auto source = given.take(x, "x");
            return given.run(out, source->shape(), gradient_dtype(source->dtype()),
                             [&](CommandBuffer& buffer, const std::shared_ptr<Image>& to) {
                               kernel.encode(buffer, *source, to, false);
                             });
          },
          py::arg("x"), py::kw_only(), py::arg("out") = py::none(),
          R"(Compute the ones and wait.

        Parameters
        ----------
        x : array or Image, shape (N, H, W, C)
        out : array or Image of x's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as x is
            x's shape; float16 where x is float16, else float32.)")
      .def(
          "encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& x, const std::shared_ptr<Image>& out,
             Boolean temporary) {
            check_destination("InitialGradient", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, x, out, temporary);
          },
          py::arg("command_buffer"), py::arg("x"), py::kw_only(), py::arg("out") = nullptr,
          py::arg("temporary") = false,
          R"(Append the ones to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        out : Image, optional
        temporary : bool, default False
            The result is read on this command buffer only, never by the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.)")
      .def_property_readonly("device", &Kernel::device, "Device")
      .def("__repr__", [](const Kernel&) { return "<mpscnn.InitialGradient>"; });
}

}  // namespace

void bind_forward_loss(py::module_& module) {
  bind_forward(module);
  bind_gradient(module);
  bind_initial(module);
}

}  // namespace mpscnn::bindings
