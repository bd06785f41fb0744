// SPDX-License-Identifier: Apache-2.0
// Images for one command buffer; their storage is recycled once their readers have been encoded [MPSImage.h].

#import "mps/ImageState.hh"

/// Allocator of temporary images.
@interface MPSTemporaryImageAllocatorOnEngine : MPSImageAllocatorOnEngine
@end

@implementation MPSTemporaryImage

+ (id<MPSImageAllocator>)defaultAllocator {
  static MPSTemporaryImageAllocatorOnEngine *const allocator = [[MPSTemporaryImageAllocatorOnEngine alloc] init];
  return allocator;
}

/// Make the image temporary, on the command buffers of `scope`.
- (void)openmps_beTemporaryIn:(const std::shared_ptr<openmps::TemporaryScope> &)scope {
  openmps::ImageState &state = [self openmps_state];
  state.storage_mode = MTLStorageModePrivate;
  state.scope = scope;
  const openmps::ImageView &view = state.view;
  state.temporary = scope->add(object_getClassName(self), {view.n, view.h, view.w, view.c});
}

+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                imageDescriptor:(const MPSImageDescriptor *)imageDescriptor {
  id<OpenMPSCommandBuffer> buffer = openmps::command_buffer_of(commandBuffer, "MPSTemporaryImage: commandBuffer");
  [buffer openmps_recorder];
  id<OpenMPSDevice> device = openmps::device_of([buffer device], "MPSTemporaryImage: commandBuffer.device");
  openmps::ImageState *state = openmps::new_image_state("MPSTemporaryImage", device, imageDescriptor);
  MPSTemporaryImage *image = [[[self alloc] openmps_initWithState:state] autorelease];
  [image openmps_beTemporaryIn:[buffer openmps_temporaries]];
  return image;
}

+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              textureDescriptor:(const MTLTextureDescriptor *)textureDescriptor {
  MTLTextureDescriptor *descriptor = const_cast<MTLTextureDescriptor *>(textureDescriptor);
  if (descriptor == nil) openmps::raise_argument(@"MPSTemporaryImage: textureDescriptor is nil.");
  // One image that fills the texture: 4 channels per slice, or the lanes of a format with fewer.
  NSUInteger channels = 4 * [descriptor arrayLength];
  const MPSImageFeatureChannelFormat format = openmps::channel_format_of([descriptor pixelFormat]);
  for (NSUInteger lanes = 1; lanes <= 2; ++lanes)
    if (openmps::pixel_format_of(format, lanes) == [descriptor pixelFormat]) channels = lanes;
  return [self temporaryImageWithCommandBuffer:commandBuffer textureDescriptor:descriptor featureChannels:channels];
}

+ (instancetype)temporaryImageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              textureDescriptor:(const MTLTextureDescriptor *)textureDescriptor
                                featureChannels:(NSUInteger)featureChannels {
  MTLTextureDescriptor *descriptor = const_cast<MTLTextureDescriptor *>(textureDescriptor);
  if (descriptor == nil) openmps::raise_argument(@"MPSTemporaryImage: textureDescriptor is nil.");
  if (featureChannels == 0)
    openmps::raise_argument(@"MPSTemporaryImage: featureChannels (0) is less than the minimum (1).");
  const MPSImageFeatureChannelFormat format = openmps::channel_format_of([descriptor pixelFormat]);
  if (format == MPSImageFeatureChannelFormatNone)
    openmps::raise_argument(
        @"MPSTemporaryImage: pixelFormat (%lu) is not R, RG or RGBA of 8Unorm, 16Unorm, 16Float or 32Float.",
        (unsigned long)[descriptor pixelFormat]);
  const NSUInteger slices = featureChannels / 4 + (featureChannels % 4 != 0), length = [descriptor arrayLength];
  if (slices > length || length % slices != 0)
    openmps::raise_argument(
        @"MPSTemporaryImage: arrayLength (%lu) is not a multiple of the slices of %lu featureChannels (%lu).",
        (unsigned long)length, (unsigned long)featureChannels, (unsigned long)slices);
  MPSImageDescriptor *image = [MPSImageDescriptor imageDescriptorWithChannelFormat:format
                                                                             width:[descriptor width]
                                                                            height:[descriptor height]
                                                                   featureChannels:featureChannels
                                                                    numberOfImages:length / slices
                                                                             usage:[descriptor usage]];
  return [self temporaryImageWithCommandBuffer:commandBuffer imageDescriptor:image];
}

+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                     imageDescriptorList:(NSArray<MPSImageDescriptor *> *)descriptorList {
  id<OpenMPSCommandBuffer> buffer = openmps::command_buffer_of(commandBuffer, "MPSTemporaryImage: commandBuffer");
  [buffer openmps_recorder];
  id<OpenMPSDevice> device = openmps::device_of([buffer device], "MPSTemporaryImage: commandBuffer.device");
  // The engine shares temporaries' memory when it plans the whole list; only the descriptors are checked.
  for (MPSImageDescriptor *descriptor in descriptorList)
    openmps::check_image_descriptor("MPSTemporaryImage", device, descriptor);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device imageDescriptor:(const MPSImageDescriptor *)imageDescriptor {
  (void)device, (void)imageDescriptor;
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+temporaryImageWithCommandBuffer:imageDescriptor:");
}

- (instancetype)initWithTexture:(id<MTLTexture>)texture featureChannels:(NSUInteger)featureChannels {
  (void)texture, (void)featureChannels;
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+temporaryImageWithCommandBuffer:imageDescriptor:");
}

- (NSUInteger)readCount {
  const openmps::ImageState &state = [self openmps_state];
  return state.temporary ? state.temporary->read_count : 0;
}

- (void)setReadCount:(NSUInteger)readCount {
  openmps::ImageState &state = [self openmps_state];
  openmps::Temporary &temporary = *state.temporary;
  if (temporary.read_count == readCount) return;
  if (temporary.read_count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled, so readCount cannot become %lu.",
                         openmps::describe(self), (unsigned long)readCount);
  temporary.read_count = readCount;
  if (readCount > 0) return;
  // From now on only recorded commands refer to the memory.
  state.view.memory = nullptr;
  state.texture = {};
  MPSImage *parent = state.parent.get();
  if (parent == nil || ![parent openmps_state].temporary) return;
  const NSUInteger held = [(MPSTemporaryImage *)parent readCount];
  if (held > 0) [(MPSTemporaryImage *)parent setReadCount:held - 1];
}

- (void)openmps_didRead {
  const openmps::ImageState &state = [self openmps_state];
  const NSUInteger count = state.temporary ? state.temporary->read_count : 0;
  if (count > 1) {
    --state.temporary->read_count;
    return;
  }
  if (count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", openmps::describe(self));
  [self setReadCount:count - 1];
}

/// A view holds one readCount of the parent until its own is 0.
- (MPSImage *)openmps_imageWithView:(const openmps::ImageView &)view {
  auto *state = openmps::new_view_state(self, view);
  MPSTemporaryImage *image = [[[MPSTemporaryImage alloc] openmps_initWithState:state] autorelease];
  [image openmps_beTemporaryIn:[self openmps_state].scope];
  [self setReadCount:[self readCount] + 1];
  return image;
}

@end

@implementation MPSTemporaryImageAllocatorOnEngine

- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel {
  (void)kernel;
  return [MPSTemporaryImage temporaryImageWithCommandBuffer:cmdBuf imageDescriptor:descriptor];
}

@end

NSUInteger MPSImageBatchIncrementReadCount(MPSImageBatch *batch, NSInteger amount) {
  NSSet *distinct = [NSSet setWithArray:batch];
  for (MPSImage *image in distinct) {
    if (![image openmps_state].temporary) continue;
    MPSTemporaryImage *temporary = (MPSTemporaryImage *)image;
    const NSUInteger count = [temporary readCount];
    if (count == 0) continue;
    if (amount < 0 && count < static_cast<NSUInteger>(-amount))
      openmps::raise_usage(@"%@: readCount (%lu) cannot be lowered by %ld.", openmps::describe(image),
                           (unsigned long)count, (long)-amount);
    [temporary setReadCount:count + static_cast<NSUInteger>(amount)];
  }
  return [distinct count];
}
