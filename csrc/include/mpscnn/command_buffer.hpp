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
  /// `kernel` is the row's name where a profile has one command buffer for each kernel. `in_parts`: much work may begin
  /// before commit(), where the device ends command buffers that take long.
  static std::shared_ptr<CommandBuffer> make(std::shared_ptr<Device> device, const std::string& label = {},
                                             const std::string& kernel = {}, bool in_parts = false);

  explicit CommandBuffer(std::unique_ptr<Impl> impl);
  ~CommandBuffer();

  /// Throws std::runtime_error the second time.
  void commit();
  /// Throws std::runtime_error before commit(), and with the device's sentence when the work has failed.
  void wait();
  /// commit() and wait(), which may save handing the work over to the queue's thread and back. Handlers then run on
  /// this thread.
  void run();
  CommandBufferStatus status() const;
  std::string error() const;
  std::string label() const;
  void set_label(const std::string& label);
  /// Called once when the work is done, on a thread of the device's or the one in run(), before wait() returns; before
  /// commit() only. Must not throw.
  void add_completed_handler(std::function<void()> handler);
  /// Seconds on the device's clock; 0 until completed.
  double gpu_start_time() const;
  double gpu_end_time() const;
  /// `owner` lives until the work is done.
  void keep_alive(std::shared_ptr<void> owner);
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  void submit(bool awaited);
  void add_to_profile();

  std::unique_ptr<Impl> impl_;
};

/// For the end of the process: returns when all work that was committed is done, handlers included. From now on
/// commit() throws on this thread and in handlers, and does not return on any other.
void finish_all_work();

}  // namespace mpscnn
