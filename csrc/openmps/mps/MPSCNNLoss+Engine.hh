// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels that compare predictions with labels: their settings, and the encode of images with
// labels, weights and losses besides source and gradient.
#pragma once

#include "engine/problem/loss.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// Values of MPSCNNLossDescriptor, which are properties of the kernels too.
struct LossSettings {
  MPSCNNLossType type = MPSCNNLossTypeMeanSquaredError;
  MPSCNNReductionType reduction = MPSCNNReductionTypeSum;
  BOOL across_batch = NO;
  float weight = 1, smoothing = 0;
  NSUInteger classes = 1;
  float epsilon = 1e-7f, delta = 1;

  /// Raise for values that no kernel supports.
  void check(const KernelState &state) const;
  LossFunction function() const;
  void archive(Archive &archive, NSString *prefix);
};
LossReduction reduction_of(MPSCNNReductionType reduction);

/// State of MPSCNNLoss and MPSNNForwardLoss.
struct LossState : Extends<LossState, CNNKernelState> {
  LossSettings settings;
  /// Raise for the inherited encode forms without labels.
  Problem problem(const ImageView &, const ImageView &, const Window &) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// One image of an encode, or several in one object. Optional ones may be nil: weights, the incoming gradient (1),
/// gradient and loss.
struct LossImages {
  MPSImage *source = nil, *labels = nil, *weights = nil, *incoming = nil;
  MPSImage *gradient = nil, *loss = nil;
};

/// The slot of predictions, labels and weights, and the slot of the incoming gradient.
struct LossSlots {
  std::size_t source = 0, incoming = 0;
};

/// Check everything, then record one command. `problem` lacks its parts only.
void encode_losses(const ImageKernelState &state, id<MTLCommandBuffer> buffer, const std::vector<LossImages> &images,
                   LossProblem problem, const LossSlots &slots = {});

/// Return the images of an encode with labels.
LossImages images_of(const ImageKernelState &state, MPSImage *source, MPSCNNLossLabels *labels, MPSImage *gradient);
std::vector<LossImages> images_of(const ImageKernelState &state, MPSImageBatch *sources, MPSCNNLossLabelsBatch *labels,
                                  MPSImageBatch *gradients);

}  // namespace openmps

@interface MPSCNNLossDescriptor (Engine)
- (const openmps::LossSettings &)openmps_settings;
@end

/// The encode forms of MPSCNNLoss and MPSCNNYOLOLoss. PROBLEM is an expression in `state`, which is a STATE.
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

/// Getters of the kernels. STATE has `settings`.
#define OPENMPS_LOSS_PROPERTIES(STATE)                                          \
  OPENMPS_GETTER(STATE, MPSCNNLossType, lossType, settings.type)                \
  OPENMPS_GETTER(STATE, MPSCNNReductionType, reductionType, settings.reduction) \
  OPENMPS_GETTER(STATE, BOOL, reduceAcrossBatch, settings.across_batch)         \
  OPENMPS_GETTER(STATE, float, weight, settings.weight)                         \
  OPENMPS_GETTER(STATE, float, labelSmoothing, settings.smoothing)              \
  OPENMPS_GETTER(STATE, NSUInteger, numberOfClasses, settings.classes)          \
  OPENMPS_GETTER(STATE, float, epsilon, settings.epsilon)                       \
  OPENMPS_GETTER(STATE, float, delta, settings.delta)
/// Setters of the kernels with mutable settings.
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

/// Implement the initialiser with an MPSCNNLossDescriptor.
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
