// SPDX-License-Identifier: Apache-2.0
// State of MPSImage, MPSTemporaryImage and MPSImageDescriptor.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#import "metal/OnEngine.hh"
#import "mps/MPSImage+Engine.hh"

namespace openmps {

struct ImageState {
  Ref<id<OpenMPSDevice>> device;
  Ref<MPSImage *> parent;
  Ref<id<MTLTexture>> texture;  ///< created on demand, or the program's own
  Label label;
  ImageView view;  ///< without memory once a temporary image's readCount is 0
  std::shared_ptr<Usage> usage = std::make_shared<Usage>();
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatNone;
  MTLPixelFormat pixel_format = MTLPixelFormatInvalid;
  MTLTextureUsage texture_usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  MTLStorageMode storage_mode = default_storage_mode();
  MPSPurgeableState purgeable = MPSPurgeableStateNonVolatile;
  bool read_only = false;
  bool has_no_slice_limit = false;  ///< its results have none either
  // Temporary images:
  std::shared_ptr<Temporary> temporary;
  std::shared_ptr<TemporaryScope> scope;
};

/// Values of MPSImageDescriptor, checked.
struct ImageShape {
  ImageView view;  ///< no memory; channel stride of the engine
  std::uint64_t bytes = 0;
  MPSImageFeatureChannelFormat format;
  MTLPixelFormat pixel_format;
  MTLTextureUsage usage;
  MTLStorageMode storage_mode;
  bool has_no_slice_limit;
};
/// Raise NSInvalidArgumentException if no image can have these values; `who`: the calling class.
ImageShape check_image_descriptor(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *descriptor);

/// Return the format, or MTLPixelFormatInvalid if there is none.
MTLPixelFormat pixel_format_of(MPSImageFeatureChannelFormat format, NSUInteger channels);
Format format_of(MPSImageFeatureChannelFormat format);
MPSImageFeatureChannelFormat channel_format_of(MTLPixelFormat pixel_format);
NSUInteger lanes_of(NSUInteger channels);

/// Make the state of an image with its own memory; owned by the caller. Raise as check_image_descriptor() does.
ImageState *new_image_state(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *descriptor);
/// Make the state of a view of `parent`; owned by the caller.
ImageState *new_view_state(MPSImage *parent, const ImageView &view);

/// Strides in the program's buffer, in bytes; 0: dense.
struct ByteStrides {
  NSUInteger column = 0, row = 0, image = 0;
};
/// Implement -readBytes:... and -writeBytes:.... `bytes` is only written if `to_image` is false.
void transfer(MPSImage *image, void *bytes, MPSDataLayout layout, ByteStrides strides, MTLRegion region,
              MPSImageReadWriteParams info, NSUInteger index, bool to_image);

/// Return the shared allocator, which archives as its class only.
id<MPSImageAllocator> permanent_image_allocator();

/// "MPSImage 'label' (2 x 7 x 7 x 64)": class, label, images x height x width x channels.
NSString *describe(MPSImage *image);

}  // namespace openmps

/// Base of the two allocators: one shared object without properties, archived as its class only. Its images are
/// permanent; a derived class overrides -imageForCommandBuffer:imageDescriptor:kernel:.
@interface MPSImageAllocatorOnEngine : NSObject <MPSImageAllocator>
@end

@interface MPSImage (Private)
- (openmps::ImageState &)openmps_state;
/// The designated initialiser: takes `state`.
- (instancetype)openmps_initWithState:(openmps::ImageState *)state;
/// A view of the receiver's memory: temporary if the receiver is.
- (MPSImage *)openmps_imageWithView:(const openmps::ImageView &)view;
@end
