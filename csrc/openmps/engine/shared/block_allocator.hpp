// SPDX-License-Identifier: Apache-2.0
// Page-aligned blocks that are kept for reuse, so that the temporaries of a network that runs repeatedly cost neither
// system calls nor page faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/memory.hpp"

namespace openmps {

class BlockAllocator {
 public:
  /// `limit`: max bytes in use at once. `cache_limit`: max bytes of free blocks that are kept.
  BlockAllocator(std::uint64_t limit, std::uint64_t cache_limit) : limit_(limit), cache_limit_(cache_limit) {}
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  /// Return uninitialized memory, aligned to a page, or to 2 MB from that block size on. Throws std::bad_alloc.
  std::byte* allocate(std::size_t bytes);
  /// The same for a short time: a free block of up to four times the size is taken before a new one is made, and a new
  /// one replaces free ones that are smaller by up to this factor. So scratch memory of many sizes takes little more
  /// than that of the largest. `block`: what to pass to deallocate().
  std::byte* allocate_scratch(std::size_t bytes, std::size_t& block);
  /// `bytes` as passed to allocate().
  void deallocate(std::byte* data, std::size_t bytes) noexcept;
  /// Return the bytes in use, rounded up to block sizes.
  std::uint64_t used_bytes() const;
  /// Return the max of used_bytes() since reset_peak_bytes().
  std::uint64_t peak_bytes() const;
  void reset_peak_bytes();
  /// Return the bytes of free blocks that are kept.
  std::uint64_t cached_bytes() const;
  /// Return free blocks to the system until at most `keep` bytes are left.
  void trim(std::uint64_t keep) noexcept;

  /// Hold the lock over a fork, so that the child can free blocks [pthread_atfork(3)].
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }

 private:
  struct Block {
    std::byte* data;
    std::size_t size;
  };
  void count_used(std::size_t size);
  void trim_locked(std::uint64_t keep) noexcept;
  std::byte* take_free(std::size_t index, std::size_t bytes);
  std::byte* make_block(std::size_t bytes, std::size_t size);

  const std::uint64_t limit_, cache_limit_;
  mutable std::mutex mutex_;
  std::vector<Block> free_;  ///< oldest first
  std::uint64_t used_ = 0, cached_ = 0, peak_ = 0;
};

inline MemoryUse memory_use_of(const BlockAllocator& allocator) {
  return {allocator.used_bytes(), allocator.peak_bytes(), allocator.cached_bytes()};
}

}  // namespace openmps
