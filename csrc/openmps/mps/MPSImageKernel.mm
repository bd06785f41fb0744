// SPDX-License-Identifier: Apache-2.0
// MPSUnaryImageKernel: image filters with one source and one destination [MPSImageKernel.h].

#import "mps/MPSImageKernel+Engine.hh"

#import "metal/MTLResourceOnEngine.hh"

namespace openmps {

const SourceNames &UnaryImageKernelState::names(std::size_t) const {
  static const SourceNames source_names = {"", "sourceImage", "sourceImages"};
  return source_names;
}

void UnaryImageKernelState::archive(Archive &archive) {
  KernelState::archive(archive);
  archive.field(@"MPSUnaryImageKernel.offset.x", source.offset.x);
  archive.field(@"MPSUnaryImageKernel.offset.y", source.offset.y);
  archive.field(@"MPSUnaryImageKernel.offset.z", source.offset.z);
  archive.field(@"MPSUnaryImageKernel.edgeMode", source.edge);
  archive.field(@"MPSUnaryImageKernel.clipRect", destination.clip);
}

namespace {

/// Return an image of all channels and images that the texture shows.
MPSImage *image_on(const KernelState &state, id<MTLTexture> texture, const char *name) {
  if (texture == nil) raise_for(state, @"%s is nil.", name);
  texture_of(texture, name);
  const auto channels = static_cast<NSUInteger>(((MTLTextureOnEngine *)texture)->_view.c);
  return [[[MPSImage alloc] initWithTexture:texture featureChannels:channels] autorelease];
}

}  // namespace
}  // namespace openmps

using openmps::UnaryImageKernelState;

@implementation MPSUnaryImageKernel

+ (openmps::KernelState *)openmps_newState {
  return new UnaryImageKernelState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(UnaryImageKernelState, MPSOffset, offset, setOffset, source.offset)
OPENMPS_PROPERTY(UnaryImageKernelState, MTLRegion, clipRect, setClipRect, destination.clip)
OPENMPS_PROPERTY(UnaryImageKernelState, MPSImageEdgeMode, edgeMode, setEdgeMode, source.edge)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {}, destinationImage);
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                sourceTexture:(id<MTLTexture>)sourceTexture
           destinationTexture:(id<MTLTexture>)destinationTexture {
  const auto &state = openmps::state_of<UnaryImageKernelState>(self);
  MPSImage *source = openmps::image_on(state, sourceTexture, "sourceTexture");
  MPSImage *destination = openmps::image_on(state, destinationTexture, "destinationTexture");
  [self encodeToCommandBuffer:commandBuffer sourceImage:source destinationImage:destination];
}

/// Does not work in place, which no program may rely on [MPSImageKernel.h]: the allocator's texture, owned by the
/// caller, replaces the given one.
- (BOOL)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               inPlaceTexture:(id<MTLTexture> *)texture
        fallbackCopyAllocator:(MPSCopyAllocator)copyAllocator {
  const auto &state = openmps::state_of<UnaryImageKernelState>(self);
  openmps::begin_encode(state, commandBuffer);
  if (texture == NULL || *texture == nil) openmps::raise_for(state, @"texture is nil.");
  if (copyAllocator == nil) return NO;
  const auto made = openmps::Ref<id<MTLTexture>>::adopt(copyAllocator(self, commandBuffer, *texture));
  if (!made) return NO;
  [self encodeToCommandBuffer:commandBuffer sourceTexture:*texture destinationTexture:made.get()];
  [*texture release];
  *texture = [made.get() retain];
  return YES;
}

/// Filters that read neighbours enlarge the region.
- (MPSRegion)sourceRegionForDestinationSize:(MTLSize)destinationSize {
  const auto &state = openmps::state_of<UnaryImageKernelState>(self);
  const openmps::Clip clip = openmps::clip_of(state, state.destination.clip, "clipRect", destinationSize.width,
                                              destinationSize.height, destinationSize.depth, "destination");
  const MPSOffset &offset = state.source.offset;
  return {{static_cast<double>(offset.x), static_cast<double>(offset.y), static_cast<double>(offset.z)},
          {static_cast<double>(clip.width), static_cast<double>(clip.height), static_cast<double>(clip.depth)}};
}

@end
