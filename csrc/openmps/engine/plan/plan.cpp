// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "engine/plan/arena.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/structure.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/team.hpp"

namespace openmps {
namespace {

constexpr std::size_t kMaxPlans = 64;

bool fuses() {
  static const bool value = env::value_of(env::Variable::fuse) != "0";
  return value;
}

bool traces_steps() {
  static const bool value = env::has_word(env::Variable::trace, "steps");
  return value;
}

void trace_step(Engine& engine, const std::vector<Command>& commands, const Plan::Step& step,
                std::chrono::steady_clock::time_point begin) {
  engine.synchronize();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::string labels;
  for (const std::uint32_t command : step.commands) {
    labels += (labels.empty() ? "" : " + ") + commands[command].label;
  }
  std::fprintf(stderr, "mpscnn steps: %8.1f us %s\n", time.count(), labels.c_str());
}

std::shared_ptr<const Plan> make_plan(const std::vector<Command>& commands, const Structure& structure, bool fused) {
  auto plan = std::make_shared<Plan>();
  if (fused) {
    plan->steps = fuse(commands, structure);
  } else {
    for (std::uint32_t i = 0; i < commands.size(); ++i) plan->steps.push_back({{i}});
  }
  place_blocks(commands, structure, *plan);
  return plan;
}

/// Least recently used plans leave first.
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

void run(Engine& engine, const Problem& problem) {
  if (const auto* task = std::get_if<HostTask>(&problem)) {
    engine.synchronize();  // the host may look at what came before
    if (task->run) task->run();
    return;
  }
  if (engine.try_run(problem)) return;
  engine.synchronize();
  Engine& processor = *processor_engine();
  processor.try_run(problem);
  processor.synchronize();
}

std::shared_ptr<const Plan> plan_of(const std::vector<Command>& commands, const Structure& structure) {
  static auto* const cache = new PlanCache;  // never destroyed: queues may outlive this file's statics
  if (auto plan = cache->find(structure.key)) return plan;
  auto plan = make_plan(commands, structure, fuses());
  cache->insert(structure.key, plan);
  return plan;
}

void run_step(Engine& engine, const std::vector<Command>& commands, const Plan::Step& step) {
  if (step.commands.size() == 1) return run(engine, commands[step.commands.front()].problem);
  run(engine, problem_of(commands, step));
}

}  // namespace

std::string structure_key(const std::vector<Command>& commands) { return describe(commands).key; }

std::shared_ptr<const Plan> make_plan(const std::vector<Command>& commands, bool fused) {
  return make_plan(commands, describe(commands), fused);
}

std::shared_ptr<const Plan> plan_for(const std::vector<Command>& commands) {
  return plan_of(commands, describe(commands));
}

std::string execute(Engine& engine, const std::vector<Command>& commands, std::shared_ptr<const Plan> plan) noexcept {
  const std::string* label = nullptr;
  try {
    const auto sentence = [&](const char* what) {
      return (label && !label->empty() ? *label + ": " : std::string()) + what;
    };
    try {
      start_threads();
      const Structure structure = describe(commands);
      if (!plan) plan = plan_of(commands, structure);
      if (!commands.empty()) label = &commands.front().label;
      const Arena arena(engine, *plan, structure);
      const bool traces = traces_steps();
      for (const Plan::Step& step : plan->steps) {
        label = &commands[step.commands.front()].label;
        const auto begin = std::chrono::steady_clock::now();
        run_step(engine, commands, step);
        if (traces) trace_step(engine, commands, step, begin);
      }
      engine.synchronize();
      return {};
    } catch (const std::bad_alloc&) {
      return sentence("the device is out of memory.");
    } catch (const std::exception& error) {
      return sentence(error.what());
    } catch (...) {
      return sentence("the device failed for an unknown reason.");
    }
  } catch (...) {
    return "out of memory";  // fits into the string itself
  }
}

}  // namespace openmps
