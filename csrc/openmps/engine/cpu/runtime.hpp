// SPDX-License-Identifier: Apache-2.0
// Shared by the whole CPU engine: scratch memory, names of implementations, the dispatch trace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/shared/block_allocator.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// Return the engine's memory, which lives as long as the process.
BlockAllocator& blocks();

/// Memory for the duration of one call.
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

/// A dense float image in scratch memory. Throws std::bad_alloc, also if the extents overflow.
struct ScratchTensor {
  ScratchTensor(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c);
  Scratch memory;
  Tensor tensor;
};

/// Return the names of the implementations in all lists, registered when the library is loaded.
std::vector<std::string>& implementation_names();

/// Settings of MPSCNN_IMPL and MPSCNN_TRACE for lists of implementations.
struct Dispatch {
  std::string only;      ///< the only implementation that a list may use besides its last one; empty: all
  bool traces = false;   ///< print which implementations are tried, and why they decline
  bool is_plain = true;  ///< neither is set
};

/// Return the settings from the environment; throws if no list has the implementation that MPSCNN_IMPL names.
const Dispatch& read_dispatch();
/// Return the settings, read once per process.
inline const Dispatch& dispatch() {
  static const Dispatch& settings = read_dispatch();
  return settings;
}

/// If dispatch is traced, print one line to stderr: the implementation that was tried, and why it declined (null: it
/// did not).
void trace_dispatch(const char* entry, const char* implementation, const char* why_not);

}  // namespace openmps::cpu
