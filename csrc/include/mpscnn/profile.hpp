// SPDX-License-Identifier: Apache-2.0
// Profile: times of encoding and execution of command buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mpscnn {

class CommandBuffer;

struct ProfileEvent {
  std::string name;                  ///< node or command buffer
  std::string kernel;                ///< row; empty for a whole command buffer
  std::string kind;                  ///< "encode": on the calling thread; "execute": on the device
  double start = 0, end = 0;         ///< seconds on the device's clock
  std::uint64_t command_buffer = 0;  ///< numbered from 1
  std::uint64_t thread = 0;          ///< encoding thread
};

/// Collects events of all threads while it is current.
class Profile : public std::enable_shared_from_this<Profile> {
 public:
  /// With `per_kernel`, networks encode each kernel on its own command buffer, so that each is timed separately. This
  /// disables fusion within a command buffer.
  explicit Profile(bool per_kernel) : per_kernel_(per_kernel) {}

  bool per_kernel() const { return per_kernel_; }
  std::uint64_t next_buffer();
  void add(ProfileEvent event);
  std::vector<ProfileEvent> events() const;

  /// The active profile; null if none.
  static std::shared_ptr<Profile> current();
  /// Throw std::runtime_error if another profile is active.
  void start();
  void stop();

 private:
  const bool per_kernel_;
  mutable std::mutex mutex_;
  std::uint64_t buffers_ = 0;
  std::vector<ProfileEvent> events_;
};

/// Return seconds on the clock of GPUStartTime, the time since system startup.
double profile_clock();

}  // namespace mpscnn
