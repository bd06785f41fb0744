// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/env.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace openmps::env {
namespace {

struct Row {
  const char* name;
  const char* choices;  ///< comma-separated; "": checked where it is used, against names known there
  bool takes_several = false;
};

/// In the order of Variable.
constexpr std::array kRows = {
    Row{.name = "MPSCNN_CUDA_FALLBACK", .choices = "0,1"},
    Row{.name = "MPSCNN_CUDA_GRAPH", .choices = "0,1"},
    Row{.name = "MPSCNN_CUDA_PATH", .choices = ""},
    Row{.name = "MPSCNN_DEVICE", .choices = "openmps,apple"},
    Row{.name = "MPSCNN_ENGINE", .choices = ""},
    Row{.name = "MPSCNN_FUSE", .choices = "0,1"},
    Row{.name = "MPSCNN_IMPL", .choices = ""},
    Row{.name = "MPSCNN_METAL_COMPILER", .choices = ""},
    Row{.name = "MPSCNN_TRACE", .choices = "dispatch,steps", .takes_several = true},
    Row{.name = "MPSCNN_TUNED", .choices = "0,1"},
    Row{.name = "MPSCNN_WINOGRAD", .choices = "0,1"},
};

/// Remove the first word of a comma-separated list and return it.
std::string_view next_word(std::string_view& list) {
  const std::size_t end = list.find(',');
  const std::string_view word = list.substr(0, end);
  list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  return word;
}

bool contains(std::string_view list, std::string_view word) {
  while (!list.empty())
    if (next_word(list) == word) return true;
  return false;
}

}  // namespace

const char* name_of(Variable variable) { return kRows[static_cast<std::size_t>(variable)].name; }

const std::string& value_of(Variable variable) {
  static const auto* const values = [] {
    auto* const all = new std::array<std::string, kRows.size()>;
    for (std::size_t i = 0; i < kRows.size(); ++i)
      if (const char* const value = std::getenv(kRows[i].name)) (*all)[i] = value;
    return all;
  }();
  return (*values)[static_cast<std::size_t>(variable)];
}

bool has_word(Variable variable, std::string_view word) { return contains(value_of(variable), word); }

std::string failure() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const Row& row = kRows[i];
    const std::string& value = value_of(static_cast<Variable>(i));
    if (value.empty() || *row.choices == '\0') continue;
    std::string_view rest = value;
    do {
      const std::string_view word = row.takes_several ? next_word(rest) : std::exchange(rest, {});
      if (contains(row.choices, word)) continue;
      std::string choices;
      for (std::string_view left = row.choices; !left.empty();) {
        const std::string_view choice = next_word(left);
        if (!choices.empty()) choices += left.empty() ? " or " : ", ";
        choices += choice;
      }
      return std::string(row.name) + " (" + value + ") is not " + choices +
             (row.takes_several ? ", or some of these separated by commas." : ".");
    } while (!rest.empty());
  }
  return {};
}

}  // namespace openmps::env
