// SPDX-License-Identifier: Apache-2.0
// Batch normalization: the kernel, the statistics of a batch, and the state that passes them to the kernel and to the
// gradient kernels [MPSCNNBatchNormalization.h].

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct BatchNormalizationState : Extends<BatchNormalizationState, NormalizationState> {
  bool has_statistics() const override { return true; }

  BatchNormalizationData &data_of(MPSState *given) const {
    return static_cast<BatchNormalizationData &>(
        normalization_data(*this, given, [MPSCNNBatchNormalizationState class], "batchNormalizationState"));
  }

  /// Apple marks the forms with a destinationState unavailable.
  Problem make_problem(const Encode &encode) const override {
    if (encode.result_state != nil)
      raise_for(*this, @"The forms with a destinationState are unavailable; use those with a batchNormalizationState.");
    Problem made = NormalizationState::make_problem(encode);
    NormalizeProblem &problem = std::get<NormalizeProblem>(made);
    if (encode.source_state != nil && data_of(encode.source_state).count > 0) {
      problem.mean = resource_values(encode.source_state, kMean);
      problem.variance = resource_values(encode.source_state, kVariance);
      problem.exact = resource_values(encode.source_state, kExact);
      return made;
    }
    if (!mean)
      raise_for(*this, @"The data source has no mean and variance, and no MPSCNNBatchNormalizationStatistics has been "
                       @"encoded to a batchNormalizationState.");
    problem.mean = channel_values(mean);
    problem.variance = channel_values(variance);
    return made;
  }

  void did_encode(const Encode &encode) const override {
    if (encode.source_state == nil) return;
    BatchNormalizationData &data = data_of(encode.source_state);
    data.gamma = gamma, data.beta = beta, data.mean = mean, data.variance = variance;
    data.epsilon = epsilon;
    data.is_used = true;
  }
};

BatchNormalizationState &batch_state(MPSCNNBatchNormalization *kernel) {
  return state_of<BatchNormalizationState>(kernel);
}

MPSCNNBatchNormalizationState *new_batch_state(MPSCNNBatchNormalization *kernel, id<MTLCommandBuffer> buffer,
                                               MPSImage *source) {
  auto data = std::make_unique<BatchNormalizationData>();
  data->mean = batch_state(kernel).mean, data->variance = batch_state(kernel).variance;
  return (MPSCNNBatchNormalizationState *)new_normalization_state([MPSCNNBatchNormalizationState class], kernel, buffer,
                                                                  source, std::move(data));
}

struct BatchStatisticsState : Extends<BatchStatisticsState, CNNKernelState> {
  /// Apple marks the forms with a destination unavailable.
  Problem problem(const ImageView &, const ImageView &, const Window &) const override {
    raise_for(*this, @"There is no destination; use "
                     @"-encodeBatchToCommandBuffer:sourceImages:batchNormalizationState:.");
  }
};

}  // namespace
}  // namespace openmps

using openmps::batch_data;
using openmps::batch_state;
using openmps::BatchNormalizationState;

@implementation MPSCNNBatchNormalization

+ (openmps::KernelState *)openmps_newState {
  return new BatchNormalizationState();
}

OPENMPS_NORMALIZATION_KERNEL
OPENMPS_GETTER(BatchNormalizationState, NSUInteger, numberOfFeatureChannels, channels)
OPENMPS_GETTER(BatchNormalizationState, id<MPSCNNBatchNormalizationDataSource>, dataSource, data_source.get())

- (instancetype)initWithDevice:(id<MTLDevice>)device dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource {
  return openmps::init_normalization(self, device, dataSource, nil);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                    dataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource
         fusedNeuronDescriptor:(MPSNNNeuronDescriptor *)fusedNeuronDescriptor {
  return openmps::init_normalization(self, device, dataSource, fusedNeuronDescriptor);
}

- (void)reloadDataSource:(id<MPSCNNBatchNormalizationDataSource>)dataSource {
  openmps::reload_normalization(self, dataSource, openmps::SourceParts::all);
}

- (void)reloadMeanAndVarianceFromDataSource {
  openmps::reload_normalization(self, batch_state(self).data_source.get(), openmps::SourceParts::mean_and_variance);
}

- (void)reloadMeanAndVarianceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          meanAndVarianceState:(MPSCNNNormalizationMeanAndVarianceState *)meanAndVarianceState {
  openmps::reload_normalization(self, commandBuffer, meanAndVarianceState);
}

// ---------------------------------------------------------------------------------------------- with a state

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
             destinationImage:(MPSImage *)destinationImage {
  batch_state(self).data_of(batchNormalizationState);
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {.source = batchNormalizationState}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
                 destinationImages:(MPSImageBatch *)destinationImages {
  batch_state(self).data_of(batchNormalizationState);
  NSMutableArray *states = [NSMutableArray arrayWithCapacity:[sourceImages count]];
  for (NSUInteger i = 0; i < [sourceImages count]; ++i) [states addObject:batchNormalizationState];
  openmps::encode_images(self, commandBuffer, {&sourceImages, 1}, {.source = states}, destinationImages);
}

/// One state for the whole batch.
- (BOOL)isResultStateReusedAcrossBatch {
  return YES;
}

- (MPSCNNBatchNormalizationState *)resultStateForSourceImage:(MPSImage *)sourceImage
                                                sourceStates:(NSArray<MPSState *> *)sourceStates
                                            destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_batch_state(self, nil, sourceImage);
}

- (MPSCNNBatchNormalizationState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                            sourceImage:(MPSImage *)sourceImage
                                                           sourceStates:(NSArray<MPSState *> *)sourceStates
                                                       destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_batch_state(self, commandBuffer, sourceImage);
}

@end

@implementation MPSCNNBatchNormalizationState

OPENMPS_NORMALIZATION_STATE(MPSCNNBatchNormalization, batchNormalization)

- (id<MTLBuffer>)mean {
  if (batch_data(self).count == 0) return batch_data(self).mean.get();
  return (id<MTLBuffer>)[self resourceAtIndex:openmps::kMean allocateMemory:YES];
}

- (id<MTLBuffer>)variance {
  if (batch_data(self).count == 0) return batch_data(self).variance.get();
  return (id<MTLBuffer>)[self resourceAtIndex:openmps::kVariance allocateMemory:YES];
}

- (id<MTLBuffer>)gradientForGamma {
  if (!batch_data(self).has_gradients) return nil;
  return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForGamma allocateMemory:YES];
}

- (id<MTLBuffer>)gradientForBeta {
  if (!batch_data(self).has_gradients) return nil;
  return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForBeta allocateMemory:YES];
}

/// For later encodes; recorded commands keep their buffers.
- (void)reset {
  openmps::BatchNormalizationData &data = batch_data(self);
  data.count = 0;
  data.is_used = data.has_gradients = data.has_used_gradients = false;
}

@end

@implementation MPSCNNBatchNormalizationStatistics

+ (openmps::KernelState *)openmps_newState {
  return new openmps::BatchStatisticsState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

/// Over all pixels: clipRect and offset place a destination, which this kernel does not have.
- (void)openmps_encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               images:(const std::vector<MPSImage *> &)images
              batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  const auto &state = openmps::state_of<openmps::BatchStatisticsState>(self);
  openmps::Recorder &recorder = openmps::begin_encode(state, commandBuffer);
  if (batchNormalizationState == nil) openmps::raise_for(state, @"batchNormalizationState is nil.");
  openmps::BatchNormalizationData &data = batch_data(batchNormalizationState);
  [batchNormalizationState openmps_willUseOn:commandBuffer];

  std::vector<openmps::ImageView> runs;  // images that follow each other in memory
  for (MPSImage *image : images) {
    const openmps::ImageView whole = [image openmps_view];
    const openmps::ImageView view = openmps::source_view(state, state.source, state.names(0), whole, whole.n);
    if (view.c != static_cast<std::int64_t>(data.channels))
      openmps::raise_for(state,
                         @"sourceImages have %ld feature channels (from sourceFeatureChannelOffset on, at most "
                         @"sourceFeatureChannelMaxCount) and batchNormalizationState %lu.",
                         (long)view.c, (unsigned long)data.channels);
    if (runs.empty() || !openmps::append_images(runs.back(), view)) runs.push_back(view);
  }
  for (MPSImage *image : images) [image openmps_willReadOn:commandBuffer];
  if (data.is_used) data.count = 0, data.is_used = data.has_gradients = data.has_used_gradients = false;
  for (const openmps::ImageView &run : runs) {
    openmps::BatchMomentsProblem problem;
    problem.src = run;
    problem.mean = openmps::resource_values(batchNormalizationState, openmps::kMean);
    problem.variance = openmps::resource_values(batchNormalizationState, openmps::kVariance);
    problem.exact = openmps::resource_values(batchNormalizationState, openmps::kExact);
    problem.count = data.count;
    data.count += run.n * run.h * run.w;
    recorder.append(std::move(problem), state.title);
  }
  openmps::each_distinct(images, [](MPSImage *image) { [image openmps_didRead]; });
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
           batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  const auto &state = openmps::state_of<openmps::BatchStatisticsState>(self);
  openmps::begin_encode(state, commandBuffer);
  openmps::check_batch(state, sourceImages, [sourceImages count], "sourceImages");
  std::vector<MPSImage *> images;
  images.reserve([sourceImages count]);
  for (MPSImage *image in sourceImages) images.push_back(image);
  [self openmps_encodeToCommandBuffer:commandBuffer images:images batchNormalizationState:batchNormalizationState];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState {
  openmps::check_offered(self, _cmd);
  openmps::check_image(openmps::state_of<openmps::BatchStatisticsState>(self), sourceImage, "sourceImage");
  [self openmps_encodeToCommandBuffer:commandBuffer
                               images:{sourceImage}
              batchNormalizationState:batchNormalizationState];
}

/// The statistics are of the whole batch before a kernel reads them [MPSCNNKernel.h].
- (BOOL)appendBatchBarrier {
  return YES;
}

@end

@implementation MPSCNNNormalizationMeanAndVarianceState

- (instancetype)initWithMean:(id<MTLBuffer>)mean variance:(id<MTLBuffer>)variance {
  openmps::UnwindRelease unwind(self);
  NSArray *resources = openmps::two_resources([self class], mean, "mean", variance, "variance");
  return [unwind.done() initWithResources:resources];
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        numberOfFeatureChannels:(NSUInteger)numberOfFeatureChannels {
  return [self temporaryStateWithCommandBuffer:commandBuffer
                                  resourceList:openmps::two_buffers(self, numberOfFeatureChannels)];
}

- (id<MTLBuffer>)mean {
  return (id<MTLBuffer>)[self resourceAtIndex:0 allocateMemory:YES];
}

- (id<MTLBuffer>)variance {
  return (id<MTLBuffer>)[self resourceAtIndex:1 allocateMemory:YES];
}

@end
