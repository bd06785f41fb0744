// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/arena.hpp"

#include <algorithm>
#include <span>

#include "engine/engine.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/masks.hpp"
#include "engine/plan/quantization.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

constexpr std::size_t kAlignment = 256;

/// Place of a block and of the blocks that reuse it from the step of its last read.
struct Slot {
  std::size_t bytes = 0, offset = 0;
  std::uint32_t first = 0xffffffff, last = 0;  ///< steps
  std::uint32_t gap_after = 0, gap_end = 0;    ///< free after the one until the other; no gap: 0, 0
  bool is_used() const { return first <= last && bytes > 0; }
  bool meets(const Slot& other) const {
    return first <= other.last && other.first <= last && !is_free_for(other) && !other.is_free_for(*this);
  }
  /// Return whether the other slot is used only in the gap of this one.
  bool is_free_for(const Slot& other) const { return gap_after < other.first && other.last < gap_end; }
};

class Placer {
 public:
  Placer(const Engine& engine, const std::vector<Command>& commands, const Structure& structure, Plan& plan)
      : engine_(engine),
        commands_(commands),
        structure_(structure),
        index_(structure),
        plan_(plan),
        slots_(structure.blocks.size()) {}

  void place() {
    find_times();
    for (std::uint32_t at = 0; at < plan_.steps.size(); ++at) share_places(at);
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].is_used() && slot_of_[i] == i) order.push_back(i);
    }
    // Largest first: small slots fill the gaps.
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return slots_[a].bytes > slots_[b].bytes; });
    for (std::size_t i = 0; i < order.size(); ++i) settle(order, i);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].is_used()) plan_.placements.push_back({i, slots_[slot_of_[i]].offset});
    }
  }

 private:
  void find_times() {
    std::vector<bool> is_dropped(slots_.size()), is_written(commands_.size());
    values_of_byte_.assign(slots_.size(), 1);
    for (const Plan::Step& step : plan_.steps)
      for (const std::uint32_t command : step.commands) is_written[command] = true;
    const auto use = [&](std::uint32_t block, std::uint32_t at) {
      Slot& slot = slots_[block];
      slot.first = std::min(slot.first, at);
      slot.last = std::max(slot.last, at);
    };
    std::uint32_t first_of_group = 0, last_of_group = 0;
    for (std::uint32_t at = 0; at < plan_.steps.size(); ++at) {
      const Plan::Step& step = plan_.steps[at];
      if (at == 0 || at > last_of_group) first_of_group = at, last_of_group = at + step.group - 1;
      for (const std::uint32_t command : step.commands) {
        for (const std::uint32_t block : structure_.uses_of(command)) {
          Slot& slot = slots_[block];
          if (step.is_again && is_result(block, command)) slot.gap_after = slot.last, slot.gap_end = at;
          use(block, at);
          use(block, first_of_group), use(block, last_of_group);
        }
      }
      for (const std::uint32_t command : step.dequantizations) {
        use(block_of(numbers_of(commands_[command])), at);
        if (!is_written[command]) is_dropped[block_of(values_of(commands_[command]))] = true;
      }
      if (step.drops_mask) is_dropped[block_of(sum_of(step.commands.back()).mask)] = true;
      if (step.has_packed_mask)
        if (const auto* const sum = std::get_if<BinaryProblem>(&commands_[step.commands.back()].problem))
          values_of_byte_[block_of(sum->mask)] = static_cast<std::size_t>(values_of_mask_byte(sum->dst.format));
      if (step.masking != Plan::Step::kNone) use(block_of(sum_of(step.masking).dst), at);
    }
    for (std::uint32_t first = 0; first < plan_.steps.size(); first += plan_.steps[first].group)
      if (!plan_.steps[first].stores_images) drop_images_between(first, is_dropped);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      slot_of_.push_back(i);
      const auto& block = structure_.blocks[i];
      if (!is_dropped[i] && block.is_private && block.memory->storage() == engine_.image_storage())
        slots_[i].bytes = (size_of(i) + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  /// Drop the images between the steps of a group, unless something else uses their memory.
  void drop_images_between(std::uint32_t first, std::vector<bool>& is_dropped) const {
    const std::uint32_t last = first + plan_.steps[first].group - 1;
    for (std::uint32_t at = first; at < last; ++at) {
      const std::uint32_t block = block_of(result_of(commands_[plan_.steps[at].commands.back()].problem));
      if (slots_[block].first == first && slots_[block].last == last) is_dropped[block] = true;
    }
  }

  bool is_narrowed(std::uint32_t block) const { return std::ranges::binary_search(plan_.narrowed, block); }
  std::size_t size_of(std::uint32_t block) const {
    return structure_.blocks[block].memory->size() / (is_narrowed(block) ? 2 : values_of_byte_[block]);
  }
  std::uint32_t block_of(const ImageView& view) const { return index_.of(view.memory.get()); }
  const BinaryProblem& sum_of(std::uint32_t command) const {
    return std::get<BinaryProblem>(commands_[command].problem);
  }

  bool is_result(std::uint32_t block, std::uint32_t command) const {
    bool found = false;
    std::visit(
        [&](const auto& problem) {
          if constexpr (requires { problem.dst.memory; }) found = index_.of(problem.dst.memory.get()) == block;
        },
        commands_[command].problem);
    return found;
  }

  /// Drop the places of results between commands of one step; let a sum overwrite its addend.
  void share_places(std::uint32_t at) {
    const auto& members = plan_.steps[at].commands;
    if (members.size() == 1) return;
    for (const std::uint32_t command : std::span(members).first(members.size() - 1))
      if (!std::holds_alternative<BinaryGradientProblem>(commands_[command].problem))  // others read its result, too
        slots_[index_.of(result_of(commands_[command].problem).memory.get())].bytes = 0;
    if (!engine_.adds_in_place() || !plan_.steps[at].dequantizations.empty()) return;
    const Problem problem = fused_problem(commands_, plan_.steps[at]);
    const auto* const conv = std::get_if<ConvProblem>(&problem);
    if (!conv) return;
    const ImageView &addend = conv->addend, &dst = conv->dst;
    if (!addend.memory || addend.memory == conv->src.memory) return;
    const std::uint32_t from = index_.of(addend.memory.get()), to = index_.of(dst.memory.get());
    if (!slots_[from].is_used() || !slots_[to].is_used() || slots_[from].bytes != slots_[to].bytes) return;
    if (is_narrowed(from) != is_narrowed(to)) return;
    if (slot_of_[to] != to || slots_[slot_of_[from]].last != at || slots_[to].first != at) return;
    if (addend.offset != dst.offset || dst.format != Format::float32 || !dst.is_dense()) return;
    slots_[slot_of_[from]].last = slots_[to].last;
    slot_of_[to] = slot_of_[from];
  }

  /// Place a slot at the lowest offset that is free from its first to its last step.
  void settle(const std::vector<std::uint32_t>& order, std::size_t count) {
    Slot& slot = slots_[order[count]];
    std::vector<const Slot*> others;
    for (std::size_t i = 0; i < count; ++i) {
      if (slots_[order[i]].meets(slot)) others.push_back(&slots_[order[i]]);
    }
    std::sort(others.begin(), others.end(), [](const Slot* a, const Slot* b) { return a->offset < b->offset; });
    for (const Slot* other : others) {
      if (slot.offset + slot.bytes <= other->offset) break;
      slot.offset = std::max(slot.offset, other->offset + other->bytes);
    }
    plan_.arena_bytes = std::max(plan_.arena_bytes, slot.offset + slot.bytes);
  }

  const Engine& engine_;
  const std::vector<Command>& commands_;
  const Structure& structure_;
  const BlockIndex index_;
  Plan& plan_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> values_of_byte_;  ///< of blocks with packed masks
  std::vector<std::uint32_t> slot_of_;
};

}  // namespace

void place_blocks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure, Plan& plan) {
  Placer(engine, commands, structure, plan).place();
}

Arena::Arena(Engine& engine, const Plan& plan, const Structure& structure, std::shared_ptr<void>& stream) {
  if (!plan.arena_bytes) return;
  placed_.reserve(plan.placements.size());
  data_ = engine.arena(plan.arena_bytes, stream);
  for (const Plan::Placement& placement : plan.placements) {
    Memory* const memory = structure.blocks[placement.block].memory;
    if (memory->owner() != &engine || memory->is_allocated()) continue;  // written before this list
    memory->place(data_.get() + placement.offset);
    placed_.push_back(memory);
  }
}

Arena::~Arena() {
  for (Memory* memory : placed_) memory->displace();
}

}  // namespace openmps
