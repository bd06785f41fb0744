// SPDX-License-Identifier: Apache-2.0
#include "core/device/recorded_commands.hpp"

#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/watched_memory.hpp>

#include "core/data_source/sharing.hh"
#include "core/device/completion_check.hh"
#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"

namespace mpscnn {
namespace {

id<CommandRecorder> recorder_of(const CommandBuffer &buffer) {
  return static_cast<id<CommandRecorder>>(static_cast<id>(buffer.impl().buffer.get()));
}

Ref<NSArray *> images_of(std::span<const std::shared_ptr<Image>> images) {
  NSMutableArray *all = [[[NSMutableArray alloc] init] autorelease];
  for (const auto &image : images) [all addObject:image->impl().image.get()];
  return Ref<NSArray *>::retain(all);
}

}  // namespace

struct RecordedCommands::Impl {
  Ref<id> commands;
  std::shared_ptr<Device> device;
  std::uint64_t work = 0;  ///< multiply-adds
};

bool RecordedCommands::can_record(const CommandBuffer &buffer) {
  // Encodes check the weights of each kernel, which may be pages of a truncated file.
  return [buffer.impl().buffer.get() respondsToSelector:@selector(recordsCommands)] && !buffer.impl().profile &&
         !WatchedMemory::has_losses() && [recorder_of(buffer) recordsCommands];
}

bool RecordedCommands::takes_other_images(const CommandBuffer &buffer) {
  return [recorder_of(buffer) recordsForOtherImages];
}

std::shared_ptr<const RecordedCommands> RecordedCommands::make(CommandBuffer &buffer,
                                                               std::span<const std::shared_ptr<Image>> inputs,
                                                               std::span<const std::shared_ptr<Image>> outputs) {
  return guard([&]() -> std::shared_ptr<const RecordedCommands> {
    const bool is_for_others = takes_other_images(buffer);
    const auto fits = [&](const auto &image) {
      return !image->is_temporary() && (is_for_others || !image->impl().shared);
    };
    if (!std::ranges::all_of(inputs, fits) || !std::ranges::all_of(outputs, fits)) return nullptr;
    auto commands = Ref<id>::retain([recorder_of(buffer) recordedCommandsWithSourceImages:images_of(inputs).get()
                                                                        destinationImages:images_of(outputs).get()]);
    if (!commands) return nullptr;
    return std::make_shared<const RecordedCommands>(
        std::unique_ptr<Impl>(new Impl{commands, buffer.device(), buffer.impl().work}));
  });
}

RecordedCommands::RecordedCommands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordedCommands::~RecordedCommands() {
  Pool pool;
  impl_->commands = {};
}

bool RecordedCommands::encode(CommandBuffer &buffer, std::span<const std::shared_ptr<Image>> inputs,
                              std::span<const std::shared_ptr<Image>> outputs) const {
  check_not_forked();
  check_open(buffer, *impl_->device, "Network");
  const auto is_temporary = [](const auto &image) { return image->is_temporary(); };
  if (std::ranges::any_of(inputs, is_temporary) || std::ranges::any_of(outputs, is_temporary)) return false;
  return guard([&] {
    if (![recorder_of(buffer) encodeRecordedCommands:impl_->commands.get()
                                        sourceImages:images_of(inputs).get()
                                   destinationImages:images_of(outputs).get()])
      return false;
    const auto commands = buffer.impl().buffer.get();
    for (const auto &input : inputs) check_files_of(commands, {input.get()});
    for (const auto &output : outputs) {
      check_files_of(commands, {output.get()});
      output->impl().note_write(commands);
    }
    buffer.impl().note_work(impl_->work);
    return true;
  });
}

}  // namespace mpscnn
