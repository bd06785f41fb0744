// SPDX-License-Identifier: Apache-2.0
// Nodes of MPSNNGraph and the graph itself. The public classes are in Python, one for each of Apple's node classes.
#include <mpscnn/mps_graph.hpp>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using Object = GraphObject::Ptr;
using Ints = std::vector<std::int64_t>;

GraphValue value_from(const py::handle& object) {
  if (object.is_none()) return {};
  if (py::isinstance<GraphObject>(object)) return object.cast<Object>();
  if (is_bool(object)) return bool_of(object, "value");
  if (is_integer(object)) return integer_from(object, "value");
  if (is_number(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return std::string(text_of(object, "value"));
  if (py::isinstance<py::tuple>(object)) return object.cast<Ints>();
  if (py::isinstance<py::array>(object)) return object.cast<std::vector<double>>();
  return object.cast<std::vector<Object>>();
}

std::vector<GraphValue> values_from(const py::args& arguments) {
  std::vector<GraphValue> values;
  for (const auto& argument : arguments) values.push_back(value_from(argument));
  return values;
}

py::object to_python(const GraphValue& value) {
  if (const auto* ints = std::get_if<Ints>(&value)) return py::tuple(py::cast(*ints));
  return std::visit([](const auto& given) { return py::object(py::cast(given)); }, value);
}

/// A policy that the program wrote in Python. Nodes keep it, and it keeps no node.
class PythonGraphPadding final : public GraphPadding {
 public:
  explicit PythonGraphPadding(py::object policy) : owner_(keep_python_object(policy)), policy_(policy.ptr()) {}

  std::string name() override {
    const AcquireGil gil;
    return type_name(policy_);
  }
  std::vector<std::string> method() override {
    const AcquireGil gil;
    const py::object flags = policy_.attr("padding_method");
    if (py::isinstance<py::str>(flags)) return {flags.cast<std::string>()};
    return flags.cast<std::vector<std::string>>();
  }
  PolicyAnswer destination(std::string_view kernel, const KernelWindow& window, std::span<const ImageShape> sources,
                           ImageShape suggested) override {
    const AcquireGil gil;
    py::list shapes;
    for (const auto& source : sources) shapes.append(tuple_of(source));
    const auto ask = py::module_::import("mpscnn.nodes").attr("_destination");
    const auto answer = ask(policy_, kernel, tuple_of(window.kernel_size), tuple_of(window.stride),
                            tuple_of(window.dilation), shapes, tuple_of(suggested))
                            .cast<Ints>();
    PolicyAnswer result{.shape = {answer.at(0), answer.at(1), answer.at(2), answer.at(3)}};
    if (answer.size() > 4) result.offset = {.y = answer.at(4), .x = answer.at(5)};
    return result;
  }

 private:
  std::shared_ptr<void> owner_;
  py::handle policy_;
};

/// A function of the program's that returns images.
class PythonGraphAllocator final : public GraphAllocator {
 public:
  PythonGraphAllocator(py::object function, std::string name)
      : name_(std::move(name)), owner_(keep_python_object(function)), function_(function.ptr()) {}

  std::string_view name() const override { return name_; }
  std::shared_ptr<Image> allocate(ImageShape shape, DType dtype) override {
    const AcquireGil gil;
    const py::object image = function_(tuple_of(shape), name_of(dtype));
    return object_of<Image>(image, say("MPSNNGraph: what ", name_, " returned"));
  }
  py::object function() const { return py::reinterpret_borrow<py::object>(function_); }

 private:
  const std::string name_;
  std::shared_ptr<void> owner_;
  py::handle function_;
};

Object make_weights(const std::string& kernel, const py::dict& arguments,
                    const OptionalArg<Optimizer, "optimizer">& optimizer) {
  const auto* row = find_kernel(kernel);
  const auto params = params_from(*row, arguments);
  const ReleaseGil release;
  return GraphObject::weights(*row, params, optimizer.value);
}

Object make_normalization(const std::string& kernel, const py::dict& arguments,
                          const OptionalArg<Optimizer, "optimizer">& optimizer, double momentum) {
  const auto* row = find_kernel(kernel);
  const auto params = params_from(*row, arguments);
  const ReleaseGil release;
  return GraphObject::normalization(*row, params, optimizer.value, momentum);
}

Object pixel_padding(const std::array<std::int64_t, 4>& sides, bool ceil_mode,
                     std::pair<std::int64_t, std::int64_t> extra, std::optional<bool> count_include_pad) {
  return GraphObject::padding(PixelPadding{.top = sides[0],
                                           .bottom = sides[1],
                                           .left = sides[2],
                                           .right = sides[3],
                                           .ceil_mode = ceil_mode,
                                           .output_padding = {extra.first, extra.second},
                                           .count_include_pad = count_include_pad});
}

py::object training_graph(const GraphObject& node, const OptionalArg<GraphObject, "source_gradient">& gradient,
                          const py::object& handler) {
  GraphObject::Handler call;
  if (!handler.is_none())
    call = [&](Object made, Object forward, Object source, Object source_gradient) {
      handler(made, forward, source, source_gradient);
    };
  return py::cast(node.training_graph(gradient.value, call));
}

void bind_object(py::module_& module) {
  py::class_<GraphObject, Object>(module, "_GraphObject")
      .def(py::init([](const std::string& apple_class, const std::string& selector, const py::args& arguments) {
        return GraphObject::make(apple_class, selector, values_from(arguments));
      }))
      .def("send", [](const GraphObject& object, const std::string& selector,
                      const py::args& arguments) { return to_python(object.send(selector, values_from(arguments))); })
      .def("get", [](const GraphObject& object, const std::string& name) { return to_python(object.get(name)); })
      .def("set", [](const GraphObject& object, const std::string& name,
                     const py::object& value) { object.set(name, value_from(value)); })
      .def("training_graph", &training_graph)
      .def("buffer",
           [](const GraphObject& object, const std::string& property) {
             const ReleaseGil release;
             return object.buffer(property);
           })
      .def("trained",
           [](const GraphObject& object) {
             const ReleaseGil release;
             return std::make_shared<ConvolutionWeightsAndBiasesState>(object.trained());
           })
      .def("trained_values",
           [](const GraphObject& object) -> py::tuple {
             const auto values = [&] {
               const ReleaseGil release;
               return object.trained_values();
             }();
             return py::make_tuple(values.gamma, values.beta, values.mean, values.variance);
           })
      .def("counting", &GraphObject::counting)
      .def("own_allocator",
           [](const GraphObject& object) -> py::object {
             const auto own = std::dynamic_pointer_cast<PythonGraphAllocator>(object.own_allocator());
             return own ? own->function() : py::none();
           })
      .def_property_readonly("is_trained", &GraphObject::is_trained)
      .def_property_readonly("descriptor", &GraphObject::descriptor)
      .def_property_readonly("apple_class", &GraphObject::apple_class)
      .def_property_readonly("identity", &GraphObject::identity);
  module.def("_graph_weights", &make_weights);
  module.def("_graph_normalization", &make_normalization);
  module.def("_graph_policy", [](std::string_view name) { return GraphObject::padding(name); });
  module.def("_graph_pixel_padding", &pixel_padding);
  module.def("_graph_own_padding", [](const py::object& policy) {
    return GraphObject::padding(std::make_shared<PythonGraphPadding>(policy));
  });
  module.def("_graph_neuron", [](const py::object& neuron) { return GraphObject::neuron(neuron_from(neuron)); });
  module.def("_graph_loss", [](const std::shared_ptr<LossKernel>& loss) { return GraphObject::loss(*loss); });
  module.def("_graph_floats", [](const std::vector<float>& values) { return GraphObject::floats(values); });
  module.def("_graph_handle", &GraphObject::handle);
  module.def("_graph_allocator", [] { return GraphObject::allocator(); });
  module.def("_graph_own_allocator", [](const py::object& function, const std::string& name) {
    return GraphObject::allocator(std::make_shared<PythonGraphAllocator>(function, name));
  });
}

}  // namespace

void bind_graph(py::module_& module) {
  bind_object(module);
  py::class_<MpsGraph, std::shared_ptr<MpsGraph>>(module, "_MPSNNGraph")
      .def(py::init([](const std::vector<Object>& results, const std::vector<bool>& needed,
                       const OptionalArg<Device, "device">& device) {
        const auto target = device_or_default(device);
        const ReleaseGil release;
        return MpsGraph::make(target, results, needed);
      }))
      .def("_encode",
           [](const MpsGraph& graph, const Arg<CommandBuffer, "command_buffer">& buffer,
              const std::vector<std::shared_ptr<Image>>& sources,
              const std::vector<std::shared_ptr<LossLabels>>& labels) {
             const auto results = [&] {
               const ReleaseGil release;
               return graph.encode(buffer.value, sources, labels);
             }();
             return py::make_tuple(results.result, results.intermediates, results.states, results.has_updated);
           })
      .def("_run",
           [](const MpsGraph& graph, const py::sequence& arrays) {
             std::vector<ArrayView> sources;
             for (const auto& array : arrays) sources.push_back(pixels_of(array, "x", graph.device().get()));
             const auto images = [&] {
               const ReleaseGil release;
               return graph.run(sources);
             }();
             py::list results;
             for (const auto& image : images) results.append(numpy_of(image));
             return results;
           })
      .def("_check_updates",
           [](const MpsGraph& graph) {
             const ReleaseGil release;  // a source that is loading holds its mutex, and waits for the GIL
             graph.check_updates();
           })
      .def("_reload",
           [](const MpsGraph& graph) {
             const ReleaseGil release;
             graph.reload();
           })
      .def("_handles", [](const MpsGraph& graph, const std::string& name) { return graph.handles(name.c_str()); })
      .def("_read_count", &MpsGraph::read_count)
      .def_property_readonly("_object", &MpsGraph::object)
      .def_property_readonly("device", &MpsGraph::device, "The device that runs the graph.");
}

}  // namespace mpscnn::bindings
