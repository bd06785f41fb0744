// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_blocks.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr std::size_t kMinBlock = 512;  // alignment that cuMemAlloc guarantees at least [CUDA C Programming Guide]
constexpr std::size_t kMaxStep = std::size_t{128} << 20;

}  // namespace

/// Three significant bits, so that nearly equal requests share blocks and at most 1/4 is lost; of large blocks, which
/// are few, at most kMaxStep.
std::size_t DeviceBlocks::block_bytes(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 62)) throw OutOfMemory(bytes, 0);
  const std::size_t step = std::clamp(std::bit_floor(std::max(bytes, kMinBlock)) / 4, kMinBlock, kMaxStep);
  return (std::max(bytes, std::size_t{1}) + step - 1) / step * step;
}

std::byte* DeviceBlocks::try_take(std::size_t bytes) {
  try {
    return take(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::byte* DeviceBlocks::allocate(std::size_t bytes) {
  std::size_t size = block_bytes(bytes);
  const std::size_t may_lose = size >= 4 * kMaxStep ? size / 4 : 0;
  const std::lock_guard lock(mutex_);
  std::byte* block = nullptr;
  if (const auto kept = free_.lower_bound(size); kept != free_.end() && kept->first - size <= may_lose) {
    size = kept->first;
    block = kept->second;
    free_.erase(kept);
    use_.cached -= size;
  } else {
    block = try_take(size);
    if (!block) {
      trim_locked();
      block = try_take(size);
    }
    if (!block) throw OutOfMemory(bytes, use_.allocated);
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
  // Before others of its size, so that it is the next one taken: steps of a training then use the same few blocks.
  free_.emplace_hint(free_.lower_bound(size), size, block);
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
