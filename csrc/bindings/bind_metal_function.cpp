// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/function_layer.hpp>

#include "arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using Constants = std::map<std::string, std::pair<std::string, py::bytes>>;

FunctionValue value_from(std::size_t argument, const py::object& object) {
  FunctionValue value{argument};
  if (py::isinstance<Image>(object))
    value.image = object_of<Image>(object, "value");
  else if (py::isinstance<Buffer>(object))
    value.buffer = object_of<Buffer>(object, "value");
  else if (py::isinstance<py::tuple>(object)) {
    const auto [in_pixels, is_linear, across, down, border] =
        object.cast<std::tuple<bool, bool, std::uint8_t, std::uint8_t, std::uint8_t>>();
    value.sampler = FunctionSampler{in_pixels, is_linear, {across, down}, border};
  } else if (is_integer(object))
    value.threadgroup = object.cast<std::uint64_t>();
  else
    value.bytes = object.cast<std::string>();
  return value;
}

using Shape = std::array<std::int64_t, 4>;
ImageShape image_shape_of(const Shape& s) { return {s[0], s[1], s[2], s[3]}; }

/// Return the arguments of the constructor, with constants as (dtype, bytes).
py::tuple made_from(const MetalFunction& function) {
  const FunctionSource& source = function.source();
  py::dict constants;
  for (const auto& [name, value] : source.constants)
    constants[py::str(name)] = py::make_tuple(value.dtype, py::bytes(value.bytes));
  return py::make_tuple(source.text, function.name(), constants, source.macros, source.fast_math);
}

std::shared_ptr<FunctionLayer> make_layer(const Arg<MetalFunction, "function">& function,
                                          const std::vector<std::pair<std::size_t, py::object>>& given,
                                          const py::object& out_shape, const py::object& grid,
                                          const std::optional<FunctionLayer::Size>& threadgroup) {
  std::vector<FunctionValue> constants;
  for (const auto& [argument, object] : given) constants.push_back(value_from(argument, object));
  FunctionLayer::Options options{.threadgroup = threadgroup};
  if (!out_shape.is_none())
    options.out_shape = [owner = keep_python_object(out_shape),
                         rule = py::handle(out_shape)](std::span<const ImageShape> sources) {
      const AcquireGil gil;
      py::list shapes;
      for (const auto& source : sources) shapes.append(tuple_of(source));
      return image_shape_of(rule(shapes).cast<Shape>());
    };
  if (!grid.is_none())
    options.grid = [owner = keep_python_object(grid), rule = py::handle(grid)](ImageShape result) {
      const AcquireGil gil;
      return rule(tuple_of(result)).cast<FunctionLayer::Size>();
    };
  return FunctionLayer::make(function, std::move(constants), std::move(options));
}

}  // namespace

void bind_metal_function(py::module_& module) {
  py::class_<FunctionArgument>(module, "_FunctionArgument")
      .def_readonly("name", &FunctionArgument::name, "The name in the source.")
      .def_property_readonly(
          "kind", [](const FunctionArgument& one) { return name_of(one.kind); },
          "\"texture\", \"buffer\", \"threadgroup\" or \"sampler\".")
      .def_property_readonly(
          "access", [](const FunctionArgument& one) { return name_of(one.access); },
          "\"read\", \"write\" or \"read_write\".")
      .def_readonly("index", &FunctionArgument::index, "The number in the attribute: [[buffer(2)]].")
      .def_readonly("nbytes", &FunctionArgument::bytes, "Bytes of a value, or of an array's element; 0 for textures.")
      .def_readonly("scalar", &FunctionArgument::scalar, "dtype of a value or of texels; empty for others.")
      .def_readonly("is_array", &FunctionArgument::is_array, "Whether a texture is a texture2d_array.");
  py::class_<MetalFunction, std::shared_ptr<MetalFunction>> kind(module, "_MetalFunction");
  kind.def(py::init([](const Str<"source">& source, const Str<"name">& name, const Constants& constants,
                       const std::map<std::string, std::string>& macros, Bool<"fast_math"> fast_math,
                       const OptionalArg<Device, "device">& device) {
        FunctionSource made_from{source.value, {}, macros, fast_math};
        for (const auto& [constant, value] : constants) made_from.constants[constant] = {value.first, value.second};
        const auto target = device_or_default(device);
        const ReleaseGil release;
        return MetalFunction::make(target, std::move(made_from), name.value);
      }))
      .def("_encode",
           [](const MetalFunction& function, const Arg<CommandBuffer, "command_buffer">& buffer,
              const std::vector<std::pair<std::size_t, py::object>>& given, const MetalFunction::Size& threads,
              const MetalFunction::Size& group) {
             std::vector<FunctionValue> values;
             for (const auto& [argument, object] : given) values.push_back(value_from(argument, object));
             const ReleaseGil release;
             function.encode(*buffer, values, threads, group);
           })
      .def_property_readonly("_arguments", &MetalFunction::arguments)
      .def_property_readonly("_made_from", &made_from)
      .def("_group_for", &MetalFunction::group_for)
      .def_static("_threads_for", [](const Shape& s) { return MetalFunction::threads_for(image_shape_of(s)); })
      .def_property_readonly("name", &MetalFunction::name, "The name in the source.")
      .def_property_readonly("max_threads_per_threadgroup", &MetalFunction::max_threads_per_threadgroup,
                             "Max number of threads in a threadgroup.")
      .def_property_readonly("thread_execution_width", &MetalFunction::thread_execution_width,
                             "Threads that run together; threadgroups are best a multiple of it.")
      .def_property_readonly("device", &MetalFunction::device, "The device that runs the function.");
  py::class_<FunctionLayer, std::shared_ptr<FunctionLayer>>(module, "_FunctionLayer").def(py::init(&make_layer));
  kind.def("__repr__",
           [](const MetalFunction& function) { return say("<mpscnn.MetalFunction \"", function.name(), "\">"); });
}

}  // namespace mpscnn::bindings
