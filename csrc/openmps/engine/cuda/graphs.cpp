// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/graphs.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {
namespace {

// Batches of a stream use up to four inputs, four results and three blocks of temporary images in any combination.
constexpr std::size_t kMaxGraphs = 48, kMaxSeen = 192;

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

ListGraph::ListGraph(Work& work, GraphExec executable)
    : driver_(work.gpu().driver()), executable_(executable), scratch_(work.scratch_block()) {}

ListGraph::~ListGraph() { driver_.destroy_executable(executable_); }

void ListGraph::launch(Work& work) const {
  driver_.check(driver_.launch_graph(executable_, work.stream()), "cuGraphLaunch");
}

std::unique_ptr<ListGraph> record(Work& work, const std::function<bool()>& body) {
  const Driver& driver = work.gpu().current();
  driver.check(driver.begin_capture(work.stream(), kRelaxedCapture), "cuStreamBeginCapture");
  work.set_recording(true);
  bool is_complete = false;
  try {
    is_complete = body();
  } catch (...) {  // the list runs without a graph, and fails with a name
  }
  work.set_recording(false);
  Graph graph = nullptr;
  is_complete = driver.end_capture(work.stream(), &graph) == kSuccess && is_complete;
  GraphExec executable = nullptr;
  is_complete = is_complete && driver.instantiate(&executable, graph, 0) == kSuccess;
  if (graph) driver.destroy_graph(graph);
  return is_complete ? std::make_unique<ListGraph>(work, executable) : nullptr;
}

bool Graphs::launch(const Fingerprint& fingerprint) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Entry& entry) { return entry.text == fingerprint.text(); });
  if (found == graphs_.end()) return false;
  if (std::any_of(found->referred.begin(), found->referred.end(), [](const auto& each) { return each.expired(); })) {
    work_.synchronize();
    graphs_.erase(found);
    return false;
  }
  graphs_.splice(graphs_.begin(), graphs_, found);
  found->graph->launch(work_);
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

void Graphs::add(const Fingerprint& fingerprint, std::unique_ptr<ListGraph> graph) {
  if (graphs_.size() == kMaxGraphs) {
    work_.synchronize();
    graphs_.pop_back();
  }
  graphs_.push_front({fingerprint.text(), fingerprint.referred(), std::move(graph)});
}

}  // namespace openmps::cuda
