// SPDX-License-Identifier: Apache-2.0
// Page-aligned blocks that are kept for the next user, so that the temporaries of a network which runs again and again
// cost neither system calls nor page faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/memory.hpp"

namespace openmps {

class BlockAllocator {
 public:
  /// `limit`: bytes that may be in use at once. `cache_limit`: bytes of free blocks that are kept.
  BlockAllocator(std::uint64_t limit, std::uint64_t cache_limit) : limit_(limit), cache_limit_(cache_limit) {}
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  /// Contents are undefined. Throws std::bad_alloc. Alignment: a page; 2 MB for blocks of that size on.
  std::byte* allocate(std::size_t bytes);
  /// `bytes` as given to allocate().
  void deallocate(std::byte* data, std::size_t bytes) noexcept;
  /// Of blocks in use, rounded up to the sizes that blocks have.
  std::uint64_t used_bytes() const;
  /// The most that used_bytes() has been since reset_peak_bytes().
  std::uint64_t peak_bytes() const;
  void reset_peak_bytes();
  /// Of free blocks that are kept.
  std::uint64_t cached_bytes() const;
  /// Gives free blocks back to the system until at most `keep` bytes of them are left.
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

  const std::uint64_t limit_, cache_limit_;
  mutable std::mutex mutex_;
  std::vector<Block> free_;  ///< oldest first
  std::uint64_t used_ = 0, cached_ = 0, peak_ = 0;
};

inline MemoryUse memory_use_of(const BlockAllocator& allocator) {
  return {allocator.used_bytes(), allocator.peak_bytes(), allocator.cached_bytes()};
}

}  // namespace openmps
