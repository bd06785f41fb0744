// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/arena.hpp"

#include <algorithm>

#include "engine/plan/fusion.hpp"
#include "engine/plan/parts.hpp"

namespace openmps {
namespace {

constexpr std::size_t kAlignment = 256;

/// What shares one place: a block, or the blocks of a batch's parts in a row; and what is stored over them as they are
/// read for the last time.
struct Slot {
  std::size_t bytes = 0, offset = 0;
  std::uint32_t first = 0xffffffff, last = 0;  ///< steps
  bool is_used() const { return first <= last && bytes > 0; }
  bool meets(const Slot& other) const { return first <= other.last && other.first <= last; }
};

class Placer {
 public:
  Placer(const std::vector<Command>& commands, const Structure& structure, Plan& plan)
      : commands_(commands), structure_(structure), index_(structure), plan_(plan), slots_(structure.blocks.size()) {}

  void place() {
    find_rows();
    find_times();
    share_places();
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].is_used() && slot_of_[i] == i) order.push_back(i);
    }
    // Large ones first: the small ones fit between them.
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return slots_[a].bytes > slots_[b].bytes; });
    for (std::size_t i = 0; i < order.size(); ++i) settle(order, i);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      const Slot& row = slots_[row_of_[i].slot];
      if (row.is_used()) plan_.placements.push_back({i, slots_[slot_of_[row_of_[i].slot]].offset + row_of_[i].offset});
    }
  }

 private:
  /// Where a block lies in the row that the slot of its first block stands for.
  struct Member {
    std::uint32_t slot;
    std::size_t offset = 0;
  };

  /// Blocks side by side that hold the parts of a batch, for as long as all of them are needed. A block is in one row
  /// at most.
  void find_rows() {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) row_of_.push_back({i});
    std::vector<bool> is_taken(slots_.size());
    for (const Plan::Step& step : plan_.steps) {
      if (step.parts == 1) continue;
      std::vector<Problem> parts;
      for (std::size_t i = 0; i < step.parts; ++i) parts.push_back(problem_of(commands_, step.part(i)));
      for (std::size_t image = 0; image < images_of(parts.front()).size(); ++image) {
        std::vector<std::uint32_t> row;
        for (Problem& part : parts) {
          const ImageView& view = *images_of(part)[image];
          if (!view.memory) break;
          const std::uint32_t block = index_.of(view.memory.get());
          const auto bytes = static_cast<std::size_t>(view.n * view.n_stride) * size_of(view.format);
          if (!structure_.blocks[block].is_private || is_taken[block] || bytes != view.memory->size()) break;
          if (std::find(row.begin(), row.end(), block) != row.end()) break;
          row.push_back(block);
        }
        if (row.size() < parts.size()) continue;
        std::size_t offset = 0;
        for (const std::uint32_t block : row) {
          is_taken[block] = true;
          row_of_[block] = {row.front(), offset};
          offset += structure_.blocks[block].memory->size();
        }
      }
    }
  }

  void find_times() {
    for (std::uint32_t at = 0; at < plan_.steps.size(); ++at) {
      for (const std::uint32_t command : plan_.steps[at].commands) {
        for (const std::uint32_t block : structure_.uses_of(command)) {
          Slot& slot = slots_[row_of_[block].slot];
          slot.first = std::min(slot.first, at);
          slot.last = std::max(slot.last, at);
        }
      }
    }
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      slot_of_.push_back(i);
      const auto& block = structure_.blocks[i];
      if (!block.is_private) continue;
      Slot& slot = slots_[row_of_[i].slot];
      slot.bytes = std::max(slot.bytes, row_of_[i].offset + block.memory->size());
    }
    for (Slot& slot : slots_) slot.bytes = (slot.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// What is handed on within a step is never in memory, and a sum may be stored over the addend.
  void share_places() {
    for (std::uint32_t at = 0; at < plan_.steps.size(); ++at) {
      for (std::size_t part = 0; part < plan_.steps[at].parts; ++part) share_places(at, plan_.steps[at].part(part));
    }
  }
  void share_places(std::uint32_t at, std::span<const std::uint32_t> members) {
    if (members.size() == 1) return;
    ConvProblem fused = std::get<ConvProblem>(commands_[members.front()].problem);
    for (const std::uint32_t command : members.subspan(1)) {
      slots_[index_.of(fused.dst.memory.get())].bytes = 0;  // in no row: only these commands refer to it
      absorb(fused, commands_[command].problem);
    }
    const ImageView &addend = fused.addend, &dst = fused.dst;
    if (!addend.memory || addend.memory == fused.src.memory) return;
    const Member &added = row_of_[index_.of(addend.memory.get())], &stored = row_of_[index_.of(dst.memory.get())];
    const std::uint32_t from = added.slot, to = stored.slot;
    if (!slots_[from].is_used() || !slots_[to].is_used() || slots_[from].bytes != slots_[to].bytes) return;
    // Of the parts of a batch, the first one speaks for all: their rows end together.
    if (slot_of_[to] != to || slots_[slot_of_[from]].last != at || slots_[to].first != at) return;
    if (added.offset != stored.offset || addend.offset != dst.offset) return;
    if (dst.format != Format::float32 || !dst.is_dense()) return;
    slots_[slot_of_[from]].last = slots_[to].last;
    slot_of_[to] = slot_of_[from];
  }

  /// The lowest place that is free for the whole time of a slot.
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

  const std::vector<Command>& commands_;
  const Structure& structure_;
  const BlockIndex index_;
  Plan& plan_;
  std::vector<Slot> slots_;
  std::vector<Member> row_of_;  ///< of each block
  std::vector<std::uint32_t> slot_of_;
};

}  // namespace

void place_blocks(const std::vector<Command>& commands, const Structure& structure, Plan& plan) {
  Placer(commands, structure, plan).place();
}

Arena::Arena(Engine& engine, const Plan& plan, const Structure& structure) : engine_(engine), bytes_(plan.arena_bytes) {
  if (!bytes_) return;
  placed_.reserve(plan.placements.size());
  data_ = engine.allocate(bytes_);
  for (const Plan::Placement& placement : plan.placements) {
    Memory* const memory = structure.blocks[placement.block].memory;
    if (memory->owner() != &engine || memory->is_allocated()) continue;  // something was written before this list
    memory->place(data_ + placement.offset);
    placed_.push_back(memory);
  }
}

Arena::~Arena() {
  for (Memory* memory : placed_) memory->displace();
  if (data_) engine_.deallocate(data_, bytes_);
}

}  // namespace openmps
