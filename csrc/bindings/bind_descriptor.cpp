// SPDX-License-Identifier: Apache-2.0
// Descriptors of kernels: activation, batch normalization, geometry of a convolution.
#include <mpscnn/data_source.hpp>

#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/table.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

std::vector<float> vector_of(const Floats& floats) { return {floats.data(), floats.data() + floats.size()}; }

Pair pair_from(py::handle value, const char* name) {
  const bool is_sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  const bool is_pair =
      is_sequence && py::len(value) == 2 && is_integer(value[py::int_(0)]) && is_integer(value[py::int_(1)]);
  check<TypeError>(is_integer(value) || is_pair, "ConvolutionDescriptor: ", name, " (",
                   py::repr(value).cast<std::string>(), ") is not an integer or a pair (height, width).");
  const auto extents = extents_from(value, name);
  return {extents.front(), extents.back()};
}

NeuronDescriptor make_neuron(const Str<"type">& type, const std::optional<Float<"a">>& a,
                             const std::optional<Float<"b">>& b, const std::optional<Float<"c">>& c,
                             const Floats& data) {
  const auto* row = find_neuron(type.value);
  check(row != nullptr, "NeuronDescriptor: type (\"", type.value, "\") is not one of ", neuron_choices(), ".");
  const auto given = [](const auto& value, float otherwise) {
    return value ? static_cast<float>(value->value) : otherwise;
  };
  check((type.value == "prelu") == (data.size() > 0), "NeuronDescriptor: data has ", data.size(), " values; type is \"",
        type.value, "\" and only \"prelu\" takes some.");
  return {
      .type = row->type, .a = given(a, row->a), .b = given(b, row->b), .c = given(c, row->c), .data = vector_of(data)};
}

/// Property of BatchNorm: a read-only view of its memory.
template <std::vector<float> BatchNorm::* kMember>
py::array values_of(const Arg<BatchNorm, "self">& norm) {
  return array_from((*norm).*kMember, norm.value, /*read_only=*/true);
}

}  // namespace

void bind_descriptor(py::module_& module) {
  py::class_<NeuronDescriptor, std::shared_ptr<NeuronDescriptor>>(module, "_NeuronDescriptor")
      .def(py::init(&make_neuron))
      .def_property_readonly("_type", [](const NeuronDescriptor& n) { return neuron_name(n.type).name; })
      .def_property_readonly("_parameters", [](const NeuronDescriptor& n) { return neuron_name(n.type).parameters; })
      .def_readonly("a", &NeuronDescriptor::a, "First parameter of the formula.")
      .def_readonly("b", &NeuronDescriptor::b, "Second parameter of the formula.")
      .def_readonly("c", &NeuronDescriptor::c, "Third parameter of the formula.")
      .def_readonly("data", &NeuronDescriptor::data, "PReLU's slopes, one per channel.");

  py::class_<BatchNorm, std::shared_ptr<BatchNorm>>(module, "_BatchNorm")
      .def(py::init(
          [](const Floats& mean, const Floats& variance, const Floats& gamma, const Floats& beta, double epsilon) {
            check(variance.size() == mean.size() && gamma.size() == mean.size() && beta.size() == mean.size(),
                  "BatchNorm: mean, variance, gamma and beta have ", mean.size(), ", ", variance.size(), ", ",
                  gamma.size(), " and ", beta.size(), " values, not the same number.");
            return BatchNorm{vector_of(mean), vector_of(variance), vector_of(gamma), vector_of(beta),
                             static_cast<float>(epsilon)};
          }))
      .def_property_readonly("mean", &values_of<&BatchNorm::mean>, "Shape (O,), float32, read-only.")
      .def_property_readonly("variance", &values_of<&BatchNorm::variance>, "Shape (O,), float32, read-only.")
      .def_property_readonly("gamma", &values_of<&BatchNorm::gamma>, "Shape (O,), float32, read-only.")
      .def_property_readonly("beta", &values_of<&BatchNorm::beta>, "Shape (O,), float32, read-only.")
      .def_readonly("epsilon", &BatchNorm::epsilon, "Added to the variance.");

  using D = ConvolutionDescriptor;
  py::class_<D, std::shared_ptr<D>>(module, "_ConvolutionDescriptor")
      .def(py::init([](const py::object& kernel_size, Int<"in_channels"> in_channels, Int<"out_channels"> out_channels,
                       const py::object& stride, const py::object& dilation, Int<"groups"> groups,
                       Bool<"depthwise"> depthwise, Int<"sub_pixel_scale_factor"> sub_pixel_scale_factor,
                       const py::object& activation, const OptionalArg<BatchNorm, "batch_norm">& batch_norm) {
        check(!batch_norm || static_cast<std::int64_t>(batch_norm.value->mean.size()) == out_channels,
              "ConvolutionDescriptor: batch_norm has ", batch_norm ? batch_norm.value->mean.size() : 0,
              " values; out_channels is ", out_channels.value, ".");
        D d{.kernel_size = pair_from(kernel_size, "kernel_size"),
            .in_channels = in_channels,
            .out_channels = out_channels,
            .stride = pair_from(stride, "stride"),
            .dilation = pair_from(dilation, "dilation"),
            .groups = groups,
            .depthwise = depthwise,
            .sub_pixel_scale_factor = sub_pixel_scale_factor};
        d.activation = neuron_from(activation);
        if (batch_norm) d.batch_norm = *batch_norm.value;
        return d;
      }))
      .def_property_readonly(
          "kernel_size", [](const D& d) { return tuple_of(d.kernel_size); }, "(height, width), pixels.")
      .def_readonly("in_channels", &D::in_channels, "Channels of the source, of all groups.")
      .def_readonly("out_channels", &D::out_channels, "Channels of the result, of all groups.")
      .def_property_readonly(
          "stride", [](const D& d) { return tuple_of(d.stride); }, "(height, width), pixels.")
      .def_property_readonly(
          "dilation", [](const D& d) { return tuple_of(d.dilation); }, "(height, width), pixels.")
      .def_readonly("groups", &D::groups, "Number of groups; 1 of a depth-wise convolution.")
      .def_readonly("depthwise", &D::depthwise, "Whether there is one filter per channel.")
      .def_readonly("sub_pixel_scale_factor", &D::sub_pixel_scale_factor,
                    "Side of the square that replaces each pixel, in pixels.")
      .def_property_readonly(
          "activation", [](const D& d) { return d.activation.type == 0 ? std::nullopt : std::optional(d.activation); },
          "Activation applied to the result.")
      .def_property_readonly(
          "batch_norm", [](const D& d) { return d.batch_norm; }, "Batch normalization folded into the weights.");
}

}  // namespace mpscnn::bindings
