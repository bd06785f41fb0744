// SPDX-License-Identifier: Apache-2.0
// Shared by the whole engine: scratch memory, names of implementations, the dispatch trace.
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

/// MPSCNN_IMPL and MPSCNN_TRACE as far as lists of implementations go.
struct Dispatch {
  std::string only;      ///< the only implementation that a list may use besides its last; empty: all
  bool traces = false;   ///< print which implementation was tried, and why it was not used
  bool is_plain = true;  ///< neither
};

/// Throw if MPSCNN_IMPL is in no list.
const Dispatch& read_dispatch();
/// The settings, read once per process.
inline const Dispatch& dispatch() {
  static const Dispatch& settings = read_dispatch();
  return settings;
}

/// Print one line on stderr if dispatch is traced: which implementation was tried, and why it was not used (null: it
/// was).
void trace_dispatch(const char* entry, const char* implementation, const char* why_not);

}  // namespace openmps::cpu
