// SPDX-License-Identifier: Apache-2.0
// MPSCNNBinaryKernel: kernels with two source images and one destination image [MPSCNNKernel.h].

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

const SourceNames &CNNBinaryKernelState::names(std::size_t source) const {
  static const SourceNames source_names[] = {{"primary", "primaryImage", "primaryImages"},
                                             {"secondary", "secondaryImage", "secondaryImages"}};
  return source_names[source];
}

NSUInteger CNNBinaryKernelState::result_channels(std::span<const NSUInteger> channels) const {
  if (channels[0] != channels[1])
    raise_for(*this, @"The kernel reads %lu feature channels of %s and %lu of %s.", (unsigned long)channels[0],
              names(0).image, (unsigned long)channels[1], names(1).image);
  return channels[0];
}

void CNNBinaryKernelState::archive(Archive &archive) {
  KernelState::archive(archive);
  primary().archive(archive, @"MPSCNNBinaryKernel.primary");
  secondary().archive(archive, @"MPSCNNBinaryKernel.secondary");
  destination.archive(archive, @"MPSCNNBinaryKernel.destination");
}

}  // namespace openmps

using openmps::CNNBinaryKernelState;

@implementation MPSCNNBinaryKernel

+ (openmps::KernelState *)openmps_newState {
  return new CNNBinaryKernelState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER

// ------------------------------------------------------------------------------------------ properties

OPENMPS_PROPERTY(CNNBinaryKernelState, MPSOffset, primaryOffset, setPrimaryOffset, primary().offset)
OPENMPS_PROPERTY(CNNBinaryKernelState, MPSOffset, secondaryOffset, setSecondaryOffset, secondary().offset)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, primarySourceFeatureChannelOffset,
                 setPrimarySourceFeatureChannelOffset, primary().channel_offset)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, secondarySourceFeatureChannelOffset,
                 setSecondarySourceFeatureChannelOffset, secondary().channel_offset)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, primarySourceFeatureChannelMaxCount,
                 setPrimarySourceFeatureChannelMaxCount, primary().channel_max)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, secondarySourceFeatureChannelMaxCount,
                 setSecondarySourceFeatureChannelMaxCount, secondary().channel_max)
OPENMPS_PROPERTY(CNNBinaryKernelState, MPSImageEdgeMode, primaryEdgeMode, setPrimaryEdgeMode, primary().edge)
OPENMPS_PROPERTY(CNNBinaryKernelState, MPSImageEdgeMode, secondaryEdgeMode, setSecondaryEdgeMode, secondary().edge)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, primaryKernelWidth, primary().kernel_width)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, primaryKernelHeight, primary().kernel_height)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, secondaryKernelWidth, secondary().kernel_width)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, secondaryKernelHeight, secondary().kernel_height)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, primaryStrideInPixelsX, setPrimaryStrideInPixelsX,
                 primary().stride_x)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, primaryStrideInPixelsY, setPrimaryStrideInPixelsY,
                 primary().stride_y)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, secondaryStrideInPixelsX, setSecondaryStrideInPixelsX,
                 secondary().stride_x)
OPENMPS_PROPERTY(CNNBinaryKernelState, NSUInteger, secondaryStrideInPixelsY, setSecondaryStrideInPixelsY,
                 secondary().stride_y)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, primaryDilationRateX, primary().dilation_x)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, primaryDilationRateY, primary().dilation_y)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, secondaryDilationRateX, secondary().dilation_x)
OPENMPS_GETTER(CNNBinaryKernelState, NSUInteger, secondaryDilationRateY, secondary().dilation_y)
OPENMPS_IMAGE_KERNEL_PROPERTIES(CNNBinaryKernelState)

// --------------------------------------------------------------------------------------- destination given

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 primaryImage:(MPSImage *)primaryImage
               secondaryImage:(MPSImage *)secondaryImage
             destinationImage:(MPSImage *)destinationImage {
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  openmps::encode_image(self, commandBuffer, sources, {}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     primaryImages:(MPSImageBatch *)primaryImages
                   secondaryImages:(MPSImageBatch *)secondaryImages
                 destinationImages:(MPSImageBatch *)destinationImages {
  MPSImageBatch *const sources[] = {primaryImages, secondaryImages};
  openmps::encode_images(self, commandBuffer, sources, {}, destinationImages);
}

// ------------------------------------------------------------------------------------ destination returned

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       primaryImage:(MPSImage *)primaryImage
                     secondaryImage:(MPSImage *)secondaryImage {
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  return openmps::encode_to_new_image(self, commandBuffer, sources, {});
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                primaryImages:(MPSImageBatch *)primaryImages
                              secondaryImages:(MPSImageBatch *)secondaryImages {
  MPSImageBatch *const sources[] = {primaryImages, secondaryImages};
  return openmps::encode_to_new_images(self, commandBuffer, sources, {});
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       primaryImage:(MPSImage *)primaryImage
                     secondaryImage:(MPSImage *)secondaryImage
                   destinationState:(MPSState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  MPSImage *result = openmps::new_destination(self, commandBuffer, sources, {});
  openmps::Discard discard([NSArray arrayWithObject:result]);
  MPSState *state = isTemporary ? [self temporaryResultStateForCommandBuffer:commandBuffer
                                                                primaryImage:primaryImage
                                                              secondaryImage:secondaryImage
                                                                sourceStates:nil
                                                            destinationImage:result]
                                : [self resultStateForPrimaryImage:primaryImage
                                                    secondaryImage:secondaryImage
                                                      sourceStates:nil
                                                  destinationImage:result];
  openmps::encode_image(self, commandBuffer, sources, {.result = state}, result);
  discard.keep();
  if (outState != NULL) *outState = state;
  return result;
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                primaryImages:(MPSImageBatch *)primaryImages
                              secondaryImages:(MPSImageBatch *)secondaryImages
                            destinationStates:(MPSStateBatch **)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary {
  MPSImageBatch *const sources[] = {primaryImages, secondaryImages};
  MPSImageBatch *result = openmps::new_destinations(self, commandBuffer, sources, {});
  openmps::Discard discard(result);
  MPSStateBatch *states = isTemporary ? [self temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                           primaryImage:primaryImages
                                                                         secondaryImage:secondaryImages
                                                                           sourceStates:nil
                                                                       destinationImage:result]
                                      : [self resultStateBatchForPrimaryImage:primaryImages
                                                               secondaryImage:secondaryImages
                                                                 sourceStates:nil
                                                             destinationImage:result];
  openmps::encode_images(self, commandBuffer, sources, {.result = states}, result);
  discard.keep();
  if (outStates != NULL) *outStates = states;
  return result;
}

// ---------------------------------------------------------------------------------------------- states

- (MPSState *)resultStateForPrimaryImage:(MPSImage *)primaryImage
                          secondaryImage:(MPSImage *)secondaryImage
                            sourceStates:(NSArray<MPSState *> *)sourceStates
                        destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  return openmps::new_result_state(self, nil, sources);
}

- (MPSState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      primaryImage:(MPSImage *)primaryImage
                                    secondaryImage:(MPSImage *)secondaryImage
                                      sourceStates:(NSArray<MPSState *> *)sourceStates
                                  destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  MPSImage *const sources[] = {primaryImage, secondaryImage};
  return openmps::new_result_state(self, commandBuffer, sources);
}

- (MPSStateBatch *)resultStateBatchForPrimaryImage:(MPSImageBatch *)primaryImage
                                    secondaryImage:(MPSImageBatch *)secondaryImage
                                      sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                  destinationImage:(MPSImageBatch *)destinationImage {
  MPSImageBatch *const sources[] = {primaryImage, secondaryImage};
  return openmps::new_state_batch(self, sources, destinationImage, ^(NSUInteger i) {
    return [self resultStateForPrimaryImage:[primaryImage objectAtIndex:i]
                             secondaryImage:[secondaryImage objectAtIndex:i]
                               sourceStates:openmps::states_of_image(sourceStates, i)
                           destinationImage:[destinationImage objectAtIndex:i]];
  });
}

- (MPSStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                primaryImage:(MPSImageBatch *)primaryImage
                                              secondaryImage:(MPSImageBatch *)secondaryImage
                                                sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                            destinationImage:(MPSImageBatch *)destinationImage {
  MPSImageBatch *const sources[] = {primaryImage, secondaryImage};
  return openmps::new_state_batch(self, sources, destinationImage, ^(NSUInteger i) {
    return [self temporaryResultStateForCommandBuffer:commandBuffer
                                         primaryImage:[primaryImage objectAtIndex:i]
                                       secondaryImage:[secondaryImage objectAtIndex:i]
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
- (NSUInteger)encodingStorageSizeForPrimaryImage:(MPSImage *)primaryImage
                                  secondaryImage:(MPSImage *)secondaryImage
                                    sourceStates:(NSArray<MPSState *> *)sourceStates
                                destinationImage:(MPSImage *)destinationImage {
  (void)primaryImage, (void)secondaryImage, (void)sourceStates, (void)destinationImage;
  return 0;
}

- (NSUInteger)batchEncodingStorageSizeForPrimaryImage:(MPSImageBatch *)primaryImage
                                       secondaryImage:(MPSImageBatch *)secondaryImage
                                         sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                     destinationImage:(MPSImageBatch *)destinationImage {
  (void)primaryImage, (void)secondaryImage, (void)sourceStates, (void)destinationImage;
  return 0;
}

@end
