// SPDX-License-Identifier: Apache-2.0
// The encode of a graph: makes the images and states between the operations, with the readCounts of their readers.

#import "mps/MPSNNGraph+Engine.hh"

#import "mps/ImageState.hh"

namespace openmps {

NSArray *repeated(id object, NSUInteger count) {
  NSMutableArray *array = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i) [array addObject:object];
  return array;
}

namespace {

bool is_temporary(MPSImage *image) { return [image openmps_state].temporary != nullptr; }

void set_read_count(NSArray *batch, NSUInteger count) {
  for (id object in batch)
    if ([object readCount] != 0 && [object readCount] != count) [object setReadCount:count];
}

id<MPSImageAllocator> temporary_allocator() {
  static id<MPSImageAllocator> const allocator = [[MPSTemporaryImage defaultAllocator] retain];
  return allocator;
}

/// Return the first element of each batch.
NSArray *firsts(Batches batches) {
  NSMutableArray *array = [NSMutableArray arrayWithCapacity:batches.size()];
  for (MPSImageBatch *batch : batches) [array addObject:[batch objectAtIndex:0]];
  return array;
}

}  // namespace

// ----------------------------------------------------------------------------------------------- operations

void Operation::count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &graph_states) const {
  each_distinct(sources, [&](std::size_t source) { ++images[source].reads; });
  for (const std::size_t state : states) ++graph_states[state].reads;
}

void Operation::reload() {
  MPSKernel *kernel_of = kernel.get();
  for (const SEL selector : {
         @selector(reloadWeightsAndBiasesFromDataSource), @selector(reloadGammaAndBetaFromDataSource),
             @selector(reloadMeanAndVarianceFromDataSource)
       })
    if ([kernel_of respondsToSelector:selector]) [kernel_of performSelector:selector];
}

void KernelOperation::encode(Encoding &encoding) {
  auto *image_kernel = (ImageKernel *)kernel.get();
  std::array<MPSImageBatch *, 2> batches;
  for (std::size_t i = 0; i < sources.size(); ++i) batches[i] = encoding.image(sources[i]);
  const Batches images = Batches(batches).first(sources.size());
  MPSStateBatch *source_states = encoding.source_state(*this);
  MPSImageDescriptor *descriptor =
      source_states == nil ? describe(encoding, images) : encoding.describe_result(image_kernel, images, source_states);
  prepare(encoding, descriptor);
  MPSImageBatch *destination = encoding.make_result(*this, descriptor, image_kernel);
  will_encode(encoding, destination);
  MPSStateBatch *made = encoding.make_states(*this, image_kernel, images, source_states, destination);
  encoding.encode(image_kernel, images, {.source = source_states, .result = made}, destination);
}

/// The kernel is the graph's own: nothing else changes what it makes of a size.
MPSImageDescriptor *Operation::describe(const Encoding &encoding, Batches images) {
  std::array<GraphImageSize, 2> sizes;
  for (std::size_t i = 0; i < images.size(); ++i) sizes[i] = size_of(images[i]);
  MPSImageDescriptor *descriptor = described.descriptor.get();
  MPSImage *first = [images[0] objectAtIndex:0];
  // A descriptor that someone keeps is not changed.
  if (descriptor != nil && sizes == described.sources && [descriptor retainCount] == 1 &&
      [descriptor numberOfImages] == [first numberOfImages] &&
      [descriptor openmps_hasNoSliceLimit] == [first openmps_state].has_no_slice_limit) {
    [descriptor setWidth:described.result.width];
    [descriptor setHeight:described.result.height];
    [descriptor setFeatureChannels:described.result.channels];
    return descriptor;
  }
  auto *image_kernel = (ImageKernel *)kernel.get();
  descriptor = encoding.describe_result(image_kernel, images, nil);
  static Class const standard = [MPSNNDefaultPadding class];
  auto *padding = (NSObject *)state_of<ImageKernelState>(image_kernel).destination.padding.get();
  const bool repeats = [padding class] == standard ||
                       ([padding respondsToSelector:@selector(dependsOnSizesOnly)] && [padding dependsOnSizesOnly]);
  described.descriptor = Ref<MPSImageDescriptor *>::adopt(repeats ? [descriptor copy] : nil);
  described.sources = sizes;
  described.result = {[descriptor width], [descriptor height], [descriptor featureChannels]};
  return descriptor;
}

const ImageView &view_of(MPSImageBatch *batch) { return [(MPSImage *)[batch objectAtIndex:0] openmps_state].view; }

GraphImageSize size_of(MPSImageBatch *batch) {
  const ImageView &view = view_of(batch);
  return {static_cast<NSUInteger>(view.w), static_cast<NSUInteger>(view.h), static_cast<NSUInteger>(view.c)};
}

// ------------------------------------------------------------------------------------------------- encoding

Encoding::Encoding(Graph &graph, id<MTLCommandBuffer> buffer, const GraphInputs &inputs)
    : graph_(graph),
      buffer_(buffer),
      inputs_(inputs),
      lock_(*graph.mutex),
      made_([NSMutableArray array]),
      images_(graph.images.size()),
      joined_(graph.images.size()),
      states_(graph.states.size()),
      sizes_(graph.images.size()) {
  begin_encode(graph, buffer);
  check_inputs(inputs);
  knows_sizes_ = !graph.sizes.empty();
  for (std::size_t i = 0; i < graph.source_images.size(); ++i) {
    const std::size_t index = graph.source_images[i];
    images_[index] = [inputs.images objectAtIndex:i];
    sizes_[index] = size_of(images_[index]);
    knows_sizes_ = knows_sizes_ && sizes_[index] == graph.sizes[index];
  }
  for (std::size_t i = 0; i < graph.source_states.size(); ++i)
    states_[graph.source_states[i]] = [inputs.states objectAtIndex:i];
}

Encoding::~Encoding() {
  for (NSArray *batch in made_)
    for (id object in batch)
      if (![object isKindOfClass:[MPSImage class]] || is_temporary(object)) [object setReadCount:0];
}

void Encoding::check_inputs(const GraphInputs &inputs) const {
  const auto check_count = [&](NSArray *given, const std::vector<std::size_t> &expected, const char *name,
                               const char *handles) {
    if ([given count] != expected.size())
      raise_for(graph_, @"%s has %lu elements, expected %lu, one for each of %s.", name, (unsigned long)[given count],
                (unsigned long)expected.size(), handles);
  };
  check_count(inputs.images, graph_.source_images, "sourceImages", "sourceImageHandles");
  check_count(inputs.states, graph_.source_states, "sourceStates", "sourceStateHandles");
  const NSUInteger images = [[inputs.images objectAtIndex:0] count];
  for (NSArray *all in [NSArray arrayWithObjects:inputs.images, inputs.states, nil])
    for (NSArray *batch in all)
      if ([batch count] != images || images == 0)
        raise_for(graph_, @"A source has a batch of %lu, and the first one %lu; there is at least one.",
                  (unsigned long)[batch count], (unsigned long)images);
  for (MPSImageBatch *batch in inputs.images)
    for (MPSImage *image in batch)
      if (![image isKindOfClass:[MPSImage class]])
        raise_for(graph_, @"sourceImages has an object of class %@, expected MPSImage.", [image class]);
}

bool Encoding::state_is_permanent(std::size_t index) const {
  const GraphState &state = graph_.states[index];
  return state.is_permanent || (state.is_exported && !graph_.state_is_temporary);
}

bool Encoding::result_is_needed(const Operation &operation) const {
  const GraphImage &image = graph_.images[operation.result];
  return image.reads > 0 || image.is_result || image.is_exported;
}

MPSImageDescriptor *Encoding::describe_result(ImageKernel *kernel, Batches sources, MPSStateBatch *states) const {
  NSArray *first_states = states == nil ? nil : [NSArray arrayWithObject:[states objectAtIndex:0]];
  return [kernel destinationImageDescriptorForSourceImages:firsts(sources) sourceStates:first_states];
}

/// Temporary images of a batch follow each other in memory, so that a kernel is one problem for all of them.
MPSImageBatch *Encoding::new_images(MPSImageDescriptor *descriptor, id<MPSImageAllocator> allocator, MPSKernel *kernel,
                                    NSUInteger count) const {
  if (count > 1 && allocator == temporary_allocator()) {
    MPSImageDescriptor *all = [[descriptor copy] autorelease];
    [all setNumberOfImages:count];
    [all setHasNoSliceLimit:YES];
    MPSImage *whole = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer_ imageDescriptor:all];
    MPSImageBatch *batch = [whole batchRepresentation];
    [whole openmps_didRead];  // the images hold it
    return batch;
  }
  if (count > 1 && [allocator respondsToSelector:@selector(imageBatchForCommandBuffer:imageDescriptor:kernel:count:)]) {
    MPSImageBatch *batch = [allocator imageBatchForCommandBuffer:buffer_
                                                 imageDescriptor:descriptor
                                                          kernel:kernel
                                                           count:count];
    if ([batch count] != count)
      raise_for(graph_, @"The imageAllocator of a node, or destinationImageAllocator, made %lu images, expected %lu.",
                (unsigned long)[batch count], (unsigned long)count);
    return batch;
  }
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i) {
    MPSImage *image = [allocator imageForCommandBuffer:buffer_ imageDescriptor:descriptor kernel:kernel];
    if (image == nil) raise_for(graph_, @"The imageAllocator of a node, or destinationImageAllocator, made no image.");
    [batch addObject:image];
  }
  return batch;
}

MPSImageFeatureChannelFormat Encoding::format_of(const GraphImage &image) const {
  return image.format != MPSImageFeatureChannelFormatNone ? image.format : graph_.format;
}

/// Return the images that make an image part of a concatenation's result; nil if it does not fit there. The memory is
/// that of the largest concatenation, made when the first of its parts is, and held until it is encoded itself.
MPSImageBatch *Encoding::joined_result(std::size_t index, MPSImageDescriptor *descriptor, MPSKernel *kernel) {
  const NSUInteger channels = [descriptor featureChannels], reads = graph_.images[index].reads;
  NSUInteger first = 0;
  std::size_t whole = index;
  while (graph_.images[whole].joined_by != kNone) {
    const GraphImage &part = graph_.images[whole];
    const Operation &join = operation(part.joined_by);
    for (std::size_t k = 0; k < part.joined_at; ++k) first += rounded_channels(graph_.sizes[join.sources[k]].channels);
    whole = join.result;
  }
  const GraphImageSize &size = graph_.sizes[whole];
  MPSImageBatch *all = joined_[whole];
  const bool fits = [descriptor width] == size.width && [descriptor height] == size.height &&
                    channels == graph_.sizes[index].channels && channels % 4 == 0 &&
                    format_of(graph_.images[whole]) == format_of(graph_.images[index]);
  if (whole == index) {
    joined_[index] = nil;
    for (MPSTemporaryImage *image in all)
      if (fits && reads > 0)
        [image setReadCount:[image readCount] + reads - 1];
      else
        [image openmps_didRead];
    return fits && reads > 0 ? images_[index] = all : nil;
  }
  if (!fits || reads == 0) return nil;
  if (all == nil) {
    MPSImageDescriptor *larger = [[descriptor copy] autorelease];
    [larger setFeatureChannels:size.channels];
    all = new_images(larger, temporary_allocator(), kernel, [[inputs_.images objectAtIndex:0] count]);
    [made_ addObject:all];
    joined_[whole] = all;
  }
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:[all count]];
  [made_ addObject:batch];
  for (MPSImage *image in all) {
    const auto view =
        [image openmps_view].channels(static_cast<std::int64_t>(first), static_cast<std::int64_t>(channels));
    [batch addObject:[image openmps_imageWithView:view]];
  }
  if (reads > 1) set_read_count(batch, reads);
  return images_[index] = batch;
}

MPSImageBatch *Encoding::make_result(const Operation &operation, MPSImageDescriptor *descriptor, MPSKernel *kernel) {
  const GraphImage &image = graph_.images[operation.result];
  [descriptor setChannelFormat:format_of(image)];
  sizes_[operation.result] = {[descriptor width], [descriptor height], [descriptor featureChannels]};
  if (knows_sizes_ && (image.joined_by != kNone || joined_[operation.result] != nil))
    if (MPSImageBatch *batch = joined_result(operation.result, descriptor, kernel)) return batch;
  id<MPSImageAllocator> allocator = image.allocator.get();
  if (image.is_result) {
    allocator = graph_.allocator.get();
    if (allocator == nil) allocator = [MPSImage defaultAllocator];
  }
  if (allocator == nil) allocator = temporary_allocator();
  MPSImageBatch *batch = new_images(descriptor, allocator, kernel, [images_[operation.sources[0]] count]);
  images_[operation.result] = batch;
  if (!is_temporary([batch objectAtIndex:0])) return batch;
  [made_ addObject:batch];
  const bool exported = image.is_exported && inputs_.intermediates != nil;
  const NSUInteger reads = image.reads + (exported ? 1 : 0) + (image.is_result ? 1 : 0);
  if (reads > 1) set_read_count(batch, reads);
  return batch;
}

MPSStateBatch *Encoding::make_states(const Operation &operation, MPSKernel *kernel, Batches sources,
                                     MPSStateBatch *source_states, MPSImageBatch *destination) {
  if (operation.result_state == kNone) return nil;
  const bool temporary = !state_is_permanent(operation.result_state);
  const auto make = [&](NSUInteger i) -> MPSState * {
    MPSImage *image = [sources[0] objectAtIndex:i], *result = [destination objectAtIndex:i];
    NSArray *given = source_states == nil ? nil : [NSArray arrayWithObject:[source_states objectAtIndex:i]];
    if (sources.size() == 1) {
      auto *unary = (MPSCNNKernel *)kernel;
      return temporary ? [unary temporaryResultStateForCommandBuffer:buffer_
                                                         sourceImage:image
                                                        sourceStates:given
                                                    destinationImage:result]
                       : [unary resultStateForSourceImage:image sourceStates:given destinationImage:result];
    }
    auto *binary = (MPSCNNBinaryKernel *)kernel;
    MPSImage *second = [sources[1] objectAtIndex:i];
    return temporary ? [binary temporaryResultStateForCommandBuffer:buffer_
                                                       primaryImage:image
                                                     secondaryImage:second
                                                       sourceStates:given
                                                   destinationImage:result]
                     : [binary resultStateForPrimaryImage:image
                                           secondaryImage:second
                                             sourceStates:given
                                         destinationImage:result];
  };
  const NSUInteger count = [destination count];
  // A state that an encode neither reads nor writes has only the geometry, which all images share.
  const bool shared =
      [(ImageKernel *)kernel isResultStateReusedAcrossBatch] || !state_of<ImageKernelState>(kernel).uses_states();
  MPSState *first = make(0);
  if (first == nil) return nil;
  NSMutableArray *batch = [NSMutableArray arrayWithObject:first];
  for (NSUInteger i = 1; i < count; ++i) [batch addObject:shared ? first : make(i)];
  states_[operation.result_state] = batch;
  if (![first isTemporary]) return batch;
  [made_ addObject:batch];
  const GraphState &state = graph_.states[operation.result_state];
  const NSUInteger reads = state.reads + (state.is_exported && inputs_.destination_states != nil ? 1 : 0);
  if (reads > 1) set_read_count(batch, reads);
  return batch;
}

void Encoding::encode(MPSKernel *kernel, Batches sources, const States &states, MPSImageBatch *destination) const {
  if ([destination count] > 1) return encode_images((ImageKernel *)kernel, buffer_, sources, states, destination);
  std::array<MPSImage *, 2> images;
  for (std::size_t i = 0; i < sources.size(); ++i) images[i] = [sources[i] objectAtIndex:0];
  const States single = {.source = [states.source objectAtIndex:0], .result = [states.result objectAtIndex:0]};
  encode_image(kernel, buffer_, Images(images).first(sources.size()), single, [destination objectAtIndex:0]);
}

void Encoding::hand_over(NSMutableArray *array, NSArray *batch) const {
  if (array != nil && batch != nil) [array addObject:inputs_.batched ? batch : [batch objectAtIndex:0]];
}

/// Called when the operation has been encoded.
void Encoding::finish(const Operation &operation) {
  const GraphImage &image = graph_.images[operation.result];
  MPSImageBatch *batch = images_[operation.result];
  if (is_temporary([batch objectAtIndex:0])) {
    const bool exported = image.is_exported && inputs_.intermediates != nil;
    if (image.reads == 0 && !exported && !image.is_result) set_read_count(batch, 0);
  } else if (image.synchronizes) {
    MPSImageBatchSynchronize(batch, buffer_);
  }
  if (image.is_exported) hand_over(inputs_.intermediates, batch);
  if (operation.result_state == kNone) return;
  if (graph_.states[operation.result_state].is_exported)
    hand_over(inputs_.destination_states, states_[operation.result_state]);
}

/// A state that is only written, by an operation whose program does not take it.
void Encoding::finish_states() {
  for (std::size_t i = 0; i < graph_.states.size(); ++i) {
    const GraphState &state = graph_.states[i];
    MPSStateBatch *batch = states_[i];
    if (batch == nil) continue;
    if (![[batch objectAtIndex:0] isTemporary]) {
      if (state.synchronizes) MPSStateBatchSynchronize(batch, buffer_);
    } else if (state.reads == 0 && !(state.is_exported && inputs_.destination_states != nil)) {
      set_read_count(batch, 0);
    }
  }
}

MPSImageBatch *Encoding::run() {
  for (const auto &operation : graph_.operations) {
    operation->encode(*this);
    finish(*operation);
  }
  finish_states();
  // The first result is returned, and further ones follow the exported images.
  for (std::size_t i = 1; i < graph_.results.size(); ++i)
    if (graph_.needed[i] && !graph_.images[graph_.results[i]].is_exported)
      hand_over(inputs_.intermediates, images_[graph_.results[i]]);
  made_ = nil;
  graph_.sizes = std::move(sizes_);
  return graph_.needed[0] ? images_[graph_.results[0]] : nil;
}

}  // namespace openmps
