// SPDX-License-Identifier: Apache-2.0
// The Objective-C objects behind the public classes, for the other .mm files of the core.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <atomic>
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

struct Device::Impl {
  /// Command buffers that are made and not committed. A queue has places for so many unfinished ones, and
  /// -commandBuffer waits for a free one [MTLDevice.h]; open ones never become free by waiting.
  static constexpr int kMaxOpen = 64;
  static constexpr int kMaxUnfinished = kMaxOpen + 1;  ///< one place is for finish_all_work()

  Ref<id<MTLDevice>> device;
  Ref<id<MTLCommandQueue>> queue;
  std::atomic<int> open = 0;
  std::atomic<std::uint64_t> peak = 0;  ///< for devices that do not count it
  bool prefetches_temporaries = false;
  bool shares_images = false;
  /// Multiply-adds of a command buffer; 0: any number. Where macOS ends those that keep the GPU for seconds, a few
  /// tenths of a second on an M1, which does 1.3e12 in a second.
  static constexpr std::uint64_t kMostWork = std::uint64_t{1} << 38;
  std::atomic<std::uint64_t> most_work = 0;

  /// To be called when much memory is in use.
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

/// The completion handlers of a command buffer. -waitUntilCompleted may return before they have run
/// [MTLCommandBuffer.h].
class Handlers {
 public:
  using Action = std::function<void(id<MTLCommandBuffer>)>;
  /// Before commit. The action is destroyed as soon as it has run.
  void add(Action action) { actions_.push_back(std::move(action)); }
  /// Hand them to the command buffer that is going to be committed.
  void will_commit(id<MTLCommandBuffer> buffer);
  /// They are not going to run.
  void commit_failed() const;
  /// Returns when all have run; at once in a handler, which may be one of them.
  void wait() const;
  /// The same of all command buffers that have been committed.
  static void wait_for_all();

 private:
  std::vector<Action> actions_;
  std::shared_ptr<std::atomic<int>> left_ = std::make_shared<std::atomic<int>>(0);
};

struct CommandBuffer::Impl {
  /// Counts the command buffer among the open ones of the device until it is committed or dropped.
  struct Close {
    void operator()(Device::Impl *device) const { --device->open; }
  };
  using Open = std::unique_ptr<Device::Impl, Close>;

  std::shared_ptr<Device> device;
  Open open;
  Ref<id<MTLCommandBuffer>> buffer;
  std::mutex commit_mutex = {};
  std::shared_ptr<Profile> profile = {};  ///< that collected when the command buffer was made
  ProfileEvent event = {};                ///< of the encoding, so far
  Handlers handlers = {};
  std::uint64_t work = 0;                                 ///< multiply-adds since the last part
  bool is_in_parts = false;                               ///< `buffer` is an MPSCommandBuffer
  std::vector<Ref<id<MTLCommandBuffer>>> committed = {};  ///< parts that were

  /// Called behind an encode of so many multiply-adds. A command buffer in parts commits what it has when it is much.
  void note_work(std::uint64_t more);
};

/// The last command buffer that encoded a write to some memory: the CPU reads when it is done. Shared by an image and
/// its views; safe from any thread.
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
  /// Lets go of `buffer` unless another one has come since.
  void forget(const Ref<id<MTLCommandBuffer>> &buffer) {
    const std::scoped_lock lock(mutex_);
    if (buffer_.get() == buffer.get()) buffer_ = {};
  }

 private:
  mutable std::mutex mutex_;
  Ref<id<MTLCommandBuffer>> buffer_;
};

/// Throws unless the CPU may read now what `last` writes.
void check_written(Writer &last, const char *what);

struct Image::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSImage *> image;
  ImageShape shape;  ///< the image's, without asking: each encode looks at it several times
  DType dtype;
  std::optional<ArrayView> shared;  ///< the array under the image
  bool temporary = false;
  std::shared_ptr<Writer> writer = std::make_shared<Writer>();
  std::shared_ptr<const void> reads = {};  ///< of a temporary image: see reads_of()

  /// Called behind the encode of a write.
  void note_write(id<MTLCommandBuffer> commands) {
    if (!temporary) synchronize(image.get(), commands);
    writer->set(commands);
  }
};

/// Those made so far. They are never destroyed: work may be under way on their queues.
std::vector<std::shared_ptr<Device>> made_devices();

/// "the device (…) is not the one of …": objects of one call must agree.
void check_same_device(const Device &a, const Device &b, const char *what);

/// Not to be changed: it is kept for the thread's next image of this shape.
MPSImageDescriptor *image_descriptor(ImageShape shape, DType dtype);

}  // namespace mpscnn
