// SPDX-License-Identifier: Apache-2.0
// Names of activation functions, defined only here.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <mpscnn/table.hpp>

namespace mpscnn {

// In the order of MPSCNNNeuronType [MPSCNNNeuronType.h]. The first name of a type is the one that is printed: Apple's,
// with underscores. The others are PyTorch's, where they differ. a, b, c are PyTorch's where PyTorch has the function,
// else those of the simplest case: y = x, or base e.
inline constexpr NeuronName kNeuronNames[] = {
    {.name = "none", .type = 0},
    {.name = "identity", .type = 0},
    {.name = "relu", .type = 1, .parameters = 1},
    {.name = "leaky_relu", .type = 1, .parameters = 1, .a = 0.01f},
    {.name = "linear", .type = 2, .parameters = 2, .a = 1},
    {.name = "sigmoid", .type = 3},
    {.name = "hard_sigmoid", .type = 4, .parameters = 2, .a = 1.0f / 6, .b = 0.5f},
    {.name = "hardsigmoid", .type = 4, .parameters = 2, .a = 1.0f / 6, .b = 0.5f},
    {.name = "tanh", .type = 5, .parameters = 2, .a = 1, .b = 1},
    {.name = "absolute", .type = 6},
    {.name = "abs", .type = 6},
    {.name = "softplus", .type = 7, .parameters = 2, .a = 1, .b = 1},
    {.name = "softsign", .type = 8},
    {.name = "elu", .type = 9, .parameters = 1, .a = 1},
    {.name = "prelu", .type = 10},
    {.name = "relun", .type = 11, .parameters = 2, .b = 6},
    {.name = "relu6", .type = 11, .parameters = 2, .b = 6},
    {.name = "power", .type = 12, .parameters = 3, .a = 1, .c = 1},
    {.name = "exponential", .type = 13, .parameters = 3, .a = 1, .c = -1},
    {.name = "exp", .type = 13, .parameters = 3, .a = 1, .c = -1},
    {.name = "logarithm", .type = 14, .parameters = 3, .a = 1, .c = -1},
    {.name = "log", .type = 14, .parameters = 3, .a = 1, .c = -1},
    {.name = "gelu", .type = 15},
};

namespace table_checks {

/// Types are in order and without gaps; the names of a type are adjacent, and each name occurs once.
consteval bool neurons_in_order() {
  int type = -1;
  for (const auto& row : kNeuronNames) {
    if (row.type != type && row.type != ++type) return false;
    for (const auto& other : kNeuronNames)
      if (&other != &row && other.name == row.name) return false;
  }
  return type == 15;
}
static_assert(neurons_in_order(), "names of activation functions stand in the order of MPSCNNNeuronType, each once");

consteval std::size_t length_of_names() {
  std::size_t length = 0;
  for (const auto& row : kNeuronNames) length += row.name.size() + 1;
  return length - 1;
}

consteval auto joined_names() {
  std::array<char, length_of_names()> joined{};
  std::size_t at = 0;
  for (const auto& row : kNeuronNames) {
    if (at) joined[at++] = '|';
    for (const char letter : row.name) joined[at++] = letter;
  }
  return joined;
}

inline constexpr auto kJoined = joined_names();

}  // namespace table_checks

/// "none|identity|…", as `choices` of a parameter.
inline constexpr std::string_view kNeuronChoices{table_checks::kJoined.data(), table_checks::kJoined.size()};

}  // namespace mpscnn
