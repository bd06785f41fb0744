// SPDX-License-Identifier: Apache-2.0
// THE table: one row per kernel, sorted by name.
#include <algorithm>

#include <mpscnn/table.hpp>

#include "neurons.hpp"
#include "params.hpp"
#include "table_checks.hpp"

namespace mpscnn {
namespace {

template <const ParamSpec*... specs>
constexpr std::array<const ParamSpec*, sizeof...(specs)> list{specs...};

template <const ParamSpec*... specs>
constexpr std::span<const ParamSpec* const> params() {
  return list<specs...>;
}

constexpr KernelRow kRows[] = {
    {.name = "Convolution",
     .apple_class = "MPSCNNConvolution",
     .family = Family::convolution,
     .params = params<&p::weight, &p::bias, &p::layout_oihw, &p::stride, &p::padding, &p::dilation, &p::groups,
                      &p::activation, &p::sub_pixel_scale_factor, &p::ranges, &p::lookup_table, &p::kernel_dtype>(),
     .positional = 2,
     .shape = ShapeRule::window,
     .gradient = "MPSCNNConvolutionGradient",
     .summary =
         "Cross-correlates the source with a kernel per output channel, adds the bias and applies the activation.",
     .formula = "y[n,i,j,o] = f(b[o] + sum w[o,p,q,c] * x[n, i*sh + p*dh - ph, j*sw + q*dw - pw, g(o)*I/g + c])",
     .source = "MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolution",
     .macos = "10.13"},
    {.name = "ConvolutionTranspose",
     .apple_class = "MPSCNNConvolutionTranspose",
     .family = Family::convolution_transpose,
     .params = params<&p::weight, &p::bias, &p::layout_iohw, &p::stride, &p::padding_transpose, &p::output_padding,
                      &p::groups, &p::activation>(),
     .positional = 2,
     .shape = ShapeRule::transpose,
     .gradient = "MPSCNNConvolutionTransposeGradient",
     .summary = "Up-samples by spreading each source pixel over a window of the result: the transpose of a strided "
                "convolution.",
     .formula = "y[n,i,j,o] = f(b[o] + sum w[c,o,p,q] * x[n,y,x,c] over y*sh + p = i + ph, x*sw + q = j + pw)",
     .source = "MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionTranspose",
     .macos = "10.13"},
    {.name = "FullyConnected",
     .apple_class = "MPSCNNFullyConnected",
     .family = Family::fully_connected,
     .params = params<&p::weight, &p::bias, &p::layout_linear, &p::feature_map, &p::activation, &p::ranges,
                      &p::lookup_table, &p::kernel_dtype>(),
     .positional = 2,
     .shape = ShapeRule::fully_connected,
     .gradient = "MPSCNNFullyConnectedGradient",
     .summary = "A convolution whose kernel covers the whole source: one pixel of O channels.",
     .formula = "y[n,0,0,o] = f(b[o] + sum w[o,i,j,c] * x[n,i,j,c])",
     .source = "MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNFullyConnected",
     .macos = "10.13"},
    {.name = "Neuron",
     .apple_class = "MPSCNNNeuron",
     .variant = -1,
     .params = params<&p::neuron_type, &p::neuron_a_named, &p::neuron_b_named, &p::neuron_c_named, &p::neuron_data>(),
     .positional = 4,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Any activation function, chosen by `type`.",
     .formula = "y = f(x; a, b, c), f of `type`",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuron",
     .macos = "10.13"},
    {.name = "NeuronAbsolute",
     .apple_class = "MPSCNNNeuronAbsolute",
     .variant = 6,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Absolute value.",
     .formula = "y = abs(x)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronAbsolute",
     .macos = "10.13"},
    {.name = "NeuronELU",
     .apple_class = "MPSCNNNeuronELU",
     .variant = 9,
     .params = params<&p::neuron_a_one>(),
     .positional = 1,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Exponential linear unit.",
     .formula = "y = x if x >= 0 else a * (exp(x) - 1)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronELU",
     .macos = "10.13"},
    {.name = "NeuronExponential",
     .apple_class = "MPSCNNNeuronExponential",
     .variant = 13,
     .params = params<&p::neuron_a_one, &p::neuron_b, &p::neuron_c_natural>(),
     .positional = 3,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "A power of a constant.",
     .formula = "y = c ** (a * x + b), c = -1: exp(a * x + b)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronExponential",
     .macos = "10.13.4"},
    {.name = "NeuronHardSigmoid",
     .apple_class = "MPSCNNNeuronHardSigmoid",
     .variant = 4,
     .params = params<&p::neuron_a_hard, &p::neuron_b_hard>(),
     .positional = 2,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "A line between 0 and 1.",
     .formula = "y = min(max(a * x + b, 0), 1)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronHardSigmoid",
     .macos = "10.13"},
    {.name = "NeuronLinear",
     .apple_class = "MPSCNNNeuronLinear",
     .variant = 2,
     .params = params<&p::neuron_a_one, &p::neuron_b>(),
     .positional = 2,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "A line.",
     .formula = "y = a * x + b",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronLinear",
     .macos = "10.13"},
    {.name = "NeuronLogarithm",
     .apple_class = "MPSCNNNeuronLogarithm",
     .variant = 14,
     .params = params<&p::neuron_a_one, &p::neuron_b, &p::neuron_c_natural>(),
     .positional = 3,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Logarithm to base c.",
     .formula = "y = log(a * x + b) / log(c), c = -1: log(a * x + b)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronLogarithm",
     .macos = "10.13.4"},
    {.name = "NeuronPReLU",
     .apple_class = "MPSCNNNeuronPReLU",
     .variant = 10,
     .params = params<&p::neuron_slopes>(),
     .positional = 1,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Rectifier with a slope below zero for each channel.",
     .formula = "y = x if x >= 0 else a[channel] * x",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronPReLU",
     .macos = "10.13"},
    {.name = "NeuronPower",
     .apple_class = "MPSCNNNeuronPower",
     .variant = 12,
     .params = params<&p::neuron_a_one, &p::neuron_b, &p::neuron_c_one>(),
     .positional = 3,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "A power of a line.",
     .formula = "y = (a * x + b) ** c",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronPower",
     .macos = "10.13.4"},
    {.name = "NeuronReLU",
     .apple_class = "MPSCNNNeuronReLU",
     .variant = 1,
     .params = params<&p::neuron_a>(),
     .positional = 1,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Rectified linear unit, leaky with a != 0.",
     .formula = "y = x if x >= 0 else a * x",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronReLU",
     .macos = "10.13"},
    {.name = "NeuronReLUN",
     .apple_class = "MPSCNNNeuronReLUN",
     .variant = 11,
     .params = params<&p::neuron_a_one, &p::neuron_b_six>(),
     .positional = 2,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Rectified linear unit with a largest value; ReLU6 is a = 0, b = 6.",
     .formula = "y = min(x if x >= 0 else a * x, b)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronReLUN",
     .macos = "10.13"},
    {.name = "NeuronSigmoid",
     .apple_class = "MPSCNNNeuronSigmoid",
     .variant = 3,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Logistic function.",
     .formula = "y = 1 / (1 + exp(-x))",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronSigmoid",
     .macos = "10.13"},
    {.name = "NeuronSoftPlus",
     .apple_class = "MPSCNNNeuronSoftPlus",
     .variant = 7,
     .params = params<&p::neuron_a_one, &p::neuron_b_one>(),
     .positional = 2,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Smooth rectifier.",
     .formula = "y = a * log(1 + exp(b * x))",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronSoftPlus",
     .macos = "10.13"},
    {.name = "NeuronSoftSign",
     .apple_class = "MPSCNNNeuronSoftSign",
     .variant = 8,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Smooth sign.",
     .formula = "y = x / (1 + abs(x))",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronSoftSign",
     .macos = "10.13"},
    {.name = "NeuronTanH",
     .apple_class = "MPSCNNNeuronTanH",
     .variant = 5,
     .params = params<&p::neuron_a_one, &p::neuron_b_one>(),
     .positional = 2,
     .gradient = "MPSCNNNeuronGradient",
     .summary = "Scaled hyperbolic tangent.",
     .formula = "y = a * tanh(b * x)",
     .source = "MPSNeuralNetwork/MPSCNNNeuron.h, MPSCNNNeuronTanH",
     .macos = "10.13"},
};

static_assert(table_checks::sorted_and_unique(kRows), "rows are sorted by name, each name once");
static_assert(table_checks::named_after_apple(kRows), "a Python name is Apple's without the prefix");
static_assert(table_checks::documented(kRows), "every row and parameter has its sentences and source");
static_assert(table_checks::required_first(kRows), "required parameters come first, by position");

}  // namespace

std::span<const KernelRow> kernel_table() { return kRows; }

const KernelRow* find_kernel(std::string_view name) {
  const auto row =
      std::ranges::find_if(kRows, [name](const KernelRow& r) { return r.name == name || r.apple_class == name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::span<const NeuronName> neuron_names() { return kNeuronNames; }

const NeuronName* find_neuron(std::string_view name) {
  const auto row = std::ranges::find(kNeuronNames, name, &NeuronName::name);
  return row == std::end(kNeuronNames) ? nullptr : row;
}

const NeuronName& neuron_name(int type) { return *std::ranges::find(kNeuronNames, type, &NeuronName::type); }

std::span<const ParamSpec* const> common_params() {
  return params<&p::offset, &p::clip_rect, &p::edge_mode, &p::source_feature_channel_offset,
                &p::source_feature_channel_max_count, &p::destination_feature_channel_offset,
                &p::allow_reduced_precision, &p::label>();
}

}  // namespace mpscnn
