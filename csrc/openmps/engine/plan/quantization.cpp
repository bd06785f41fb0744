// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/quantization.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/engine.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/number_maps.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

constexpr float kMax = 255;
constexpr std::uint32_t kNone = Plan::Step::kNone;

bool same_extents(const ImageView& a, const ImageView& b) {
  return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

/// Return scale and zero if `zero` is one of the 256 numbers, up to the rounding of the function's parameters.
std::optional<Quantization> steps_of(float scale, float zero) {
  const float number = std::nearbyint(zero);
  if (!(scale > 0) || !std::isfinite(scale) || !(std::abs(zero - number) <= 1e-3f)) return std::nullopt;
  if (!(number >= 0 && number <= kMax)) return std::nullopt;
  return Quantization{scale, static_cast<std::int32_t>(number)};
}

/// Return the steps that a linear function stores: q / 255 = a * x + b.
std::optional<Quantization> stored_steps(const Neuron& neuron) {
  if (neuron.type != NeuronType::linear) return std::nullopt;
  return steps_of(1 / (kMax * neuron.a), kMax * neuron.b);
}

/// Return the steps that a linear function reads: x = a * (q / 255) + b.
std::optional<Quantization> read_steps(const Neuron& neuron) {
  if (neuron.type != NeuronType::linear) return std::nullopt;
  return steps_of(neuron.a / kMax, -neuron.b * kMax / neuron.a);
}

/// Return the steps if the problem converts whole numbers to dense floats.
std::optional<Quantization> dequantization_of(const Problem& problem) {
  const auto* const neuron = std::get_if<NeuronProblem>(&problem);
  if (!neuron || neuron->src.format != Format::unorm8 || neuron->dst.format != Format::float32) return std::nullopt;
  if (!neuron->src.is_dense() || !neuron->dst.is_dense()) return std::nullopt;
  return read_steps(neuron->neuron);
}

/// Return the steps if the problem converts floats to numbers.
std::optional<Quantization> quantization_of(const Problem& problem) {
  const auto* const neuron = std::get_if<NeuronProblem>(&problem);
  if (!neuron || neuron->src.format != Format::float32 || neuron->dst.format != Format::unorm8) return std::nullopt;
  return stored_steps(neuron->neuron);
}

/// Reads conversions instead of their results.
class Reader {
 public:
  Reader(const std::vector<Command>& commands, const std::vector<std::uint32_t>& dequantizations)
      : commands_(commands), dequantizations_(dequantizations) {}

  /// Let the view of a conversion's result be that of its source, and return the steps; null if it is no such view.
  std::optional<Quantization> read(ImageView& view) const {
    for (const std::uint32_t command : dequantizations_) {
      const ImageView &values = values_of(commands_[command]), &numbers = numbers_of(commands_[command]);
      if (values.memory != view.memory) continue;
      if (values != view) return std::nullopt;  // a part of it
      view = numbers;
      return dequantization_of(commands_[command].problem);
    }
    return std::nullopt;
  }

  /// Return whether the view is a conversion's result, or a part of one.
  bool has_numbers(const ImageView& view) const {
    return std::ranges::any_of(
        dequantizations_, [&](std::uint32_t command) { return values_of(commands_[command]).memory == view.memory; });
  }

 private:
  const std::vector<Command>& commands_;
  const std::vector<std::uint32_t>& dequantizations_;
};

/// Where a step stores its result.
struct Result {
  ImageView dst;
  Quantization steps;
};

std::optional<Result> result_of_step(const ImageView& dst, const std::vector<Command>& commands,
                                     const Plan::Step& step) {
  if (step.quantization == kNone) return Result{dst, {}};
  const auto& last = std::get<NeuronProblem>(commands[step.quantization].problem);
  const auto steps = quantization_of(commands[step.quantization].problem);
  if (!steps || last.src != dst || !same_extents(dst, last.dst)) return std::nullopt;
  return Result{last.dst, *steps};
}

std::optional<Problem> quantized(const ConvProblem& conv, const Reader& reader, const std::vector<Command>& commands,
                                 const Plan::Step& step) {
  if (conv.addend.memory || conv.subpixel > 1 || conv.window.edge != Edge::zero) return std::nullopt;
  QuantizedConvProblem result{.src = conv.src,
                              .dst = conv.dst,
                              .weights = conv.weights,
                              .window = conv.window,
                              .neuron = conv.neuron,
                              .src_steps = {},
                              .dst_steps = {}};
  const auto src = reader.read(result.src);
  if (!src) return std::nullopt;
  result.src_steps = *src;
  if (step.quantization == kNone && conv.dst.format == Format::unorm8) {  // its activation is the conversion
    const auto steps = stored_steps(conv.neuron);
    if (!steps) return std::nullopt;
    result.dst_steps = *steps;
    result.neuron = {};
    return result;
  }
  const auto to = result_of_step(conv.dst, commands, step);
  if (!to || conv.dst.format != Format::float32) return std::nullopt;
  result.dst = to->dst, result.dst_steps = to->steps;
  return result;
}

/// Return whether all pixels of an image read the only one of the operand.
bool is_pixel(const Operand& operand, const ImageView& dst) {
  return operand.start_h == 0 && operand.start_w == 0 && operand.repeat_h && operand.repeat_w && !operand.repeat_c &&
         operand.view.h == 1 && operand.view.w == 1 && operand.view.n == dst.n && operand.view.c == dst.c;
}

std::optional<Problem> quantized_sum(const BinaryProblem& sum, const Reader& reader, const Result& to) {
  const Arithmetic& f = sum.function;
  if (f.scale0 != 1 || f.scale1 != 1 || !is_plain(sum.src0, sum.dst) || !is_plain(sum.src1, sum.dst))
    return std::nullopt;
  QuantizedSumProblem result{.src0 = sum.src0.view,
                             .src1 = sum.src1.view,
                             .dst = to.dst,
                             .src0_steps = {},
                             .src1_steps = {},
                             .dst_steps = to.steps,
                             .min = f.min,
                             .max = f.max};
  const auto src0 = reader.read(result.src0), src1 = reader.read(result.src1);
  if (!src0 || !src1) return std::nullopt;
  result.src0_steps = *src0, result.src1_steps = *src1;
  return result;
}

std::optional<Problem> quantized_product(const BinaryProblem& product, const Reader& reader, const Result& to) {
  const Arithmetic& f = product.function;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (f.min != -kInfinity || f.max != kInfinity || !(f.scale0 * f.scale1 > 0)) return std::nullopt;
  const bool is_first = is_plain(product.src0, product.dst);
  const Operand &image = is_first ? product.src0 : product.src1, &other = is_first ? product.src1 : product.src0;
  if (!is_plain(image, product.dst)) return std::nullopt;
  if (!is_plain(other, product.dst) && !is_pixel(other, product.dst)) return std::nullopt;
  QuantizedProductProblem result{
      .src0 = image.view, .src1 = other.view, .dst = to.dst, .src0_steps = {}, .src1_steps = {}, .dst_steps = to.steps};
  const auto src0 = reader.read(result.src0), src1 = reader.read(result.src1);
  const bool has_floats = is_pixel(other, product.dst) && other.view.format == Format::float32;
  if (!src0 || (!src1 && (!has_floats || reader.has_numbers(other.view)))) return std::nullopt;
  result.src0_steps = *src0, result.src1_steps = src1.value_or(Quantization{});
  result.src0_steps.scale *= f.scale0 * f.scale1;
  return result;
}

std::optional<Problem> quantized(const BinaryProblem& problem, const Reader& reader,
                                 const std::vector<Command>& commands, const Plan::Step& step) {
  if (problem.function.bias != 0 || problem.mask.memory) return std::nullopt;
  const auto to = result_of_step(problem.dst, commands, step);
  if (!to || to->steps.scale == 0 || !to->dst.is_dense()) return std::nullopt;
  if (problem.function.operation == BinaryOperation::add) return quantized_sum(problem, reader, *to);
  if (problem.function.operation == BinaryOperation::multiply) return quantized_product(problem, reader, *to);
  return std::nullopt;
}

std::optional<Problem> quantized(const ReduceProblem& sum, const Reader& reader, const std::vector<Command>& commands,
                                 const Plan::Step& step) {
  if (sum.axis != ReduceAxis::pixels || sum.type != ReduceType::sum || sum.weights.memory) return std::nullopt;
  QuantizedPixelSumProblem result{.src = sum.src, .dst = sum.dst, .scale = sum.scale, .src_steps = {}, .dst_steps = {}};
  const auto src = reader.read(result.src);
  const auto to = result_of_step(sum.dst, commands, step);
  if (!src || !to || sum.dst.format != Format::float32 || sum.dst.c != sum.src.c) return std::nullopt;
  result.src_steps = *src;
  result.dst = to->dst, result.dst_steps = to->steps;
  return result;
}

/// Max pooling of numbers, if these are of equal steps before and after.
std::optional<Problem> quantized(const PoolProblem& pool, const Reader& reader, const std::vector<Command>& commands,
                                 const Plan::Step& step) {
  if (pool.type != PoolType::max || pool.window.edge != Edge::clamp) return std::nullopt;
  PoolProblem result = pool;
  const auto src = reader.read(result.src);
  const auto to = result_of_step(pool.dst, commands, step);
  if (!src || !to || to->steps.scale == 0) return std::nullopt;
  if (src->zero != to->steps.zero || std::abs(src->scale - to->steps.scale) > 1e-6f * src->scale) return std::nullopt;
  result.dst = to->dst;
  return result;
}

template <class P>
std::optional<Problem> quantized(const P&, const Reader&, const std::vector<Command>&, const Plan::Step&) {
  return std::nullopt;
}

std::optional<Problem> problem_of(const std::vector<Command>& commands, const Plan::Step& step) {
  if (step.is_map) return number_map(commands, step.dequantizations, step.commands);
  Plan::Step computed = step;
  if (step.quantization != kNone) computed.commands.pop_back();
  const Problem problem =
      computed.commands.size() > 1 ? fused_problem(commands, computed) : commands[computed.commands.front()].problem;
  const Reader reader(commands, step.dequantizations);
  return std::visit([&](const auto& each) { return quantized(each, reader, commands, step); }, problem);
}

class Quantizer {
 public:
  Quantizer(const std::vector<Command>& commands, const Structure& structure, std::vector<Plan::Step>& steps)
      : commands_(commands),
        structure_(structure),
        index_(structure),
        steps_(steps),
        conversions_(structure.blocks.size(), kNone),
        writers_(structure.blocks.size()) {
    for (const Command& command : commands)
      std::visit(
          [&](const auto& problem) {
            if constexpr (Described<std::decay_t<decltype(problem)>>)
              for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
                if (memory) ++writers_[index_.of(memory.get())];
              });
          },
          command.problem);
  }

  void run() {
    find_conversions();
    find_maps();
    for (std::size_t at = 0; at < steps_.size(); ++at) convert(at);
    remove_conversions();
  }

 private:
  std::uint32_t block_of(const ImageView& view) const { return index_.of(view.memory.get()); }
  /// Return whether one command writes the block, and only the list knows it.
  bool is_own(std::uint32_t block) const {
    return structure_.blocks[block].is_fresh && structure_.blocks[block].is_apart && writers_[block] == 1;
  }
  bool is_written_once(const ImageView& view) const { return is_own(block_of(view)); }

  void find_conversions() {
    for (const Plan::Step& step : steps_) {
      const std::uint32_t command = step.commands.front();
      if (step.commands.size() > 1 || !dequantization_of(commands_[command].problem)) continue;
      if (!is_written_once(numbers_of(commands_[command])) || !is_written_once(values_of(commands_[command]))) continue;
      conversions_[block_of(values_of(commands_[command]))] = command;
    }
  }

  bool is_function(const Plan::Step& step) const {
    return std::ranges::all_of(step.commands, [&](std::uint32_t command) {
      const Problem& problem = commands_[command].problem;
      return std::holds_alternative<NeuronProblem>(problem) || std::holds_alternative<BinaryProblem>(problem);
    });
  }

  void find_maps() {
    step_of_.assign(structure_.blocks.size(), kNone);
    for (std::uint32_t at = 0; at < steps_.size(); ++at) {
      if (is_function(steps_[at])) step_of_[block_of(result_of(commands_[steps_[at].commands.back()].problem))] = at;
      if (quantization_of(commands_[steps_[at].commands.back()].problem)) find_map(at);
    }
    std::erase_if(steps_, [](const Plan::Step& step) { return step.commands.empty(); });
  }

  /// Let a step that stores numbers be a map, with as many steps before it as only it reads.
  void find_map(std::uint32_t at) {
    constexpr std::size_t kMaxSteps = 16;
    std::vector<std::uint32_t> members{at}, mapped;
    Plan::Step map;
    while (members.size() <= kMaxSteps) {
      Plan::Step step;
      for (const std::uint32_t member : members)
        step.commands.insert(step.commands.end(), steps_[member].commands.begin(), steps_[member].commands.end());
      const std::vector<std::uint32_t> sources = sources_of(step);
      for (const std::uint32_t block : sources)
        if (conversions_[block] != kNone) step.dequantizations.push_back(conversions_[block]);
      step.quantization = step.commands.back();
      step.is_map = step.dequantizations.size() == sources.size();
      if (step.is_map && problem_of(commands_, step)) map = step, mapped = members;
      std::vector<std::uint32_t> more;
      for (const std::uint32_t block : sources)
        if (more.empty()) more = steps_before(step, block);
      if (more.empty()) break;
      members.insert(members.end(), more.begin(), more.end());
      std::ranges::sort(members);
    }
    if (mapped.empty()) return;
    for (const std::uint32_t member : mapped) steps_[member].commands.clear();
    steps_[at] = std::move(map);
  }

  /// Return the blocks that a step of functions reads and does not write.
  std::vector<std::uint32_t> sources_of(const Plan::Step& step) const {
    std::vector<std::uint32_t> results, sources;
    for (const std::uint32_t command : step.commands)
      results.push_back(block_of(result_of(commands_[command].problem)));
    for (const std::uint32_t command : step.commands)
      for (const std::uint32_t block : structure_.uses_of(command))
        if (std::ranges::find(results, block) == results.end() && std::ranges::find(sources, block) == sources.end())
          sources.push_back(block);
    return sources;
  }

  /// Return the steps that compute a source of a step, if they are functions and nothing else reads it: the conversion
  /// of a map's numbers comes with the map.
  std::vector<std::uint32_t> steps_before(const Plan::Step& step, std::uint32_t block) const {
    const auto reads = [&](const std::vector<std::uint32_t>& commands, std::uint32_t of) {
      std::size_t count = 0;
      for (const std::uint32_t command : commands)
        count += static_cast<std::size_t>(std::ranges::count(structure_.uses_of(command), of));
      return count;
    };
    const std::uint32_t last = step_of_[block];
    if (last == kNone || !is_own(block) || structure_.blocks[block].references != reads(step.commands, block) + 1)
      return {};
    if (conversions_[block] == kNone) return {last};
    const std::uint32_t numbers = block_of(numbers_of(commands_[conversions_[block]])), before = step_of_[numbers];
    if (before == kNone || structure_.blocks[numbers].references != 2) return {};
    return {before, last};
  }

  void convert(std::size_t at) {
    Plan::Step step = steps_[at];
    if (step.commands.empty() || step.is_map) return;
    for (const std::uint32_t command : step.commands)
      for (const std::uint32_t block : structure_.uses_of(command)) {
        const std::uint32_t conversion = conversions_[block];
        if (conversion == kNone || conversion == step.commands.front()) continue;
        if (std::ranges::find(step.dequantizations, conversion) == step.dequantizations.end())
          step.dequantizations.push_back(conversion);
      }
    if (step.dequantizations.empty()) return;
    // With the conversion of the result, if that is the next step and the only other use of the result.
    if (at + 1 < steps_.size() && steps_[at + 1].commands.size() == 1) {
      const std::uint32_t next = steps_[at + 1].commands.front();
      const auto* const neuron = std::get_if<NeuronProblem>(&commands_[next].problem);
      if (neuron && quantization_of(commands_[next].problem) && is_written_once(neuron->src) &&
          structure_.blocks[block_of(neuron->src)].references == 2) {
        Plan::Step both = step;
        both.commands.push_back(next);
        both.quantization = next;
        if (problem_of(commands_, both)) {
          steps_[at + 1] = std::move(both);
          steps_[at].commands.clear();
          return;
        }
      }
    }
    if (problem_of(commands_, step)) steps_[at] = std::move(step);
  }

  void remove_conversions() {
    std::vector<bool> is_read(structure_.blocks.size());
    for (const Plan::Step& step : steps_)
      for (const std::uint32_t command : step.commands)
        for (const std::uint32_t block : structure_.uses_of(command)) {
          const std::uint32_t conversion = conversions_[block];
          if (conversion == kNone || conversion == command) continue;
          if (std::ranges::find(step.dequantizations, conversion) == step.dequantizations.end()) is_read[block] = true;
        }
    std::erase_if(steps_, [&](const Plan::Step& step) {
      if (step.commands.empty()) return true;
      const std::uint32_t command = step.commands.front();
      if (step.commands.size() > 1 || !dequantization_of(commands_[command].problem)) return false;
      const std::uint32_t block = block_of(values_of(commands_[command]));
      return conversions_[block] == command && !is_read[block];
    });
  }

  const std::vector<Command>& commands_;
  const Structure& structure_;
  const BlockIndex index_;
  std::vector<Plan::Step>& steps_;
  std::vector<std::uint32_t> conversions_;  ///< by the block of their result
  std::vector<std::uint32_t> writers_;      ///< number, by block
  std::vector<std::uint32_t> step_of_;      ///< of functions, by the block of their result
};

}  // namespace

const ImageView& numbers_of(const Command& dequantization) {
  return std::get<NeuronProblem>(dequantization.problem).src;
}

const ImageView& values_of(const Command& dequantization) {
  return std::get<NeuronProblem>(dequantization.problem).dst;
}

void quantize(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
              std::vector<Plan::Step>& steps) {
  const auto converts = [](const Command& command) { return dequantization_of(command.problem).has_value(); };
  if (!engine.quantizes() || std::ranges::none_of(commands, converts)) return;
  Quantizer(commands, structure, steps).run();
}

Problem quantized_problem(const std::vector<Command>& commands, const Plan::Step& step) {
  return *problem_of(commands, step);
}

}  // namespace openmps
