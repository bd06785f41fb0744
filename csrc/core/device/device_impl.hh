// SPDX-License-Identifier: Apache-2.0
// The Objective-C objects behind the public classes, for the other .mm files of the core.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/profile.hpp>

#include "core/data_source/sharing.hh"
#include "core/device/objc_ref.hh"

namespace mpscnn {

class SideQueue {
 public:
  Ref<id<MTLCommandQueue>> queue;
  int threads = 0;
  int users = 0;  ///< guarded by the device's side_mutex
};

struct Device::Impl {
  /// Max command buffers that are made and not committed. A queue has a fixed number of slots for unfinished ones, and
  /// -commandBuffer blocks until one is free [MTLDevice.h]; waiting never frees the slot of an open one.
  static constexpr int kMaxOpen = 64;
  static constexpr int kMaxUnfinished = kMaxOpen + 1;  ///< one slot is for finish_all_work()

  Ref<id<MTLDevice>> device;
  Ref<id<MTLCommandQueue>> queue;
  std::atomic<int> open = 0;
  std::atomic<std::uint64_t> peak = 0;  ///< for devices that do not track it
  bool prefetches_temporaries = false;
  bool differentiates_bounds = false;
  bool shares_images = false;
  MemorySpace memory_space = {};
  /// Max multiply-adds of a command buffer; 0: unlimited. macOS ends command buffers that occupy the GPU for seconds;
  /// 2^38 take a few tenths of a second on an M1 (1.3e12 per second).
  static constexpr std::uint64_t kMostWork = std::uint64_t{1} << 38;
  std::atomic<std::uint64_t> most_work = 0;
  bool computes_on_threads = false;
  std::mutex side_mutex = {};
  std::deque<SideQueue> side_queues =
      {};  ///< never destroyed, at most as many per number of threads as compute at once

  /// Update the peak; to be called when memory use is high.
  void note_allocated() {
    if ([device.get() respondsToSelector:@selector(peakAllocatedSize)]) return;
    const std::uint64_t now = [device.get() currentAllocatedSize];
    auto before = peak.load();
    while (before < now && !peak.compare_exchange_weak(before, now)) {
    }
  }
};

struct Buffer::Impl {
  std::shared_ptr<Device> device;
  Ref<id<MTLBuffer>> buffer;
};

/// Completion handlers of a command buffer. -waitUntilCompleted may return before they have run [MTLCommandBuffer.h].
class Handlers {
 public:
  using Action = std::function<void(id<MTLCommandBuffer>)>;
  /// Add an action before commit; it is destroyed as soon as it has run.
  void add(Action action) { actions_.push_back(std::move(action)); }
  /// Register the handlers with the command buffer that is about to be committed.
  void will_commit(id<MTLCommandBuffer> buffer);
  /// Record that the handlers will not run.
  void commit_failed() const;
  /// Wait until all have run. Returns at once inside of a handler, which may be one of them.
  void wait() const;
  /// Wait for the handlers of all committed command buffers.
  static void wait_for_all();

 private:
  std::vector<Action> actions_;
  std::shared_ptr<std::atomic<int>> left_ = std::make_shared<std::atomic<int>>(0);
};

struct CommandBuffer::Impl {
  /// Decrements the device's open command buffers on commit or destruction.
  struct Close {
    void operator()(Device::Impl *device) const { --device->open; }
  };
  using Open = std::unique_ptr<Device::Impl, Close>;

  std::shared_ptr<Device> device;
  Open open;
  Ref<id<MTLCommandBuffer>> buffer;
  std::shared_ptr<SideQueue> side_queue = {};
  std::mutex commit_mutex = {};
  std::shared_ptr<Profile> profile = {};  ///< active when the command buffer was made
  ProfileEvent event = {};                ///< of the encoding, so far
  Handlers handlers = {};
  std::uint64_t work = 0;                                 ///< multiply-adds since the last committed part
  bool is_in_parts = false;                               ///< `buffer` is an MPSCommandBuffer
  std::vector<Ref<id<MTLCommandBuffer>>> committed = {};  ///< committed parts

  /// Add the multiply-adds of an encode. A command buffer in parts commits its work once it reaches most_work.
  void note_work(std::uint64_t more);
};

/// The last command buffer that encoded a write to some memory; the CPU may read once it is done. Shared by an image
/// and its views; thread-safe.
class Writer {
 public:
  void set(id<MTLCommandBuffer> buffer) {
    const std::scoped_lock lock(mutex_);
    buffer_ = Ref<id<MTLCommandBuffer>>::retain(buffer);
  }
  Ref<id<MTLCommandBuffer>> get() const {
    const std::scoped_lock lock(mutex_);
    return buffer_;
  }
  /// Release `buffer` unless it has been replaced since.
  void forget(const Ref<id<MTLCommandBuffer>> &buffer) {
    const std::scoped_lock lock(mutex_);
    if (buffer_.get() == buffer.get()) buffer_ = {};
  }

 private:
  mutable std::mutex mutex_;
  Ref<id<MTLCommandBuffer>> buffer_;
};

/// Throw unless the CPU may read the memory that `last` writes.
void check_written(Writer &last, const char *what);

struct Image::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSImage *> image;
  ImageShape shape;  ///< cached: each encode reads it several times
  DType dtype;
  std::optional<ArrayView> shared;  ///< the array that the image shares
  bool temporary = false;
  std::shared_ptr<Writer> writer = std::make_shared<Writer>();
  std::int64_t first_channel = 0;          ///< of a view by channels(), in the image that has the memory
  std::shared_ptr<const void> reads = {};  ///< of a temporary image: see reads_of()

  /// Record a write that has been encoded.
  void note_write(id<MTLCommandBuffer> commands) {
    if (!temporary) synchronize(image.get(), commands);
    writer->set(commands);
  }
};

/// Devices made so far. They are never destroyed: work may be under way on their queues.
std::vector<std::shared_ptr<Device>> made_devices();

/// Throw unless both devices are the same: "the device (…) is not the one of …".
void check_same_device(const Device &a, const Device &b, const char *what);

/// Return a descriptor that must not be modified: it is cached for the thread's next image of this shape.
MPSImageDescriptor *image_descriptor(ImageShape shape, DType dtype);

}  // namespace mpscnn
