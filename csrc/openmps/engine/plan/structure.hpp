// SPDX-License-Identifier: Apache-2.0
// What a list of commands looks like: its key, and which blocks of memory its commands use.
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
  /// Kinds, extents, strides, formats, windows, neurons, which commands share memory and which memory nobody else
  /// knows, without addresses or values: lists of equal structure have equal keys.
  std::string key;

  struct Block {
    Memory* memory = nullptr;
    std::uint32_t references = 0;  ///< from the list
    /// Of an engine's own memory, and only the list refers to it: what is in it before and after is seen by nobody.
    bool is_private = false;
  };
  std::vector<Block> blocks;  ///< in the order of their first use

  std::vector<std::uint32_t> uses;       ///< blocks of command 0, of command 1, ...
  std::vector<std::uint32_t> uses_ends;  ///< behind the last one of each command
  std::span<const std::uint32_t> uses_of(std::size_t command) const {
    const std::size_t begin = command ? uses_ends[command - 1] : 0;
    return {uses.data() + begin, uses_ends[command] - begin};
  }
};

/// Which block a memory is.
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
