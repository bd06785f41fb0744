// SPDX-License-Identifier: Apache-2.0
// Graphs: lists of problems that were recorded once and are launched as one.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/driver.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps::cuda {

class GpuBlock;
class Work;

/// The problems of a list, field by field, with addresses instead of memory: if two are equal, so is the work. Values
/// that the list refers to may not have been destroyed in between.
class Fingerprint {
 public:
  /// Add a problem. Throws UnreachableMemory.
  void add(const Problem& problem, Work& work);
  const std::string& text() const { return text_; }
  const std::vector<std::weak_ptr<const void>>& referred() const { return referred_; }

 private:
  template <class T>
  void put(const T& value, Work& work);

  std::string text_;
  std::vector<std::weak_ptr<const void>> referred_;
};

/// A recorded list. Keeps the scratch memory that it uses.
class ListGraph {
 public:
  ListGraph(Work& work, GraphExec executable);
  /// The graph may not be running.
  ~ListGraph();
  ListGraph(const ListGraph&) = delete;
  ListGraph& operator=(const ListGraph&) = delete;

  /// Enqueue it on the stream on which it was recorded.
  void launch(Work& work) const;

 private:
  const Driver& driver_;
  const GraphExec executable_;
  const std::shared_ptr<GpuBlock> scratch_;
};

/// Record the work that `body` enqueues, instead of running it. Return null if `body` throws or returns false, or if
/// the driver cannot make a graph of it.
std::unique_ptr<ListGraph> record(Work& work, const std::function<bool()>& body);

/// The graphs of a stream: the last 48, and fingerprints of the last lists that have none.
class Graphs {
 public:
  explicit Graphs(Work& work) : work_(work) {}

  /// Launch the graph of that fingerprint, if there is one.
  bool launch(const Fingerprint& fingerprint);
  /// Return whether a list of that fingerprint has run before, and remember it.
  bool was_seen(const Fingerprint& fingerprint);
  void add(const Fingerprint& fingerprint, std::unique_ptr<ListGraph> graph);
  std::size_t count() const { return graphs_.size(); }

 private:
  struct Entry {
    std::string text;
    std::vector<std::weak_ptr<const void>> referred;
    std::unique_ptr<ListGraph> graph;
  };

  Work& work_;
  std::list<Entry> graphs_;      ///< the last used first
  std::list<std::size_t> seen_;  ///< hashes, the last first
};

}  // namespace openmps::cuda
