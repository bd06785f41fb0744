// SPDX-License-Identifier: Apache-2.0
// States that forward kernels make for their gradient kernels [MPSNNGradientState.h]. Only kernels make them.

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

GradientData &gradient_data(MPSState *state) {
  StateData *data = [state openmps_data];
  if (data == nullptr)
    raise_usage(@"%@: only a kernel can make this state (resultStateForSourceImage:sourceStates:destinationImage:).",
                [state class]);
  return *static_cast<GradientData *>(data);
}

namespace {

/// Size a gradient kernel's result; the kernel takes the forward kernel's properties [MPSCNNKernel.h].
MPSImageDescriptor *size_gradient(MPSState *source_state, NSArray<MPSImage *> *images, MPSKernel *kernel,
                                  MPSImageDescriptor *descriptor) {
  const GradientData &data = gradient_data(source_state);
  if (![kernel isKindOfClass:[MPSCNNGradientKernel class]]) return descriptor;
  auto &state = state_of<GradientKernelState>(kernel);
  const auto source_at = [&](std::size_t index) -> const GradientData::Source & {
    if (index >= data.sources.size())
      raise_for(state, @"gradientState is that of a kernel with %lu sources; number %lu is asked for.",
                (unsigned long)data.sources.size(), (unsigned long)index + 1);
    return data.sources[index];
  };
  if (const std::size_t secondary = state.secondary_source(); secondary != GradientKernelState::kNoSource) {
    const GradientData::Source &seen = source_at(secondary);
    MPSImage *given = [images objectAtIndex:1];
    if ([given width] != seen.width || [given height] != seen.height)
      raise_for(state, @"sourceImage has %lu x %lu pixels (width x height); the forward kernel's had %lu x %lu.",
                (unsigned long)[given width], (unsigned long)[given height], (unsigned long)seen.width,
                (unsigned long)seen.height);
  }
  const GradientData::Source &forward = source_at(state.forward_source());
  state.take_forward(forward);
  state.take_data(data);
  const auto result = state.result_extents({forward.width, forward.height, forward.channels});
  [descriptor setWidth:result.width];
  [descriptor setHeight:result.height];
  [descriptor setFeatureChannels:state.destination.channel_offset + result.channels];
  return descriptor;
}

}  // namespace
}  // namespace openmps

#define OPENMPS_SIZES_GRADIENTS                                                                                       \
  -(MPSImageDescriptor *)destinationImageDescriptorForSourceImages : (NSArray<MPSImage *> *)sourceImages sourceStates \
      : (NSArray<MPSState *> *)sourceStates forKernel : (MPSKernel *)kernel suggestedDescriptor                       \
      : (MPSImageDescriptor *)inDescriptor {                                                                          \
    (void)sourceStates;                                                                                               \
    return openmps::size_gradient(self, sourceImages, kernel, inDescriptor);                                          \
  }

@implementation MPSNNGradientState
OPENMPS_SIZES_GRADIENTS
@end

@implementation MPSNNBinaryGradientState
OPENMPS_SIZES_GRADIENTS
@end

@implementation MPSNNMultiaryGradientState
OPENMPS_SIZES_GRADIENTS
@end
