// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/implementations.hpp"

#include <cstdio>
#include <set>

#include "engine/shared/env.hpp"

namespace openmps {

std::vector<std::string>& implementation_names() {
  static auto* const names = new std::vector<std::string>;
  return *names;
}

const Dispatch& read_dispatch() {
  static const auto* const settings = [] {
    const std::string& only = env::value_of(env::Variable::impl);
    const std::set<std::string> known(implementation_names().begin(), implementation_names().end());
    if (!only.empty() && !known.contains(only)) {
      std::string list;
      for (const auto& one : known) list += (list.empty() ? "" : ", ") + one;
      throw std::runtime_error(std::string(env::name_of(env::Variable::impl)) + " (" + only +
                               ") names no implementation (" + list + ").");
    }
    const bool traces = env::has_word(env::Variable::trace, "dispatch");
    return new Dispatch{only, traces, only.empty() && !traces};
  }();
  return *settings;
}

void trace_dispatch(const char* entry, const char* implementation, const char* why_not) {
  if (!dispatch().traces) return;
  if (why_not) {
    std::fprintf(stderr, "mpscnn dispatch: %s: %s declines: %s\n", entry, implementation, why_not);
  } else {
    std::fprintf(stderr, "mpscnn dispatch: %s: %s\n", entry, implementation);
  }
}

}  // namespace openmps
