// SPDX-License-Identifier: Apache-2.0
// MPSCNNKernel: kernels with one source image and one destination image [MPSCNNKernel.h]. Every encode form calls
// encode_image() or encode_images().

#import "mps/MPSCNNKernel+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {

Problem CNNKernelState::make_problem(const Encode &encode) const {
  return problem(encode.src[0], encode.dst, window());
}

Problem CNNKernelState::problem(const ImageView &, const ImageView &, const Window &) const {
  raise_for(*this, @"The class cannot be encoded; use one of its subclasses.");
}

const SourceNames &CNNKernelState::names(std::size_t) const {
  static const SourceNames source_names = {"", "sourceImage", "sourceImages"};
  return source_names;
}

void CNNKernelState::archive(Archive &archive) {
  KernelState::archive(archive);
  source.archive(archive, @"MPSCNNKernel.source");
  destination.archive(archive, @"MPSCNNKernel.destination");
}

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
OPENMPS_IMAGE_KERNEL_PROPERTIES(CNNKernelState)

// --------------------------------------------------------------------------------------- destination given

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {}, destinationImage);
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationState:(MPSState *)destinationState
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {.result = destinationState}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_images(self, commandBuffer, {&sourceImages, 1}, {}, destinationImages);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationStates:(MPSStateBatch *)destinationStates
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_images(self, commandBuffer, {&sourceImages, 1}, {.result = destinationStates}, destinationImages);
}

// ------------------------------------------------------------------------------------ destination returned

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer sourceImage:(MPSImage *)sourceImage {
  return openmps::encode_to_new_image(self, commandBuffer, {&sourceImage, 1}, {});
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
                   destinationState:(MPSState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImage *result = openmps::new_destination(self, commandBuffer, {&sourceImage, 1}, {});
  openmps::Discard discard([NSArray arrayWithObject:result]);
  MPSState *state = isTemporary ? [self temporaryResultStateForCommandBuffer:commandBuffer
                                                                 sourceImage:sourceImage
                                                                sourceStates:nil
                                                            destinationImage:result]
                                : [self resultStateForSourceImage:sourceImage sourceStates:nil destinationImage:result];
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {.result = state}, result);
  discard.keep();
  if (outState != NULL) *outState = state;
  return result;
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages {
  return openmps::encode_to_new_images(self, commandBuffer, {&sourceImages, 1}, {});
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
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
  openmps::encode_images(self, commandBuffer, {&sourceImages, 1}, {.result = states}, result);
  discard.keep();
  if (outStates != NULL) *outStates = states;
  return result;
}

// ---------------------------------------------------------------------------------------------- states

- (MPSState *)resultStateForSourceImage:(MPSImage *)sourceImage
                           sourceStates:(NSArray<MPSState *> *)sourceStates
                       destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_result_state(self, nil, {&sourceImage, 1});
}

- (MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                       sourceImage:(MPSImage *)sourceImage
                                      sourceStates:(NSArray<MPSState *> *)sourceStates
                                  destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_result_state(self, commandBuffer, {&sourceImage, 1});
}

- (MPSStateBatch *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                                     sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                 destinationImage:(MPSImageBatch *)destinationImage {
  return openmps::new_state_batch(self, {&sourceImage, 1}, destinationImage, ^(NSUInteger i) {
    return [self resultStateForSourceImage:[sourceImage objectAtIndex:i]
                              sourceStates:openmps::states_of_image(sourceStates, i)
                          destinationImage:[destinationImage objectAtIndex:i]];
  });
}

- (MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                 sourceImage:(MPSImageBatch *)sourceImage
                                                sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                            destinationImage:(MPSImageBatch *)destinationImage {
  return openmps::new_state_batch(self, {&sourceImage, 1}, destinationImage, ^(NSUInteger i) {
    return [self temporaryResultStateForCommandBuffer:commandBuffer
                                          sourceImage:[sourceImage objectAtIndex:i]
                                         sourceStates:openmps::states_of_image(sourceStates, i)
                                     destinationImage:[destinationImage objectAtIndex:i]];
  });
}

// ----------------------------------------------------------------------------------------- sizing a result

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates {
  return openmps::result_descriptor(self, sourceImages, sourceStates);
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
