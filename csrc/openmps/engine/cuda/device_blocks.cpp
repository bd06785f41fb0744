// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_blocks.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace openmps::cuda {
namespace {

constexpr std::size_t kMinBlock = 512;  // alignment that cuMemAlloc guarantees at least [CUDA C Programming Guide]

/// Three significant bits, so that nearly equal requests share blocks and at most 1/4 is lost.
std::size_t block_size(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 62)) throw std::bad_alloc();
  const std::size_t step = std::max(kMinBlock, std::bit_floor(std::max(bytes, kMinBlock)) / 4);
  return (std::max(bytes, std::size_t{1}) + step - 1) / step * step;
}

}  // namespace

std::byte* DeviceBlocks::allocate(std::size_t bytes) {
  const std::size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* block = nullptr;
  if (const auto kept = free_.find(size); kept != free_.end()) {
    block = kept->second;
    free_.erase(kept);
    use_.cached -= size;
  } else {
    try {
      block = take(size);
    } catch (const std::bad_alloc&) {
      if (free_.empty()) throw;
      trim_locked();
      block = take(size);
    }
  }
  in_use_.emplace(block, size);
  use_.allocated += size;
  use_.peak = std::max(use_.peak, use_.allocated);
  return block;
}

void DeviceBlocks::deallocate(std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(block);
  const std::size_t size = found->second;
  in_use_.erase(found);
  free_.emplace(size, block);
  use_.allocated -= size;
  use_.cached += size;
}

void DeviceBlocks::trim() noexcept {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void DeviceBlocks::trim_locked() noexcept {
  for (const auto& [size, block] : free_) give(block);
  free_.clear();
  use_.cached = 0;
}

MemoryUse DeviceBlocks::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void DeviceBlocks::reset_peak_bytes() {
  const std::lock_guard lock(mutex_);
  use_.peak = use_.allocated;
}

}  // namespace openmps::cuda
