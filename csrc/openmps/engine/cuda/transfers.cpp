// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/transfers.hpp"

#include <algorithm>
#include <cstring>

#include "engine/cuda/gpu.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cuda {
namespace {

/// Size of a block: one is filled while the GPU copies the one before.
constexpr std::size_t kBlock = std::size_t{8} << 20;
/// One thread copies about 12 GB/s, PCIe 5.0 x16 about 55 (measured, host of an H200).
constexpr std::int64_t kGrain = 256 << 10;
constexpr int kMostThreads = 8;

void copy_by_threads(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes);
  parallel_ranges(count, std::min(kMostThreads, threads_for(count, kGrain)), [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace

class Transfers::Lease {
 public:
  explicit Lease(Transfers& transfers) : transfers_(transfers) {
    {
      std::unique_lock lock(transfers.mutex_);
      transfers.returned_.wait(lock, [&] { return !transfers.free_.empty(); });
      block_ = transfers.free_.front();
      transfers.free_.pop_front();
    }
    try {
      const Driver& driver = transfers.gpu_.driver();
      if (!block_->data) {
        void* data = nullptr;
        driver.check(driver.allocate_host(&data, kBlock, kPortable), "cuMemHostAlloc");
        block_->data = static_cast<std::byte*>(data);
      }
      driver.check(driver.synchronize_event(block_->done), "cuEventSynchronize");
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~Lease() { give_back(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Block& operator*() const { return *block_; }
  Block* operator->() const { return block_; }

 private:
  void give_back() {
    {
      const std::lock_guard lock(transfers_.mutex_);
      transfers_.free_.push_back(block_);
    }
    transfers_.returned_.notify_one();
  }

  Transfers& transfers_;
  Block* block_ = nullptr;
};

Transfers::Transfers(Gpu& gpu) : gpu_(gpu) {
  const Driver& driver = gpu.current();
  for (Stream* stream : {&up_, &down_})
    driver.check(driver.create_stream(stream, kNonBlockingStream), "cuStreamCreate");
  driver.check(driver.create_event(&uploaded_, kPlainEvent), "cuEventCreate");
  for (Block& block : blocks_) {
    driver.check(driver.create_event(&block.done, kPlainEvent), "cuEventCreate");
    free_.push_back(&block);
  }
  start_threads();
}

void Transfers::upload(Address to, const void* from, std::size_t bytes) {
  const Driver& driver = gpu_.current();
  const auto* const data = static_cast<const std::byte*>(from);
  for (std::size_t first = 0; first < bytes; first += kBlock) {
    const std::size_t count = std::min(kBlock, bytes - first);
    const Lease block(*this);
    copy_by_threads(block->data, data + first, count);
    driver.check(driver.copy(to + first, reinterpret_cast<Address>(block->data), count, up_), "cuMemcpyAsync");
    driver.check(driver.record_event(block->done, up_), "cuEventRecord");
  }
  driver.check(driver.record_event(uploaded_, up_), "cuEventRecord");
  uploads_.fetch_add(1, std::memory_order_release);
}

void Transfers::download(void* to, Address from, std::size_t bytes) {
  const Driver& driver = gpu_.current();
  join(down_);
  auto* const data = static_cast<std::byte*>(to);
  for (std::size_t first = 0; first < bytes; first += kBlock) {
    const std::size_t count = std::min(kBlock, bytes - first);
    const Lease block(*this);
    driver.check(driver.copy(reinterpret_cast<Address>(block->data), from + first, count, down_), "cuMemcpyAsync");
    driver.check(driver.record_event(block->done, down_), "cuEventRecord");
    driver.check(driver.synchronize_event(block->done), "cuEventSynchronize");
    copy_by_threads(data + first, block->data, count);
  }
}

void Transfers::join(Stream stream) {
  gpu_.driver().check(gpu_.driver().wait_for_event(stream, uploaded_, 0), "cuStreamWaitEvent");
}

void Transfers::synchronize() {
  const std::uint64_t count = uploads();
  if (complete_.load(std::memory_order_acquire) >= count) return;
  gpu_.driver().check(gpu_.current().synchronize_event(uploaded_), "cuEventSynchronize");
  complete_.store(count, std::memory_order_release);
}

}  // namespace openmps::cuda
