// SPDX-License-Identifier: Apache-2.0
// _core._Network: runs networks on arrays with any order of axes, synchronously or asynchronously.
#include <mpscnn/network_call.hpp>

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include <pybind11/stl.h>

#include <mpscnn/boundary.hpp>
#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using namespace py::literals;
using Names = std::vector<std::string>;
/// None, a concatenation, is a null Kernel; a pair is the mode and align_corners of an interpolation, and a triple the
/// mode, height and width of an adaptive pooling.
using NodeKernel = std::variant<std::shared_ptr<Kernel>, std::shared_ptr<FunctionLayer>, std::pair<std::string, bool>,
                                std::tuple<std::string, std::int64_t, std::int64_t>>;

std::shared_ptr<Network> make_network(
    const std::vector<std::tuple<std::string, std::optional<std::int64_t>, std::optional<std::int64_t>,
                                 std::optional<std::int64_t>, std::string>>& inputs,
    const std::vector<std::tuple<std::string, NodeKernel, std::vector<std::uint32_t>, std::string>>& nodes,
    const std::vector<std::uint32_t>& outputs, const py::object& dtype, const OptionalArg<Device, "device">& device,
    int threads) {
  NetworkParts parts;
  for (const auto& [name, h, w, c, fixed_by] : inputs) parts.inputs.push_back({name, h, w, c, fixed_by});
  for (const auto& [name, kernel, sources, node_dtype] : nodes) {
    parts.nodes.push_back({name, nullptr, sources});
    check(node_dtype.empty() || node_dtype == "uint8", "node \"", name, "\": result_dtype (\"", node_dtype,
          "\") is neither empty, the network's, nor \"uint8\".");
    if (!node_dtype.empty()) parts.nodes.back().dtype = DType::uint8;
    if (const auto* function = std::get_if<std::shared_ptr<FunctionLayer>>(&kernel))
      parts.nodes.back().function = *function;
    else if (const auto* interpolation = std::get_if<std::pair<std::string, bool>>(&kernel))
      parts.nodes.back().interpolation = {
          .mode = interpolation->first == "nearest" ? Interpolation::Mode::nearest : Interpolation::Mode::bilinear,
          .align_corners = interpolation->second};
    else if (const auto* pooling = std::get_if<std::tuple<std::string, std::int64_t, std::int64_t>>(&kernel))
      parts.nodes.back().adaptive_pooling = {
          .is_max = std::get<0>(*pooling) == "max", .h = std::get<1>(*pooling), .w = std::get<2>(*pooling)};
    else
      parts.nodes.back().kernel = std::get<std::shared_ptr<Kernel>>(kernel);
  }
  parts.outputs = outputs;
  parts.threads = threads;
  parts.dtype = dtype_from(dtype, "dtype", DType::float32);
  check<TypeError>(parts.dtype == DType::float32 || parts.dtype == DType::float16, "Network: dtype (",
                   name_of(parts.dtype), ") is not float32 or float16.");
  const ReleaseGil release;
  return Network::make(device_or_default(device), std::move(parts));
}

std::vector<ImageShape> shapes_from(const std::vector<std::array<std::int64_t, 4>>& given) {
  std::vector<ImageShape> shapes;
  for (const auto& s : given) shapes.push_back({s[0], s[1], s[2], s[3]});
  return shapes;
}

/// A pending call and the Python objects that it returns.
struct Pending {
  std::shared_ptr<NetworkCall> call;
  py::list results;
};

std::string input_name(const Network& network, std::size_t i) { return network.parts().inputs[i].name; }

Pending prepare(const std::shared_ptr<Network>& network, const py::sequence& arrays, const py::object& outs,
                const Names& input_layouts, const Names& output_layouts,
                const std::vector<std::optional<Extents>>& output_shapes) {
  const auto& parts = network->parts();
  check<TypeError>(arrays.size() == parts.inputs.size(), "the number of arrays (", arrays.size(), ") is not ",
                   parts.inputs.size(), ".");
  const Device* device = network->device().get();
  std::vector<ArrayView> inputs;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto name = input_name(*network, i);
    inputs.push_back(to_nhwc(pixels_of(arrays[i], name.c_str(), device), BoundaryLayout(input_layouts.at(i)), name));
  }
  std::vector<BoundaryLayout> layouts;
  for (const auto& layout : output_layouts) layouts.emplace_back(layout);
  Pending pending;
  {
    const ReleaseGil release;
    pending.call = std::make_shared<NetworkCall>(network, inputs);
  }
  const auto& shapes = pending.call->result_shapes();
  std::vector<ArrayView> results;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto extents = layouts[i].extents(shapes[i]);
    const auto wanted = output_shapes[i] ? batch_of(shapes[i].n, *output_shapes[i]) : extents;
    py::object given = outs.is_none() ? py::none() : py::object(py::sequence(outs)[i]);
    const auto name = shapes.size() == 1 ? std::string("out") : say("out[", i, "]");
    ArrayView view;
    if (given.is_none() && has_device_array(inputs)) {
      const auto flat = output_shapes[i] ? std::optional(wanted) : std::nullopt;
      view = make_device_result(network->device(), shapes[i], parts.dtype, layouts[i], flat);
      given = object_from(view, network->device());
    } else {
      if (given.is_none()) given = empty_array(wanted, parts.dtype);
      view = writable_pixels_of(given, name.c_str(), device);
    }
    check(view.shape == wanted, name, ".shape ", as_tuple(view.shape), " is not the result's ", as_tuple(wanted), ".");
    if (output_shapes[i]) {
      check<BufferError>(view.is_contiguous(), name, " is not C-contiguous, which a flattened result has to be.");
      view.shape = extents;
      view.strides = contiguous_strides(extents, view.dtype);
    }
    results.push_back(to_nhwc(view, layouts[i], name));
    for (std::size_t j = 0; j < inputs.size(); ++j)
      check(!overlap(inputs[j], results.back()), name, " may share memory with \"", input_name(*network, j), "\".");
    for (std::size_t j = 0; j < i; ++j)
      check(!overlap(results[j], results.back()), name, " may share memory with out[", j, "].");
    pending.results.append(given);
  }
  pending.call->set_results(std::move(results));
  return pending;
}

using Shapes4 = std::vector<std::array<std::int64_t, 4>>;

py::list run_network(const std::shared_ptr<Network>& network, const py::sequence& arrays, const py::object& outs,
                     const Names& input_layouts, const Names& output_layouts,
                     const std::vector<std::optional<Extents>>& output_shapes) {
  auto pending = prepare(network, arrays, outs, input_layouts, output_layouts, output_shapes);
  {
    const ReleaseGil release;
    pending.call->run();
  }
  return pending.results;
}

std::shared_ptr<Pending> submit(const std::shared_ptr<Network>& network, const py::sequence& arrays,
                                const py::object& outs, const Names& input_layouts, const Names& output_layouts,
                                const std::vector<std::optional<Extents>>& output_shapes, const py::object& handler) {
  auto pending =
      std::make_shared<Pending>(prepare(network, arrays, outs, input_layouts, output_layouts, output_shapes));
  const auto done = completed_handler(handler);
  const ReleaseGil release;
  pending->call->commit(done);
  return pending;
}

std::vector<std::shared_ptr<Image>> encode_network(Network& network, const Arg<CommandBuffer, "command_buffer">& buffer,
                                                   const std::vector<std::shared_ptr<Image>>& inputs,
                                                   std::vector<std::shared_ptr<Image>> outputs) {
  check<TypeError>(inputs.size() == network.parts().inputs.size(), "the number of images (", inputs.size(), ") is not ",
                   network.parts().inputs.size(), ".");
  outputs.resize(std::max(outputs.size(), network.parts().outputs.size()));
  const ReleaseGil release;
  network.encode(*buffer, inputs, outputs);
  return outputs;
}

/// Return the encodes, in order.
py::list steps_of(const Network& network, const Shapes4& inputs) {
  py::list list;
  for (const auto& step : network.steps(shapes_from(inputs))) {
    py::list ranges;
    for (std::size_t i = 0; i < step.sources.size(); ++i)
      ranges.append(py::make_tuple(step.placement.sources[i].first, step.placement.sources[i].count));
    list.append(py::dict("node"_a = step.name, "kernel"_a = step.kernel, "sources"_a = step.sources,
                         "destination"_a = step.destination, "source_channels"_a = ranges,
                         "destination_channel"_a = step.placement.destination));
  }
  return list;
}

/// Return sources and destinations of the encodes; temporary unless an input or output.
py::list images_of(const Network& network, const Shapes4& inputs) {
  const auto number = [](std::int64_t value) { return value < 0 ? std::nullopt : std::optional(value); };
  py::list list;
  for (const auto& image : network.images(shapes_from(inputs)))
    list.append(py::dict("shape"_a = tuple_of(image.shape), "dtype"_a = std::string(name_of(image.dtype)),
                         "reads"_a = image.reads, "input"_a = number(image.input), "output"_a = number(image.output)));
  return list;
}

}  // namespace

void bind_network(py::module_& module) {
  py::class_<Pending, std::shared_ptr<Pending>>(module, "_NetworkCall")
      .def("wait",
           [](Pending& pending) {
             {
               const ReleaseGil release;
               pending.call->wait();
             }
             return pending.results;
           })
      .def_property_readonly("is_done", [](Pending& pending) { return pending.call->is_done(); });

  py::class_<Network, std::shared_ptr<Network>>(module, "_Network")
      .def(py::init(&make_network))
      .def("call", &run_network)
      .def("submit", &submit)
      .def("encode", &encode_network)
      .def("shapes",
           [](const Network& network, const Shapes4& inputs) {
             const auto given = shapes_from(inputs);
             std::vector<Int4> shapes;
             for (const auto& shape : network.shapes(given)) shapes.push_back(tuple_of(shape));
             return shapes;
           })
      .def("steps", &steps_of)
      .def("images", &images_of)
      .def("chunk_images",
           [](const Network& network, const Shapes4& inputs) {
             return Network::chunk_images(*network.plan(shapes_from(inputs)));
           })
      .def_property_readonly("plans", &Network::plans)
      .def_property_readonly("device", &Network::device);
}

}  // namespace mpscnn::bindings
