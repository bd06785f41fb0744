// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/graphs.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>
#include <utility>

#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/work.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {
namespace {

// Batches of a stream use up to four inputs, four results and three blocks of temporary images in any combination.
constexpr std::size_t kMaxGraphs = 48, kMaxSeen = 192, kMaxReruns = 8;
constexpr std::uint64_t kRunsBefore = 3;  // of one structure, without a graph

template <class T>
constexpr bool is_shared = false;
template <class T>
constexpr bool is_shared<std::shared_ptr<T>> = true;

using Nodes = std::vector<GraphNode>;

/// Return the nodes that a function of the driver finds; none if it fails.
template <class Get, class Of>
Nodes nodes_of(const Get& get, Of of) {
  std::size_t count = 0;
  if (get(of, nullptr, &count) != kSuccess) return {};
  Nodes nodes(count);
  if (get(of, nodes.data(), &count) != kSuccess) return {};
  return nodes;
}

/// Replace fills of few bytes with zeros, which libraries enqueue before their kernels, by kernels of ours: on an H200,
/// the GPU is idle for 5 us around a fill, and for 2 us around such a kernel.
void replace_fills(Work& work, Graph graph) {
  constexpr std::size_t kMaxWords = 256;
  const Driver& driver = work.gpu().driver();
  if (!driver.get_node_kind || !driver.get_fill_params || !driver.get_nodes_before || !driver.get_nodes_after ||
      !driver.add_kernel_node || !driver.add_edges || !driver.destroy_node)
    return;
  for (const GraphNode node : nodes_of(driver.get_nodes, graph)) {
    int kind = 0;
    FillNodeParams fill{};
    if (driver.get_node_kind(node, &kind) != kSuccess || kind != kFillNode) continue;
    if (driver.get_fill_params(node, &fill) != kSuccess || fill.value != 0 || fill.height != 1) continue;
    const std::size_t bytes = fill.width * fill.element_bytes;
    if (bytes == 0 || bytes % 4 || fill.to % 4 || bytes > 4 * kMaxWords) continue;
    const Nodes before = nodes_of(driver.get_nodes_before, node), after = nodes_of(driver.get_nodes_after, node);
    if (before.empty() || after.empty()) continue;
    layout::ZeroWordsArgs args{{fill.to}};
    auto count = static_cast<i64>(bytes / 4);
    void* arguments[] = {&args, &count};
    const KernelNodeParams params{work.gpu().function(layout::kFile, layout::zero_words.name, ""),
                                  1,
                                  1,
                                  1,
                                  kThreads,
                                  1,
                                  1,
                                  0,
                                  arguments,
                                  nullptr};
    GraphNode kernel = nullptr;
    if (driver.add_kernel_node(&kernel, graph, before.data(), before.size(), &params) != kSuccess) continue;
    const Nodes from(after.size(), kernel);
    if (driver.add_edges(graph, from.data(), after.data(), after.size()) == kSuccess) driver.destroy_node(node);
  }
}

/// Return the work that `body` enqueues; null if it throws or returns false.
Graph capture(Work& work, const std::function<bool()>& body) {
  const Driver& driver = work.gpu().current();
  work.take_varying();  // of a recording that failed
  driver.check(driver.begin_capture(work.stream(), kRelaxedCapture), "cuStreamBeginCapture");
  work.set_recording(true);
  bool is_complete = false;
  try {
    is_complete = body();
  } catch (...) {  // the list runs without a graph, and fails with a name
  }
  work.set_recording(false);
  Graph graph = nullptr;
  if (driver.end_capture(work.stream(), &graph) == kSuccess && is_complete) {
    replace_fills(work, graph);
    return graph;
  }
  if (graph) driver.destroy_graph(graph);
  return nullptr;
}

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
    for (const i64 extent : {value.n, value.h, value.w, value.c})
      structure_.append(reinterpret_cast<const char*>(&extent), sizeof extent);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const ConvWeights>>) {
    if (!value) return bytes(nullptr);
    const auto forms = GpuWeights::of(work.gpu(), *value).forms();
    bytes(forms.get());
    GpuWeights::describe(*forms, loads_weights_, text_);
    for (const i64 extent : {value->out_channels, value->kernel_h, value->kernel_w, value->in_channels_per_group,
                             value->groups, static_cast<i64>(value->bias.size())})
      bytes(extent);
    referred_.emplace_back(forms);
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
  for (std::string* const each : {&text_, &structure_}) each->append(reinterpret_cast<const char*>(&kind), sizeof kind);
  const auto number = [&](const auto& value) { numbers_.append(reinterpret_cast<const char*>(&value), sizeof value); };
  std::visit(
      [&](const auto& each) {
        using P = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<P, OptimizeProblem>) {
          for_each_field(each, [&](const auto& field, const auto& member) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(member)>>)
              if (field.role == FieldRole::value) return number(member);
            put(member, work);
          });
        } else if constexpr (std::is_same_v<P, DropoutProblem>) {
          DropoutProblem rest = each;
          number(std::exchange(rest.mask.seed, 0));
          number(std::exchange(rest.mask.image, 0));
          put(rest, work);
        } else if constexpr (Described<P>) {
          put(each, work);
        }
      },
      problem);
}

bool varies(const Problem& problem) {
  return std::holds_alternative<OptimizeProblem>(problem) || std::holds_alternative<DropoutProblem>(problem);
}

ListGraph::ListGraph(Work& work, Graph graph, GraphExec executable)
    : driver_(work.gpu().driver()),
      graph_(graph),
      executable_(executable),
      varying_(work.take_varying()),
      blocks_(work.own_blocks()) {}

ListGraph::~ListGraph() {
  driver_.destroy_executable(executable_);
  driver_.destroy_graph(graph_);
}

void ListGraph::launch(Work& work) const {
  driver_.check(driver_.launch_graph(executable_, work.stream()), "cuGraphLaunch");
}

bool ListGraph::change(Work& work, const std::function<void()>& body) {
  work.start_change(executable_, varying_);
  bool is_complete = true;
  try {
    body();
  } catch (...) {  // the list runs without the graph, and fails with a name
    is_complete = false;
  }
  return work.end_change() && is_complete;
}

bool ListGraph::replace(Work& work, const std::function<bool()>& body) {
  const Graph graph = capture(work, body);
  if (!graph) return false;
  UpdateResult result{};
  const bool is_same = driver_.update_executable && driver_.update_executable(executable_, graph, &result) == kSuccess;
  driver_.destroy_graph(graph);
  work.take_varying();
  if (is_same) blocks_ = work.own_blocks();
  return is_same;
}

std::unique_ptr<ListGraph> record(Work& work, const std::function<bool()>& body) {
  const Driver& driver = work.gpu().current();
  const Graph graph = capture(work, body);
  if (!graph) return nullptr;
  GraphExec executable = nullptr;
  if (driver.instantiate(&executable, graph, 0) == kSuccess)
    return std::make_unique<ListGraph>(work, graph, executable);
  driver.destroy_graph(graph);
  return nullptr;
}

bool Graphs::launch(const Fingerprint& fingerprint, const std::function<void()>& solve_varying) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Entry& entry) { return entry.text == fingerprint.text(); });
  if (found == graphs_.end()) return false;
  const auto is_useless = [&] {
    if (std::any_of(found->referred.begin(), found->referred.end(), [](const auto& each) { return each.expired(); }))
      return true;
    if (found->numbers == fingerprint.numbers()) return false;
    found->numbers = fingerprint.numbers();
    return !found->graph->change(work_, solve_varying);
  };
  if (is_useless()) {
    work_.synchronize();
    graphs_.erase(found);
    return false;
  }
  graphs_.splice(graphs_.begin(), graphs_, found);
  found->graph->launch(work_);
  return true;
}

bool Graphs::should_record(const Fingerprint& fingerprint) {
  const std::size_t hash = std::hash<std::string>()(fingerprint.text());
  const auto found = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& each) { return each.hash == hash; });
  if (found == seen_.end())
    seen_.push_front({hash, 0});
  else
    seen_.splice(seen_.begin(), seen_, found);
  if (seen_.size() > kMaxSeen) seen_.pop_back();
  const std::uint64_t runs = ++seen_.front().runs;
  return runs > 1 && std::has_single_bit(runs);
}

void Graphs::add(const Fingerprint& fingerprint, std::unique_ptr<ListGraph> graph) {
  if (graphs_.size() == kMaxGraphs) {
    work_.synchronize();
    graphs_.pop_back();
  }
  const std::size_t hash = std::hash<std::string>()(fingerprint.text());
  std::erase_if(seen_, [&](const Seen& each) { return each.hash == hash; });
  graphs_.push_front({fingerprint.text(), fingerprint.numbers(), fingerprint.referred(), std::move(graph)});
}

bool Graphs::rerun(const Fingerprint& fingerprint, bool is_idle, const std::function<bool()>& body) {
  const std::size_t hash = std::hash<std::string>()(fingerprint.structure());
  const auto found = std::find_if(reruns_.begin(), reruns_.end(), [&](const Rerun& each) { return each.hash == hash; });
  if (found != reruns_.end()) {
    reruns_.splice(reruns_.begin(), reruns_, found);
  } else {
    if (reruns_.size() == kMaxReruns) {
      work_.synchronize();
      reruns_.pop_back();
    }
    reruns_.push_front({hash, 0, nullptr});
  }
  auto& [_, runs, graph] = reruns_.front();
  if (!graph) {
    if (++runs <= kRunsBefore || !std::has_single_bit(runs)) return false;
    graph = record(work_, body);
  } else if (is_idle) {
    return false;
  } else if (!graph->replace(work_, body)) {
    work_.synchronize();
    graph = nullptr, runs = 0;
  }
  if (graph) graph->launch(work_);
  return graph != nullptr;
}

}  // namespace openmps::cuda
