// SPDX-License-Identifier: Apache-2.0
// MPSCNNMultiaryKernel: kernels with any number of source images and one destination image [MPSCNNKernel.h].

#import "mps/MPSCNNKernel+Engine.hh"

#include <array>
#include <string>

namespace openmps {
namespace {

/// Return the names of all possible sources, made once.
const std::vector<std::array<std::string, 3>> &numbered_names() {
  static const auto *const names = [] {
    auto *made = new std::vector<std::array<std::string, 3>>;
    for (NSUInteger i = 0; i < CNNMultiaryKernelState::kMaxSources; ++i) {
      const std::string index = std::to_string(i);
      made->push_back({"sourceImages[" + index + "]", "sourceImageBatches[" + index + "]", " at index " + index});
    }
    return made;
  }();
  return *names;
}

}  // namespace

const SourceNames &CNNMultiaryKernelState::names(std::size_t source) const {
  static const auto *const all = [] {
    auto *made = new std::vector<SourceNames>;
    for (const auto &[image, images, suffix] : numbered_names())
      made->push_back({"", image.c_str(), images.c_str(), suffix.c_str()});
    return made;
  }();
  return (*all)[source];
}

void CNNMultiaryKernelState::check_source_count(NSUInteger count) const {
  if (count < 1 || count > kMaxSources)
    raise_for(*this, @"sourceCount (%lu) is not between 1 and %lu.", (unsigned long)count, (unsigned long)kMaxSources);
}

void CNNMultiaryKernelState::archive(Archive &archive) {
  KernelState::archive(archive);
  NSUInteger count = sources.size();
  archive.field(@"MPSCNNMultiaryKernel.sourceCount", count);
  if (archive.is_reading()) {
    check_source_count(count);
    sources.resize(count);
  }
  for (NSUInteger i = 0; i < count; ++i)
    sources[i].archive(archive, [NSString stringWithFormat:@"MPSCNNMultiaryKernel.source%lu", (unsigned long)i]);
  destination.archive(archive, @"MPSCNNMultiaryKernel.destination");
}

namespace {

SourceSlot &slot_of(MPSKernel *kernel, NSUInteger index) {
  auto &state = state_of<CNNMultiaryKernelState>(kernel);
  if (index >= state.sources.size())
    raise_for(state, @"index (%lu) is not less than sourceCount (%lu).", (unsigned long)index,
              (unsigned long)state.sources.size());
  return state.sources[index];
}

void check_count(MPSKernel *kernel, NSArray *sources, const char *name) {
  const auto &state = state_of<CNNMultiaryKernelState>(kernel);
  if ([sources count] != state.sources.size())
    raise_for(state, @"%s has %lu elements, expected one for each of %lu sources.", name,
              (unsigned long)[sources count], (unsigned long)state.sources.size());
}

std::vector<MPSImage *> checked_sources(MPSKernel *kernel, NSArray<MPSImage *> *sources) {
  check_count(kernel, sources, "sourceImages");
  std::vector<MPSImage *> images;
  for (MPSImage *image in sources) images.push_back(image);
  return images;
}

std::vector<MPSImageBatch *> batches_of(MPSKernel *kernel, NSArray<MPSImageBatch *> *sources) {
  check_count(kernel, sources, "sourceImageBatches");
  std::vector<MPSImageBatch *> batches;
  for (MPSImageBatch *batch in sources) batches.push_back(batch);
  return batches;
}

/// Return image `index` of each batch.
NSArray<MPSImage *> *images_at(NSArray<MPSImageBatch *> *batches, NSUInteger index) {
  NSMutableArray *images = [NSMutableArray arrayWithCapacity:[batches count]];
  for (MPSImageBatch *batch in batches) [images addObject:[batch objectAtIndex:index]];
  return images;
}

}  // namespace
}  // namespace openmps

using openmps::CNNMultiaryKernelState;

/// Accessors of a property with a value for each source.
#define INDEXED(TYPE, GETTER, SETTER, FIELD)                \
  -(TYPE)GETTER : (NSUInteger)index {                       \
    return openmps::slot_of(self, index).FIELD;             \
  }                                                         \
  -(void)SETTER : (TYPE)value atIndex : (NSUInteger)index { \
    openmps::slot_of(self, index).FIELD = value;            \
  }

@implementation MPSCNNMultiaryKernel

+ (openmps::KernelState *)openmps_newState {
  return new CNNMultiaryKernelState();
}

OPENMPS_INIT_WITH_CODER

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:sourceCount:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device sourceCount:(NSUInteger)sourceCount {
  if (!(self = [super openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<CNNMultiaryKernelState>(self);
  state.check_source_count(sourceCount);
  state.sources.resize(sourceCount);
  return unwind.done();
}

// ------------------------------------------------------------------------------------------ properties

OPENMPS_GETTER(CNNMultiaryKernelState, NSUInteger, sourceCount, sources.size())
INDEXED(MPSOffset, offsetAtIndex, setOffset, offset)
INDEXED(NSUInteger, sourceFeatureChannelOffsetAtIndex, setSourceFeatureChannelOffset, channel_offset)
INDEXED(NSUInteger, sourceFeatureChannelMaxCountAtIndex, setSourceFeatureChannelMaxCount, channel_max)
INDEXED(MPSImageEdgeMode, edgeModeAtIndex, setEdgeMode, edge)
INDEXED(NSUInteger, kernelWidthAtIndex, setKernelWidth, kernel_width)
INDEXED(NSUInteger, kernelHeightAtIndex, setKernelHeight, kernel_height)
INDEXED(NSUInteger, strideInPixelsXatIndex, setStrideInPixelsX, stride_x)
INDEXED(NSUInteger, strideInPixelsYatIndex, setStrideInPixelsY, stride_y)
INDEXED(NSUInteger, dilationRateXatIndex, setDilationRateX, dilation_x)
INDEXED(NSUInteger, dilationRateYatIndex, setDilationRateY, dilation_y)
OPENMPS_IMAGE_KERNEL_PROPERTIES(CNNMultiaryKernelState)

// --------------------------------------------------------------------------------------- destination given

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 sourceImages:(NSArray<MPSImage *> *)sourceImages
             destinationImage:(MPSImage *)destinationImage {
  const auto sources = openmps::checked_sources(self, sourceImages);
  openmps::encode_image(self, commandBuffer, sources, {}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages {
  const auto sources = openmps::batches_of(self, sourceImages);
  openmps::encode_images(self, commandBuffer, sources, {}, destinationImages);
}

// ------------------------------------------------------------------------------------ destination returned

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages {
  const auto sources = openmps::checked_sources(self, sourceImages);
  return openmps::encode_to_new_image(self, commandBuffer, sources, {});
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceImages:(NSArray<MPSImage *> *)sourceImages
                   destinationState:(MPSState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary {
  const auto sources = openmps::checked_sources(self, sourceImages);
  MPSImage *result = openmps::new_destination(self, commandBuffer, sources, {});
  openmps::Discard discard([NSArray arrayWithObject:result]);
  MPSState *state = isTemporary
                        ? [self temporaryResultStateForCommandBuffer:commandBuffer
                                                        sourceImages:sourceImages
                                                        sourceStates:nil
                                                    destinationImage:result]
                        : [self resultStateForSourceImages:sourceImages sourceStates:nil destinationImage:result];
  openmps::encode_image(self, commandBuffer, sources, {.result = state}, result);
  discard.keep();
  if (outState != NULL) *outState = state;
  return result;
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImageBatches {
  const auto sources = openmps::batches_of(self, sourceImageBatches);
  return openmps::encode_to_new_images(self, commandBuffer, sources, {});
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(NSArray<MPSImageBatch *> *)sourceImageBatches
                            destinationStates:(MPSStateBatch **)outState
                  destinationStateIsTemporary:(BOOL)isTemporary {
  const auto sources = openmps::batches_of(self, sourceImageBatches);
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, sources, {});
  openmps::Discard discard(result);
  MPSStateBatch *states = isTemporary ? [self temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                           sourceImages:sourceImageBatches
                                                                           sourceStates:nil
                                                                       destinationImage:result]
                                      : [self resultStateBatchForSourceImages:sourceImageBatches
                                                                 sourceStates:nil
                                                             destinationImage:result];
  openmps::encode_images(self, commandBuffer, sources, {.result = states}, result);
  discard.keep();
  if (outState != NULL) *outState = states;
  return result;
}

// ---------------------------------------------------------------------------------------------- states

- (MPSState *)resultStateForSourceImages:(NSArray<MPSImage *> *)sourceImages
                            sourceStates:(NSArray<MPSState *> *)sourceStates
                        destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  const auto sources = openmps::checked_sources(self, sourceImages);
  return openmps::new_result_state(self, nil, sources);
}

- (MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      sourceImages:(NSArray<MPSImage *> *)sourceImage
                                      sourceStates:(NSArray<MPSState *> *)sourceStates
                                  destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  const auto sources = openmps::checked_sources(self, sourceImage);
  return openmps::new_result_state(self, commandBuffer, sources);
}

- (MPSStateBatch *)resultStateBatchForSourceImages:(NSArray<MPSImageBatch *> *)sourceImages
                                      sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                  destinationImage:(MPSImageBatch *)destinationImage {
  const auto sources = openmps::batches_of(self, sourceImages);
  return openmps::new_state_batch(self, sources, destinationImage, ^(NSUInteger i) {
    return [self resultStateForSourceImages:openmps::images_at(sourceImages, i)
                               sourceStates:openmps::states_of_image(sourceStates, i)
                           destinationImage:[destinationImage objectAtIndex:i]];
  });
}

- (MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                sourceImages:(NSArray<MPSImageBatch *> *)sourceImage
                                                sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                            destinationImage:(MPSImageBatch *)destinationImage {
  const auto sources = openmps::batches_of(self, sourceImage);
  return openmps::new_state_batch(self, sources, destinationImage, ^(NSUInteger i) {
    return [self temporaryResultStateForCommandBuffer:commandBuffer
                                         sourceImages:openmps::images_at(sourceImage, i)
                                         sourceStates:openmps::states_of_image(sourceStates, i)
                                     destinationImage:[destinationImage objectAtIndex:i]];
  });
}

// ----------------------------------------------------------------------------------------- sizing a result

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates {
  return openmps::result_descriptor(self, sourceImages, sourceStates);
}

@end
