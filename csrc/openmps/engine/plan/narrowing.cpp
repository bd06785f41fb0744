// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/narrowing.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "engine/engine.hpp"
#include "engine/plan/steps.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Use of images by a kernel.
enum class Role : std::uint8_t {
  convolves,  ///< allows reduced precision: reads its source and writes its result as bfloat16
  follows,    ///< its result is rounded where its source is
  averages,   ///< the same, but its source stays float32 where only its result is rounded
  computes,   ///< converts what it reads and writes
  other,      ///< cannot use bfloat16
};

Role role_of(const ConvProblem& problem) { return problem.reduced_precision ? Role::convolves : Role::computes; }
Role role_of(const TransposeProblem& problem) { return problem.reduced_precision ? Role::convolves : Role::computes; }
/// Averages of numbers of bfloat16 are bfloat16, as in PyTorch's autocast.
Role role_of(const PoolProblem& problem) {
  switch (problem.type) {
    case PoolType::max: return Role::follows;
    case PoolType::average: return Role::averages;
    default: return Role::computes;
  }
}
Role role_of(const CopyProblem&) { return Role::follows; }
Role role_of(const ReshapeProblem&) { return Role::follows; }
Role role_of(const PadProblem& problem) {
  const bool is_constant = problem.edge == PadEdge::constant && (problem.fill != 0 || problem.fill_per_channel);
  return is_constant ? Role::computes : Role::follows;
}
Role role_of(const ResampleProblem& problem) {
  return problem.type == ResampleType::nearest ? Role::follows : Role::computes;
}
Role role_of(const NeuronProblem& problem) {
  return problem.neuron.type == NeuronType::relu && problem.neuron.a == 0 ? Role::follows : Role::computes;
}
Role role_of(const BinaryProblem& problem) { return problem.mask.memory ? Role::other : Role::computes; }
Role role_of(const NormalizeProblem&) { return Role::computes; }
/// Residual sums of a training step are rounded as the convolutions' results, as by PyTorch's autocast.
Role role_of(const NormalizeAddProblem& problem) { return problem.mask.memory ? Role::other : Role::follows; }
Role role_of(const ReduceProblem&) { return Role::computes; }
Role role_of(const SoftmaxProblem&) { return Role::computes; }
/// Gradients of depth-wise convolutions are products of float32.
Role role_of(const ConvGradientProblem& problem) {
  const bool is_depthwise = problem.weights && problem.weights->groups > 1;
  return problem.reduced_precision && !is_depthwise ? Role::convolves : Role::computes;
}
Role role_of(const TransposeGradientProblem&) { return Role::computes; }
Role role_of(const BatchMomentsProblem&) { return Role::computes; }
Role role_of(const BatchMomentsGradientProblem&) { return Role::computes; }
Role role_of(const NormalizeGradientProblem&) { return Role::computes; }
Role role_of(const MaskedSumProblem&) { return Role::computes; }
Role role_of(const MaskedSumMomentsProblem&) { return Role::computes; }
Role role_of(const BinaryGradientProblem&) { return Role::computes; }
Role role_of(const NeuronGradientProblem&) { return Role::computes; }
template <class P>
Role role_of(const P&) {
  return Role::other;
}

/// Finds the blocks that may be narrowed.
class Narrower {
 public:
  Narrower(const std::vector<Command>& commands, const Structure& structure, const std::vector<Plan::Step>& steps)
      : index_(structure), blocks_(structure.blocks.size()) {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i].may_be = structure.blocks[i].is_fresh && structure.blocks[i].is_apart;
    for (const Plan::Step& step : steps) add(planned_problem(commands, step));
  }

  std::vector<std::uint32_t> narrowed() {
    const std::vector<bool> by_writers = rounded(&Block::writers), by_readers = rounded(&Block::readers);
    std::vector<std::uint32_t> result;
    for (std::uint32_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i].is_used() && (by_writers[i] || by_readers[i])) result.push_back(i);
    return result;
  }

 private:
  struct Use {
    Role role;
    std::uint32_t other;  ///< of a kernel that follows: the block on its other side
  };
  struct Block {
    bool may_be = false;  ///< its memory, and all uses so far, permit bfloat16
    std::vector<Use> writers, readers;

    bool is_used() const { return !writers.empty() || !readers.empty(); }
  };

  void add(const Problem& problem) {
    std::visit(
        [&](const auto& each) {
          if constexpr (Described<std::decay_t<decltype(each)>>) add_uses(each);
        },
        problem);
  }

  template <class P>
  void add_uses(const P& problem) {
    const Role role = role_of(problem);
    std::vector<std::uint32_t> used, results;  // blocks, as often as they are used
    for_each_memory(problem, [&](const std::shared_ptr<Memory>& memory) {
      if (memory) used.push_back(index_.of(memory.get()));
    });
    for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
      if (memory) results.push_back(index_.of(memory.get()));
    });
    std::vector<std::uint32_t> floats;
    for_each_image(problem, [&](const ImageView& view) {
      if (view.memory && view.format == Format::float32 && view.offset % sizeof(float) == 0)
        floats.push_back(index_.of(view.memory.get()));
    });
    for (const std::uint32_t at : used) {
      Block& block = blocks_[at];
      const auto uses = std::ranges::count(used, at), writes = std::ranges::count(results, at);
      if (role == Role::other || std::ranges::count(floats, at) != uses) block.may_be = false;
      if (writes) block.writers.push_back({role, source_of(problem)});
      if (uses > writes) block.readers.push_back({is_addend(problem, at) ? Role::computes : role, result_of(problem)});
    }
  }

  template <class P>
  std::uint32_t source_of(const P& problem) const {
    if constexpr (requires { index_.of(problem.src.memory.get()); }) return index_.of(problem.src.memory.get());
    if constexpr (requires { index_.of(problem.src.view.memory.get()); })
      return index_.of(problem.src.view.memory.get());
    return BlockIndex::kNone;
  }
  template <class P>
  std::uint32_t result_of(const P& problem) const {
    if constexpr (requires { index_.of(problem.dst.memory.get()); }) return index_.of(problem.dst.memory.get());
    return BlockIndex::kNone;
  }
  /// Return whether a convolution adds the block's values, which it does not multiply.
  template <class P>
  bool is_addend(const P& problem, std::uint32_t block) const {
    if constexpr (requires { problem.addend.memory; }) return index_.of(problem.addend.memory.get()) == block;
    return false;
  }

  /// Return for each block whether all its writers, or all its readers, round to bfloat16. Starts with all blocks, and
  /// removes those with another use until none is left.
  std::vector<bool> rounded(std::vector<Use> Block::* side) const {
    std::vector<bool> result;
    for (const Block& block : blocks_) result.push_back(block.may_be);
    const auto rounds = [&](const Use& use) {
      const bool may_follow = use.role == Role::follows || (use.role == Role::averages && side == &Block::writers);
      return use.role == Role::convolves || (may_follow && use.other != BlockIndex::kNone && result[use.other]);
    };
    for (bool changes = true; changes;) {
      changes = false;
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (!result[i] || std::ranges::all_of(blocks_[i].*side, rounds)) continue;
        result[i] = false;
        changes = true;
      }
    }
    return result;
  }

  const BlockIndex index_;
  std::vector<Block> blocks_;
};

}  // namespace

std::vector<std::uint32_t> narrowed_blocks(const Engine& engine, const std::vector<Command>& commands,
                                           const Structure& structure, const std::vector<Plan::Step>& steps) {
  const auto allows = [](const Command& command) {
    return std::visit([](const auto& each) { return role_of(each) == Role::convolves; }, command.problem);
  };
  if (!engine.narrows() || std::ranges::none_of(commands, allows)) return {};
  return Narrower(commands, structure, steps).narrowed();
}

bool can_be_narrow(const Problem& problem) {
  return std::visit([](const auto& each) { return role_of(each) != Role::other; }, problem);
}

NarrowedMemory::NarrowedMemory(const Plan& plan, const Structure& structure) {
  for (const std::uint32_t block : plan.narrowed) memory_.push_back(structure.blocks[block].memory);
  std::ranges::sort(memory_, std::less<>());
}

bool NarrowedMemory::contains(const Memory* memory) const {
  return std::ranges::binary_search(memory_, memory, std::less<>());
}

bool NarrowedMemory::is_used_by(const Problem& problem) const {
  if (memory_.empty()) return false;
  bool is_used = false;
  std::visit(
      [&](const auto& each) {
        if constexpr (Described<std::decay_t<decltype(each)>>)
          for_each_image(each, [&](const ImageView& view) { is_used = is_used || contains(view.memory.get()); });
      },
      problem);
  return is_used;
}

Problem NarrowedMemory::apply_to(const Problem& problem) const {
  Problem result = problem;
  std::visit(
      [&](auto& each) {
        if constexpr (Described<std::decay_t<decltype(each)>>)
          for_each_image(each, [&](ImageView& view) {
            if (!contains(view.memory.get())) return;
            view.format = Format::bfloat16;
            view.offset /= 2;
          });
      },
      result);
  return result;
}

}  // namespace openmps
