// SPDX-License-Identifier: Apache-2.0
// Names of MPSCNNNeuronType [MPSCNNNeuronType.h]: the only place where they stand.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <mpscnn/table.hpp>

namespace mpscnn {

inline constexpr NeuronRow kNeurons[] = {
    {.name = "none"},
    {.name = "relu", .parameters = 1},
    {.name = "linear", .parameters = 2},
    {.name = "sigmoid"},
    {.name = "hard_sigmoid", .parameters = 2},
    {.name = "tanh", .parameters = 2},
    {.name = "absolute"},
    {.name = "softplus", .parameters = 2},
    {.name = "softsign"},
    {.name = "elu", .parameters = 1},
    {.name = "prelu"},
    {.name = "relun", .parameters = 2},
    {.name = "power", .parameters = 3},
    {.name = "exponential", .parameters = 3},
    {.name = "logarithm", .parameters = 3},
    {.name = "gelu"},
};

namespace table_checks {

consteval std::size_t length_of_names() {
  std::size_t length = 0;
  for (const auto& row : kNeurons) length += row.name.size() + 1;
  return length - 1;
}

consteval auto joined_names() {
  std::array<char, length_of_names()> joined{};
  std::size_t at = 0;
  for (const auto& row : kNeurons) {
    if (at) joined[at++] = '|';
    for (const char letter : row.name) joined[at++] = letter;
  }
  return joined;
}

inline constexpr auto kJoined = joined_names();

}  // namespace table_checks

/// "none|relu|…", as `choices` of a parameter.
inline constexpr std::string_view kNeuronChoices{table_checks::kJoined.data(), table_checks::kJoined.size()};

}  // namespace mpscnn
