// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "engine/engine.hpp"
#include "engine/plan/arena.hpp"
#include "engine/plan/execution.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/groups.hpp"
#include "engine/plan/masks.hpp"
#include "engine/plan/narrowing.hpp"
#include "engine/plan/quantization.hpp"
#include "engine/plan/recompute.hpp"
#include "engine/plan/steps.hpp"
#include "engine/plan/structure.hpp"
#include "engine/plan/unread.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/team.hpp"

namespace openmps {
namespace {

constexpr std::size_t kMaxPlans = 64;

bool fuses() {
  static const bool value = env::value_of(env::Variable::fuse) != "0";
  return value;
}

std::shared_ptr<const Plan> make_plan(const Engine& engine, const std::vector<Command>& commands,
                                      const Structure& structure, bool fused) {
  auto plan = std::make_shared<Plan>();
  if (fused) {
    plan->steps = fuse(engine, commands, structure);
    drop_unread(commands, structure, plan->steps);
    drop_masks(engine, commands, structure, plan->steps);
    quantize(engine, commands, structure, plan->steps);
    plan->narrowed = narrowed_blocks(engine, commands, structure, plan->steps);
  } else {
    for (std::uint32_t i = 0; i < commands.size(); ++i) plan->steps.push_back({{i}});
  }
  add_recomputations(engine, commands, structure, plan->steps);
  if (fused) group_steps(engine, commands, structure, plan->steps);
  place_blocks(engine, commands, structure, *plan);
  return plan;
}

/// Cache of plans; evicts the least recently used.
class PlanCache {
 public:
  std::shared_ptr<const Plan> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }
  void insert(const std::string& key, std::shared_ptr<const Plan> plan) {
    const std::lock_guard lock(mutex_);
    if (index_.count(key)) return;  // another queue was faster
    order_.emplace_front(key, std::move(plan));
    index_[key] = order_.begin();
    if (order_.size() > kMaxPlans) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Plan>>;
  std::mutex mutex_;
  std::list<Entry> order_;
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

std::shared_ptr<const Plan> plan_of(const Engine& engine, const std::vector<Command>& commands,
                                    const Structure& structure) {
  static auto* const cache = new PlanCache;  // never destroyed: queues may outlive this file's statics
  const auto* const address = &engine;       // engines live as long as the process
  std::string key = structure.key;
  key.append(reinterpret_cast<const char*>(&address), sizeof(address));
  if (auto plan = cache->find(key)) return plan;
  auto plan = make_plan(engine, commands, structure, fuses());
  cache->insert(key, plan);
  return plan;
}

}  // namespace

std::string structure_key(const std::vector<Command>& commands) { return describe(commands).key; }

std::shared_ptr<const Plan> make_plan(const Engine& engine, const std::vector<Command>& commands, bool fused) {
  return make_plan(engine, commands, describe(commands), fused);
}

std::shared_ptr<const Plan> plan_for(const Engine& engine, const std::vector<Command>& commands) {
  return plan_of(engine, commands, describe(commands));
}

struct RepeatedList::Prepared {
  Prepared(Engine& of, const std::vector<Command>& commands, std::shared_ptr<const Plan> given, Structure described)
      : engine(of), plan(std::move(given)), structure(std::move(described)), steps(commands, *plan, structure) {}

  void place(std::shared_ptr<void>& stream) {
    if (!arena) arena.emplace(engine, *plan, structure, stream);
  }

  Engine& engine;
  const std::shared_ptr<const Plan> plan;
  const Structure structure;
  std::optional<Arena> arena;
  Steps steps;  ///< an engine's graphs end before the arena
};

namespace {

/// The lists that may have memory of their own.
struct Lists {
  std::mutex mutex;  ///< guards their `prepared_`, too
  std::vector<RepeatedList*> all;
};
Lists& lists() {
  static auto* const all = new Lists;
  return *all;
}

void replace(std::vector<Command>& commands, const RepeatedList::Operands& from, const RepeatedList::Operands& by) {
  if (from.empty()) return;
  const auto visit = [&](std::shared_ptr<Memory>& memory) {
    const auto found = std::ranges::find(from, memory);
    if (memory && found != from.end()) memory = by[static_cast<std::size_t>(found - from.begin())];
  };
  for (Command& command : commands)
    std::visit(
        [&](auto& problem) {
          if constexpr (Described<std::decay_t<decltype(problem)>>) for_each_memory(problem, visit);
        },
        command.problem);
}

/// The operands' addresses, as those of the places while this lives; then the arena is freed.
class Placed {
 public:
  Placed(const RepeatedList::Operands& places, const RepeatedList::Operands& operands, std::optional<Arena>& arena)
      : places_(places), arena_(arena) {
    std::vector<std::byte*> addresses;
    for (const auto& operand : operands) addresses.push_back(operand->address());  // may throw
    for (std::size_t i = 0; i < addresses.size(); ++i) places_[i]->place(addresses[i]);
  }
  ~Placed() {
    for (const auto& place : places_) place->displace();
    if (!places_.empty()) arena_.reset();
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

 private:
  const RepeatedList::Operands& places_;
  std::optional<Arena>& arena_;
};

}  // namespace

RepeatedList::RepeatedList(std::vector<Command> commands, Engine* engine, const Operands& operands)
    : commands_(std::move(commands)) {
  for (const auto& operand : operands) places_.push_back(Memory::lazy(engine->shared_from_this(), operand->size()));
  replace(commands_, operands, places_);
  const std::lock_guard lock(lists().mutex);
  lists().all.push_back(this);
}

RepeatedList::~RepeatedList() {
  const std::lock_guard lock(lists().mutex);
  std::erase(lists().all, this);
}

std::size_t RepeatedList::size() const { return commands_.size(); }

std::vector<Command> RepeatedList::commands(const Operands& operands) const {
  std::vector<Command> commands = commands_;
  replace(commands, places_, operands);
  return commands;
}

bool RepeatedList::starts_at_once() const noexcept {
  const std::lock_guard lock(lists().mutex);
  if (!prepared_) return false;
  const auto& kept = *prepared_->steps.kept();
  return kept && kept->starts_at_once();
}

void RepeatedList::free_idle(const Engine& engine) noexcept {
  // With the lock held, because the next run of the list places its blocks again.
  const std::lock_guard lock(lists().mutex);
  for (RepeatedList* const list : lists().all)
    if (list->prepared_ && &list->prepared_->engine == &engine && list->prepared_.use_count() == 1) {
      std::atomic_thread_fence(std::memory_order_acquire);  // the run's end, on another thread
      list->prepared_ = nullptr;
    }
}

Execution::Execution() noexcept = default;
Execution::Execution(Execution&&) noexcept = default;
Execution& Execution::operator=(Execution&&) noexcept = default;
Execution::~Execution() { wait(); }

namespace {

/// Return the exception being handled as a failure of the command with that label.
Failure current_failure(const std::string& label) {
  const auto sentence = [&](const char* what) { return (label.empty() ? "" : label + ": ") + what; };
  try {
    try {
      throw;
    } catch (const std::bad_alloc& error) {
      return {FailureCode::out_of_memory, sentence(sentence_of(error))};
    } catch (const EngineError& error) {
      return {error.code(), sentence(error.what())};
    } catch (const std::exception& error) {
      return {FailureCode::internal, sentence(error.what())};
    } catch (...) {
      return {FailureCode::internal, sentence("the device failed for an unknown reason.")};
    }
  } catch (...) {
    return {FailureCode::out_of_memory, "out of memory"};  // short enough for no allocation
  }
}

}  // namespace

Execution Execution::start(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<void>& stream,
                           std::shared_ptr<const Plan> plan) noexcept {
  static const std::string no_label;
  Execution execution;
  try {
    start_threads();
    Structure structure = describe(commands);
    if (!plan) plan = plan_of(engine, commands, structure);
    execution.prepared_ = std::make_shared<Prepared>(engine, commands, std::move(plan), std::move(structure));
    execution.prepared_->place(stream);
    execution.start(engine, stream);
  } catch (...) {
    const auto& prepared = execution.prepared_;
    execution.failure_ = current_failure(prepared           ? prepared->steps.label(prepared->steps.current())
                                         : commands.empty() ? no_label
                                                            : commands.front().label);
    execution.prepared_ = nullptr;
  }
  return execution;
}

Execution Execution::start(Engine& engine, RepeatedList& list, const RepeatedList::Operands& operands,
                           std::shared_ptr<void>& stream) noexcept {
  Execution execution;
  try {
    start_threads();
    {
      const std::lock_guard lock(lists().mutex);
      execution.prepared_ = list.prepared_;
    }
    if (!execution.prepared_) {
      Structure structure = describe(list.commands_);
      auto plan = plan_of(engine, list.commands_, structure);
      execution.prepared_ = std::make_shared<Prepared>(engine, list.commands_, std::move(plan), std::move(structure));
      execution.prepared_->steps.set_repeated();
      const std::lock_guard lock(lists().mutex);
      list.prepared_ = execution.prepared_;
    }
    if (traces_steps()) std::fprintf(stderr, "mpscnn steps: %zu recorded commands\n", list.size());
    const auto prepared = execution.prepared_;
    const Placed placed(list.places_, operands, prepared->arena);
    prepared->place(stream);
    execution.start(engine, stream);
  } catch (...) {
    const auto& prepared = execution.prepared_;
    execution.failure_ =
        current_failure(prepared ? prepared->steps.label(prepared->steps.current()) : list.commands_.front().label);
    execution.prepared_ = nullptr;
  }
  return execution;
}

HeldWeights::HeldWeights(std::shared_ptr<const ConvWeights> weights, const void* stream) noexcept
    : weights_(std::move(weights)) {
  ConvWeights::Enqueued& enqueued = weights_->enqueued;
  const std::lock_guard lock(enqueued.mutex);
  if (enqueued.references++ == 0)
    enqueued.stream = stream;
  else if (enqueued.stream != stream)
    enqueued.stream = nullptr;
}

HeldWeights::~HeldWeights() {
  if (!weights_) return;  // moved
  const std::lock_guard lock(weights_->enqueued.mutex);
  --weights_->enqueued.references;
}

void Execution::hold_weights(std::vector<Command>& commands, const void* stream) noexcept {
  if (!run_) return;
  try {
    for (Command& command : commands)
      for_each_weights(command.problem, [&](std::shared_ptr<const ConvWeights>& weights) {
        weights_.emplace_back(std::move(weights), stream);
      });
  } catch (const std::bad_alloc&) {  // the commands keep the rest
  }
}

void Execution::start(Engine& engine, std::shared_ptr<void>& stream) {
  run_ = engine.start(prepared_->steps, stream);
  if (!run_) prepared_ = nullptr;
}

Failure Execution::wait() noexcept {
  if (run_) {
    try {
      run_->wait();
    } catch (...) {
      failure_ = current_failure(prepared_->steps.label(run_->failed_step()));
    }
    run_ = nullptr;
    prepared_ = nullptr;
    weights_.clear();
  }
  return std::move(failure_);
}

Failure execute(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<const Plan> plan) noexcept {
  std::shared_ptr<void> stream;
  return Execution::start(engine, commands, stream, std::move(plan)).wait();
}

}  // namespace openmps
