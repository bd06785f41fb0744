// SPDX-License-Identifier: Apache-2.0
// Blocks of memory that a driver allocates, kept for reuse: the driver's allocations take longer than small kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "engine/memory.hpp"

namespace openmps::cuda {

class DeviceBlocks {
 public:
  virtual ~DeviceBlocks() = default;

  /// Return a block of at least `bytes`. When memory runs out, free the blocks that are kept and try once more. Throws
  /// OutOfMemory.
  std::byte* allocate(std::size_t bytes);
  void deallocate(std::byte* block) noexcept;
  /// Return the bytes of the block that allocate() returns.
  static std::size_t block_bytes(std::size_t bytes);
  /// Free the blocks that are kept.
  void trim() noexcept;
  MemoryUse use() const;
  void reset_peak_bytes();

 protected:
  /// Throws std::bad_alloc.
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void give(std::byte* block) noexcept = 0;

 private:
  /// Return null if memory runs out.
  std::byte* try_take(std::size_t bytes);
  void trim_locked() noexcept;

  mutable std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> free_;         ///< by size
  std::unordered_map<std::byte*, std::size_t> in_use_;  ///< size of each block
  MemoryUse use_;
};

}  // namespace openmps::cuda
