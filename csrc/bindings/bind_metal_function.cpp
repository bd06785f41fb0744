// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/metal_function.hpp>

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
  else if (is_integer(object))
    value.threadgroup = object.cast<std::uint64_t>();
  else
    value.bytes = object.cast<std::string>();
  return value;
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
        std::map<std::string, FunctionConstant> values;
        for (const auto& [constant, value] : constants) values[constant] = {value.first, value.second};
        const auto target = device_or_default(device);
        const ReleaseGil release;
        return MetalFunction::make(target, source.value, name.value, values, macros, fast_math);
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
      .def_property_readonly("name", &MetalFunction::name, "The name in the source.")
      .def_property_readonly("max_threads_per_threadgroup", &MetalFunction::max_threads_per_threadgroup,
                             "Max number of threads in a threadgroup.")
      .def_property_readonly("thread_execution_width", &MetalFunction::thread_execution_width,
                             "Threads that run together; threadgroups are best a multiple of it.")
      .def_property_readonly("device", &MetalFunction::device, "The device that runs the function.");
  kind.def("__repr__",
           [](const MetalFunction& function) { return say("<mpscnn.MetalFunction \"", function.name(), "\">"); });
}

}  // namespace mpscnn::bindings
