// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/staging.hpp"

#include <algorithm>
#include <vector>

#include "engine/engine.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Overlapping blocks of a device and their copy on the host.
struct Staged {
  std::byte *first, *end;       ///< addresses on the device
  std::vector<Memory*> blocks;  ///< in any order
  std::shared_ptr<Memory> copy;
  bool is_written = false;

  /// Call move(block, offset of the block in the copy) for each block.
  template <class Move>
  void for_each_block(const Move& move) const {
    for (Memory* block : blocks) move(*block, static_cast<std::size_t>(block->address() - first));
  }
};

std::vector<Staged> overlapping(std::vector<Memory*> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](Memory* a, Memory* b) { return a->address() < b->address(); });
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  std::vector<Staged> result;
  for (Memory* block : blocks) {
    std::byte* const first = block->address();
    if (result.empty() || first >= result.back().end) result.push_back({first, first, {}, nullptr});
    result.back().end = std::max(result.back().end, first + block->size());
    result.back().blocks.push_back(block);
  }
  return result;
}

}  // namespace

Problem with_memory(const Problem& problem,
                    const std::function<std::shared_ptr<Memory>(const std::shared_ptr<Memory>&)>& replace) {
  Problem result = problem;
  std::visit(
      [&](auto& each) {
        if constexpr (Described<std::decay_t<decltype(each)>>)
          for_each_memory(each, [&](std::shared_ptr<Memory>& memory) {
            if (memory) memory = replace(memory);
          });
      },
      result);
  return result;
}

void run_on_processor(const Problem& problem) {
  Engine& processor = *processor_engine();
  std::vector<Memory*> blocks;
  const auto with_described = [&](const auto& visit) {
    std::visit(
        [&](const auto& each) {
          if constexpr (Described<std::decay_t<decltype(each)>>) visit(each);
        },
        problem);
  };
  with_described([&](const auto& each) {
    for_each_memory(each, [&](const std::shared_ptr<Memory>& memory) {
      if (memory && memory->storage() == Storage::device) blocks.push_back(memory.get());
    });
  });
  if (blocks.empty()) {
    processor.try_run(problem);
    return processor.synchronize();
  }
  std::vector<Staged> all = overlapping(blocks);
  const auto staged_of = [&](const Memory* block) -> Staged& {
    return *std::find_if(all.begin(), all.end(), [&](const Staged& each) {
      return std::find(each.blocks.begin(), each.blocks.end(), block) != each.blocks.end();
    });
  };
  with_described([&](const auto& each) {
    for_each_result(each, [&](const std::shared_ptr<Memory>& memory) {
      if (memory && memory->storage() == Storage::device) staged_of(memory.get()).is_written = true;
    });
  });
  for (Staged& each : all) {
    each.copy = Memory::lazy(processor.shared_from_this(), static_cast<std::size_t>(each.end - each.first));
    each.for_each_block(
        [&](Memory& block, std::size_t offset) { block.download(0, block.size(), each.copy->data() + offset); });
  }
  processor.try_run(with_memory(problem, [&](const std::shared_ptr<Memory>& memory) {
    if (memory->storage() == Storage::host) return memory;
    const Staged& each = staged_of(memory.get());
    return Memory::part(each.copy, static_cast<std::size_t>(memory->address() - each.first), memory->size());
  }));
  processor.synchronize();
  for (const Staged& each : all)
    if (each.is_written)
      each.for_each_block(
          [&](Memory& block, std::size_t offset) { block.upload(0, block.size(), each.copy->data() + offset); });
}

}  // namespace openmps
