// SPDX-License-Identifier: Apache-2.0
// What the kernels that compare predictions with labels share: their numbers, and the encode of images with labels,
// weights and losses beside source and gradient.
#pragma once

#include "engine/problem/loss.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// What MPSCNNLossDescriptor holds; the kernels repeat it.
struct LossSettings {
  MPSCNNLossType type = MPSCNNLossTypeMeanSquaredError;
  MPSCNNReductionType reduction = MPSCNNReductionTypeSum;
  BOOL across_batch = NO;
  float weight = 1, smoothing = 0;
  NSUInteger classes = 1;
  float epsilon = 1e-7f, delta = 1;

  /// Raises for what no kernel can compute.
  void check(const KernelState &state) const;
  LossFunction function() const;
  void archive(Archive &archive, NSString *prefix);
};
LossReduction reduction_of(MPSCNNReductionType reduction);

/// The data of MPSCNNLoss and MPSNNForwardLoss.
struct LossState : Extends<LossState, CNNKernelState> {
  LossSettings settings;
  /// The encode forms without labels, which every kernel inherits.
  Problem problem(const ImageView &, const ImageView &, const Window &) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// One image of an encode, or several in one object. What is optional is nil: weights, the incoming gradient (1), the
/// gradient and the loss that are not wanted.
struct LossImages {
  MPSImage *source = nil, *labels = nil, *weights = nil, *incoming = nil;
  MPSImage *gradient = nil, *loss = nil;
};

/// Which slot of the kernel the predictions, labels and weights follow, and which the incoming gradient.
struct LossSlots {
  std::size_t source = 0, incoming = 0;
};

/// All checks, then one command. `problem` has everything but its parts.
void encode_losses(const ImageKernelState &state, id<MTLCommandBuffer> buffer, const std::vector<LossImages> &images,
                   LossProblem problem, const LossSlots &slots = {});

/// The image of a batch of labels.
LossImages images_of(const ImageKernelState &state, MPSImage *source, MPSCNNLossLabels *labels, MPSImage *gradient);
std::vector<LossImages> images_of(const ImageKernelState &state, MPSImageBatch *sources, MPSCNNLossLabelsBatch *labels,
                                  MPSImageBatch *gradients);

}  // namespace openmps

@interface MPSCNNLossDescriptor (Engine)
- (const openmps::LossSettings &)openmps_settings;
@end

/// The encode forms of MPSCNNLoss and MPSCNNYOLOLoss. PROBLEM is an expression of `state`, which is a STATE.
#define OPENMPS_LOSS_ENCODE_FORMS(STATE, PROBLEM)                                                                     \
  -(void)encodeToCommandBuffer : (id<MTLCommandBuffer>)commandBuffer sourceImage : (MPSImage *)sourceImage labels     \
      : (MPSCNNLossLabels *)labels destinationImage : (MPSImage *)destinationImage {                                  \
    const auto &state = openmps::state_of<STATE>(self);                                                               \
    openmps::encode_losses(state, commandBuffer, {openmps::images_of(state, sourceImage, labels, destinationImage)},  \
                           PROBLEM);                                                                                  \
  }                                                                                                                   \
  -(MPSImage *)encodeToCommandBuffer : (id<MTLCommandBuffer>)commandBuffer sourceImage                                \
      : (MPSImage *)sourceImage labels : (MPSCNNLossLabels *)labels {                                                 \
    MPSImage *result = openmps::new_destination(self, commandBuffer, {&sourceImage, 1}, {});                          \
    openmps::Discard discard([NSArray arrayWithObject:result]);                                                       \
    [self encodeToCommandBuffer:commandBuffer sourceImage:sourceImage labels:labels destinationImage:result];         \
    discard.keep();                                                                                                   \
    return result;                                                                                                    \
  }                                                                                                                   \
  -(void)encodeBatchToCommandBuffer : (id<MTLCommandBuffer>)commandBuffer sourceImages                                \
      : (MPSImageBatch *)sourceImages labels : (MPSCNNLossLabelsBatch *)labels destinationImages                      \
      : (MPSImageBatch *)destinationImages {                                                                          \
    const auto &state = openmps::state_of<STATE>(self);                                                               \
    openmps::encode_losses(state, commandBuffer, openmps::images_of(state, sourceImages, labels, destinationImages),  \
                           PROBLEM);                                                                                  \
  }                                                                                                                   \
  -(MPSImageBatch *)encodeBatchToCommandBuffer : (id<MTLCommandBuffer>)commandBuffer sourceImages                     \
      : (MPSImageBatch *)sourceImages labels : (MPSCNNLossLabelsBatch *)labels {                                      \
    MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, {&sourceImages, 1}, {});                   \
    openmps::Discard discard(result);                                                                                 \
    [self encodeBatchToCommandBuffer:commandBuffer sourceImages:sourceImages labels:labels destinationImages:result]; \
    discard.keep();                                                                                                   \
    return result;                                                                                                    \
  }

/// Properties that the kernels repeat. STATE has `settings`.
#define OPENMPS_LOSS_PROPERTIES(STATE)                                          \
  OPENMPS_GETTER(STATE, MPSCNNLossType, lossType, settings.type)                \
  OPENMPS_GETTER(STATE, MPSCNNReductionType, reductionType, settings.reduction) \
  OPENMPS_GETTER(STATE, BOOL, reduceAcrossBatch, settings.across_batch)         \
  OPENMPS_GETTER(STATE, float, weight, settings.weight)                         \
  OPENMPS_GETTER(STATE, float, labelSmoothing, settings.smoothing)              \
  OPENMPS_GETTER(STATE, NSUInteger, numberOfClasses, settings.classes)          \
  OPENMPS_GETTER(STATE, float, epsilon, settings.epsilon)                       \
  OPENMPS_GETTER(STATE, float, delta, settings.delta)
/// Of those that may change them.
#define OPENMPS_LOSS_SETTER(STATE, SETTER, FIELD)   \
  -(void)SETTER : (float)value {                    \
    auto &state = openmps::state_of<STATE>(self);   \
    openmps::LossSettings changed = state.settings; \
    changed.FIELD = value;                          \
    changed.check(state);                           \
    state.settings = changed;                       \
  }
#define OPENMPS_LOSS_SETTERS(STATE)                        \
  OPENMPS_LOSS_SETTER(STATE, setWeight, weight)            \
  OPENMPS_LOSS_SETTER(STATE, setLabelSmoothing, smoothing) \
  OPENMPS_LOSS_SETTER(STATE, setEpsilon, epsilon)          \
  OPENMPS_LOSS_SETTER(STATE, setDelta, delta)

namespace openmps {

/// The initialiser of the kernels with a MPSCNNLossDescriptor.
template <class State>
id init_loss(MPSKernel *kernel, id<MTLDevice> device, MPSCNNLossDescriptor *descriptor) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<State>(kernel);
  if (descriptor == nil) raise_for(state, @"lossDescriptor is nil.");
  state.settings = [descriptor openmps_settings];
  state.settings.check(state);
  return unwind.done();
}

}  // namespace openmps
