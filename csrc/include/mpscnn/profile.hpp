// SPDX-License-Identifier: Apache-2.0
// Profile: when command buffers were encoded and when they ran.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mpscnn {

class CommandBuffer;

struct ProfileEvent {
  std::string name;                  ///< of the node or the command buffer
  std::string kernel;                ///< of the row; empty for a whole command buffer
  std::string kind;                  ///< "encode": on the calling thread; "execute": on the device
  double start = 0, end = 0;         ///< seconds on the device's clock
  std::uint64_t command_buffer = 0;  ///< numbered from 1
  std::uint64_t thread = 0;          ///< that encoded it
};

/// Collects events of all threads while it is the current one.
class Profile : public std::enable_shared_from_this<Profile> {
 public:
  /// With `per_kernel`, networks encode each kernel on a command buffer of its own, so that each has times of its own:
  /// what a device fuses within a command buffer is not fused then.
  explicit Profile(bool per_kernel) : per_kernel_(per_kernel) {}

  bool per_kernel() const { return per_kernel_; }
  std::uint64_t next_buffer();
  void add(ProfileEvent event);
  std::vector<ProfileEvent> events() const;

  /// The one that collects now; null for none.
  static std::shared_ptr<Profile> current();
  /// Throws std::runtime_error when another one collects already.
  void start();
  void stop();

 private:
  const bool per_kernel_;
  mutable std::mutex mutex_;
  std::uint64_t buffers_ = 0;
  std::vector<ProfileEvent> events_;
};

/// Seconds on the clock of GPUStartTime: that of the system's time since it was started.
double profile_clock();

}  // namespace mpscnn
