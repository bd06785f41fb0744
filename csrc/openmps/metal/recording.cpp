// SPDX-License-Identifier: Apache-2.0
#include "metal/recording.hpp"

#include <algorithm>

#include "engine/problem/problem.hpp"
#include "metal/device_rules.hpp"

namespace openmps {

void Usage::add(List& list, const std::shared_ptr<Completion>& completion) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(list, [](const auto& other) { return other->is_done(); });
  if (std::find(list.begin(), list.end(), completion) == list.end()) list.push_back(completion);
}

Usage::Blocker Usage::before_reading() const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& writer : writers_) {
    if (!writer->is_done()) return writer->is_committed() ? Blocker::running_writer : Blocker::uncommitted_writer;
  }
  return Blocker::none;
}

Usage::Blocker Usage::before_writing() const {
  const Blocker blocker = before_reading();
  if (blocker != Blocker::none) return blocker;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& reader : readers_) {
    if (reader->is_committed() && !reader->is_done()) return Blocker::running_reader;
  }
  return Blocker::none;
}

Temporary::~Temporary() {
  if (read_count == 0 || !device_rules().asserts_reads_of_freed_temporaries) return;
  note_breach(description() + (label.empty() ? "" : " " + label) + " was freed with readCount " +
              std::to_string(read_count) + ", the count must be 0: it was made for readers that never came.");
}

std::shared_ptr<Temporary> TemporaryScope::add(std::string name, const std::array<std::int64_t, 4>& extents) {
  auto temporary = std::make_shared<Temporary>();
  temporary->name = std::move(name);
  temporary->extents = extents;
  if (!device_rules().asserts_reads_of_freed_temporaries) members_.push_back(temporary);
  return temporary;
}

std::string Temporary::description() const {
  std::string text = name;
  for (std::size_t i = 0; i < extents.size() && extents[i] > 0; ++i)
    text += (i == 0 ? " (" : " x ") + std::to_string(extents[i]);
  if (extents[0] > 0) text += ")";
  return text;
}

std::shared_ptr<Temporary> TemporaryScope::first_unread() {
  std::erase_if(members_, [](const auto& member) { return member->read_count == 0; });
  return members_.empty() ? nullptr : members_.front();
}

namespace {

constexpr std::size_t kFewCommands = 8;

}  // namespace

Recorder::Recorder(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)),
      completion_(std::make_shared<Completion>()),
      temporaries_(std::make_shared<TemporaryScope>()) {}

Recorder::~Recorder() = default;

bool Recorder::is_empty() const { return command_count() == 0 && at_completion_.empty() && at_commit_.empty(); }

std::size_t Recorder::command_count() const { return commands_.size() + (repeated_ ? repeated_->size() : 0); }

void Recorder::append(const std::shared_ptr<RepeatedList>& list, RepeatedList::Operands operands) {
  if (command_count() == 0)
    repeated_ = list, operands_ = std::move(operands);
  else
    for (Command& command : list->commands(operands)) append(std::move(command.problem), std::move(command.label));
}

std::shared_ptr<RepeatedList> Recorder::repeat_all(RepeatedList::Operands operands) {
  const auto varies = [](const Command& command) {
    return std::holds_alternative<HostTask>(command.problem) ||
           std::holds_alternative<DropoutProblem>(command.problem) ||
           std::holds_alternative<LoadWeightsProblem>(command.problem);
  };
  if (commands_.empty() || !at_completion_.empty() || !at_commit_.empty() || std::ranges::any_of(commands_, varies))
    return nullptr;
  bool has_parts = false;
  const auto visit = [&](const std::shared_ptr<Memory>& memory) {
    for (const auto& operand : operands)
      has_parts = has_parts || (memory && memory != operand && &memory->root() == &operand->root());
  };
  for (const Command& command : commands_)
    std::visit(
        [&](const auto& problem) {
          if constexpr (Described<std::decay_t<decltype(problem)>>) for_each_memory(problem, visit);
        },
        command.problem);
  if (has_parts) return nullptr;
  repeated_ = std::make_shared<RepeatedList>(std::exchange(commands_, {}), engine_.get(), operands);
  operands_ = std::move(operands);
  return repeated_;
}

void Recorder::append(Problem problem, std::string label) {
  if (const auto list = std::exchange(repeated_, nullptr)) commands_ = list->commands(std::exchange(operands_, {}));
  // Commands are large: moving them costs as much as recording them.
  if (commands_.size() == commands_.capacity()) commands_.reserve(std::max(kFewCommands, 4 * commands_.size()));
  commands_.push_back(Command{std::move(problem), std::move(label)});
}

std::vector<Command> Recorder::take_commands() { return std::move(commands_); }

}  // namespace openmps
