// SPDX-License-Identifier: Apache-2.0
// Graphs: lists of problems that were recorded once and are launched as one.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/work.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps::cuda {

/// Whether a problem has numbers that a graph can be launched with again: those of an optimizer's step, and the seed of
/// a dropout. Its kernels are launched by Work::launch_varying().
bool varies(const Problem& problem);

/// The problems of a list, field by field, with addresses instead of memory: if two are equal, so is the work, but for
/// numbers that vary. Values that the list refers to may not have been destroyed in between.
class Fingerprint {
 public:
  /// `loads_weights`: the list has loads, whose work depends on the copies that there are of the weights.
  explicit Fingerprint(bool loads_weights) : loads_weights_(loads_weights) {}
  /// Add a problem. Throws UnreachableMemory.
  void add(const Problem& problem, Work& work);
  const std::string& text() const { return text_; }
  /// Return the kinds of the problems and the extents of their images.
  const std::string& structure() const { return structure_; }
  /// Return the numbers that vary.
  const std::string& numbers() const { return numbers_; }
  const std::vector<std::weak_ptr<const void>>& referred() const { return referred_; }

 private:
  template <class T>
  void put(const T& value, Work& work);

  const bool loads_weights_;
  std::string text_, structure_, numbers_;
  std::vector<std::weak_ptr<const void>> referred_;
};

/// A recorded list. Keeps the scratch memory and the counters that it uses.
class ListGraph {
 public:
  /// Owns the driver's graphs.
  ListGraph(Work& work, Graph graph, GraphExec executable);
  /// The graph may not be running.
  ~ListGraph();
  ListGraph(const ListGraph&) = delete;
  ListGraph& operator=(const ListGraph&) = delete;

  /// Enqueue it on the stream on which it was recorded.
  void launch(Work& work) const;
  /// Record other work in its place. Return false if `body` throws or returns false, or if it is not the same kernels
  /// with other arguments; the graph is as before then.
  bool replace(Work& work, const std::function<bool()>& body);
  /// Change the kernels that varying problems launch. `body` solves these problems again. Return false if that is not
  /// possible; the graph cannot be launched any more then.
  bool change(Work& work, const std::function<void()>& body);

 private:
  const Driver& driver_;
  const Graph graph_;  ///< its nodes name those of the executable one
  const GraphExec executable_;
  std::vector<VaryingLaunch> varying_;
  std::array<std::shared_ptr<const GpuBlock>, 2> blocks_;
};

/// Record the work that `body` enqueues, instead of running it. Return null if `body` throws or returns false, or if
/// the driver cannot make a graph of it.
std::unique_ptr<ListGraph> record(Work& work, const std::function<bool()>& body);

/// The graphs of a stream: the last 48, and fingerprints of the last lists that have none. Long lists whose addresses
/// are others at each run share a graph, which is recorded again before each launch: steps of training that are encoded
/// while others run use memory in many combinations. The host then enqueues as much as without a graph, but the GPU
/// does not wait between kernels.
class Graphs {
 public:
  explicit Graphs(Work& work) : work_(work) {}

  /// Launch the graph of that fingerprint, if there is one. `solve_varying` solves the list's problems that vary.
  bool launch(const Fingerprint& fingerprint, const std::function<void()>& solve_varying);
  /// Return whether to record a list of that fingerprint: on its second run and, if that fails, on the 4th, 8th, ...
  bool should_record(const Fingerprint& fingerprint);
  void add(const Fingerprint& fingerprint, std::unique_ptr<ListGraph> graph);
  /// Record a list into the graph of its structure and launch it, from the 4th list of that structure on that has no
  /// graph of its own, unless the stream `is_idle` and the graph exists. Return false if it still has to run.
  bool rerun(const Fingerprint& fingerprint, bool is_idle, const std::function<bool()>& body);
  std::size_t count() const { return graphs_.size(); }

 private:
  struct Entry {
    std::string text, numbers;
    std::vector<std::weak_ptr<const void>> referred;
    std::unique_ptr<ListGraph> graph;
  };

  struct Seen {
    std::size_t hash;
    std::uint64_t runs;  ///< without a graph
  };

  /// Lists of one structure.
  struct Rerun {
    std::size_t hash;
    std::uint64_t runs;  ///< without a graph
    std::unique_ptr<ListGraph> graph;
  };

  Work& work_;
  std::list<Entry> graphs_;  ///< the last used first
  std::list<Rerun> reruns_;  ///< the last first
  std::list<Seen> seen_;     ///< the last first
};

}  // namespace openmps::cuda
