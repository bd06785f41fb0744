// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph_states.hh"

#include <mpscnn/error.hpp>

#include "core/kernel/batch_normalization_state_impl.hh"
#include "core/kernel/gradient_state_impl.hh"

namespace mpscnn {

std::shared_ptr<Device> device_of(id<MTLDevice> device) {
  for (const auto &made : made_devices())
    if (made->impl().device.get() == device) return made;
  throw std::runtime_error("MPSNNGraph: the device of the graph is unknown.");
}

GraphGradients::GraphGradients(std::shared_ptr<Device> device, std::string_view maker, NSArray<MPSState *> *states,
                               std::vector<StateValues> values, id<MTLCommandBuffer> commands) {
  auto impl = std::make_unique<GradientState::Impl>();
  impl->device = std::move(device);
  impl->maker = maker;
  impl->states = Ref<NSArray<MPSState *> *>::retain(states);
  impl->encodes.emplace_back().used = {{{nullptr, GradientState::Impl::kParameters}, 1}};
  impl->values = std::move(values);
  impl->is_temporary = [[states objectAtIndex:0] isTemporary];
  if (commands != nil && !impl->is_temporary) impl->note_write(commands);
  state_ = std::make_shared<GradientState>(std::move(impl));
}

GraphGradients::~GraphGradients() {
  auto &impl = state_->impl();
  const std::scoped_lock lock(impl.mutex);
  impl.has_ended = impl.is_temporary;
}

std::vector<StateValues> gradients_of_channels(std::int64_t channels) {
  return {{"grad_gamma", @selector(gradientForGamma), {channels}},
          {"grad_beta", @selector(gradientForBeta), {channels}}};
}

GraphStatistics::GraphStatistics(std::shared_ptr<Device> device, MPSCNNBatchNormalizationState *state,
                                 std::int64_t channels, std::int64_t count, id<MTLCommandBuffer> commands) {
  auto impl = std::make_unique<BatchNormalizationState::Impl>();
  impl->device = std::move(device);
  impl->state = Ref<MPSCNNBatchNormalizationState *>::retain(state);
  impl->channels = channels;
  impl->count = count;
  impl->has_gradients = true;
  impl->is_temporary = [state isTemporary];
  if (commands != nil && !impl->is_temporary) impl->note_write(commands);
  state_ = std::make_shared<BatchNormalizationState>(std::move(impl));
}

GraphStatistics::~GraphStatistics() {
  auto &impl = state_->impl();
  const std::scoped_lock lock(impl.mutex);
  impl.has_ended = impl.is_temporary;
}

std::shared_ptr<Buffer> floats_of(const std::shared_ptr<Device> &device, id<MTLCommandBuffer> commands,
                                  id<MTLBuffer> values, NSUInteger offset, std::int64_t count) {
  const auto bytes = static_cast<NSUInteger>(count) * sizeof(float);
  auto copy = Buffer::make(device, bytes);
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  [blit copyFromBuffer:values sourceOffset:offset toBuffer:copy->impl().buffer.get() destinationOffset:0 size:bytes];
  [blit endEncoding];
  return copy;
}

}  // namespace mpscnn
