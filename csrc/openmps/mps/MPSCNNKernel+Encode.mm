// SPDX-License-Identifier: Apache-2.0
// From images, states and properties to recorded problems, for every encode form of every kernel on images.

#include <algorithm>

#include "engine/problem/problem.hpp"

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {
namespace {

/// Return whether an element-wise kernel writes to its source, value by value.
bool is_in_place(const ImageKernelState &state, std::size_t source, const Encode &encode) {
  const MPSOffset &offset = state.const_slots()[source].offset;
  return device_rules().writes_in_place && state.may_overwrite(source) && offset.x == 0 && offset.y == 0 &&
         encode.src[source] == encode.dst;
}

/// Check the sources and the destination of one encode, in the order in which a user would fix errors. No side effects.
Encode resolve(const ImageKernelState &state, Images sources, MPSImage *destination) {
  const auto slots = state.const_slots();
  for (std::size_t i = 0; i < sources.size(); ++i) check_image(state, sources[i], state.names(i).image);
  check_image(state, destination, "destinationImage");
  state.check_slots();
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!state.takes_edge(slots[i].edge))
      raise_for(state, @"%s (%lu) is not one that the kernel has.", state.names(i).property("edgeMode").c_str(),
                (unsigned long)slots[i].edge);
  const ImageView whole = [destination openmps_view];
  const Clip clip = clip_of(state, state.destination, whole);
  Encode encode;
  encode.src.reserve(sources.size());
  std::vector<NSUInteger> channels(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    encode.src.push_back(state.view_of_source(i, [sources[i] openmps_view], clip.depth));
    channels[i] = static_cast<NSUInteger>(encode.src[i].c);
  }
  encode.dst = state.view_of_destination(whole, clip, channels);
  encode.dst_h = whole.h, encode.dst_w = whole.w;
  state.check_encode(encode, clip);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (overlap(encode.src[i], encode.dst) && !is_in_place(state, i, encode))
      raise_for(state, @"%s and the destination share memory.", state.names(i).image);
  return encode;
}

/// Extend `run` by `next` if all its images follow in memory. Otherwise return false and change nothing.
bool append(Encode &run, const Encode &next) {
  Encode longer = run;
  if (!append_images(longer.dst, next.dst)) return false;
  for (std::size_t i = 0; i < longer.src.size(); ++i)
    if (!append_images(longer.src[i], next.src[i]) || overlap(longer.src[i], longer.dst)) return false;
  run = std::move(longer);
  return true;
}

void check_states(const ImageKernelState &state, MPSStateBatch *states, NSUInteger count, const char *name) {
  if (states != nil && [states count] != count)
    raise_for(state, @"%s has %lu states, expected one for each of %lu images.", name, (unsigned long)[states count],
              (unsigned long)count);
}

/// Raise for an image that holds several if the device's rules allow one image per state.
void check_single(const KernelState &state, MPSImage *image, const char *name) {
  if ([image numberOfImages] > 1 && !device_rules().has_states_of_several_images)
    raise_for(state, @"%s has %lu images; an encode with a state is of one, or of a batch of single images.", name,
              (unsigned long)[image numberOfImages]);
}

/// Raise if images share a state that each needs for itself [MPSCNNKernel.h, isResultStateReusedAcrossBatch].
void check_states_differ(const ImageKernelState &state, MPSStateBatch *states) {
  if ([[NSSet setWithArray:states] count] != [states count])
    raise_for(state, @"destinationStates has one state for several images; each needs its own.");
}

}  // namespace

void encode_image(MPSKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states,
                  MPSImage *destination) {
  const auto &state = state_of<ImageKernelState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  Encode encode = resolve(state, sources, destination);
  if (states.source != nil || states.result != nil) {
    for (std::size_t i = 0; i < sources.size(); ++i) check_single(state, sources[i], state.names(i).image);
    check_single(state, destination, "destinationImage");
  }
  encode.source_state = states.source;
  encode.result_state = states.result;
  Problem problem = state.make_problem(encode);
  if (states.source != nil) [encode.source_state openmps_willUseOn:buffer];
  if (states.result != nil) [encode.result_state openmps_willUseOn:buffer];
  for (MPSImage *image : sources) [image openmps_willReadOn:buffer];
  [destination openmps_willWriteOn:buffer];
  recorder.append(std::move(problem), state.title);
  state.did_encode(encode);
  for (auto image = sources.begin(); image != sources.end(); ++image)
    if (std::find(sources.begin(), image, *image) == image) [*image openmps_didRead];
  if (states.source != nil && !state.writes_source_state()) [encode.source_state openmps_didRead];
}

void encode_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources, const States &states,
                   MPSImageBatch *destinations) {
  const auto &state = state_of<ImageKernelState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  const NSUInteger count = [sources[0] count];
  for (std::size_t i = 0; i < sources.size(); ++i) check_batch(state, sources[i], count, state.names(i).images);
  check_batch(state, destinations, count, "destinationImages");
  MPSStateBatch *source_states = states.source, *result_states = states.result;
  check_states(state, source_states, count, states.source_name);
  check_states(state, result_states, count, "destinationStates");
  if (result_states != nil && state.uses_states() && ![kernel isResultStateReusedAcrossBatch])
    check_states_differ(state, result_states);

  // Images that follow each other in memory become one problem.
  std::vector<Encode> runs;
  runs.reserve(count);
  std::vector<MPSImage *> images(sources.size());
  for (NSUInteger i = 0; i < count; ++i) {
    for (std::size_t source = 0; source < sources.size(); ++source) images[source] = [sources[source] objectAtIndex:i];
    Encode encode = resolve(state, images, [destinations objectAtIndex:i]);
    encode.source_state = [source_states objectAtIndex:i];
    encode.result_state = [result_states objectAtIndex:i];
    const bool alone = runs.empty() || (state.uses_states() && (runs.back().source_state != encode.source_state ||
                                                                runs.back().result_state != encode.result_state));
    if (!alone && append(runs.back(), encode)) continue;
    encode.continues = std::any_of(runs.begin(), runs.end(),
                                   [&](const Encode &run) { return run.source_state == encode.source_state; });
    runs.push_back(std::move(encode));
  }
  std::vector<Problem> problems;
  problems.reserve(runs.size());
  for (const Encode &run : runs) problems.push_back(state.make_problem(run));

  std::vector<MPSImage *> read;
  read.reserve(count * sources.size());
  for (MPSImageBatch *batch : sources)
    for (MPSImage *image in batch) read.push_back(image);
  std::vector<MPSState *> read_states;
  for (MPSState *source in source_states) read_states.push_back(source);
  for (MPSState *source : read_states) [source openmps_willUseOn:buffer];
  for (MPSState *result in result_states) [result openmps_willUseOn:buffer];
  for (MPSImage *image : read) [image openmps_willReadOn:buffer];
  for (MPSImage *image in destinations) [image openmps_willWriteOn:buffer];
  for (Problem &problem : problems) recorder.append(std::move(problem), state.title);
  for (const Encode &run : runs) state.did_encode(run);
  each_distinct(std::move(read), [](MPSImage *image) { [image openmps_didRead]; });
  if (!state.writes_source_state())
    each_distinct(std::move(read_states), [](MPSState *source) { [source openmps_didRead]; });
}

Discard::~Discard() {
  for (MPSImage *image in images_)
    if ([image isKindOfClass:[MPSTemporaryImage class]]) [(MPSTemporaryImage *)image setReadCount:0];
}

// -------------------------------------------------------------------------------------- new destinations

MPSImage *new_destination(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states) {
  const auto &state = state_of<ImageKernelState>(kernel);
  MPSState *source_state = states.source;
  begin_encode(state, buffer);
  for (std::size_t i = 0; i < sources.size(); ++i) check_image(state, sources[i], state.names(i).image);
  if (source_state != nil) [source_state openmps_willUseOn:buffer];
  MPSImageDescriptor *descriptor = [kernel
      destinationImageDescriptorForSourceImages:[NSArray arrayWithObjects:sources.data() count:sources.size()]
                                   sourceStates:source_state == nil ? nil : [NSArray arrayWithObject:source_state]];
  MPSImage *image = [[kernel destinationImageAllocator] imageForCommandBuffer:buffer
                                                              imageDescriptor:descriptor
                                                                       kernel:kernel];
  if (image == nil) raise_for(state, @"destinationImageAllocator returned no image.");
  return image;
}

MPSImageBatch *new_destinations(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                const States &states) {
  const auto &state = state_of<ImageKernelState>(kernel);
  begin_encode(state, buffer);
  const NSUInteger count = [sources[0] count];
  NSMutableArray *first = [NSMutableArray arrayWithCapacity:sources.size()];
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check_batch(state, sources[i], count, state.names(i).images);
    [first addObject:[sources[i] objectAtIndex:0]];
  }
  MPSStateBatch *source_states = states.source;
  check_states(state, source_states, count, states.source_name);
  for (MPSState *source_state in source_states) [source_state openmps_willUseOn:buffer];
  NSArray *first_state = [source_states count] == 0 ? nil : [NSArray arrayWithObject:[source_states objectAtIndex:0]];
  MPSImageDescriptor *descriptor = [kernel destinationImageDescriptorForSourceImages:first sourceStates:first_state];
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

MPSImage *encode_to_new_image(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources, const States &states) {
  MPSImage *result = new_destination(kernel, buffer, sources, states);
  Discard discard([NSArray arrayWithObject:result]);
  encode_image(kernel, buffer, sources, states, result);
  discard.keep();
  return result;
}

MPSImageBatch *encode_to_new_images(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Batches sources,
                                    const States &states) {
  MPSImageBatch *result = new_destinations(kernel, buffer, sources, states);
  Discard discard(result);
  encode_images(kernel, buffer, sources, states, result);
  discard.keep();
  return result;
}

// ------------------------------------------------------------------------------------------------ states

std::unique_ptr<GradientData> ImageKernelState::new_gradient_data() const { return std::make_unique<GradientData>(); }

void take_sources(GradientData &data, const ImageKernelState &state, Images sources) {
  const auto slots = state.const_slots();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check_image(state, sources[i], state.names(i).image);
    data.sources.push_back({slots[i], [sources[i] width], [sources[i] height],
                            source_channels(state, slots[i], state.names(i), [sources[i] featureChannels])});
  }
}

MPSState *new_result_state(ImageKernel *kernel, id<MTLCommandBuffer> buffer, Images sources) {
  const auto &state = state_of<ImageKernelState>(kernel);
  const Class kind = state.result_state_class();
  if (kind == Nil) return nil;
  if (buffer != nil) begin_encode(state, buffer);
  for (std::size_t i = 0; i < sources.size(); ++i) check_single(state, sources[i], state.names(i).image);
  auto data = state.new_gradient_data();
  take_sources(*data, state, sources);
  MPSState *made = buffer != nil ? [kind temporaryStateWithCommandBuffer:buffer]
                                 : [[[kind alloc] initWithDevice:state.device.get()
                                                    resourceList:[MPSStateResourceList resourceList]] autorelease];
  [made openmps_setData:std::move(data)];
  return made;
}

MPSStateBatch *new_state_batch(ImageKernel *kernel, Batches sources, MPSImageBatch *destinations,
                               MPSState * (^make)(NSUInteger)) {
  const auto &state = state_of<ImageKernelState>(kernel);
  const NSUInteger count = [sources[0] count];
  for (std::size_t i = 0; i < sources.size(); ++i) check_batch(state, sources[i], count, state.names(i).image);
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

NSArray<MPSState *> *states_of_image(NSArray<MPSStateBatch *> *batches, NSUInteger index) {
  if (batches == nil) return nil;
  NSMutableArray *states = [NSMutableArray arrayWithCapacity:[batches count]];
  for (MPSStateBatch *batch in batches) [states addObject:[batch objectAtIndex:index]];
  return states;
}

}  // namespace openmps
