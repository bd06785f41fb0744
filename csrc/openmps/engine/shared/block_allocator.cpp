// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/block_allocator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "engine/failure.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace openmps {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMaxFreeBlocks = 512;  // bounds the search, which is linear

// AddressSanitizer does not track memory from mmap: poison the bytes beyond the requested size and all free blocks. A
// guard page follows each block for this purpose only.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kGuard = kPage;
void forbid(std::byte* data, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }
void permit(std::byte* data, std::size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(data, bytes); }
#else
constexpr std::size_t kGuard = 0;
void forbid(std::byte*, std::size_t) {}
void permit(std::byte*, std::size_t) {}
#endif

/// Return the block size: three significant bits, so that nearly equal requests share blocks and at most 1/4 is lost.
/// 0: too large.
std::size_t block_size(std::size_t bytes) {
  if (bytes <= kPage) return kPage;
  if (bytes > (std::size_t{1} << 62)) return 0;
  const std::size_t step = std::max(kPage, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

std::byte* map_block(std::size_t block) {
  const std::size_t size = block + kGuard;
  const std::size_t alignment = size >= kHugePage ? kHugePage : kPage;
  const std::size_t mapped = size + (alignment - kPage);
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(address);
  const std::size_t skip = (alignment - reinterpret_cast<std::uintptr_t>(begin) % alignment) % alignment;
  if (skip) munmap(begin, skip);
  if (mapped > skip + size) munmap(begin + skip + size, mapped - skip - size);
  if (alignment == kHugePage) madvise(begin + skip, size, MADV_HUGEPAGE);  // a hint: failure is harmless
  return begin + skip;
}

void unmap_block(std::byte* data, std::size_t size) {
  permit(data, size + kGuard);
  munmap(data, size + kGuard);
}

/// Mark the first `bytes` of a block as in use and return it.
std::byte* handed_out(std::byte* data, std::size_t bytes, std::size_t size) {
  permit(data, bytes);
  forbid(data + bytes, size + kGuard - bytes);
  return data;
}

}  // namespace

BlockAllocator::~BlockAllocator() { trim(0); }

std::byte* BlockAllocator::allocate(std::size_t bytes) {
  const std::size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  if (size == 0 || size > limit_ || used_ > limit_ - size) throw OutOfMemory(bytes, used_);
  for (std::size_t i = free_.size(); i-- > 0;) {  // newest first: likely to be in a cache
    if (free_[i].size == size) return take_free(i, bytes);
  }
  return make_block(bytes, size);
}

std::byte* BlockAllocator::allocate_scratch(std::size_t bytes, std::size_t& block) {
  constexpr std::size_t kFactor = 4;
  const std::size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  if (size == 0 || size > limit_ || used_ > limit_ - size) throw OutOfMemory(bytes, used_);
  std::size_t best = free_.size();
  for (std::size_t i = free_.size(); i-- > 0;) {
    const std::size_t found = free_[i].size;
    if (found < size || found / kFactor > size || used_ > limit_ - found) continue;
    if (best == free_.size() || found < free_[best].size) best = i;
  }
  if (best != free_.size()) {
    block = free_[best].size;
    return take_free(best, bytes);
  }
  if (size > kPage * kFactor)
    std::erase_if(free_, [&](const Block& free) {
      if (free.size >= size || free.size < size / kFactor) return false;
      unmap_block(free.data, free.size);
      cached_ -= free.size;
      return true;
    });
  block = size;
  return make_block(bytes, size);
}

std::byte* BlockAllocator::take_free(std::size_t index, std::size_t bytes) {
  const Block block = free_[index];
  free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(index));
  cached_ -= block.size;
  count_used(block.size);
  return handed_out(block.data, bytes, block.size);
}

std::byte* BlockAllocator::make_block(std::size_t bytes, std::size_t size) {
  std::byte* data = map_block(size);
  if (!data) {
    trim_locked(0);
    data = map_block(size);
  }
  if (!data) throw OutOfMemory(bytes, used_);
  count_used(size);
  return handed_out(data, bytes, size);
}

void BlockAllocator::deallocate(std::byte* data, std::size_t bytes) noexcept {
  if (!data) return;
  const std::size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  used_ -= size;
  if (size > cache_limit_) return unmap_block(data, size);
  forbid(data, size);
  try {
    free_.push_back({data, size});
    cached_ += size;
  } catch (...) {
    unmap_block(data, size);
  }
  trim_locked(cache_limit_);
}

std::uint64_t BlockAllocator::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t BlockAllocator::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void BlockAllocator::reset_peak_bytes() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}

std::uint64_t BlockAllocator::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

void BlockAllocator::count_used(std::size_t size) {
  used_ += size;
  peak_ = std::max(peak_, used_);
}

void BlockAllocator::trim(std::uint64_t keep) noexcept {
  const std::lock_guard lock(mutex_);
  trim_locked(keep);
}

void BlockAllocator::trim_locked(std::uint64_t keep) noexcept {
  std::size_t drop = 0;
  while (drop < free_.size() && (cached_ > keep || free_.size() - drop > kMaxFreeBlocks)) {
    unmap_block(free_[drop].data, free_[drop].size);
    cached_ -= free_[drop].size;
    ++drop;
  }
  free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(drop));
}

}  // namespace openmps
