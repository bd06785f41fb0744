// SPDX-License-Identifier: Apache-2.0
// _core.Kernel: what the classes built from the table derive from.
#include <mpscnn/kernel.hpp>

#include <algorithm>

#include <pybind11/stl.h>

#include <mpscnn/data_source.hpp>
#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bind_image.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {
namespace {

std::shared_ptr<Kernel> make(const std::string& name, const py::dict& arguments,
                             const std::shared_ptr<Device>& device) {
  const auto* row = find_kernel(name);
  check<KeyError>(row != nullptr, "there is no kernel \"", name, "\".");
  Params params;
  for (const auto& [key, object] : arguments) {
    const auto parameter = key.cast<std::string>();
    const ParamSpec* spec = nullptr;
    for (auto specs : {row->params, common_params()})
      for (const auto* candidate : specs)
        if (candidate->name == parameter) spec = candidate;
    check<KeyError>(spec != nullptr, row->name, " has no parameter \"", parameter, "\".");
    params.emplace(parameter, value_of(*row, *spec, object));
  }
  const ReleaseGil release;
  return Kernel::make(device_or_default(device), *row, params);
}

const ParamSpec& attribute(const Kernel& kernel, std::string_view name) {
  for (const auto* spec : common_params())
    if (spec->name == name) return *spec;
  throw KeyError(say(kernel.row().name, " has no attribute \"", name, "\"."));
}

std::optional<DType> optional_dtype(const py::object& dtype) {
  return dtype.is_none() ? std::nullopt : std::optional(dtype_from(dtype, "dtype"));
}

/// A destination whose pixels NumPy can see, for results that nobody provided.
std::shared_ptr<Image> result_image(const Kernel& kernel, const Image& source, std::optional<DType> dtype) {
  return make_visible_image(kernel.device(), kernel.result_shape(source.shape()), dtype.value_or(source.dtype()));
}

bool has_clip(const Kernel& kernel) { return !std::holds_alternative<std::monostate>(kernel.get("clip_rect")); }

void check_no_clip(const Kernel& kernel) {
  check(!has_clip(kernel), kernel.row().name, ": clip_rect needs a destination (out) whose other pixels are kept.");
}

std::shared_ptr<Image> encode(Kernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x,
                              const std::shared_ptr<Image>& out, Boolean temporary, const py::object& dtype_like) {
  const auto dtype = optional_dtype(dtype_like);
  check(!out || !temporary, kernel.row().name, ": temporary (True) was given together with out.");
  check(!out || !dtype, kernel.row().name, ": dtype was given together with out, which has one.");
  const ReleaseGil release;
  if (out || temporary) return kernel.encode(buffer, *x, out, temporary, dtype);
  check_no_clip(kernel);
  return kernel.encode(buffer, *x, result_image(kernel, *x, dtype));
}

void run(Kernel& kernel, const Image& x, const std::shared_ptr<Image>& out) {
  const auto buffer = CommandBuffer::make(kernel.device());
  kernel.encode(*buffer, x, out);
  buffer->commit();
  buffer->wait();
}

/// Into the array itself where its memory can be an image's, else through an image.
void run(Kernel& kernel, const ArrayView& x, const ArrayView& out) {
  const auto source = Image::from_array(kernel.device(), x);
  if (Image::why_not_shared(*kernel.device(), out, ImageLayout::NHWC).empty()) {
    run(kernel, *source, Image::from_array(kernel.device(), out, ImageLayout::NHWC, false));
    return;
  }
  const auto& s = out.shape;
  const auto destination = Image::make(kernel.device(), {s[0], s[1], s[2], s[3]}, out.dtype);
  if (has_clip(kernel)) destination->write(out);
  run(kernel, *source, destination);
  destination->to_array(out);
}

ArrayView images_of(ArrayView view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

/// Arrays may hold more images than one MPSImage takes: they are run so many at a time. Fills `out` if it is empty.
void run_in_batches(Kernel& kernel, const ArrayView& x, std::optional<ArrayView>& out, std::optional<DType> dtype) {
  const std::int64_t n = x.shape[0], h = x.shape[1], w = x.shape[2], c = x.shape[3];
  Image::bytes(*kernel.device(), {n, h, w, c}, x.dtype);  // says what is wrong
  const auto set = [&](const char* name) { return !std::holds_alternative<std::monostate>(kernel.get(name)); };
  const bool together = set("offset") || set("clip_rect");  // these count images
  if (!out) check_no_clip(kernel);
  auto shape = kernel.result_shape({together ? n : 1, h, w, c});
  if (!together) shape.n = n;
  if (!out) {
    const auto type = dtype.value_or(x.dtype);
    const auto pages = allocate_pages(Image::bytes(*kernel.device(), shape, type));
    out = ArrayView{.data = pages.get(),
                    .dtype = type,
                    .shape = shape.nhwc(),
                    .strides = contiguous_strides(shape.nhwc(), type),
                    .owner = pages};
  }
  const auto most = together ? n : std::max<std::int64_t>(1, Image::most_images(std::max(c, out->shape[3])));
  if (n <= most) return run(kernel, x, *out);
  check(out->shape[0] == n, kernel.row().name, ": out.shape ", to_string(out->shape), " is not the result's ",
        to_string(shape.nhwc()), ".");
  for (std::int64_t first = 0; first < n; first += most) {
    const auto count = std::min(most, n - first);
    run(kernel, images_of(x, first, count), images_of(*out, first, count));
  }
}

/// One kernel, one command buffer, waits. Arrays in, arrays out; images in, images out.
py::object call(Kernel& kernel, const py::object& x, const py::object& out, const py::object& dtype_like) {
  const auto dtype = optional_dtype(dtype_like);
  check(out.is_none() || !dtype, kernel.row().name, ": dtype was given together with out, which has one.");
  if (py::isinstance<Image>(x)) {
    const auto source = x.cast<std::shared_ptr<Image>>();
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), kernel.row().name, ": x is an Image; out is not.");
    auto destination = out.is_none() ? nullptr : out.cast<std::shared_ptr<Image>>();
    {
      const ReleaseGil release;
      if (!destination) check_no_clip(kernel);
      if (!destination) destination = result_image(kernel, *source, dtype);
      run(kernel, *source, destination);
    }
    return py::cast(destination);
  }
  const auto view = view_of(x, "x");
  check(view.ndim() == 4, kernel.row().name, ": x.ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  std::optional<ArrayView> target;
  if (!out.is_none()) {
    target = writable_view_of(out, "out");
    check(target->ndim() == 4, kernel.row().name, ": out.ndim (", target->ndim(), ") is not 4 (N, H, W, C).");
  }
  {
    const ReleaseGil release;
    run_in_batches(kernel, view, target, dtype);
  }
  return out.is_none() ? array_from(*target) : out;
}

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "Kernel", py::dynamic_attr(), "Base of all kernels.")
      .def(py::init(&make), py::arg("name"), py::arg("arguments"), py::arg("device") = nullptr)
      .def("__call__", &call, py::arg("x"), py::kw_only(), py::arg("out") = py::none(), py::arg("dtype") = py::none(),
           R"(Run the kernel and wait.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            float32, float16, uint8 or uint16. Not copied where its memory can be shared.
        out : array or Image like the result, optional
            Written in place and returned; with ``clip_rect`` only in part.
        dtype : dtype, optional
            Of the result; default that of x.

        Returns
        -------
        array or Image, as x is)")
      .def("encode", &encode, py::arg("command_buffer"), py::arg("x").none(false), py::kw_only(),
           py::arg("out") = nullptr, py::arg("temporary") = false, py::arg("dtype") = py::none(),
           R"(Append the kernel to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        out : Image, optional
            Destination.
        temporary : bool, default False
            The result is read on this command buffer only, as often as its read_count says (1), never by the CPU.
        dtype : dtype, optional
            Of the result; default that of x.

        Returns
        -------
        Image
            May be read when the command buffer has completed.)")
      .def(
          "result_shape",
          [](const Kernel& kernel, const py::object& shape) {
            const auto extents = extents_from(shape, "shape");
            check(extents.size() == 4, kernel.row().name, ": len(shape) (", extents.size(), ") is not 4 (N, H, W, C).");
            for (auto extent : extents)
              check(extent >= 1, kernel.row().name, ": shape ", to_string(extents), " has an extent (", extent,
                    ") less than the minimum (1).");
            const auto s = kernel.result_shape({extents[0], extents[1], extents[2], extents[3]});
            return py::make_tuple(s.n, s.h, s.w, s.c);
          },
          py::arg("shape"), "(N, H, W, C) of the result for such a source.")
      .def("reload", &Kernel::reload, py::call_guard<ReleaseGil>(), "Read the data source again.")
      .def_property_readonly(
          "data_source", [](const Kernel& kernel) { return to_python(kernel.data_source()); },
          "Where the weights come from; None without weights.")
      .def_property_readonly("device", &Kernel::device, "Device")
      .def_property_readonly("neuron_descriptor", &Kernel::neuron,
                             "NeuronDescriptor or None: what a neuron kernel computes, or what a kernel with weights "
                             "applies to its result before it is stored.")
      .def("_get",
           [](const Kernel& kernel, const std::string& name) {
             const auto& spec = attribute(kernel, name);
             Value value;
             {
               const ReleaseGil release;
               value = kernel.get(name);
             }
             return to_python(spec, value);
           })
      .def("_set", [](Kernel& kernel, const std::string& name, const py::object& object) {
        const auto value = value_of(kernel.row(), attribute(kernel, name), object);
        const ReleaseGil release;
        kernel.set(name, value);
      });
}

}  // namespace mpscnn::bindings
