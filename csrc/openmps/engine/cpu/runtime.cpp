// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/runtime.hpp"

#include <pthread.h>

#include <new>

#include "engine/shared/machine.hpp"

namespace openmps::cpu {
namespace {

constexpr std::uint64_t kCachedBytes = 256u << 20;

std::uint64_t bytes_of(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, Format format) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(n, h, &bytes) || __builtin_mul_overflow(bytes, w, &bytes) ||
      __builtin_mul_overflow(bytes, c, &bytes) || __builtin_mul_overflow(bytes, size_of(format), &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

}  // namespace

BlockAllocator& blocks() {
  static auto* const allocator = [] {
    pthread_atfork([] { blocks().before_fork(); }, [] { blocks().after_fork(); }, [] { blocks().after_fork(); });
    return new BlockAllocator(machine_memory_bytes(), kCachedBytes);
  }();
  return *allocator;
}

ScratchTensor::ScratchTensor(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, Format format)
    : memory(bytes_of(n, h, w, c, format)), tensor(dense_tensor(memory.data(), format, n, h, w, c)) {}

}  // namespace openmps::cpu
