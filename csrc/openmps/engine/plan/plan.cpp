// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.hpp"

#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "engine/engine.hpp"
#include "engine/plan/arena.hpp"
#include "engine/plan/execution.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/steps.hpp"
#include "engine/plan/structure.hpp"
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
  } else {
    for (std::uint32_t i = 0; i < commands.size(); ++i) plan->steps.push_back({{i}});
  }
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

struct Execution::State {
  State(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<const Plan> given,
        const Structure& structure)
      : plan(std::move(given)), arena(engine, *plan, structure), steps(commands, *plan) {}

  const std::shared_ptr<const Plan> plan;
  const Arena arena;
  Steps steps;
  std::unique_ptr<Run> run;  ///< ends before the arena
};

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
    } catch (const std::bad_alloc&) {
      return {FailureCode::out_of_memory, sentence("the device is out of memory.")};
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

Execution start(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<const Plan> plan) noexcept {
  static const std::string no_label;
  Execution execution;
  try {
    start_threads();
    const Structure structure = describe(commands);
    if (!plan) plan = plan_of(engine, commands, structure);
    execution.state_ = std::make_unique<Execution::State>(engine, commands, std::move(plan), structure);
    execution.state_->run = engine.start(execution.state_->steps);
    if (!execution.state_->run) execution.state_ = nullptr;
  } catch (...) {
    const auto& state = execution.state_;
    const std::string& label = state              ? state->steps.label(state->steps.current())
                               : commands.empty() ? no_label
                                                  : commands.front().label;
    execution.failure_ = current_failure(label);
    execution.state_ = nullptr;
  }
  return execution;
}

Failure Execution::wait() noexcept {
  if (state_) {
    try {
      state_->run->wait();
    } catch (...) {
      failure_ = current_failure(state_->steps.label(state_->run->failed_step()));
    }
    state_ = nullptr;
  }
  return std::move(failure_);
}

}  // namespace openmps
