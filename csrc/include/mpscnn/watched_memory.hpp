// SPDX-License-Identifier: Apache-2.0
// Memory of mapped files: reading a page beyond the end of a truncated file raises an error, not SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <mpscnn/array.hpp>

namespace mpscnn {

struct MemoryRange {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Return the range from the first to the last byte of the elements.
MemoryRange memory_of(const ArrayView& array);

/// Addresses that may be pages of a mapped file. While it exists, accessing a page beyond the end of a truncated file
/// maps zeros there instead of ending the process with SIGBUS, and check_whole() throws from then on. Other faults go
/// to the previously installed SIGBUS handler.
class WatchedMemory {
 public:
  /// Kind of the memory, if known; `mapping`: a read-only mapping of a file over all of it.
  enum class Kind : std::int32_t { unknown, mapping };
  explicit WatchedMemory(const MemoryRange& memory, Kind kind = Kind::unknown);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  const MemoryRange& memory() const { return memory_; }
  static bool is_any() noexcept;
  /// Return whether any file was truncated while watched.
  static bool has_losses() noexcept;

  struct Range;

 private:
  MemoryRange memory_;
  Range* range_;
};

/// Return the error message if the memory contains pages lost by truncation, else an empty string. Cheap until a file
/// is truncated.
std::string loss_in(const MemoryRange& memory);

/// Throw std::runtime_error with that message, if any. Call after reading.
void check_whole(const MemoryRange& memory);
void check_whole(const ArrayView& array);

/// Remove the memory's pages from the process, together with others: with the next ones, or at flush_released_pages().
/// The next access maps them again. Does nothing unless the memory is then part of a WatchedMemory that is a mapping:
/// the pages of a private mapping, or of no file, would lose their contents.
void release_pages(const MemoryRange& memory) noexcept;
void flush_released_pages() noexcept;

}  // namespace mpscnn
