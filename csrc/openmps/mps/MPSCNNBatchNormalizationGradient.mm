// SPDX-License-Identifier: Apache-2.0
// The gradients of batch normalization. Those of gamma and beta come first, over the whole batch: the gradient of the
// source contains the same sums [MPSCNNBatchNormalization.h].

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct BatchGradientState : Extends<BatchGradientState, NormalizationGradientState> {
  BatchNormalizationData &data_of(MPSState *given) const {
    return static_cast<BatchNormalizationData &>(normalization_data(static_cast<const KernelState &>(*this), given,
                                                                    [MPSCNNBatchNormalizationState class],
                                                                    "batchNormalizationState"));
  }

  /// Fill the fields that the problems of both kernels take from the state.
  template <class T>
  void fill(T &problem, MPSState *given, std::int64_t channels) const {
    const BatchNormalizationData &data = data_of(given);
    if (static_cast<std::int64_t>(data.channels) != channels)
      raise_for(*this, @"The sources have %ld feature channels, and batchNormalizationState was made for %lu.",
                (long)channels, (unsigned long)data.channels);
    if (!data.has_statistics())
      raise_for(*this, @"No MPSCNNBatchNormalizationStatistics has been encoded to batchNormalizationState, and its "
                       @"batchNormalization has no mean and variance.");
    if (fused.descriptor) fused.check_channels(*this, static_cast<NSUInteger>(channels));
    problem.gamma = channel_values(data.gamma);
    problem.beta = channel_values(data.beta);
    if (data.count > 0) {
      problem.mean = resource_values(given, kMean);
      problem.variance = resource_values(given, kVariance);
      problem.exact = resource_values(given, kExact);
    } else {
      problem.mean = channel_values(data.mean);
      problem.variance = channel_values(data.variance);
    }
    problem.epsilon = data.epsilon;
    problem.neuron = fused.neuron;
    problem.diff_gamma = resource_values(given, kGradientForGamma);
    problem.diff_beta = resource_values(given, kGradientForBeta);
  }
};

struct BatchNormalizationGradientState : Extends<BatchNormalizationGradientState, BatchGradientState> {
  /// Apple marks the forms with a primaryImage unavailable.
  Problem make_problem(const Encode &encode) const override {
    if (encode.source_state == nil)
      raise_for(*this, @"The forms with a primaryImage are unavailable; use those with a batchNormalizationState.");
    const BatchNormalizationData &data = data_of(encode.source_state);
    NormalizeGradientProblem problem;
    fill(problem, encode.source_state, encode.src[1].c);
    if (data.count > 0 && !data.has_gradients)
      raise_for(*this, @"No MPSCNNBatchNormalizationStatisticsGradient has been encoded to batchNormalizationState.");
    problem.diff_dst = incoming(encode.src[0]);
    problem.src = source_operand(encode.src[1]);
    problem.diff_src = encode.dst;
    problem.count = data.count;
    return problem;
  }

  void did_encode(const Encode &encode) const override { data_of(encode.source_state).has_used_gradients = true; }
};

struct BatchStatisticsGradientState : Extends<BatchStatisticsGradientState, BatchGradientState> {
  /// Apple marks the forms with a gradientState unavailable.
  Problem make_problem(const Encode &) const override {
    raise_for(*this, @"There is no destination; use "
                     @"-encodeBatchToCommandBuffer:sourceGradients:sourceImages:batchNormalizationState:.");
  }
};

id init_batch_gradient(MPSCNNGradientKernel *kernel, id<MTLDevice> device, MPSNNNeuronDescriptor *fused) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<BatchGradientState>(kernel);
  if (fused != nil && [fused neuronType] != MPSCNNNeuronTypeNone) state.fused.set(state, fused);
  return unwind.done();
}

/// Return the same state for every image.
MPSStateBatch *shared_state(MPSCNNGradientKernel *kernel, MPSImageBatch *images, MPSState *given) {
  state_of<BatchGradientState>(kernel).data_of(given);
  NSMutableArray *states = [NSMutableArray arrayWithCapacity:[images count]];
  for (NSUInteger i = 0; i < [images count]; ++i) [states addObject:given];
  return states;
}

}  // namespace
}  // namespace openmps

#define OPENMPS_BATCH_GRADIENT(STATE)                                         \
  +(openmps::KernelState *)openmps_newState {                                 \
    return new openmps::STATE();                                              \
  }                                                                           \
  OPENMPS_INIT_WITH_DEVICE                                                    \
  OPENMPS_INIT_WITH_CODER                                                     \
  -(instancetype)initWithDevice : (id<MTLDevice>)device fusedNeuronDescriptor \
      : (MPSNNNeuronDescriptor *)fusedNeuronDescriptor {                      \
    return openmps::init_batch_gradient(self, device, fusedNeuronDescriptor); \
  }

@implementation MPSCNNBatchNormalizationGradient

OPENMPS_BATCH_GRADIENT(BatchNormalizationGradientState)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
          destinationGradient:(MPSImage *)destinationGradient {
  MPSImage *const sources[] = {sourceGradient, sourceImage};
  openmps::state_of<openmps::BatchGradientState>(self).data_of(batchNormalizationState);
  openmps::encode_image(self, commandBuffer, sources, {.source = batchNormalizationState}, destinationGradient);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
              destinationGradients:(MPSImageBatch *)destinationGradients {
  MPSImageBatch *const sources[] = {sourceGradients, sourceImages};
  MPSStateBatch *states = openmps::shared_state(self, sourceGradients, batchNormalizationState);
  openmps::encode_images(self, commandBuffer, sources, {.source = states}, destinationGradients);
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     sourceGradient:(MPSImage *)sourceGradient
                        sourceImage:(MPSImage *)sourceImage
            batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  MPSImage *const sources[] = {sourceGradient, sourceImage};
  openmps::state_of<openmps::BatchGradientState>(self).data_of(batchNormalizationState);
  return openmps::encode_to_new_image(self, commandBuffer, sources, {.source = batchNormalizationState});
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceGradients:(MPSImageBatch *)sourceGradients
                                 sourceImages:(MPSImageBatch *)sourceImages
                      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  MPSImageBatch *const sources[] = {sourceGradients, sourceImages};
  MPSStateBatch *states = openmps::shared_state(self, sourceGradients, batchNormalizationState);
  return openmps::encode_to_new_images(self, commandBuffer, sources, {.source = states});
}

@end

@implementation MPSCNNBatchNormalizationStatisticsGradient

OPENMPS_BATCH_GRADIENT(BatchStatisticsGradientState)

/// Over all pixels of the gradients, each with the source pixel that primaryOffset, secondaryOffset and kernelOffset
/// select.
- (void)openmps_encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               images:(const std::vector<std::array<MPSImage *, 2>> &)images
              batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  const auto &state = openmps::state_of<openmps::BatchStatisticsGradientState>(self);
  openmps::Recorder &recorder = openmps::begin_encode(state, commandBuffer);
  openmps::BatchNormalizationData &data = state.data_of(batchNormalizationState);
  state.check_slots();
  for (std::size_t i = 0; i < 2; ++i)
    if (!state.takes_edge(state.sources[i].edge))
      openmps::raise_for(state, @"%s (%lu) is not one that the kernel has.",
                         state.names(i).property("edgeMode").c_str(), (unsigned long)state.sources[i].edge);
  state.check_sources();
  [batchNormalizationState openmps_willUseOn:commandBuffer];

  using Pair = std::array<openmps::ImageView, 2>;
  std::vector<Pair> runs;  // images that follow each other in memory
  std::vector<MPSImage *> read;
  for (const auto &pair : images) {
    Pair views;
    std::array<NSUInteger, 2> channels;
    for (std::size_t source = 0; source < 2; ++source) {
      const openmps::ImageView whole = [pair[source] openmps_view];
      views[source] = openmps::source_view(state, state.sources[source], state.names(source), whole, whole.n);
      channels[source] = static_cast<NSUInteger>(views[source].c);
      read.push_back(pair[source]);
    }
    state.result_channels(channels);
    Pair longer = runs.empty() ? views : runs.back();
    if (!runs.empty() && openmps::append_images(longer[0], views[0]) && openmps::append_images(longer[1], views[1])) {
      runs.back() = longer;
    } else {
      runs.push_back(views);
    }
  }
  openmps::BatchMomentsGradientProblem common;
  state.fill(common, batchNormalizationState, runs[0][1].c);
  for (MPSImage *image : read) [image openmps_willReadOn:commandBuffer];
  if (data.has_used_gradients) data.has_gradients = data.has_used_gradients = false;
  for (const Pair &run : runs) {
    openmps::BatchMomentsGradientProblem problem = common;
    problem.diff_dst = run[0];
    problem.src = state.source_operand(run[1]);
    problem.src.start_h -= state.first_row();
    problem.src.start_w -= state.first_column();
    problem.adds = data.has_gradients;
    data.has_gradients = true;
    recorder.append(std::move(problem), state.title);
  }
  openmps::each_distinct(std::move(read), [](MPSImage *image) { [image openmps_didRead]; });
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   sourceGradients:(MPSImageBatch *)sourceGradients
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  const auto &state = openmps::state_of<openmps::BatchStatisticsGradientState>(self);
  openmps::begin_encode(state, commandBuffer);
  const NSUInteger count = [sourceGradients count];
  openmps::check_batch(state, sourceGradients, count, state.names(0).images);
  openmps::check_batch(state, sourceImages, count, state.names(1).images);
  std::vector<std::array<MPSImage *, 2>> images;
  images.reserve(count);
  for (NSUInteger i = 0; i < count; ++i)
    images.push_back({[sourceGradients objectAtIndex:i], [sourceImages objectAtIndex:i]});
  [self openmps_encodeToCommandBuffer:commandBuffer images:images batchNormalizationState:batchNormalizationState];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               sourceGradient:(MPSImage *)sourceGradient
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  openmps::check_offered(self, _cmd);
  const auto &state = openmps::state_of<openmps::BatchStatisticsGradientState>(self);
  openmps::check_image(state, sourceGradient, state.names(0).image);
  openmps::check_image(state, sourceImage, state.names(1).image);
  if ([sourceGradient numberOfImages] != [sourceImage numberOfImages])
    openmps::raise_for(state, @"%s has %lu images, and %s %lu.", state.names(0).image,
                       (unsigned long)[sourceGradient numberOfImages], state.names(1).image,
                       (unsigned long)[sourceImage numberOfImages]);
  [self openmps_encodeToCommandBuffer:commandBuffer
                               images:{{sourceGradient, sourceImage}}
              batchNormalizationState:batchNormalizationState];
}

/// The gradient of the source needs the sums of the whole batch.
- (BOOL)appendBatchBarrier {
  return YES;
}

- (BOOL)isStateModified {
  return YES;
}

@end
