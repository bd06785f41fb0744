// SPDX-License-Identifier: Apache-2.0
// MPSCNNKernel: kernels with one source image and one destination image [MPSCNNKernel.h]. Every encode form ends in
// encode_images().

#import "mps/MPSCNNKernel+Engine.hh"

#include <vector>

namespace openmps {

CNNKernelState::CNNKernelState() {
  destination.padding = Ref<id<MPSNNPadding>>(default_padding(MPSNNPaddingMethodSizeSame));
}

Problem CNNKernelState::problem(const ImageView &, const ImageView &, const Window &) const {
  raise_for(*this, @"The class cannot be encoded; use one of its subclasses.");
}

void CNNKernelState::archive(Archive &archive) {
  KernelState::archive(archive);
  source.archive(archive, @"MPSCNNKernel.source");
  destination.archive(archive, @"MPSCNNKernel.destination");
}

void CNNKernelState::did_read(MPSKernel *kernel) {
  KernelState::did_read(kernel);
  source.check(*this);
}

namespace {

CNNKernelState &state_of_cnn(MPSCNNKernel *kernel) { return state_of<CNNKernelState>(kernel); }

struct Pair {
  ImageView src, dst;
};

/// All checks of one source and one destination, in the order in which a reader would fix them; no side effects.
Pair resolve(const CNNKernelState &state, MPSImage *source, MPSImage *destination) {
  check_image(state, source, "sourceImage");
  check_image(state, destination, "destinationImage");
  if (!state.takes_edge(state.source.edge))
    raise_for(state, @"edgeMode (%lu) is not one that the kernel has.", (unsigned long)state.source.edge);
  const ImageView whole_source = [source openmps_view], whole_destination = [destination openmps_view];
  const Clip clip = clip_of(state, state.destination, whole_destination);
  Pair pair;
  pair.src = source_view(state, state.source, whole_source, clip.depth, "sourceImage");
  const NSUInteger channels = state.output_channels(static_cast<NSUInteger>(pair.src.c));
  pair.dst = destination_view(state, state.destination, whole_destination, clip, channels);
  state.check_geometry(pair.src, clip);
  check_apart(state, pair.src, pair.dst, "sourceImage");
  return pair;
}

}  // namespace

void encode_image(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source, MPSState *result,
                  MPSImage *destination) {
  const CNNKernelState &state = state_of_cnn(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  const Pair pair = resolve(state, source, destination);
  Problem problem = state.problem(pair.src, pair.dst, state.window());
  if (result != nil) [result openmps_willUseOn:buffer];
  [source openmps_willReadOn:buffer];
  [destination openmps_willWriteOn:buffer];
  if (result != nil) state.record(result, source, destination);
  recorder.append(std::move(problem), state.title);
  [source openmps_didRead];
}

/// Calls f once for each distinct image.
template <class F>
void each_distinct(NSArray<MPSImage *> *batch, F f) {
  NSUInteger index = 0;
  for (MPSImage *image in batch)
    if ([batch indexOfObjectIdenticalTo:image] == index++) f(image);
}

void encode_images(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *sources, MPSStateBatch *results,
                   MPSImageBatch *destinations) {
  const CNNKernelState &state = state_of_cnn(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  const NSUInteger count = [sources count];
  check_batch(state, sources, count, "sourceImages");
  check_batch(state, destinations, count, "destinationImages");
  if (results != nil && [results count] != count)
    raise_for(state, @"destinationStates has %lu states, expected one for each of %lu images.",
              (unsigned long)[results count], (unsigned long)count);

  // Neighbours in memory become one problem of several images.
  std::vector<Pair> runs;
  runs.reserve(count);
  for (NSUInteger i = 0; i < count; ++i) {
    const Pair pair = resolve(state, [sources objectAtIndex:i], [destinations objectAtIndex:i]);
    if (!runs.empty()) {
      Pair longer = runs.back();
      if (append_images(longer.src, pair.src) && append_images(longer.dst, pair.dst) &&
          !overlap(longer.src, longer.dst)) {
        runs.back() = std::move(longer);
        continue;
      }
    }
    runs.push_back(pair);
  }
  const Window window = state.window();
  std::vector<Problem> problems;
  problems.reserve(runs.size());
  for (const Pair &run : runs) problems.push_back(state.problem(run.src, run.dst, window));

  will_use_states(results, buffer);
  for (MPSImage *image in sources) [image openmps_willReadOn:buffer];
  for (MPSImage *image in destinations) [image openmps_willWriteOn:buffer];
  NSUInteger index = 0;
  for (MPSState *result in results) {
    state.record(result, [sources objectAtIndex:index], [destinations objectAtIndex:index]);
    ++index;
  }
  for (Problem &problem : problems) recorder.append(std::move(problem), state.title);
  each_distinct(sources, [](MPSImage *image) { [image openmps_didRead]; });
}

Discard::~Discard() {
  for (MPSImage *image in images_)
    if ([image isKindOfClass:[MPSTemporaryImage class]]) [(MPSTemporaryImage *)image setReadCount:0];
}

MPSImage *new_destination(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                          NSArray<MPSState *> *states) {
  const CNNKernelState &state = state_of_cnn(kernel);
  begin_encode(state, buffer);
  check_image(state, source, "sourceImage");
  MPSImageDescriptor *descriptor = [kernel destinationImageDescriptorForSourceImages:[NSArray arrayWithObject:source]
                                                                        sourceStates:states];
  MPSImage *image = [[kernel destinationImageAllocator] imageForCommandBuffer:buffer
                                                              imageDescriptor:descriptor
                                                                       kernel:kernel];
  if (image == nil) raise_for(state, @"destinationImageAllocator returned no image.");
  return image;
}

MPSImageBatch *new_destinations(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *sources,
                                NSArray<MPSState *> *states) {
  const CNNKernelState &state = state_of_cnn(kernel);
  begin_encode(state, buffer);
  const NSUInteger count = [sources count];
  check_batch(state, sources, count, "sourceImages");
  NSArray *first = [NSArray arrayWithObject:[sources objectAtIndex:0]];
  MPSImageDescriptor *descriptor = [kernel destinationImageDescriptorForSourceImages:first sourceStates:states];
  id<MPSImageAllocator> allocator = [kernel destinationImageAllocator];
  if ([allocator respondsToSelector:@selector(imageBatchForCommandBuffer:imageDescriptor:kernel:count:)])
    return [allocator imageBatchForCommandBuffer:buffer imageDescriptor:descriptor kernel:kernel count:count];
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i) {
    MPSImage *image = [allocator imageForCommandBuffer:buffer imageDescriptor:descriptor kernel:kernel];
    if (image == nil) raise_for(state, @"destinationImageAllocator returned no image.");
    [batch addObject:image];
  }
  return batch;
}

namespace {

/// Element `index` of each source state batch: the states that belong to one image.
NSArray<MPSState *> *states_of_image(NSArray<MPSStateBatch *> *batches, NSUInteger index) {
  if (batches == nil) return nil;
  NSMutableArray *states = [NSMutableArray arrayWithCapacity:[batches count]];
  for (MPSStateBatch *batch in batches) [states addObject:[batch objectAtIndex:index]];
  return states;
}

/// One state for each image, or one for all of them; nil when the kernel has none.
template <class F>
MPSStateBatch *state_batch(MPSCNNKernel *kernel, MPSImageBatch *sources, MPSImageBatch *destinations, F make) {
  const CNNKernelState &state = state_of_cnn(kernel);
  const NSUInteger count = [sources count];
  check_batch(state, sources, count, "sourceImage");
  check_batch(state, destinations, count, "destinationImage");
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:count];
  const bool shared = [kernel isResultStateReusedAcrossBatch];
  for (NSUInteger i = 0; i < count; ++i) {
    MPSState *result = shared && i > 0 ? [batch objectAtIndex:0] : make(i);
    if (result == nil) return nil;
    [batch addObject:result];
  }
  return batch;
}

}  // namespace
}  // namespace openmps

using openmps::CNNKernelState;

@implementation MPSCNNKernel

+ (openmps::KernelState *)openmps_newState {
  return new CNNKernelState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

// ------------------------------------------------------------------------------------------ properties

OPENMPS_PROPERTY(CNNKernelState, MPSOffset, offset, setOffset, source.offset)
OPENMPS_PROPERTY(CNNKernelState, MTLRegion, clipRect, setClipRect, destination.clip)
OPENMPS_PROPERTY(CNNKernelState, NSUInteger, destinationFeatureChannelOffset, setDestinationFeatureChannelOffset,
                 destination.channel_offset)
OPENMPS_PROPERTY(CNNKernelState, NSUInteger, sourceFeatureChannelOffset, setSourceFeatureChannelOffset,
                 source.channel_offset)
OPENMPS_PROPERTY(CNNKernelState, NSUInteger, sourceFeatureChannelMaxCount, setSourceFeatureChannelMaxCount,
                 source.channel_max)
OPENMPS_PROPERTY(CNNKernelState, MPSImageEdgeMode, edgeMode, setEdgeMode, source.edge)
OPENMPS_GETTER(CNNKernelState, NSUInteger, kernelWidth, source.kernel_width)
OPENMPS_GETTER(CNNKernelState, NSUInteger, kernelHeight, source.kernel_height)
OPENMPS_GETTER(CNNKernelState, NSUInteger, strideInPixelsX, source.stride_x)
OPENMPS_GETTER(CNNKernelState, NSUInteger, strideInPixelsY, source.stride_y)
OPENMPS_GETTER(CNNKernelState, NSUInteger, dilationRateX, source.dilation_x)
OPENMPS_GETTER(CNNKernelState, NSUInteger, dilationRateY, source.dilation_y)
OPENMPS_GETTER(CNNKernelState, BOOL, isBackwards, is_backwards())

- (BOOL)isStateModified {
  return NO;
}

- (id<MPSNNPadding>)padding {
  return openmps::state_of_cnn(self).destination.padding.get();
}

- (void)setPadding:(id<MPSNNPadding>)padding {
  CNNKernelState &state = openmps::state_of_cnn(self);
  if (padding == nil) openmps::raise_for(state, @"padding is nil.");
  state.destination.padding = openmps::Ref<id<MPSNNPadding>>(padding);
}

- (id<MPSImageAllocator>)destinationImageAllocator {
  id<MPSImageAllocator> allocator = openmps::state_of_cnn(self).destination.allocator.get();
  return allocator != nil ? allocator : [MPSTemporaryImage defaultAllocator];
}

- (void)setDestinationImageAllocator:(id<MPSImageAllocator>)allocator {
  openmps::state_of_cnn(self).destination.allocator = openmps::Ref<id<MPSImageAllocator>>(allocator);
}

// --------------------------------------------------------------------------------------- destination given

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, sourceImage, nil, destinationImage);
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationState:(MPSState *)destinationState
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, sourceImage, destinationState, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_images(self, commandBuffer, sourceImages, nil, destinationImages);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationStates:(MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_images(self, commandBuffer, sourceImages, destinationStates, destinationImages);
}

// ------------------------------------------------------------------------------------ destination returned

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer sourceImage:(MPSImage *)sourceImage {
  MPSImage *result = openmps::new_destination(self, commandBuffer, sourceImage, nil);
  openmps::Discard discard([NSArray arrayWithObject:result]);
  openmps::encode_image(self, commandBuffer, sourceImage, nil, result);
  discard.keep();
  return result;
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImage *result = openmps::new_destination(self, commandBuffer, sourceImage, nil);
  openmps::Discard discard([NSArray arrayWithObject:result]);
  MPSState *state = isTemporary ? [self temporaryResultStateForCommandBuffer:commandBuffer
                                                                 sourceImage:sourceImage
                                                                sourceStates:nil
                                                            destinationImage:result]
                                : [self resultStateForSourceImage:sourceImage sourceStates:nil destinationImage:result];
  openmps::encode_image(self, commandBuffer, sourceImage, state, result);
  discard.keep();
  if (outState != NULL) *outState = state;
  return result;
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages {
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, sourceImages, nil);
  openmps::Discard discard(result);
  openmps::encode_images(self, commandBuffer, sourceImages, nil, result);
  discard.keep();
  return result;
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                            destinationStates:(MPSStateBatch **)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, sourceImages, nil);
  openmps::Discard discard(result);
  MPSStateBatch *states = isTemporary ? [self temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                            sourceImage:sourceImages
                                                                           sourceStates:nil
                                                                       destinationImage:result]
                                      : [self resultStateBatchForSourceImage:sourceImages
                                                                sourceStates:nil
                                                            destinationImage:result];
  openmps::encode_images(self, commandBuffer, sourceImages, states, result);
  discard.keep();
  if (outStates != NULL) *outStates = states;
  return result;
}

// ---------------------------------------------------------------------------------------------- states

- (MPSState *)resultStateForSourceImage:(MPSImage *)sourceImage
                           sourceStates:(NSArray<MPSState *> *)sourceStates
                       destinationImage:(MPSImage *)destinationImage {
  (void)sourceImage, (void)sourceStates, (void)destinationImage;
  return nil;
}

- (MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                       sourceImage:(MPSImage *)sourceImage
                                      sourceStates:(NSArray<MPSState *> *)sourceStates
                                  destinationImage:(MPSImage *)destinationImage {
  (void)commandBuffer, (void)sourceImage, (void)sourceStates, (void)destinationImage;
  return nil;
}

- (MPSStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                                     sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                 destinationImage:(MPSImageBatch *)destinationImage {
  return openmps::state_batch(self, sourceImage, destinationImage, [=](NSUInteger i) {
    return [self resultStateForSourceImage:[sourceImage objectAtIndex:i]
                              sourceStates:openmps::states_of_image(sourceStates, i)
                          destinationImage:[destinationImage objectAtIndex:i]];
  });
}

- (MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                 sourceImage:(MPSImageBatch *)sourceImage
                                                sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                            destinationImage:(MPSImageBatch *)destinationImage {
  return openmps::state_batch(self, sourceImage, destinationImage, [=](NSUInteger i) {
    return [self temporaryResultStateForCommandBuffer:commandBuffer
                                          sourceImage:[sourceImage objectAtIndex:i]
                                         sourceStates:openmps::states_of_image(sourceStates, i)
                                     destinationImage:[destinationImage objectAtIndex:i]];
  });
}

- (BOOL)isResultStateReusedAcrossBatch {
  return NO;
}

- (BOOL)appendBatchBarrier {
  return NO;
}

// ----------------------------------------------------------------------------------------- sizing a result

/// Order: padding bits, the class, the source states, the policy's own method [MPSCNNKernel.h].
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates {
  CNNKernelState &state = openmps::state_of_cnn(self);
  if ([sourceImages count] != 1)
    openmps::raise_for(state, @"sourceImages has %lu images, expected 1.", (unsigned long)[sourceImages count]);
  MPSImage *source = [sourceImages objectAtIndex:0];
  openmps::check_image(state, source, "sourceImages");
  const NSUInteger channels =
      state.output_channels(openmps::source_channels(state, state.source, [source featureChannels], "sourceImages"));
  MPSImageDescriptor *descriptor =
      [MPSImageDescriptor imageDescriptorWithChannelFormat:[source featureChannelFormat]
                                                     width:1
                                                    height:1
                                           featureChannels:state.destination.channel_offset + channels
                                            numberOfImages:[source numberOfImages]
                                                     usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  openmps::apply_padding(state, source, descriptor);
  state.adjust_result(descriptor);
  for (MPSState *source_state in sourceStates)
    descriptor = [source_state destinationImageDescriptorForSourceImages:sourceImages
                                                            sourceStates:sourceStates
                                                               forKernel:self
                                                     suggestedDescriptor:descriptor];
  return openmps::apply_custom_padding(self, state.destination.padding.get(), sourceImages, sourceStates, descriptor);
}

/// Nothing is allocated while encoding.
- (NSUInteger)encodingStorageSizeForSourceImage:(MPSImage *)sourceImage
                                   sourceStates:(NSArray<MPSState *> *)sourceStates
                               destinationImage:(MPSImage *)destinationImage {
  (void)sourceImage, (void)sourceStates, (void)destinationImage;
  return 0;
}

- (NSUInteger)batchEncodingStorageSizeForSourceImage:(MPSImageBatch *)sourceImage
                                        sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                    destinationImage:(MPSImageBatch *)destinationImage {
  (void)sourceImage, (void)sourceStates, (void)destinationImage;
  return 0;
}

@end
