// SPDX-License-Identifier: Apache-2.0
// Ordered lists of implementations: each states its condition and may decline; the last takes everything.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string_view>

#include "engine/cpu/runtime.hpp"

namespace openmps::cpu {

template <class Call>
struct Implementation {
  const char* name;
  const char* (*run)(const Call&);  ///< null when the work is done, otherwise why it was not
};

/// Make the names of a list known to only_implementation(). Each list has one.
struct ImplementationNames {
  template <class Call, std::size_t N>
  explicit ImplementationNames(const Implementation<Call> (&list)[N]) {
    for (const auto& implementation : list) implementation_names().emplace_back(implementation.name);
  }
};

/// Run the first that does not decline. MPSCNN_IMPL leaves only the one of that name, and the last.
template <class Call, std::size_t N>
void run_first(const char* entry, const Implementation<Call> (&list)[N], const Call& call) {
  const std::string_view only = only_implementation();
  for (const auto& implementation : list) {
    const bool is_left = only.empty() || only == implementation.name || &implementation == &list[N - 1];
    const char* why_not = is_left ? implementation.run(call) : "MPSCNN_IMPL names another";
    trace_dispatch(entry, implementation.name, why_not);
    if (!why_not) return;
  }
  throw std::runtime_error("no implementation accepted the problem.");
}

}  // namespace openmps::cpu
