// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/graphs.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {
namespace {

constexpr std::size_t kMaxGraphs = 8, kMaxSeen = 32;

template <class T>
constexpr bool is_shared = false;
template <class T>
constexpr bool is_shared<std::shared_ptr<T>> = true;

}  // namespace

template <class T>
void Fingerprint::put(const T& value, Work& work) {
  const auto bytes = [&](const auto& each) { text_.append(reinterpret_cast<const char*>(&each), sizeof each); };
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    bytes(value);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<Memory>>) {
    bytes(value ? work.address(*value) : Address{0});
  } else if constexpr (std::is_same_v<T, ImageView>) {
    put(value.memory, work);
    if (!value.memory) bytes(value.h), bytes(value.w);
    bytes(value.offset), bytes(value.format), bytes(value.n), bytes(value.h), bytes(value.w), bytes(value.c);
    bytes(value.n_stride), bytes(value.h_stride), bytes(value.w_stride);
  } else if constexpr (is_shared<T>) {
    bytes(value.get());
    if (value) referred_.emplace_back(value);
  } else if constexpr (is_vector<T>) {
    bytes(value.size());
    for (const auto& each : value) put(each, work);
  } else {
    for_each_field(value, [&](const auto&, const auto& member) { put(member, work); });
  }
}

void Fingerprint::add(const Problem& problem, Work& work) {
  const std::size_t kind = problem.index();
  text_.append(reinterpret_cast<const char*>(&kind), sizeof kind);
  std::visit(
      [&](const auto& each) {
        if constexpr (Described<std::decay_t<decltype(each)>>) put(each, work);
      },
      problem);
}

Graphs::~Graphs() = default;  // graphs live as long as the process

void Graphs::drop(std::list<Entry>::iterator entry) {
  work_.gpu().driver().destroy_executable(entry->executable);
  graphs_.erase(entry);
}

bool Graphs::launch(const Fingerprint& fingerprint) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Entry& entry) { return entry.text == fingerprint.text(); });
  if (found == graphs_.end()) return false;
  if (std::any_of(found->referred.begin(), found->referred.end(), [](const auto& each) { return each.expired(); })) {
    work_.synchronize();
    drop(found);
    return false;
  }
  graphs_.splice(graphs_.begin(), graphs_, found);
  work_.gpu().driver().check(work_.gpu().driver().launch_graph(found->executable, work_.stream()), "cuGraphLaunch");
  return true;
}

bool Graphs::was_seen(const Fingerprint& fingerprint) {
  const std::size_t hash = std::hash<std::string>()(fingerprint.text());
  const auto found = std::find(seen_.begin(), seen_.end(), hash);
  const bool result = found != seen_.end();
  if (result) seen_.erase(found);
  seen_.push_front(hash);
  if (seen_.size() > kMaxSeen) seen_.pop_back();
  return result;
}

void Graphs::begin() {
  const Driver& driver = work_.gpu().current();
  driver.check(driver.begin_capture(work_.stream(), kRelaxedCapture), "cuStreamBeginCapture");
  work_.set_recording(true);
}

void Graphs::abandon() noexcept {
  work_.set_recording(false);
  Graph graph = nullptr;
  work_.gpu().driver().end_capture(work_.stream(), &graph);
  if (graph) work_.gpu().driver().destroy_graph(graph);
}

bool Graphs::end(const Fingerprint& fingerprint) {
  const Driver& driver = work_.gpu().driver();
  work_.set_recording(false);
  Graph graph = nullptr;
  if (driver.end_capture(work_.stream(), &graph) != kSuccess) return false;
  GraphExec executable = nullptr;
  const int status = driver.instantiate(&executable, graph, 0);
  driver.destroy_graph(graph);
  if (status != kSuccess) return false;
  if (graphs_.size() == kMaxGraphs) {
    work_.synchronize();
    drop(std::prev(graphs_.end()));
  }
  graphs_.push_front({fingerprint.text(), fingerprint.referred(), work_.scratch_block(), executable});
  driver.check(driver.launch_graph(executable, work_.stream()), "cuGraphLaunch");
  return true;
}

}  // namespace openmps::cuda
