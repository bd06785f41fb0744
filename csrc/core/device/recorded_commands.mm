// SPDX-License-Identifier: Apache-2.0
#include "core/device/recorded_commands.hpp"

#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/watched_memory.hpp>

#include "core/data_source/sharing.hh"
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
  Ref<NSArray *> sources, destinations;
  std::shared_ptr<Device> device;
  std::vector<std::shared_ptr<Image>> outputs;
  std::uint64_t work = 0;  ///< multiply-adds
};

bool RecordedCommands::can_record(const CommandBuffer &buffer) {
  // Encodes check the weights of each kernel, which may be pages of a truncated file.
  return [buffer.impl().buffer.get() respondsToSelector:@selector(recordsCommands)] && !buffer.impl().profile &&
         !WatchedMemory::has_losses() && [recorder_of(buffer) recordsCommands];
}

std::shared_ptr<const RecordedCommands> RecordedCommands::make(CommandBuffer &buffer,
                                                               std::span<const std::shared_ptr<Image>> inputs,
                                                               std::span<const std::shared_ptr<Image>> outputs) {
  return guard([&]() -> std::shared_ptr<const RecordedCommands> {
    const auto has_own_memory = [](const auto &image) { return !image->is_temporary() && !image->impl().shared; };
    if (!std::ranges::all_of(inputs, has_own_memory) || !std::ranges::all_of(outputs, has_own_memory)) return nullptr;
    auto commands = Ref<id>::retain([recorder_of(buffer) recordedCommands]);
    if (!commands) return nullptr;
    return std::make_shared<const RecordedCommands>(std::unique_ptr<Impl>(new Impl{commands,
                                                                                   images_of(inputs),
                                                                                   images_of(outputs),
                                                                                   buffer.device(),
                                                                                   {outputs.begin(), outputs.end()},
                                                                                   buffer.impl().work}));
  });
}

RecordedCommands::RecordedCommands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordedCommands::~RecordedCommands() {
  Pool pool;
  impl_->commands = {};
}

void RecordedCommands::encode(CommandBuffer &buffer) const {
  check_not_forked();
  check_open(buffer, *impl_->device, "Network");
  guard([&] {
    [recorder_of(buffer) encodeRecordedCommands:impl_->commands.get()
                                   sourceImages:impl_->sources.get()
                              destinationImages:impl_->destinations.get()];
    for (const auto &output : impl_->outputs) output->impl().note_write(buffer.impl().buffer.get());
    buffer.impl().note_work(impl_->work);
  });
}

}  // namespace mpscnn
