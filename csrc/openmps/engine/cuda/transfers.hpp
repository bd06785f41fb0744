// SPDX-License-Identifier: Apache-2.0
// Transfers: copies between host and GPU on streams of their own, so that they overlap with kernels.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "engine/cuda/driver.hpp"

namespace openmps::cuda {

class Gpu;

/// Safe from any thread. Lives as long as the process.
class Transfers {
 public:
  explicit Transfers(Gpu& gpu);

  /// Copy to memory that no work uses. Returns once `from` has been read; join() orders later work after the copy.
  void upload(Address to, const void* from, std::size_t bytes);
  /// Copy from memory that no work writes, except uploads. Returns when the copy is complete.
  void download(void* to, Address from, std::size_t bytes);

  /// Return the number of uploads so far.
  std::uint64_t uploads() const { return uploads_.load(std::memory_order_acquire); }
  /// Let the stream's later work wait for the uploads so far.
  void join(Stream stream);
  /// Wait for the uploads so far.
  void synchronize();

 private:
  /// Page-locked memory. The GPU reads it, or writes it, until `done`.
  struct Block {
    std::byte* data = nullptr;  ///< allocated on first use
    Event done = nullptr;
  };
  /// Takes the block that has been free for the longest time, and waits until the GPU has done with it.
  class Lease;

  Gpu& gpu_;
  Stream up_ = nullptr, down_ = nullptr;
  Event uploaded_ = nullptr;  ///< after the last upload
  std::atomic<std::uint64_t> uploads_ = 0, complete_ = 0;
  std::array<Block, 6> blocks_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::deque<Block*> free_;
};

}  // namespace openmps::cuda
