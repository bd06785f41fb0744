// SPDX-License-Identifier: Apache-2.0
// Ordered lists of implementations, whose first one that accepts a problem solves it; their names, and the dispatch
// trace.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace openmps {

/// Return the names of the implementations in all lists, registered when the library is loaded.
std::vector<std::string>& implementation_names();

/// Settings of MPSCNN_IMPL and MPSCNN_TRACE for lists of implementations.
struct Dispatch {
  std::string only;      ///< the only implementation that a list may use besides its last one; empty: all. With
                         ///< "/kernel" behind it, only with this kernel
  bool traces = false;   ///< print which implementations are tried, and why they decline
  bool is_plain = true;  ///< neither is set

  /// Return whether a list may use an implementation that is not its last one.
  bool allows(const std::string& name) const { return only.empty() || only.substr(0, only.find('/')) == name; }
};

/// Return the settings from the environment; throws if no list has the implementation that MPSCNN_IMPL names.
const Dispatch& read_dispatch();
/// Return the settings, read once per process.
inline const Dispatch& dispatch() {
  static const Dispatch& settings = read_dispatch();
  return settings;
}

/// Return whether MPSCNN_IMPL names an implementation, so that it computes what it would leave to others.
inline bool is_forced(std::string_view name) { return dispatch().only == name; }

/// If dispatch is traced, print one line to stderr: the implementation that was tried, and why it declined (null: it
/// did not).
void trace_dispatch(const char* entry, const char* implementation, const char* why_not);

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

/// Run the first implementation that does not decline, and return whether there is one. MPSCNN_IMPL restricts a list to
/// the one it names, and the last.
template <class Call, std::size_t N>
bool try_first(const char* entry, const Implementation<Call> (&list)[N], const Call& call) {
  const Dispatch& settings = dispatch();
  for (const auto& implementation : list) {
    if (settings.is_plain) [[likely]] {
      if (!implementation.run(call)) return true;
      continue;
    }
    const bool is_left = settings.allows(implementation.name) || &implementation == &list[N - 1];
    const char* why_not = is_left ? implementation.run(call) : "MPSCNN_IMPL names another";
    trace_dispatch(entry, implementation.name, why_not);
    if (!why_not) return true;
  }
  return false;
}

/// The same for lists whose last implementation accepts everything.
template <class Call, std::size_t N>
void run_first(const char* entry, const Implementation<Call> (&list)[N], const Call& call) {
  if (!try_first(entry, list, call)) throw std::runtime_error("no implementation accepted the problem.");
}

}  // namespace openmps
