// SPDX-License-Identifier: Apache-2.0
// Allocator of an MTLHeap's bytes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace openmps {

/// First fit. Thread-safe.
class HeapSpace {
 public:
  explicit HeapSpace(std::uint64_t size) : size_(size) {}

  std::uint64_t size() const { return size_; }
  std::uint64_t used() const;
  /// Return the offset of `bytes` (> 0) free bytes, a multiple of `alignment` (a power of two).
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  /// Free what take() returned; once.
  void give_back(std::uint64_t offset);
  /// Return the size of the largest block that take() would find.
  std::uint64_t largest(std::uint64_t alignment) const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t size_;
  std::map<std::uint64_t, std::uint64_t> taken_;  ///< offset -> bytes
};

}  // namespace openmps
