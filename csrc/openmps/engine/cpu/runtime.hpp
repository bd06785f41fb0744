// SPDX-License-Identifier: Apache-2.0
// What all of this engine shares: scratch memory, names of implementations, the dispatch trace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/shared/block_allocator.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// The engine's memory. Lives as long as the process.
BlockAllocator& blocks();

/// Memory for the time of one call.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::uint64_t bytes) : bytes_(bytes), data_(bytes ? blocks().allocate(bytes) : nullptr) {}
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
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// A dense float image in scratch memory. Throws std::bad_alloc also when the extents overflow.
struct ScratchTensor {
  ScratchTensor(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c);
  Scratch memory;
  Tensor tensor;
};

/// The names of the implementations in all lists, registered when the library is loaded.
std::vector<std::string>& implementation_names();

/// The value of MPSCNN_IMPL, empty without it: the name of the only implementation that a list may use besides its
/// last. Throw if no list has it.
const std::string& only_implementation();

/// Whether MPSCNN_TRACE asks for "dispatch" (a list separated by commas).
bool traces_dispatch();
/// One line on stderr: what was tried and why it was not used (null: it was used).
void trace_dispatch(const char* entry, const char* implementation, const char* why_not);

}  // namespace openmps::cpu
