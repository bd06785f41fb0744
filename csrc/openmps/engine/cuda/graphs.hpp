// SPDX-License-Identifier: Apache-2.0
// Graphs: lists of problems that were recorded once and are launched as one.
#pragma once

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

/// The graphs of a thread's stream: the last 8, and fingerprints of the last lists that have none.
class Graphs {
 public:
  explicit Graphs(Work& work) : work_(work) {}
  ~Graphs();

  /// Launch the graph of that fingerprint, if there is one.
  bool launch(const Fingerprint& fingerprint);
  /// Return whether a list of that fingerprint has run before, and remember it.
  bool was_seen(const Fingerprint& fingerprint);
  /// Record calls from now on, until end() or abandon().
  void begin();
  /// Launch what was recorded, and keep it. Return false and do nothing if the driver cannot make a graph of it.
  bool end(const Fingerprint& fingerprint);
  void abandon() noexcept;
  std::size_t count() const { return graphs_.size(); }

 private:
  struct Entry {
    std::string text;
    std::vector<std::weak_ptr<const void>> referred;
    std::shared_ptr<GpuBlock> scratch;
    GraphExec executable;
  };
  void drop(std::list<Entry>::iterator entry);

  Work& work_;
  std::list<Entry> graphs_;      ///< the last used first
  std::list<std::size_t> seen_;  ///< hashes, the last first
};

}  // namespace openmps::cuda
