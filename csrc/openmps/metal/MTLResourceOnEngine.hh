// SPDX-License-Identifier: Apache-2.0
// The common base of buffers and textures, and the private functions that make them.
#pragma once

#include <atomic>
#include <functional>

#import "metal/OnEngine.hh"

/// A block of memory with the properties of MTLResource.
@interface MTLResourceOnEngine : NSObject <MTLResource> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Ref<id<MTLHeap>> _heap;
  openmps::Label _label;
  std::shared_ptr<openmps::Memory> _memory;
  std::function<void()> _makeAliasable;  ///< only of resources on a heap
  MTLResourceOptions _options;
  MTLPurgeableState _purgeable;
  NSUInteger _heapOffset;
  BOOL _aliasable;
}
@end

@interface MTLBufferOnEngine : MTLResourceOnEngine <OpenMPSBuffer> {
 @public
  std::once_flag _cleared;
  std::atomic<bool> _isFilled;  ///< a command fills all of it before anyone reads it
  BOOL _clearFirst;
  BOOL _storageOfMPS;  ///< see new_buffer_of_mps()
}
@end

@interface MTLTextureOnEngine : MTLResourceOnEngine <OpenMPSTexture> {
 @public
  openmps::Ref<id<MTLTexture>> _parent;
  openmps::Ref<id<MTLBuffer>> _buffer;
  std::shared_ptr<openmps::Usage> _usage;
  openmps::ImageView _view;  ///< all slices; slice s: image s / slices, channels from (s % slices) * lanes on
  NSUInteger _slices;        ///< per image of the view
  NSUInteger _lanes;
  NSUInteger _arrayLength, _bufferOffset, _bufferBytesPerRow, _parentSlice;
  MTLTextureType _type;
  MTLPixelFormat _pixelFormat;
  MTLTextureUsage _textureUsage;
  MTLTextureSwizzleChannels _swizzle;
  BOOL _optimized;
  BOOL _readOnly;  ///< memory that the program shares for reading only
}
@end

namespace openmps {

/// Limits of a texture [Metal Feature Set Tables, family Mac2].
inline constexpr NSUInteger kMaxExtent = 16384, kMaxSlices = 2048;

/// Look up the storage of a pixel format. Return false if textures cannot have the format.
bool texture_format(MTLPixelFormat pixel_format, Format *format, NSUInteger *lanes);

/// Raise if no texture can have these values. Return its bytes, and in `view` its view without memory.
std::uint64_t check_texture_descriptor(MTLTextureDescriptor *descriptor, ImageView *view);
MTLResourceOptions options_of(MTLTextureDescriptor *descriptor);
void check_options(const char *what, MTLResourceOptions options);
/// Return whether CPU and GPU have separate copies of a resource with these options.
bool is_copied(MTLResourceOptions options);
/// Return memory for a buffer with these options. Private buffers are in the same memory as images.
std::shared_ptr<Memory> new_buffer_memory(const std::shared_ptr<Engine> &engine, NSUInteger bytes,
                                          MTLResourceOptions options);
/// Fill value of textures that the CPU has neither written nor synchronized: NaN.
inline constexpr std::byte kUnsynchronized{0xff};

MTLBufferOnEngine *new_buffer(id<OpenMPSDevice> device, std::shared_ptr<Memory> memory, MTLResourceOptions options,
                              bool clear_first);
/// `view`: as check_texture_descriptor() returns it, with memory.
MTLTextureOnEngine *new_texture(id<OpenMPSDevice> device, MTLTextureDescriptor *descriptor, const ImageView &view,
                                MTLResourceOptions options);

/// Memory of one slice for transfers. `present` of its `lanes` have a channel.
struct SlicePixels {
  std::shared_ptr<Memory> memory;
  std::size_t offset, pixel, row, element;  ///< bytes
  std::size_t present, lanes;
};
SlicePixels slice_of(MTLTextureOnEngine *texture, NSUInteger slice, MTLOrigin origin);
/// Copy h x w texels between a slice, whose memory begins at `memory`, and plain memory. Lanes without a channel read
/// as 0.
void read_texels(const SlicePixels &slice, const std::byte *memory, std::byte *to, std::size_t bytes_per_row,
                 MTLSize size);
void write_texels(const SlicePixels &slice, std::byte *memory, const std::byte *from, std::size_t bytes_per_row,
                  MTLSize size);
/// Raise for a texture on read-only memory.
void check_writable(const char *what, MTLTextureOnEngine *texture);
/// Raise if the region is outside the texture, or if the mipmap level or slice does not exist.
void check_region(const char *what, MTLTextureOnEngine *texture, MTLRegion region, NSUInteger level, NSUInteger slice);

}  // namespace openmps
