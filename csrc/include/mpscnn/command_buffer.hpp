// SPDX-License-Identifier: Apache-2.0
// CommandBuffer: an MTLCommandBuffer of the device's queue.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <mpscnn/device.hpp>

namespace mpscnn {

enum class CommandBufferStatus : std::uint32_t { not_enqueued, enqueued, committed, scheduled, completed, error };
const char* name_of(CommandBufferStatus status);

class CommandBuffer {
 public:
  struct Impl;
  /// `kernel` is the row's name if the profile uses one command buffer per kernel. `in_parts`: long work may be
  /// submitted before commit(), on devices that abort long-running command buffers. `queue`: null for the device's.
  static std::shared_ptr<CommandBuffer> make(std::shared_ptr<Device> device, const std::string& label = {},
                                             const std::string& kernel = {}, bool in_parts = false,
                                             std::shared_ptr<SideQueue> queue = nullptr);

  explicit CommandBuffer(std::unique_ptr<Impl> impl);
  ~CommandBuffer();

  /// Throw std::runtime_error if called twice.
  void commit();
  /// Throw std::runtime_error before commit(), and with the device's message if the work has failed.
  void wait();
  /// Commit and wait; may run the work on the calling thread instead of the queue's. Handlers then run on this thread.
  void run();
  CommandBufferStatus status() const;
  std::string error() const;
  std::string label() const;
  void set_label(const std::string& label);
  /// Call `handler` once when the work is done, before wait() returns, on a device thread or the one in run(). Must be
  /// added before commit() and must not throw.
  void add_completed_handler(std::function<void()> handler);
  /// Seconds on the device's clock; 0 until completed.
  double gpu_start_time() const;
  double gpu_end_time() const;
  /// Keep `owner` alive until the work is done.
  void keep_alive(std::shared_ptr<void> owner);
  std::shared_ptr<Device> device() const;
  /// Null: the device's own queue.
  const SideQueue* side_queue() const;
  /// Whether long work may be submitted before commit().
  bool is_in_parts() const;
  Impl& impl() const { return *impl_; }

 private:
  void submit(bool awaited);
  void add_to_profile();

  std::unique_ptr<Impl> impl_;
};

/// Wait for all committed work and its handlers, at the end of the process. Afterwards commit() throws on this thread
/// and in handlers, and blocks forever on any other thread.
void finish_all_work();

}  // namespace mpscnn
