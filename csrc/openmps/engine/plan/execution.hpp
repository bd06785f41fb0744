// SPDX-License-Identifier: Apache-2.0
// Execution: a list of commands that an engine runs.
#pragma once

#include <memory>
#include <vector>

#include "engine/failure.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

class Engine;
class Memory;
class Run;
struct ConvWeights;
struct Plan;

/// A list that runs many times. It is planned once. Runs of one list are in order: it belongs to one queue. Holds no
/// HostTask. Without operands it keeps the memory of its private blocks, so that all runs have the same addresses; with
/// operands it has that memory only while it runs.
class RepeatedList {
 public:
  using Operands = std::vector<std::shared_ptr<Memory>>;

  /// `operands`: blocks that other runs replace, for an engine that moves them. No two of them share bytes, and no
  /// command refers to a part of one by another block.
  explicit RepeatedList(std::vector<Command> commands, Engine* engine = nullptr, const Operands& operands = {});
  ~RepeatedList();
  RepeatedList(const RepeatedList&) = delete;
  RepeatedList& operator=(const RepeatedList&) = delete;

  std::size_t size() const;
  /// Return the commands with these operands.
  std::vector<Command> commands(const Operands& operands) const;
  /// Return whether start() returns without waiting, for any work or for a compiler.
  bool starts_at_once() const noexcept;

  /// Free the memory of all lists of the engine that do not run. Their next runs plan again. For engines that are out
  /// of memory.
  static void free_idle(const Engine& engine) noexcept;

 private:
  friend class Execution;
  std::vector<Command> commands_;
  Operands places_;  ///< what the commands have in place of the operands; set while they run
  struct Prepared;
  std::shared_ptr<Prepared> prepared_;
};

/// A reference of a list under way; see ConvWeights::Enqueued.
class HeldWeights {
 public:
  HeldWeights(std::shared_ptr<const ConvWeights> weights, const void* stream) noexcept;
  ~HeldWeights();
  HeldWeights(HeldWeights&&) noexcept = default;
  HeldWeights& operator=(HeldWeights&&) = delete;

 private:
  std::shared_ptr<const ConvWeights> weights_;
};

class Execution {
 public:
  Execution() noexcept;
  ~Execution();
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) noexcept;

  /// Start to run the list on the engine by `plan` or, if null, by plan_for(). `commands` must outlive the execution.
  /// `stream`: see Engine::start(). Never throws (called from code that cannot catch). MPSCNN_TRACE=steps prints the
  /// time of each step.
  static Execution start(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<void>& stream,
                         std::shared_ptr<const Plan> plan = nullptr) noexcept;
  static Execution start(Engine& engine, RepeatedList& list, const RepeatedList::Operands& operands,
                         std::shared_ptr<void>& stream) noexcept;

  /// Take the weights out of `commands`, which has been started on the stream, until it has run. Reloads may then use
  /// the memory of weights that no other list uses.
  void hold_weights(std::vector<Command>& commands, const void* stream) noexcept;
  /// Whether wait() returns at once.
  bool is_done() const noexcept { return !run_; }
  /// Wait until the engine has finished, and free the plan's memory. Return the first failure; commands after it do not
  /// run.
  Failure wait() noexcept;
  /// The run, for threads that wait for its end while another one calls wait(); null once done.
  const std::shared_ptr<Run>& run() const noexcept { return run_; }

 private:
  using Prepared = RepeatedList::Prepared;
  void start(Engine& engine, std::shared_ptr<void>& stream);

  std::shared_ptr<Prepared> prepared_;
  std::shared_ptr<Run> run_;  ///< ends before the memory
  std::vector<HeldWeights> weights_;
  Failure failure_;
};

/// Run the list to its end.
Failure execute(Engine& engine, const std::vector<Command>& commands,
                std::shared_ptr<const Plan> plan = nullptr) noexcept;

}  // namespace openmps
