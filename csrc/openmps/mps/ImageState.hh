// SPDX-License-Identifier: Apache-2.0
// What stands behind MPSImage, MPSTemporaryImage and MPSImageDescriptor.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#import "metal/OnEngine.hh"
#import "mps/MPSImage+Engine.hh"

namespace openmps {

struct ImageState {
  Ref<id<OpenMPSDevice>> device;
  Ref<MPSImage *> parent;
  Ref<id<MTLTexture>> texture;  ///< made on demand, or the program's own
  Label label;
  ImageView view;  ///< without memory once a temporary image's readCount is 0
  std::shared_ptr<Usage> usage = std::make_shared<Usage>();
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatNone;
  MTLPixelFormat pixel_format = MTLPixelFormatInvalid;
  MTLTextureUsage texture_usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  MTLStorageMode storage_mode = default_storage_mode();
  MPSPurgeableState purgeable = MPSPurgeableStateNonVolatile;
  bool read_only = false;
  bool has_no_slice_limit = false;  ///< results of it have none either
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
/// Raises NSInvalidArgumentException for what no image can be; `who` is the class that asks.
ImageShape check_image_descriptor(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *descriptor);

/// MTLPixelFormatInvalid for formats without one.
MTLPixelFormat pixel_format_of(MPSImageFeatureChannelFormat format, NSUInteger channels);
Format format_of(MPSImageFeatureChannelFormat format);
MPSImageFeatureChannelFormat channel_format_of(MTLPixelFormat pixel_format);
NSUInteger lanes_of(NSUInteger channels);

/// An image of its own memory, by a descriptor; owned by the caller. Raises as check_image_descriptor() does.
ImageState *new_image_state(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *descriptor);
/// What a view of `parent` starts from; owned by the caller.
ImageState *new_view_state(MPSImage *parent, const ImageView &view);

/// Steps in the program's buffer as the caller gives them, bytes; 0: dense.
struct ByteStrides {
  NSUInteger column = 0, row = 0, image = 0;
};
/// What -readBytes:... and -writeBytes:... do. `bytes` is only written when `to_image` is false.
void transfer(MPSImage *image, void *bytes, MPSDataLayout layout, ByteStrides strides, MTLRegion region,
              MPSImageReadWriteParams info, NSUInteger index, bool to_image);

/// One object, which archives by its class alone.
id<MPSImageAllocator> permanent_image_allocator();

/// "MPSImage 'label' (2 x 7 x 7 x 64)": class, label, images x height x width x channels.
NSString *describe(MPSImage *image);

}  // namespace openmps

/// What the two allocators have in common: one object without properties, of which an archive holds the class only.
/// Its own images are permanent; a derived class overrides -imageForCommandBuffer:imageDescriptor:kernel:.
@interface MPSImageAllocatorOnEngine : NSObject <MPSImageAllocator>
@end

@interface MPSImage (Private)
- (openmps::ImageState &)openmps_state;
/// The initialiser behind all others: takes `state`.
- (instancetype)openmps_initWithState:(openmps::ImageState *)state;
/// A view of the receiver's memory: temporary if the receiver is.
- (MPSImage *)openmps_imageWithView:(const openmps::ImageView &)view;
@end
