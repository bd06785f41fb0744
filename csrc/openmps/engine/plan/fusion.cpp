// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/fusion.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps {
namespace {

/// Return whether a result may stay unrounded.
bool is_float(Format format) { return format == Format::float16 || format == Format::float32; }

bool same_extents(const ImageView& a, const ImageView& b) {
  return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

bool same_pixels(const ImageView& a, const ImageView& b) {
  return a.memory == b.memory && a.offset == b.offset && a.format == b.format && same_extents(a, b) &&
         a.n_stride == b.n_stride && a.h_stride == b.h_stride && a.w_stride == b.w_stride;
}

/// Return whether the function is a + b within its bounds.
bool is_plain_sum(const Arithmetic& f) {
  return f.operation == BinaryOperation::add && f.scale0 == 1 && f.scale1 == 1 && f.bias == 0;
}

/// Return the activation that equals the bounds, if there is one.
std::optional<Neuron> neuron_of(const Arithmetic& f) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Neuron neuron;
  if (f.min == -kInfinity && f.max == kInfinity) return neuron;
  if (f.min != 0 || !(f.max > 0)) return std::nullopt;
  neuron.type = f.max == kInfinity ? NeuronType::relu : NeuronType::relun;
  if (neuron.type == NeuronType::relun) neuron.b = f.max;
  return neuron;
}

bool absorb_sum(ConvProblem& conv, const BinaryProblem& next) {
  const Arithmetic& f = next.function;
  if (next.mask.memory) return false;
  if (!is_plain_sum(f)) return false;
  const auto after = neuron_of(f);
  if (!after || conv.addend.memory) return false;
  const bool is_first = same_pixels(next.src0.view, conv.dst);
  const Operand &own = is_first ? next.src0 : next.src1, &other = is_first ? next.src1 : next.src0;
  if (!same_pixels(own.view, conv.dst) || !is_plain(own, next.dst) || !is_plain(other, next.dst)) return false;
  conv.addend = other.view;
  conv.after = *after;
  conv.dst = next.dst;
  return true;
}

bool absorb_neuron(ConvProblem& conv, const NeuronProblem& next) {
  Neuron& neuron = conv.addend.memory ? conv.after : conv.neuron;
  if (neuron.type != NeuronType::none || !same_pixels(next.src, conv.dst)) return false;
  if (conv.addend.memory && next.neuron.a_per_channel) return false;
  neuron = next.neuron;
  conv.dst = next.dst;
  return true;
}

/// Return whether the command is max pooling of the convolution's whole result.
bool can_pool(const ConvProblem& conv, const PoolProblem& next) {
  return !conv.addend.memory && next.type == PoolType::max && same_pixels(next.src, conv.dst) &&
         next.dst.format == conv.dst.format;
}

bool is_sum_of(const ReduceProblem& problem, ReduceAxis axis) {
  return problem.axis == axis && problem.type == ReduceType::sum && !problem.weights.memory;
}

/// Return the two sums as one of all pixels, if they are along rows and columns of the whole image.
std::optional<ReduceProblem> summed(const ReduceProblem& first, const ReduceProblem& next) {
  const bool is_row = is_sum_of(first, ReduceAxis::row) && is_sum_of(next, ReduceAxis::column);
  const bool is_column = is_sum_of(first, ReduceAxis::column) && is_sum_of(next, ReduceAxis::row);
  if (!is_row && !is_column) return std::nullopt;
  const ImageView &src = first.src, &middle = first.dst, &dst = next.dst;
  if (!same_pixels(next.src, middle) || middle.n != src.n || middle.c != src.c || dst.n != src.n || dst.c != src.c)
    return std::nullopt;
  if (is_row ? middle.h != src.h : middle.w != src.w) return std::nullopt;
  if (middle.format != Format::float16 && middle.format != Format::float32) return std::nullopt;  // others have bounds
  ReduceProblem both = next;
  both.src = src;
  both.axis = ReduceAxis::pixels;
  both.scale = first.scale * next.scale;
  return both;
}

/// Return the sum of a normalization's result and another image as one problem with the normalization.
std::optional<NormalizeAddProblem> added(const NormalizeProblem& first, const BinaryProblem& next) {
  const Arithmetic& f = next.function;
  if (first.groups > 0 || !neuron_is_identity(first.neuron) || !is_float(first.dst.format)) return std::nullopt;
  if (!is_plain_sum(f)) return std::nullopt;
  const bool is_first = same_pixels(next.src0.view, first.dst);
  const Operand &own = is_first ? next.src0 : next.src1, &other = is_first ? next.src1 : next.src0;
  if (!same_pixels(own.view, first.dst) || !is_plain(own, next.dst) || !is_plain(other, next.dst)) return std::nullopt;
  return NormalizeAddProblem{.src = first.src,
                             .addend = other,
                             .dst = next.dst,
                             .gamma = first.gamma,
                             .beta = first.beta,
                             .mean = first.mean,
                             .variance = first.variance,
                             .exact = first.exact,
                             .epsilon = first.epsilon,
                             .min = f.min,
                             .max = f.max,
                             .mask = next.mask};
}

/// Return a normalization and the activation of its result as one problem.
std::optional<NormalizeProblem> activated(const NormalizeProblem& first, const NeuronProblem& next) {
  if (!neuron_is_identity(first.neuron) || !is_float(first.dst.format) || !same_pixels(next.src, first.dst))
    return std::nullopt;
  NormalizeProblem both = first;
  both.dst = next.dst, both.neuron = next.neuron;
  return both;
}

/// Return a sum and the gradient that is nothing but this sum, scaled and masked, as one problem.
std::optional<MaskedSumProblem> masked(const BinaryProblem& first, const BinaryGradientProblem& next) {
  const Arithmetic& f = first.function;
  if (!is_plain_sum(f)) return std::nullopt;
  if (const auto bounds = neuron_of(f); !bounds || !neuron_is_identity(*bounds)) return std::nullopt;
  if (first.mask.memory || !is_float(first.dst.format) || next.other.view.memory || next.source.h > 0)
    return std::nullopt;
  if (next.sum_h > 1 || next.sum_w > 1 || next.sum_c > 1) return std::nullopt;
  if (!same_pixels(next.diff_dst.view, first.dst) || !is_plain(next.diff_dst, next.diff_src)) return std::nullopt;
  if (!is_plain(first.src0, first.dst) || !is_plain(first.src1, first.dst)) return std::nullopt;
  if (next.mask.view.memory && !is_plain(next.mask, next.diff_src)) return std::nullopt;
  return MaskedSumProblem{first.src0, first.src1, next.mask, next.diff_src, next.scale};
}

/// Return a masked sum, and the sums of its values that a normalization's gradient needs, as one problem.
std::optional<MaskedSumMomentsProblem> summed(const MaskedSumProblem& first, const BatchMomentsGradientProblem& next) {
  if (!is_float(first.dst.format) || !neuron_is_identity(next.neuron) || !same_pixels(next.diff_dst, first.dst))
    return std::nullopt;
  return MaskedSumMomentsProblem{.src0 = first.src0,
                                 .src1 = first.src1,
                                 .mask = first.mask,
                                 .dst = first.dst,
                                 .scale = first.scale,
                                 .src = next.src,
                                 .gamma = next.gamma,
                                 .beta = next.beta,
                                 .mean = next.mean,
                                 .variance = next.variance,
                                 .exact = next.exact,
                                 .epsilon = next.epsilon,
                                 .diff_gamma = next.diff_gamma,
                                 .diff_beta = next.diff_beta,
                                 .adds = next.adds};
}

/// Return an activation and the product of its source and its result, x * f(x), as one activation.
std::optional<NeuronProblem> gated(const NeuronProblem& first, const BinaryProblem& next) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  NeuronProblem both = first;
  switch (first.neuron.type) {
    case NeuronType::sigmoid: both.neuron.type = NeuronType::swish; break;
    case NeuronType::hard_sigmoid: both.neuron.type = NeuronType::hard_swish; break;
    default: return std::nullopt;
  }
  const Arithmetic& f = next.function;
  if (f.operation != BinaryOperation::multiply || f.scale0 != 1 || f.scale1 != 1 || f.bias != 0) return std::nullopt;
  if (f.min != -kInfinity || f.max != kInfinity || next.mask.memory) return std::nullopt;
  const bool is_first = same_pixels(next.src0.view, first.dst);
  const Operand &gate = is_first ? next.src0 : next.src1, &source = is_first ? next.src1 : next.src0;
  if (!same_pixels(gate.view, first.dst) || !same_pixels(source.view, first.src)) return std::nullopt;
  if (!is_plain(gate, next.dst) || !is_plain(source, next.dst)) return std::nullopt;
  if (!is_float(first.src.format) || !is_float(first.dst.format)) return std::nullopt;
  both.dst = next.dst;
  return both;
}

/// Return two commands as an activation with its product, if they are one.
std::optional<NeuronProblem> gated(const Problem& first, const Problem& next) {
  const auto* const neuron = std::get_if<NeuronProblem>(&first);
  const auto* const product = std::get_if<BinaryProblem>(&next);
  return neuron && product ? gated(*neuron, *product) : std::nullopt;
}

/// Return two commands as one problem, if there is one that the engine solves.
std::optional<Problem> pair_of(const Engine& engine, const Problem& first, const Problem& next) {
  const auto solved = [&](auto problem) -> std::optional<Problem> {
    if (!problem || !engine.fuses(*problem)) return std::nullopt;
    return std::move(*problem);
  };
  if (const auto* const normalize = std::get_if<NormalizeProblem>(&first)) {
    if (const auto* const sum = std::get_if<BinaryProblem>(&next)) return solved(added(*normalize, *sum));
    if (const auto* const neuron = std::get_if<NeuronProblem>(&next)) return solved(activated(*normalize, *neuron));
  }
  if (const auto* const sum = std::get_if<BinaryProblem>(&first))
    if (const auto* const gradient = std::get_if<BinaryGradientProblem>(&next)) return solved(masked(*sum, *gradient));
  return solved(gated(first, next));
}

class Fuser {
 public:
  Fuser(const Engine& engine, const std::vector<Command>& commands, const Structure& structure)
      : engine_(engine),
        commands_(commands),
        structure_(structure),
        index_(structure),
        last_use_(structure.blocks.size()),
        taken_(commands.size()) {
    for (std::uint32_t i = 0; i < commands.size(); ++i) {
      for (const std::uint32_t block : structure.uses_of(i)) last_use_[block] = i;
    }
  }

  std::vector<Plan::Step> steps() {
    std::vector<Plan::Step> by_last(commands_.size());
    for (std::uint32_t i = 0; i < commands_.size(); ++i) {
      if (taken_[i]) continue;
      Plan::Step step = step_from(i);
      for (const std::uint32_t command : step.commands) taken_[command] = true;
      const std::uint32_t last = step.commands.back();
      by_last[last] = std::move(step);
    }
    std::erase_if(by_last, [](const Plan::Step& step) { return step.commands.empty(); });
    return by_last;
  }

 private:
  const Structure::Block& block_of(const ImageView& view) const {
    return structure_.blocks[index_.of(view.memory.get())];
  }

  /// Return whether the blocks differ and cannot be two views of the same bytes, as two images of one array can.
  bool are_disjoint(const ImageView& a, const ImageView& b) const {
    return a.memory != b.memory && (block_of(a).is_private || block_of(b).is_private);
  }

  bool stays(const ImageView& view, std::uint32_t first, std::uint32_t end) const {
    return stays(block_of(view), first, end);
  }
  /// Return whether commands in [first, end) leave the contents of a block unchanged and none of them is a host task.
  bool stays(const Structure::Block& block, std::uint32_t first, std::uint32_t end) const {
    bool is_kept = true;
    const auto check = [&](const std::shared_ptr<Memory>& memory) {
      if (!memory) return;
      is_kept = is_kept && memory.get() != block.memory &&
                (block.is_private || structure_.blocks[index_.of(memory.get())].is_private);
    };
    for (std::uint32_t i = first; is_kept && i < end; ++i) {
      std::visit(
          [&](const auto& problem) {
            if constexpr (Described<std::decay_t<decltype(problem)>>)
              for_each_result(problem, check);
            else
              is_kept = false;  // a host task may write anything
          },
          commands_[i].problem);
    }
    return is_kept;
  }

  /// Return the only other command that uses the result of a command, if its memory is private.
  std::optional<std::uint32_t> next_of(const ImageView& result, std::uint32_t last) const {
    const auto& block = block_of(result);
    if (!block.is_private || block.references != 2) return std::nullopt;
    const std::uint32_t next = last_use_[index_.of(result.memory.get())];
    if (next == last || taken_[next]) return std::nullopt;
    return next;
  }

  /// Return an activation and the product with it, if they are the only other commands that use the result.
  std::optional<std::array<std::uint32_t, 2>> gate_of(const ImageView& result, std::uint32_t last) const {
    const std::uint32_t block = index_.of(result.memory.get());
    if (!structure_.blocks[block].is_private || structure_.blocks[block].references != 3) return std::nullopt;
    const std::uint32_t product = last_use_[block];
    std::uint32_t neuron = last + 1;
    while (neuron < product && std::ranges::find(structure_.uses_of(neuron), block) == structure_.uses_of(neuron).end())
      ++neuron;
    if (neuron >= product || taken_[neuron] || taken_[product]) return std::nullopt;
    if (!gated(commands_[neuron].problem, commands_[product].problem)) return std::nullopt;
    if (next_of(result_of(commands_[neuron].problem), neuron) != product) return std::nullopt;
    return std::array{neuron, product};
  }

  Plan::Step step_of_sums(std::uint32_t first, const ReduceProblem& sum) const {
    const auto next = engine_.sums_pixels() ? next_of(sum.dst, first) : std::nullopt;
    const auto* const other = next ? std::get_if<ReduceProblem>(&commands_[*next].problem) : nullptr;
    if (!other || !summed(sum, *other)) return {{first}};
    if (!stays(sum.src, first + 1, *next) || !are_disjoint(sum.src, other->dst)) return {{first}};
    return {{first, *next}};
  }

  Plan::Step step_of_pair(std::uint32_t first) const {
    const ImageView& result = result_of(commands_[first].problem);
    const auto next = next_of(result, first);
    if (!next || !pair_of(engine_, commands_[first].problem, commands_[*next].problem)) return {{first}};
    // The sources of the first command are read when the next one runs, and it stores its result elsewhere.
    for (const std::uint32_t block : structure_.uses_of(first))
      if (block != index_.of(result.memory.get()) && !stays(structure_.blocks[block], first + 1, *next + 1))
        return {{first}};
    if (sums_masked(first, *next)) return {{first, *next, *next + 1}};
    return {{first, *next}};
  }

  /// Return whether the pair is a masked sum and the command after it sums its values, without writing to its sources.
  bool sums_masked(std::uint32_t first, std::uint32_t next) const {
    const auto* const sum = std::get_if<BinaryProblem>(&commands_[first].problem);
    const auto* const gradient = std::get_if<BinaryGradientProblem>(&commands_[next].problem);
    if (!sum || !gradient || next + 1 == commands_.size() || taken_[next + 1]) return false;
    const auto* const moments = std::get_if<BatchMomentsGradientProblem>(&commands_[next + 1].problem);
    const auto both = moments ? summed(*masked(*sum, *gradient), *moments) : std::nullopt;
    if (!both || !engine_.fuses(*both)) return false;
    const std::uint32_t middle = index_.of(sum->dst.memory.get());
    for (const std::uint32_t command : {first, next})
      for (const std::uint32_t block : structure_.uses_of(command))
        if (block != middle && !stays(structure_.blocks[block], next + 1, next + 2)) return false;
    // The values are stored while the statistics are read.
    for (const std::uint32_t block : structure_.uses_of(next + 1))
      if (structure_.blocks[block].memory != both->dst.memory.get() && !stays(structure_.blocks[block], next, next + 1))
        return false;
    return true;
  }

  Plan::Step step_from(std::uint32_t first) const {
    const Problem& problem = commands_[first].problem;
    if (std::holds_alternative<NormalizeProblem>(problem) || std::holds_alternative<BinaryProblem>(problem) ||
        std::holds_alternative<NeuronProblem>(problem))
      return step_of_pair(first);
    if (const auto* const sum = std::get_if<ReduceProblem>(&commands_[first].problem)) return step_of_sums(first, *sum);
    Plan::Step step{{first}};
    const auto* start = std::get_if<ConvProblem>(&commands_[first].problem);
    if (!start || start->subpixel > 1 || start->addend.memory) return step;
    ConvProblem conv = *start;
    for (;;) {
      const std::uint32_t before = step.commands.back();
      std::vector<std::uint32_t> found;  // one command, or two
      if (const auto gate = gate_of(conv.dst, before))
        found.assign(gate->begin(), gate->end());
      else if (const auto reader = next_of(conv.dst, before))
        found = {*reader};
      if (found.empty()) return step;
      const std::uint32_t next = found.back();
      const auto* const pool = std::get_if<PoolProblem>(&commands_[next].problem);
      if (pool && !can_pool(conv, *pool)) return step;
      if (!engine_.fuses(conv, commands_[found.front()].problem)) return step;
      if (pool) {  // the last one
        if (stays(conv.src, before + 1, next) && are_disjoint(conv.src, pool->dst)) step.commands.push_back(next);
        return step;
      }
      if (absorb(conv, commands_, found) != found.size()) return step;
      // The fused step runs when `next` would.
      if (!stays(conv.src, before + 1, next) || !are_disjoint(conv.src, conv.dst)) return step;
      if (conv.addend.memory) {
        const bool is_new = std::holds_alternative<BinaryProblem>(commands_[found.front()].problem);
        if (!is_new && (!stays(conv.addend, before + 1, next) || !are_disjoint(conv.addend, conv.dst))) return step;
      }
      step.commands.insert(step.commands.end(), found.begin(), found.end());
    }
  }

  const Engine& engine_;
  const std::vector<Command>& commands_;
  const Structure& structure_;
  const BlockIndex index_;
  std::vector<std::uint32_t> last_use_;
  std::vector<bool> taken_;
};

}  // namespace

bool is_plain(const Operand& operand, const ImageView& dst) {
  return operand.start_h == 0 && operand.start_w == 0 && !operand.repeat_h && !operand.repeat_w && !operand.repeat_c &&
         same_extents(operand.view, dst);
}

std::size_t absorb(ConvProblem& conv, const std::vector<Command>& commands, std::span<const std::uint32_t> next) {
  const Problem& first = commands[next.front()].problem;
  if (next.size() > 1) {
    const auto gate = gated(first, commands[next[1]].problem);
    if (gate && absorb_neuron(conv, *gate)) return 2;
  }
  if (const auto* sum = std::get_if<BinaryProblem>(&first)) return absorb_sum(conv, *sum) ? 1 : 0;
  if (const auto* neuron = std::get_if<NeuronProblem>(&first)) return absorb_neuron(conv, *neuron) ? 1 : 0;
  return 0;
}

ConvPoolProblem pooled(const ConvProblem& conv, const PoolProblem& pool) {
  return {.src = conv.src,
          .dst = pool.dst,
          .weights = conv.weights,
          .window = conv.window,
          .neuron = conv.neuron,
          .reduced_precision = conv.reduced_precision,
          .h = conv.dst.h,
          .w = conv.dst.w,
          .pool = pool.window};
}

const ImageView& result_of(const Problem& problem) {
  if (const auto* const conv = std::get_if<ConvProblem>(&problem)) return conv->dst;
  if (const auto* const neuron = std::get_if<NeuronProblem>(&problem)) return neuron->dst;
  if (const auto* const normalize = std::get_if<NormalizeProblem>(&problem)) return normalize->dst;
  if (const auto* const sum = std::get_if<BinaryProblem>(&problem)) return sum->dst;
  if (const auto* const pool = std::get_if<PoolProblem>(&problem)) return pool->dst;
  return std::get<ReduceProblem>(problem).dst;
}

Problem fused_problem(const std::vector<Command>& commands, const Plan::Step& step) {
  const Problem &first = commands[step.commands.front()].problem, &last = commands[step.commands.back()].problem;
  if (const auto* const sum = std::get_if<ReduceProblem>(&first)) return *summed(*sum, std::get<ReduceProblem>(last));
  if (const auto* const normalize = std::get_if<NormalizeProblem>(&first)) {
    if (const auto* const neuron = std::get_if<NeuronProblem>(&last)) return *activated(*normalize, *neuron);
    return *added(*normalize, std::get<BinaryProblem>(last));
  }
  if (const auto* const sum = std::get_if<BinaryProblem>(&first)) {
    const auto both = *masked(*sum, std::get<BinaryGradientProblem>(commands[step.commands[1]].problem));
    if (step.commands.size() == 2) return both;
    return *summed(both, std::get<BatchMomentsGradientProblem>(last));
  }
  if (std::holds_alternative<NeuronProblem>(first)) return *gated(first, last);
  ConvProblem conv = std::get<ConvProblem>(first);
  for (std::span<const std::uint32_t> next = std::span(step.commands).subspan(1); !next.empty();) {
    if (const auto* const pool = std::get_if<PoolProblem>(&commands[next.front()].problem)) return pooled(conv, *pool);
    next = next.subspan(absorb(conv, commands, next));
  }
  return conv;
}

std::vector<Plan::Step> fuse(const Engine& engine, const std::vector<Command>& commands, const Structure& structure) {
  return Fuser(engine, commands, structure).steps();
}

}  // namespace openmps
