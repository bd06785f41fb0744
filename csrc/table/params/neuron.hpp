// SPDX-License-Identifier: Apache-2.0
// Neurons and their gradients [MPSCNNNeuron.h].
#pragma once

#include <mpscnn/table.hpp>

#include "../neurons.hpp"

namespace mpscnn::p {

inline constexpr ParamSpec neuron_type{.name = "type",
                                       .type = ParamType::text,
                                       .choices = kNeuronChoices,
                                       .apple = "neuronType",
                                       .summary = "Name of the function, in Apple's or PyTorch's spelling."};
inline constexpr ParamSpec neuron_a_named{.name = "a",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "a",
                                          .summary = "First parameter of the formula; None: the default of `type`."};
inline constexpr ParamSpec neuron_b_named{.name = "b",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "b",
                                          .summary = "Second parameter of the formula; None: the default of `type`."};
inline constexpr ParamSpec neuron_c_named{.name = "c",
                                          .type = ParamType::real,
                                          .fallback = "None",
                                          .apple = "c",
                                          .summary = "Third parameter of the formula; None: the default of `type`."};
inline constexpr ParamSpec neuron_a{.name = "a",
                                    .type = ParamType::real,
                                    .fallback = "0.0",
                                    .apple = "a",
                                    .summary = "First parameter of the formula."};
inline constexpr ParamSpec neuron_b{.name = "b",
                                    .type = ParamType::real,
                                    .fallback = "0.0",
                                    .apple = "b",
                                    .summary = "Second parameter of the formula."};
inline constexpr ParamSpec neuron_a_one{.name = "a",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "a",
                                        .summary = "First parameter of the formula."};
inline constexpr ParamSpec neuron_b_one{.name = "b",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "b",
                                        .summary = "Second parameter of the formula."};
inline constexpr ParamSpec neuron_c_one{.name = "c",
                                        .type = ParamType::real,
                                        .fallback = "1.0",
                                        .apple = "c",
                                        .summary = "Third parameter of the formula."};
inline constexpr ParamSpec neuron_c_natural{
    .name = "c", .type = ParamType::real, .fallback = "-1.0", .apple = "c", .summary = "Base; -1 means e."};
inline constexpr ParamSpec neuron_a_hard{
    .name = "a", .type = ParamType::real, .fallback = "0.2", .apple = "a", .summary = "Slope."};
inline constexpr ParamSpec neuron_b_hard{
    .name = "b", .type = ParamType::real, .fallback = "0.5", .apple = "b", .summary = "Value at 0."};
inline constexpr ParamSpec neuron_b_six{
    .name = "b", .type = ParamType::real, .fallback = "6.0", .apple = "b", .summary = "Maximum of the result."};
inline constexpr ParamSpec neuron_data{.name = "data",
                                       .type = ParamType::array,
                                       .fallback = "None",
                                       .apple = "data",
                                       .summary = "PReLU: slope for negative x, one float32 per channel."};
inline constexpr ParamSpec neuron_slopes{.name = "a",
                                         .type = ParamType::array,
                                         .apple = "initWithDevice:a:count:",
                                         .summary = "Slope for negative x, one float32 per channel."};
inline constexpr ParamSpec neuron_of_gradient{
    .name = "activation",
    .type = ParamType::activation,
    .apple = "initWithDevice:neuronDescriptor:",
    .summary = "Activation of the forward kernel: a name such as \"relu\", a NeuronDescriptor or a neuron kernel."};

}  // namespace mpscnn::p
