// SPDX-License-Identifier: Apache-2.0
// MPSCNNGradientKernel: computes the gradient of a forward kernel's source from that source and the gradient of the
// kernel's result [MPSCNNKernel.h].

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

const SourceNames &GradientKernelState::names(std::size_t source) const {
  static const SourceNames source_names[] = {{"primary", "sourceGradient", "sourceGradients"},
                                             {"secondary", "sourceImage", "sourceImages"}};
  return source_names[source];
}

void GradientKernelState::size_result(Images sources, MPSImageDescriptor *descriptor) {
  const Extents result = result_extents({[sources[1] width], [sources[1] height], [sources[1] featureChannels]});
  [descriptor setWidth:result.width];
  [descriptor setHeight:result.height];
}

NSUInteger GradientKernelState::suggested_channels(Images sources, NSArray<MPSState *> *states) const {
  return [states count] > 0 ? [sources[1] featureChannels] : CNNBinaryKernelState::suggested_channels(sources, states);
}

std::int64_t GradientKernelState::first_row() const {
  check_offset(*this, kernel_offset_x, kernel_offset_y, "kernelOffset");
  return primary().offset.y * static_cast<std::int64_t>(secondary().stride_y) + kernel_offset_y;
}

std::int64_t GradientKernelState::first_column() const {
  check_offset(*this, kernel_offset_x, kernel_offset_y, "kernelOffset");
  return primary().offset.x * static_cast<std::int64_t>(secondary().stride_x) + kernel_offset_x;
}

void GradientKernelState::take_forward(const GradientData::Source &forward) {
  secondary() = forward.slot;
  primary().offset = {0, 0, 0};
  kernel_offset_x = -forward.slot.offset.x + (forward.slot.extent_x() % 2 == 0 ? 1 : 0);
  kernel_offset_y = -forward.slot.offset.y + (forward.slot.extent_y() % 2 == 0 ? 1 : 0);
}

void ForwardBorders::take(const GradientData::Source &forward) {
  clamps = forward.slot.window().edge == Edge::clamp;
  offset_x = forward.slot.offset.x;
  offset_y = forward.slot.offset.y;
  width = forward.width;
  height = forward.height;
}

ClampedSource ForwardBorders::source(const KernelState &state, Operand &diff_dst) const {
  if (!clamps) return {};
  check_offset(state, offset_x, offset_y, "the forward kernel's offset");  // an archive may hold any value
  diff_dst.edge = Edge::zero;
  return {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width), diff_dst.start_h + offset_y,
          diff_dst.start_w + offset_x};
}

void ForwardBorders::archive(Archive &archive, NSString *prefix) {
  const auto key = [prefix](NSString *name) { return [prefix stringByAppendingString:name]; };
  archive.field(key(@".forwardEdgeModeIsClamp"), clamps);
  archive.field(key(@".forwardOffset.x"), offset_x);
  archive.field(key(@".forwardOffset.y"), offset_y);
  archive.field(key(@".forwardSource.width"), width);
  archive.field(key(@".forwardSource.height"), height);
}

Part part_of(const GradientKernelState &state, const char *what, std::int64_t offset, NSUInteger size,
             std::int64_t extent) {
  const std::int64_t begin = std::max<std::int64_t>(offset, 0);
  const std::int64_t end = size > static_cast<NSUInteger>(extent - std::min<std::int64_t>(offset, 0))
                               ? extent
                               : std::min(extent, offset + static_cast<std::int64_t>(size));
  if (begin >= end)
    raise_for(state, @"%s: primaryOffset (%ld) and sourceSize (%lu) leave nothing of the %ld pixels of sourceGradient.",
              what, (long)offset, (unsigned long)size, (long)extent);
  return {begin, end - begin};
}

void check_lies_on_source(const GradientKernelState &state, const Clip &clip, const ImageView &source) {
  if (clip.x + clip.width <= source.w && clip.y + clip.height <= source.h) return;
  raise_for(state,
            @"The result of %ld x %ld pixels (width x height) from (%ld, %ld) on reaches beyond sourceImage, "
            @"%ld x %ld.",
            (long)clip.width, (long)clip.height, (long)clip.x, (long)clip.y, (long)source.w, (long)source.h);
}

void check_strides_are_1(const GradientKernelState &state) {
  for (std::size_t i = 0; i < 2; ++i) {
    const SourceSlot &slot = state.sources[i];
    if (slot.stride_x != 1 || slot.stride_y != 1)
      raise_for(state, @"%s (%lu) and %s (%lu) are not 1.", state.names(i).property("strideInPixelsX").c_str(),
                (unsigned long)slot.stride_x, state.names(i).property("strideInPixelsY").c_str(),
                (unsigned long)slot.stride_y);
  }
}

void GradientKernelState::archive(Archive &archive) {
  CNNBinaryKernelState::archive(archive);
  archive.field(@"MPSCNNGradientKernel.kernelOffsetX", kernel_offset_x);
  archive.field(@"MPSCNNGradientKernel.kernelOffsetY", kernel_offset_y);
}

}  // namespace openmps

using openmps::GradientKernelState;

@implementation MPSCNNGradientKernel

+ (openmps::KernelState *)openmps_newState {
  return new GradientKernelState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

OPENMPS_PROPERTY(GradientKernelState, NSInteger, kernelOffsetX, setKernelOffsetX, kernel_offset_x)
OPENMPS_PROPERTY(GradientKernelState, NSInteger, kernelOffsetY, setKernelOffsetY, kernel_offset_y)

// The forms that return an image take the forward kernel's properties from the state; those with a destination use the
// properties as they are [MPSCNNKernel.h].

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     sourceGradient:(MPSImage *)sourceGradient
                        sourceImage:(MPSImage *)sourceImage
                      gradientState:(MPSState *)gradientState {
  MPSImage *const sources[] = {sourceGradient, sourceImage};
  return openmps::encode_to_new_image(self, commandBuffer, sources, {.source = gradientState});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
                gradientState:(MPSState *)gradientState
          destinationGradient:(MPSImage *)destinationGradient {
  MPSImage *const sources[] = {sourceGradient, sourceImage};
  openmps::encode_image(self, commandBuffer, sources, {.source = gradientState}, destinationGradient);
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                               gradientStates:(MPSStateBatch *)gradientStates {
  MPSImageBatch *const sources[] = {sourceGradients, sourceImages};
  return openmps::encode_to_new_images(self, commandBuffer, sources,
                                       {.source = gradientStates, .source_name = "gradientStates"});
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
                    gradientStates:(MPSStateBatch *)gradientStates
              destinationGradients:(MPSImageBatch *)destinationGradients {
  MPSImageBatch *const sources[] = {sourceGradients, sourceImages};
  openmps::encode_images(self, commandBuffer, sources, {.source = gradientStates, .source_name = "gradientStates"},
                         destinationGradients);
}

@end
