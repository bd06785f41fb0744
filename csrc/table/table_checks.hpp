// SPDX-License-Identifier: Apache-2.0
// Compile-time checks of the kernel table.
#pragma once

#include <span>

#include <mpscnn/table.hpp>

namespace mpscnn::table_checks {

consteval bool sorted_and_unique(std::span<const KernelRow> rows) {
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (!(rows[i - 1].name < rows[i].name)) return false;
  return true;
}

/// Apple's name is the Python name with the prefix MPS, MPSCNN or MPSNN.
consteval bool named_after_apple(std::span<const KernelRow> rows) {
  for (const auto& row : rows)
    if (!row.apple_class.starts_with("MPS") || !row.apple_class.ends_with(row.name)) return false;
  return true;
}

consteval bool documented(std::span<const KernelRow> rows) {
  for (const auto& row : rows) {
    if (row.summary.empty() || row.formula.empty() || row.source.empty() || row.macos.empty()) return false;
    for (const auto* param : row.params)
      if (param->name.empty() || param->summary.empty() || param->apple.empty()) return false;
  }
  return true;
}

/// The names of the sources differ from each other and from those of the row's parameters.
consteval bool sources_named(std::span<const KernelRow> rows) {
  for (const auto& row : rows) {
    if (row.sources.first.empty() || row.sources.first == row.sources.second) return false;
    for (const auto* param : row.params)
      if (param->name == row.sources.first || param->name == row.sources.second) return false;
  }
  return true;
}

/// Required parameters come first and can be given by position.
consteval bool required_first(std::span<const KernelRow> rows) {
  for (const auto& row : rows) {
    int index = 0;
    bool optional = false;
    for (const auto* param : row.params) {
      if (!param->fallback.empty())
        optional = true;
      else if (optional || index >= row.positional)
        return false;
      ++index;
    }
  }
  return true;
}

}  // namespace mpscnn::table_checks
