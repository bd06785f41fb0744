// SPDX-License-Identifier: Apache-2.0
// Memory of mapped files: reading a page that the file does not have any more is an error, not the end of the process.
#pragma once

#include <cstddef>
#include <string>

#include <mpscnn/array.hpp>

namespace mpscnn {

struct MemoryRange {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// From the first to the last byte of the elements.
MemoryRange memory_of(const ArrayView& array);

/// Addresses that may be pages of a mapped file. While one lives, a page behind the end of a file that became shorter
/// is replaced by zeros when it is touched, where SIGBUS would end the process, and check_whole() throws from then on.
/// Faults elsewhere go to the handler of SIGBUS that was installed before.
class WatchedMemory {
 public:
  explicit WatchedMemory(const MemoryRange& memory);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  const MemoryRange& memory() const { return memory_; }
  static bool is_any() noexcept;

  struct Range;

 private:
  MemoryRange memory_;
  Range* range_;
};

/// The sentence about a file whose lost pages are in the memory; empty if there is none. Cheap as long as no file
/// became shorter.
std::string loss_in(const MemoryRange& memory);

/// Throw std::runtime_error with that sentence. To be called after the reading.
void check_whole(const MemoryRange& memory);
void check_whole(const ArrayView& array);

}  // namespace mpscnn
