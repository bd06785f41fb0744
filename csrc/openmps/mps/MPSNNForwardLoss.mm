// SPDX-License-Identifier: Apache-2.0
// Loss and gradient as two kernels, with labels and weights in images: MPSNNForwardLoss, MPSNNLossGradient,
// MPSNNInitialGradient [MPSCNNLoss.h].

#import "mps/MPSCNNLoss+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct ForwardLossState : Extends<ForwardLossState, LossState> {
  bool is_reduced() const { return settings.reduction != MPSCNNReductionTypeNone; }

  NSUInteger output_channels(NSUInteger channels) const override { return is_reduced() ? 1 : channels; }
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    take_offset(0, 0, 0);
    [descriptor setWidth:is_reduced() ? 1 : [sources[0] width]];
    [descriptor setHeight:is_reduced() ? 1 : [sources[0] height]];
  }

  /// Raise if offset or clipRect is set: Apple's header has neither here.
  void check_whole() const {
    if (source.offset.x != 0 || source.offset.y != 0 || source.offset.z != 0)
      raise_for(*this, @"offset (%ld, %ld, %ld) is not (0, 0, 0): the kernel has none.", (long)source.offset.x,
                (long)source.offset.y, (long)source.offset.z);
    const MTLRegion &clip = destination.clip;
    if (clip.origin.x != 0 || clip.origin.y != 0 || clip.origin.z != 0 || clip.size.width != MPSRectNoClip.size.width ||
        clip.size.height != MPSRectNoClip.size.height || clip.size.depth != MPSRectNoClip.size.depth)
      raise_for(*this, @"clipRect is not MPSRectNoClip: the kernel has none.");
    if (destination.channel_offset != 0)
      raise_for(*this, @"destinationFeatureChannelOffset (%lu) is not 0: the kernel has none.",
                (unsigned long)destination.channel_offset);
  }
};

struct LossGradientState : Extends<LossGradientState, CNNBinaryKernelState> {
  LossSettings settings;
  BOOL of_labels = NO;

  const SourceNames &names(std::size_t source) const override {
    static const SourceNames source_names[] = {{"primary", "sourceGradient", "sourceGradients"},
                                               {"secondary", "sourceImage", "sourceImages"}};
    return source_names[source];
  }
  bool is_backwards() const override { return true; }
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[1]; }
  void size_result(Images sources, MPSImageDescriptor *descriptor) override {
    [descriptor setWidth:[sources[1] width]];
    [descriptor setHeight:[sources[1] height]];
  }
  Problem make_problem(const Encode &) const override {
    raise_for(*this, @"There is no gradient without labels; use the encode forms that have them.");
  }
  void archive(Archive &archive) override {
    CNNBinaryKernelState::archive(archive);
    settings.archive(archive, @"MPSNNLossGradient");
    archive.field(@"MPSNNLossGradient.computeLabelGradients", of_labels);
  }
  void did_read(MPSKernel *kernel) override {
    CNNBinaryKernelState::did_read(kernel);
    settings.check(*this);
  }
};

struct InitialGradientState : Extends<InitialGradientState, CNNKernelState> {
  /// Ones: the padding beyond the last row.
  Problem make_problem(const Encode &encode) const override {
    PadProblem problem;
    problem.src = encode.src[0];
    problem.dst = encode.dst;
    problem.start_h = encode.src[0].h;
    problem.edge = PadEdge::constant;
    problem.fill = 1;
    return problem;
  }
};

/// Collect the images; arrays that are given have as many images.
std::vector<LossImages> images_of(const ImageKernelState &state, MPSImageBatch *sources, MPSImageBatch *labels,
                                  MPSImageBatch *weights, MPSImageBatch *incoming, MPSImageBatch *gradients,
                                  MPSImageBatch *losses) {
  const NSUInteger count = [sources count];
  check_batch(state, labels, count, "labels");
  if (weights != nil) check_batch(state, weights, count, "weights");
  std::vector<LossImages> images(count);
  for (NSUInteger i = 0; i < count; ++i)
    images[i] = {[sources objectAtIndex:i],  [labels objectAtIndex:i],    [weights objectAtIndex:i],
                 [incoming objectAtIndex:i], [gradients objectAtIndex:i], [losses objectAtIndex:i]};
  return images;
}

void encode_forward(MPSNNForwardLoss *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *sources,
                    MPSImageBatch *labels, MPSImageBatch *weights, MPSStateBatch *states, MPSImageBatch *losses) {
  const auto &state = state_of<ForwardLossState>(kernel);
  begin_encode(state, buffer);
  state.check_whole();
  check_batch(state, sources, [sources count], "sourceImages");
  check_batch(state, losses, [sources count], "destinationImages");
  const std::vector<LossImages> images = images_of(state, sources, labels, weights, nil, nil, losses);
  if (states != nil && [states count] != images.size())
    raise_for(state, @"destinationStates has %lu states, expected one for each of %lu images.",
              (unsigned long)[states count], (unsigned long)images.size());
  LossProblem problem;
  problem.function = state.settings.function();
  problem.reduction = reduction_of(state.settings.reduction);
  problem.across_images = state.settings.across_batch;
  encode_losses(state, buffer, images, std::move(problem));
}

void encode_gradient(MPSNNLossGradient *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *incoming,
                     MPSImageBatch *sources, MPSImageBatch *labels, MPSImageBatch *weights, MPSStateBatch *states,
                     MPSImageBatch *gradients) {
  const auto &state = state_of<LossGradientState>(kernel);
  begin_encode(state, buffer);
  check_batch(state, sources, [sources count], "sourceImages");
  check_batch(state, incoming, [sources count], "sourceGradients");
  check_batch(state, gradients, [sources count], "destinationGradients");
  const std::vector<LossImages> images = images_of(state, sources, labels, weights, incoming, gradients, nil);
  if (states != nil && [states count] != images.size())
    raise_for(state, @"sourceStates has %lu states, expected one for each of %lu images.",
              (unsigned long)[states count], (unsigned long)images.size());
  LossProblem problem;
  problem.function = state.settings.function();
  problem.reduction = LossReduction::sum;  // there is no loss to reduce
  problem.by_labels = state.of_labels;
  std::vector<MPSState *> read;
  for (MPSState *source_state in states) read.push_back(source_state);
  for (MPSState *source_state : read) [source_state openmps_willUseOn:buffer];
  encode_losses(state, buffer, images, std::move(problem), {.source = 1, .incoming = 0});
  each_distinct(std::move(read), [](MPSState *source_state) { [source_state openmps_didRead]; });
}

}  // namespace
}  // namespace openmps

using openmps::ForwardLossState;
using openmps::LossGradientState;

@implementation MPSNNForwardLoss

+ (openmps::KernelState *)openmps_newState {
  return new ForwardLossState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:lossDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor {
  return openmps::init_loss<ForwardLossState>(self, device, lossDescriptor);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_LOSS_PROPERTIES(ForwardLossState)
OPENMPS_LOSS_SETTERS(ForwardLossState)

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                            labels:(MPSImageBatch *)labels
                           weights:(MPSImageBatch *)weights
                 destinationStates:(MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_forward(self, commandBuffer, sourceImages, labels, weights, destinationStates, destinationImages);
}

/// There are no states: the gradient kernel gets the same images.
- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                                       labels:(MPSImageBatch *)labels
                                      weights:(MPSImageBatch *)weights
                            destinationStates:(MPSStateBatch **)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, {&sourceImages, 1}, {});
  openmps::Discard discard(result);
  MPSStateBatch *states = isTemporary ? [self temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                            sourceImage:sourceImages
                                                                           sourceStates:nil
                                                                       destinationImage:result]
                                      : [self resultStateBatchForSourceImage:sourceImages
                                                                sourceStates:nil
                                                            destinationImage:result];
  openmps::encode_forward(self, commandBuffer, sourceImages, labels, weights, states, result);
  discard.keep();
  if (outStates != NULL) *outStates = states;
  return result;
}

@end

@implementation MPSNNLossGradient

+ (openmps::KernelState *)openmps_newState {
  return new LossGradientState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:lossDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor {
  return openmps::init_loss<LossGradientState>(self, device, lossDescriptor);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_LOSS_PROPERTIES(LossGradientState)
OPENMPS_LOSS_SETTERS(LossGradientState)
OPENMPS_PROPERTY(LossGradientState, BOOL, computeLabelGradients, setComputeLabelGradients, of_labels)

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                                       labels:(MPSImageBatch *)labels
                                      weights:(MPSImageBatch *)weights
                                 sourceStates:(MPSStateBatch *)sourceStates {
  MPSImageBatch *const sources[] = {sourceGradients, sourceImages};
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, sources, {});
  openmps::Discard discard(result);
  openmps::encode_gradient(self, commandBuffer, sourceGradients, sourceImages, labels, weights, sourceStates, result);
  discard.keep();
  return result;
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
                            labels:(MPSImageBatch *)labels
                           weights:(MPSImageBatch *)weights
                      sourceStates:(MPSStateBatch *)sourceStates
              destinationGradients:(MPSImageBatch *)destinationGradients {
  openmps::encode_gradient(self, commandBuffer, sourceGradients, sourceImages, labels, weights, sourceStates,
                           destinationGradients);
}

@end

@implementation MPSNNInitialGradient

+ (openmps::KernelState *)openmps_newState {
  return new openmps::InitialGradientState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

@end
