// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "engine/arena.hpp"
#include "engine/fusion.hpp"
#include "engine/parts.hpp"
#include "engine/shared/team.hpp"
#include "engine/structure.hpp"

namespace openmps {
namespace {

constexpr std::size_t kMaxPlans = 64;

bool fuses() {
  static const bool value = [] {
    const char* const wanted = std::getenv("MPSCNN_FUSE");
    return !wanted || std::string(wanted) != "0";
  }();
  return value;
}

bool traces_steps() {
  static const bool value = [] {
    const char* const wanted = std::getenv("MPSCNN_TRACE");
    return wanted && (std::string(",") + wanted + ",").find(",steps,") != std::string::npos;
  }();
  return value;
}

void trace_step(Engine& engine, const std::vector<Command>& commands, const Plan::Step& step,
                std::chrono::steady_clock::time_point begin) {
  engine.synchronize();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::string labels;
  for (const std::uint32_t command : step.part(0)) {
    labels += (labels.empty() ? "" : " + ") + commands[command].label;
  }
  if (step.parts > 1) labels.append(", ").append(std::to_string(step.parts)).append(" parts");
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

/// Hands one problem to the engine's entry for it.
struct Runner {
  Engine& engine;
  void operator()(const ConvProblem& problem) const { engine.convolve(problem); }
  void operator()(const ConvGradientProblem& problem) const { engine.convolve_gradient(problem); }
  void operator()(const TransposeProblem& problem) const { engine.convolve_transpose(problem); }
  void operator()(const TransposeGradientProblem& problem) const { engine.convolve_transpose_gradient(problem); }
  void operator()(const BinaryConvProblem& problem) const { engine.convolve_binary(problem); }
  void operator()(const PoolProblem& problem) const { engine.pool(problem); }
  void operator()(const PoolGradientProblem& problem) const { engine.pool_gradient(problem); }
  void operator()(const NeuronProblem& problem) const { engine.neuron(problem); }
  void operator()(const NeuronGradientProblem& problem) const { engine.neuron_gradient(problem); }
  void operator()(const BinaryProblem& problem) const { engine.binary(problem); }
  void operator()(const BinaryGradientProblem& problem) const { engine.binary_gradient(problem); }
  void operator()(const LocalNormProblem& problem) const { engine.normalize_locally(problem); }
  void operator()(const NormalizeProblem& problem) const { engine.normalize(problem); }
  void operator()(const StatisticsProblem& problem) const { engine.find_statistics(problem); }
  void operator()(const LocalNormGradientProblem& problem) const { engine.normalize_locally_gradient(problem); }
  void operator()(const StatisticsGradientProblem& problem) const { engine.statistics_gradient(problem); }
  void operator()(const NormalizeGradientProblem& problem) const { engine.normalize_gradient(problem); }
  void operator()(const SoftmaxProblem& problem) const { engine.softmax(problem); }
  void operator()(const SoftmaxGradientProblem& problem) const { engine.softmax_gradient(problem); }
  void operator()(const ReduceProblem& problem) const { engine.reduce(problem); }
  void operator()(const ResampleProblem& problem) const { engine.resample(problem); }
  void operator()(const ResampleGradientProblem& problem) const { engine.resample_gradient(problem); }
  void operator()(const ReshapeProblem& problem) const { engine.reshape(problem); }
  void operator()(const PadProblem& problem) const { engine.pad(problem); }
  void operator()(const PadGradientProblem& problem) const { engine.pad_gradient(problem); }
  void operator()(const DropoutProblem& problem) const { engine.dropout(problem); }
  void operator()(const LossProblem& problem) const { engine.find_loss(problem); }
  void operator()(const OptimizeProblem& problem) const { engine.optimize(problem); }
  void operator()(const CopyProblem& problem) const { engine.copy(problem); }
  void operator()(const BufferCopyProblem& problem) const { engine.copy_buffer(problem); }
  void operator()(const BufferFillProblem& problem) const { engine.fill_buffer(problem); }
  void operator()(const HostTask& task) const {
    engine.synchronize();  // the host may look at what came before
    if (task.run) task.run();
  }
};

std::shared_ptr<const Plan> plan_of(const std::vector<Command>& commands, const Structure& structure) {
  static auto* const cache = new PlanCache;  // never destroyed: queues may outlive this file's statics
  if (auto plan = cache->find(structure.key)) return plan;
  auto plan = make_plan(commands, structure, fuses());
  cache->insert(structure.key, plan);
  return plan;
}

void run_step(Engine& engine, const std::vector<Command>& commands, const Plan::Step& step) {
  const Runner run{engine};
  if (step.commands.size() == 1) return std::visit(run, commands[step.commands.front()].problem);
  std::vector<Problem> parts;
  for (std::size_t i = 0; i < step.parts; ++i) parts.push_back(problem_of(commands, step.part(i)));
  if (const auto whole = step.parts > 1 ? joined(parts) : std::nullopt) return std::visit(run, *whole);
  for (const Problem& part : parts) std::visit(run, part);
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
