// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.hpp"

#include <bit>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <type_traits>
#include <unordered_map>

namespace openmps {
namespace {

constexpr std::size_t kMaxPlans = 64;

/// Collects the fields of a list into bytes. Memory blocks become their order of first appearance.
class KeyWriter {
 public:
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void put(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    key_.append(bytes, sizeof(value));
  }
  void put(const std::shared_ptr<Memory>& memory) {
    put(static_cast<std::uint32_t>(order_.try_emplace(memory.get(), order_.size()).first->second));
  }
  void put(const ImageView& view) {
    put(view.memory);
    put(view.offset);
    put(view.format);
    for (const auto value : {view.n, view.h, view.w, view.c, view.n_stride, view.h_stride, view.w_stride}) put(value);
  }
  void put(const Window& window) {
    for (const auto value : {window.kernel_h, window.kernel_w, window.stride_h, window.stride_w, window.dilation_h,
                             window.dilation_w, window.start_h, window.start_w}) {
      put(value);
    }
    put(window.edge);
  }
  void put(const Neuron& neuron) {
    put(neuron.type);
    put(neuron.a);
    put(neuron.b);
    put(neuron.c);
  }
  void put(const Operand& operand) {
    put(operand.view), put(operand.start_h), put(operand.start_w);
    put(operand.repeat_h), put(operand.repeat_w), put(operand.repeat_c), put(operand.edge);
  }
  void put(const ChannelValues& values) { put(values.memory), put(values.offset); }
  void put(const Arithmetic& f) {
    put(f.operation);
    for (const float value : {f.scale0, f.scale1, f.bias, f.least, f.greatest}) put(value);
  }
  void put(const ConvWeights& weights) {
    put(weights.out_channels);
    put(weights.in_channels_per_group);
    put(weights.groups);
    put(weights.bias.empty());
  }

  void operator()(const ConvProblem& p) {
    put(p.src), put(p.dst), put(*p.weights), put(p.window), put(p.neuron), put(p.subpixel), put(p.reduced_precision);
  }
  void operator()(const TransposeProblem& p) {
    put(p.src), put(p.dst), put(*p.weights), put(p.window), put(p.neuron), put(p.reduced_precision);
  }
  void operator()(const BinaryConvProblem& p) {
    put(p.src), put(p.dst), put(p.weights->type), put(p.weights->in_channels), put(p.weights->uses_beta), put(p.window),
        put(p.neuron);
  }
  void operator()(const PoolProblem& p) {
    put(p.src), put(p.dst), put(p.type), put(p.window), put(p.zero_pad_h), put(p.zero_pad_w);
  }
  void operator()(const NeuronProblem& p) { put(p.src), put(p.dst), put(p.neuron); }
  void operator()(const NeuronGradientProblem& p) { put(p.diff_dst), put(p.src), put(p.diff_src), put(p.neuron); }
  void operator()(const BinaryProblem& p) { put(p.src0), put(p.src1), put(p.dst), put(p.function); }
  void operator()(const LocalNormProblem& p) {
    put(p.src), put(p.dst), put(p.type), put(p.window), put(p.size);
    for (const float value : {p.alpha, p.beta, p.delta, p.p0, p.pm, p.ps}) put(value);
  }
  void operator()(const NormalizeProblem& p) {
    put(p.src), put(p.dst), put(p.gamma), put(p.beta), put(p.groups), put(p.mean), put(p.variance), put(p.epsilon),
        put(p.neuron);
  }
  void operator()(const StatisticsProblem& p) { put(p.src), put(p.mean), put(p.variance), put(p.count); }
  void operator()(const SoftmaxProblem& p) { put(p.src), put(p.dst), put(p.log); }
  void operator()(const ReduceProblem& p) { put(p.src), put(p.dst), put(p.axis), put(p.type), put(!p.weights.memory); }
  void operator()(const ResampleProblem& p) { put(p.src), put(p.dst), put(p.type), put(p.edge), put(p.regions.size()); }
  void operator()(const ReshapeProblem& p) { put(p.src), put(p.dst); }
  void operator()(const PadProblem& p) {
    put(p.src), put(p.dst), put(p.start_h), put(p.start_w), put(p.start_c), put(p.edge);
  }
  void operator()(const DropoutProblem& p) { put(p.src), put(p.dst); }
  void operator()(const CopyProblem& p) { put(p.src), put(p.dst); }
  void operator()(const BufferCopyProblem& p) {
    put(p.src), put(p.dst), put(p.src_offset), put(p.dst_offset), put(p.bytes);
  }
  void operator()(const BufferFillProblem& p) { put(p.dst), put(p.offset), put(p.bytes); }
  void operator()(const HostTask&) {}

  std::string take() { return std::move(key_); }

 private:
  std::string key_;
  std::unordered_map<const Memory*, std::size_t> order_;
};

std::shared_ptr<const Plan> make_plan(const std::vector<Command>& commands) {
  auto plan = std::make_shared<Plan>();
  plan->steps.reserve(commands.size());
  for (std::uint32_t i = 0; i < commands.size(); ++i) plan->steps.push_back({{i}});
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
  void operator()(const TransposeProblem& problem) const { engine.convolve_transpose(problem); }
  void operator()(const BinaryConvProblem& problem) const { engine.convolve_binary(problem); }
  void operator()(const PoolProblem& problem) const { engine.pool(problem); }
  void operator()(const NeuronProblem& problem) const { engine.neuron(problem); }
  void operator()(const NeuronGradientProblem& problem) const { engine.neuron_gradient(problem); }
  void operator()(const BinaryProblem& problem) const { engine.binary(problem); }
  void operator()(const LocalNormProblem& problem) const { engine.normalize_locally(problem); }
  void operator()(const NormalizeProblem& problem) const { engine.normalize(problem); }
  void operator()(const StatisticsProblem& problem) const { engine.find_statistics(problem); }
  void operator()(const SoftmaxProblem& problem) const { engine.softmax(problem); }
  void operator()(const ReduceProblem& problem) const { engine.reduce(problem); }
  void operator()(const ResampleProblem& problem) const { engine.resample(problem); }
  void operator()(const ReshapeProblem& problem) const { engine.reshape(problem); }
  void operator()(const PadProblem& problem) const { engine.pad(problem); }
  void operator()(const DropoutProblem& problem) const { engine.dropout(problem); }
  void operator()(const CopyProblem& problem) const { engine.copy(problem); }
  void operator()(const BufferCopyProblem& problem) const { engine.copy_buffer(problem); }
  void operator()(const BufferFillProblem& problem) const { engine.fill_buffer(problem); }
  void operator()(const HostTask& task) const {
    engine.synchronize();  // the host may look at what came before
    if (task.run) task.run();
  }
};

}  // namespace

std::string structure_key(const std::vector<Command>& commands) {
  KeyWriter writer;
  for (const Command& command : commands) {
    writer.put(static_cast<std::uint8_t>(command.problem.index()));
    std::visit(writer, command.problem);
  }
  return writer.take();
}

std::shared_ptr<const Plan> plan_for(const std::vector<Command>& commands) {
  static auto* const cache = new PlanCache;  // never destroyed: queues may outlive this file's statics
  const std::string key = structure_key(commands);
  if (auto plan = cache->find(key)) return plan;
  auto plan = make_plan(commands);
  cache->insert(key, plan);
  return plan;
}

std::string execute(Engine& engine, const std::vector<Command>& commands) noexcept {
  const std::string* label = nullptr;
  try {
    const auto sentence = [&](const char* what) {
      return (label && !label->empty() ? *label + ": " : std::string()) + what;
    };
    try {
      const auto plan = plan_for(commands);
      for (const Plan::Step& step : plan->steps) {
        for (const std::uint32_t index : step.commands) {
          label = &commands[index].label;
          std::visit(Runner{engine}, commands[index].problem);
        }
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
