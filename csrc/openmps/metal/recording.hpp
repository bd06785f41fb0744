// SPDX-License-Identifier: Apache-2.0
// State of an MTLCommandBuffer: the list being recorded, its temporaries, and its progress.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/plan/execution.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

class Engine;

/// Values of MTLCommandBufferStatus.
enum class Progress : std::uint32_t { not_enqueued = 0, enqueued, committed, scheduled, completed, error };

/// Progress of a command buffer, shared with the images and buffers that it writes, which check it before reads. A
/// command buffer that is dropped without commit ends in `error`.
struct Completion {
  std::atomic<Progress> progress{Progress::not_enqueued};
  bool is_done() const { return progress.load(std::memory_order_acquire) >= Progress::completed; }
  bool is_committed() const { return progress.load(std::memory_order_acquire) >= Progress::committed; }
};

/// The command buffers that read and write a block of memory; shared by an image, its views and its texture. Holds no
/// memory: only blocks that nothing but recorded commands refers to may be fused. Thread-safe.
class Usage {
 public:
  void read_by(const std::shared_ptr<Completion>& completion) { add(readers_, completion); }
  void written_by(const std::shared_ptr<Completion>& completion) { add(writers_, completion); }

  enum class Blocker { none, uncommitted_writer, running_writer, running_reader };
  /// Return the reason why the CPU must not read now: an unfinished writer.
  Blocker before_reading() const;
  /// Return the reason why the CPU must not write now: an unfinished writer or a committed reader. (Before commit the
  /// bytes may still change: the command buffer reads them when it runs.)
  Blocker before_writing() const;

 private:
  using List = std::vector<std::shared_ptr<Completion>>;
  void add(List& list, const std::shared_ptr<Completion>& completion);

  mutable std::mutex mutex_;
  List readers_, writers_;
};

/// A temporary image or state of a command buffer.
struct Temporary {
  Temporary() = default;
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  std::uint64_t read_count = 1;
  std::string name;                       ///< of the class, for errors
  std::array<std::int64_t, 4> extents{};  ///< of an image: n, h, w, c; otherwise zeros, and part of the name
  std::string label;                      ///< the user's, may be empty

  /// "MPSTemporaryImage (1 x 7 x 7 x 64)". Built only for errors: a network makes dozens of temporaries in each call.
  std::string description() const;
};

/// The temporaries of one command buffer, or of the chain of command buffers of an MPSCommandBuffer (commitAndContinue
/// hands them on). Used on the encoding thread only.
class TemporaryScope {
 public:
  std::shared_ptr<Temporary> add(std::string name, const std::array<std::int64_t, 4>& extents = {});
  /// Return the first temporary with reads left, or null; forget those without. Always null if the device's rules check
  /// temporaries when they are freed.
  std::shared_ptr<Temporary> first_unread();

 private:
  std::vector<std::shared_ptr<Temporary>> members_;
};

/// Appends to a command buffer. Owned by the MTLCommandBuffer object, used on the encoding thread only.
class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Engine> engine);
  ~Recorder();

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const std::shared_ptr<Completion>& completion() const { return completion_; }
  bool is_recording() const { return completion_->progress.load(std::memory_order_acquire) < Progress::committed; }

  void append(Problem problem, std::string label);
  /// Append the commands of a list, which stays one if no others join it.
  void append(const std::shared_ptr<RepeatedList>& list, RepeatedList::Operands operands);
  /// Make a list of all commands so far. Return null if they cannot be repeated: a host task, a random number, weights,
  /// a part of an operand.
  std::shared_ptr<RepeatedList> repeat_all(RepeatedList::Operands operands);
  /// Run the action once the work is done or has failed, before the completion handlers, on the queue's thread.
  void at_completion(std::function<void()> action) { at_completion_.push_back(std::move(action)); }
  /// Run the action on commit, before anything is queued, on the committing thread. It may raise, which refuses the
  /// commit, and runs again at the next attempt, so it must change nothing.
  void at_commit(std::function<void()> action) { at_commit_.push_back(std::move(action)); }

  /// Temporary images and states made for this command buffer.
  const std::shared_ptr<TemporaryScope>& temporaries() const { return temporaries_; }
  void continue_temporaries(std::shared_ptr<TemporaryScope> scope) { temporaries_ = std::move(scope); }

  bool is_empty() const;
  std::size_t command_count() const;
  const std::vector<std::function<void()>>& commit_checks() const { return at_commit_; }
  std::vector<Command> take_commands();
  std::shared_ptr<RepeatedList> take_repeated() { return std::move(repeated_); }
  RepeatedList::Operands take_operands() { return std::move(operands_); }
  std::vector<std::function<void()>> take_at_completion() { return std::move(at_completion_); }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Completion> completion_;
  std::shared_ptr<TemporaryScope> temporaries_;
  std::vector<Command> commands_;
  std::shared_ptr<RepeatedList> repeated_;  ///< alone: commands_ is empty
  RepeatedList::Operands operands_;         ///< of that list
  std::vector<std::function<void()>> at_completion_, at_commit_;
};

}  // namespace openmps
