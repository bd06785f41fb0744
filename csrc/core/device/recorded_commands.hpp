// SPDX-License-Identifier: Apache-2.0
// RecordedCommands: commands that later command buffers encode again, without the kernels that encoded them.
#pragma once

#include <memory>
#include <span>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

/// The commands of one encode. Attributes and weights of its kernels have no effect later on.
class RecordedCommands {
 public:
  struct Impl;
  /// Return whether commands encoded to the buffer from now on can be recorded, on this platform.
  static bool can_record(const CommandBuffer& buffer);
  /// Return whether they can be encoded with other images than those that they were recorded with.
  static bool takes_other_images(const CommandBuffer& buffer);
  /// Record all commands of the buffer, which read `inputs` and write `outputs`. Null if they cannot be repeated.
  static std::shared_ptr<const RecordedCommands> make(CommandBuffer& buffer,
                                                      std::span<const std::shared_ptr<Image>> inputs,
                                                      std::span<const std::shared_ptr<Image>> outputs);
  explicit RecordedCommands(std::unique_ptr<Impl> impl);
  ~RecordedCommands();

  /// Encode the commands to a buffer of the same device. Return false, and encode nothing, if the images have another
  /// layout than those of make() or share memory.
  bool encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> inputs,
              std::span<const std::shared_ptr<Image>> outputs) const;

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
