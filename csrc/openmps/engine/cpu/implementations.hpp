// SPDX-License-Identifier: Apache-2.0
// Ordered lists of implementations: each checks its conditions and may decline; the last one accepts everything.
#pragma once

#include <cstddef>
#include <stdexcept>

#include "engine/cpu/runtime.hpp"

namespace openmps::cpu {

template <class Call>
struct Implementation {
  const char* name;
  const char* (*run)(const Call&);  ///< return null when done, otherwise the reason for declining
};

/// Registers the names of a list for dispatch(). Each list has one.
struct ImplementationNames {
  template <class Call, std::size_t N>
  explicit ImplementationNames(const Implementation<Call> (&list)[N]) {
    for (const auto& implementation : list) implementation_names().emplace_back(implementation.name);
  }
};

/// Run the first implementation that does not decline. MPSCNN_IMPL restricts a list to the one it names, and the last.
template <class Call, std::size_t N>
void run_first(const char* entry, const Implementation<Call> (&list)[N], const Call& call) {
  const Dispatch& settings = dispatch();
  for (const auto& implementation : list) {
    if (settings.is_plain) [[likely]] {
      if (!implementation.run(call)) return;
      continue;
    }
    const bool is_left =
        settings.only.empty() || settings.only == implementation.name || &implementation == &list[N - 1];
    const char* why_not = is_left ? implementation.run(call) : "MPSCNN_IMPL names another";
    trace_dispatch(entry, implementation.name, why_not);
    if (!why_not) return;
  }
  throw std::runtime_error("no implementation accepted the problem.");
}

}  // namespace openmps::cpu
