// SPDX-License-Identifier: Apache-2.0
// Losses as kernels that take only images, and the initial gradient of the backward pass.
#include <mpscnn/forward_loss.hpp>

#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
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

template <class Kernel>
std::shared_ptr<Kernel> make_kernel(const py::dict& options, const std::shared_ptr<Device>& device) {
  return Kernel::make(device_or_default(device), options_from(options));
}

void bind_forward(py::module_& module) {
  using Kernel = ForwardLoss;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "_ForwardLoss", "The core of a mpscnn.ForwardLoss.")
      .def(py::init(&make_kernel<Kernel>), py::arg("options"), py::arg("device") = nullptr)
      .def(
          "_call",
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
          py::arg("x"), py::arg("labels"), py::arg("weights"), py::arg("out"))
      .def(
          "_encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& x, const Image& labels,
             const std::shared_ptr<Image>& weights, const std::shared_ptr<Image>& out, Boolean temporary) {
            check_destination("ForwardLoss", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, x, labels, weights.get(), out, temporary);
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("labels"), py::arg("weights") = nullptr,
          py::arg("out") = nullptr, py::arg("temporary") = false)
      .def_property_readonly("device", &Kernel::device, "Device");
}

void bind_gradient(py::module_& module) {
  using Kernel = LossGradient;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "_LossGradient", "The core of a mpscnn.LossGradient.")
      .def(py::init(&make_kernel<Kernel>), py::arg("options"), py::arg("device") = nullptr)
      .def(
          "_call",
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
          py::arg("grad"), py::arg("x"), py::arg("labels"), py::arg("weights"), py::arg("out"))
      .def(
          "_encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& grad, const Image& x, const Image& labels,
             const std::shared_ptr<Image>& weights, const std::shared_ptr<Image>& out, Boolean temporary) {
            check_destination("LossGradient", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, grad, x, labels, weights.get(), out, temporary);
          },
          py::arg("command_buffer"), py::arg("grad"), py::arg("x"), py::arg("labels"), py::arg("weights") = nullptr,
          py::arg("out") = nullptr, py::arg("temporary") = false)
      .def_property_readonly("device", &Kernel::device, "Device");
}

void bind_initial(py::module_& module) {
  using Kernel = InitialGradient;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "_InitialGradient", "The core of a mpscnn.InitialGradient.")
      .def(py::init([](const std::shared_ptr<Device>& device) { return Kernel::make(device_or_default(device)); }),
           py::arg("device") = nullptr)
      .def(
          "_call",
          [](const Kernel& kernel, const py::object& x, const py::object& out) {
            Sources given("InitialGradient", kernel.device());
            const auto source = given.take(x, "x");
            return given.run(out, source->shape(), gradient_dtype(source->dtype()),
                             [&](CommandBuffer& buffer, const std::shared_ptr<Image>& to) {
                               kernel.encode(buffer, *source, to, false);
                             });
          },
          py::arg("x"), py::arg("out"))
      .def(
          "_encode",
          [](const Kernel& kernel, CommandBuffer& buffer, const Image& x, const std::shared_ptr<Image>& out,
             Boolean temporary) {
            check_destination("InitialGradient", out, temporary);
            const ReleaseGil release;
            return kernel.encode(buffer, x, out, temporary);
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("out") = nullptr, py::arg("temporary") = false)
      .def_property_readonly("device", &Kernel::device, "Device");
}

}  // namespace

void bind_forward_loss(py::module_& module) {
  bind_forward(module);
  bind_gradient(module);
  bind_initial(module);
}

}  // namespace mpscnn::bindings
