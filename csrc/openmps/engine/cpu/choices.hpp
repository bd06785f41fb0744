// SPDX-License-Identifier: Apache-2.0
// Choices between implementations by their times on this machine. While a network is tuned, the lists of convolutions
// time what accepts a call; later calls of the same shape, also of later processes, run what was fastest. Without
// choices, a call costs a load and a branch.
//
// A network is tuned in passes: calls of the network, with one implementation for each shape. What a pass leaves in the
// caches is part of the times, so each pass runs twice, and the second is timed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace openmps::cpu {

/// 128 bits of what a call's time depends on: extents and strides, formats, window, number of threads; no addresses.
/// Calls with equal digests by chance run an implementation that accepts them.
struct Digest {
  std::uint64_t first = 0x9e3779b97f4a7c15u, second = 0xc2b2ae3d27d4eb4fu;

  void add(std::int64_t value) {
    first = (first ^ static_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccdu;
    first ^= first >> 32;
    second = (second + static_cast<std::uint64_t>(value)) * 0xc4ceb9fe1a85ec53u;
    second ^= second >> 29;
  }
  void add(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) add(value);
  }
  auto operator<=>(const Digest&) const = default;
};

namespace choices {

enum class State : std::uint8_t { unread, none, some, timing };
extern std::atomic<State> state;

/// Read the choices of earlier processes if that has not happened yet.
State read();

/// Return whether calls are to be looked up, or to be timed.
inline bool are_asked() {
  const State now = state.load(std::memory_order_acquire);
  if (now == State::none) [[likely]]
    return false;
  return now != State::unread || read() != State::none;
}
/// Return whether a network is being tuned.
inline bool are_timed() { return state.load(std::memory_order_acquire) == State::timing; }

/// Return the name of the implementation that was chosen for the call, null for the one that the list chooses.
const char* find(const Digest& call);

/// Return whether the call has been added to those that are timed.
bool is_known(const Digest& call);
/// Add a call of the list `entry`: the implementations that accept it. The first is the one that the list chooses.
void add(const Digest& call, const char* entry, std::string description, const std::vector<const char*>& accepting);
/// Add a group of calls, which the list solves by `together`, or one after the other by `apart`: the time of `apart` is
/// the sum of the least times of the calls `parts`.
void add_group(const Digest& group, const char* entry, std::string description, const char* together, const char* apart,
               std::span<const Digest> parts);
/// Return the implementation of this pass; null if the call is not timed.
const char* current(const Digest& call);
/// Record that the implementation took so many seconds for a call, if the pass is timed.
void record(const Digest& call, const char* implementation, double seconds);

/// Seconds of a monotonic clock.
double now();

enum class Pass : std::uint8_t {
  mixed,      ///< for each call its list's own choice or, as often, another implementation
  timed,      ///< the same again, timed
  unchanged,  ///< the lists' own choices
  fastest
};
/// Whether times become choices. This process uses them at once, later ones if the disk cache can be written to.
enum class Outcome : std::uint8_t {
  nothing,
  fastest,   ///< keep the fastest implementations as choices
  unchanged  ///< keep the lists' own choices, in place of former ones
};

/// Begin to tune, with a pass of the lists' own choices. Return null, or why not.
const char* start();
/// Begin a pass. Return the number of calls that it computes by others than the lists' own choices.
int begin(Pass pass);
/// Return the number of times that the least-timed implementation has been timed; INT_MAX without calls.
int rounds();
/// Finish. Return a line for each call: list, description, the list's own choice, the new one, and name=median of
/// seconds for each implementation, separated by tabs; first, "file" and the folder of the file, "" if none is written.
std::string stop(Outcome outcome);

/// Return how many choices are in use.
std::size_t count();

}  // namespace choices
}  // namespace openmps::cpu
