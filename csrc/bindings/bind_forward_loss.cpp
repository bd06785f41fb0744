// SPDX-License-Identifier: Apache-2.0
// Losses as kernels that take only images, and the initial gradient of the backward pass.
#include <mpscnn/forward_loss.hpp>

#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// Images of a call, by the name of their argument.
class NamedImages {
 public:
  void add(std::string_view name, std::shared_ptr<Image> image) {
    (name == "grad"     ? sources_.grad
     : name == "x"      ? sources_.x
     : name == "labels" ? sources_.labels
                        : sources_.weights) = image.get();
    images_.push_back(std::move(image));
  }
  const LossSources& sources() const { return sources_; }

 private:
  LossSources sources_;
  std::vector<std::shared_ptr<Image>> images_;
};

bool is_missing(std::string_view name, py::handle object) { return name == "weights" && object.is_none(); }

py::object call_with_images(const ForwardLossKernel& kernel, const NamedImages& images, const py::object& out,
                            const std::string& first) {
  check<TypeError>(out.is_none() || py::isinstance<Image>(out), kernel.name(), ": ", first, " is an Image; out (",
                   type_name(out), ") is not.");
  auto result = object_or_null<Image>(out, "out");
  {
    const ReleaseGil release;
    const auto& x = *images.sources().x;
    if (!result) result = make_visible_image(kernel.device(), kernel.result_shape(x), kernel.result_dtype(x));
    const auto buffer = CommandBuffer::make(kernel.device());
    kernel.encode(*buffer, images.sources(), result, false);
    buffer->run();
  }
  return py::cast(result);
}

py::object call_with_arrays(const ForwardLossKernel& kernel, ArrayCall& call, const NamedImages& images,
                            const py::object& out) {
  const auto& x = *images.sources().x;
  const auto result =
      loss_result(kernel.name(), "the result's", out, kernel.result_shape(x).nhwc(), kernel.result_dtype(x));
  {
    const ReleaseGil release;
    const auto buffer = CommandBuffer::make(kernel.device());
    kernel.encode(*buffer, images.sources(), call.result(result.view), false);
    call.run(*buffer);
  }
  return result.array;
}

/// Run on the named arguments, which are all arrays or all Images, and wait.
py::object call_forward_loss(const ForwardLossKernel& kernel, const py::dict& arguments, const py::object& out) {
  ArrayCall call(kernel.device());
  NamedImages images;
  std::string first;
  bool are_images = false;
  for (const auto& [key, object] : arguments) {
    const auto name = key.cast<std::string>();
    check_made(object, name);
    if (is_missing(name, object)) continue;
    const bool is_image = py::isinstance<Image>(object);
    if (first.empty()) {
      first = name;
      are_images = is_image;
    }
    check<TypeError>(is_image || !are_images, kernel.name(), ": ", first, " is an Image; ", name, " (",
                     type_name(object), ") is not.");
    check<TypeError>(!is_image || are_images, kernel.name(), ": ", first, " is an array; ", name, " (Image) is not.");
    if (is_image) {
      images.add(name, object.cast<std::shared_ptr<Image>>());
      continue;
    }
    const auto view = pixels_of(object, name.c_str());
    check(view.ndim() == 4, kernel.name(), ": ", name, ".ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
    const ReleaseGil release;
    images.add(name, call.source(view));
  }
  return are_images ? call_with_images(kernel, images, out, first) : call_with_arrays(kernel, call, images, out);
}

}  // namespace

void bind_forward_loss(py::module_& module) {
  py::class_<ForwardLossKernel, std::shared_ptr<ForwardLossKernel>>(module, "_ForwardLossKernel")
      .def(py::init([](const std::string& name, const py::dict& options, const OptionalArg<Device, "device">& device) {
        return ForwardLossKernel::make(device_or_default(device), name, options_from(options));
      }))
      .def("_call", &call_forward_loss)
      .def("_encode",
           [](const ForwardLossKernel& kernel, const Arg<CommandBuffer, "command_buffer">& buffer,
              const py::dict& arguments, const OptionalArg<Image, "out">& out, Bool<"temporary"> temporary) {
             NamedImages images;
             for (const auto& [key, object] : arguments) {
               const auto name = key.cast<std::string>();
               if (!is_missing(name, object)) images.add(name, object_of<Image>(object, name));
             }
             check(!out || !temporary, kernel.name(), ": temporary (True) was given together with out.");
             const ReleaseGil release;
             return kernel.encode(*buffer, images.sources(), out, temporary);
           })
      .def_property_readonly("device", &ForwardLossKernel::device, "The device that the kernel runs on.");
}

}  // namespace mpscnn::bindings
