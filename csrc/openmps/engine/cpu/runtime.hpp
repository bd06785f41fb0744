// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the CPU engine.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/shared/block_allocator.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// Return the engine's memory, which lives as long as the process.
BlockAllocator& blocks();

/// Memory for the duration of one call, of a block that may be several times as large.
class Scratch {
 public:
  Scratch() = default;
  /// Return memory of a block for these bytes only, which may be kept.
  static Scratch to_keep(std::uint64_t bytes) {
    Scratch made;
    made.bytes_ = bytes;
    if (bytes) made.data_ = blocks().allocate(bytes);
    return made;
  }
  explicit Scratch(std::uint64_t bytes) : data_(bytes ? blocks().allocate_scratch(bytes, bytes_) : nullptr) {}
  Scratch(Scratch&& other) noexcept : bytes_(other.bytes_), data_(other.data_) { other.data_ = nullptr; }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Scratch() {
    if (data_) blocks().deallocate(data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_ = 0;  ///< of the block
  std::byte* data_ = nullptr;
};

/// A dense image in scratch memory. Throws std::bad_alloc, also if the extents overflow.
struct ScratchTensor {
  ScratchTensor(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, Format format = Format::float32);
  Scratch memory;
  Tensor tensor;
};

}  // namespace openmps::cpu
