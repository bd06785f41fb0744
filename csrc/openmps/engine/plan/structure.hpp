// SPDX-License-Identifier: Apache-2.0
// Structure of a list of commands: its key and the memory blocks that its commands use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/problem/fwd.hpp"

namespace openmps {

class Memory;

struct Structure {
  /// Kinds, extents, strides, formats, windows, neurons, which commands share memory and which memory is private; no
  /// addresses or values. Lists of equal structure have equal keys.
  std::string key;

  struct Block {
    Memory* memory = nullptr;
    std::uint32_t references = 0;  ///< from the list
    /// Owned by an engine and referred to only by the list: nothing else reads or writes its contents.
    bool is_private = false;
    bool is_fresh = false;  ///< private, and nothing has been written to it before the list
    bool is_apart = false;  ///< allocated by an engine, and no other block of the list is a part of it
  };
  std::vector<Block> blocks;  ///< in order of first use

  std::vector<std::uint32_t> uses;       ///< block indices of command 0, of command 1, ...
  std::vector<std::uint32_t> uses_ends;  ///< end of each command's uses
  std::span<const std::uint32_t> uses_of(std::size_t command) const {
    const std::size_t begin = command ? uses_ends[command - 1] : 0;
    return {uses.data() + begin, uses_ends[command] - begin};
  }
};

/// Maps memory to its index in Structure::blocks.
class BlockIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  explicit BlockIndex(const Structure& structure) {
    for (std::uint32_t i = 0; i < structure.blocks.size(); ++i) index_[structure.blocks[i].memory] = i;
  }
  std::uint32_t of(const Memory* memory) const {
    const auto found = index_.find(memory);
    return found == index_.end() ? kNone : found->second;
  }

 private:
  std::unordered_map<const Memory*, std::uint32_t> index_;
};

Structure describe(const std::vector<Command>& commands);

}  // namespace openmps
