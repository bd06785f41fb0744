// SPDX-License-Identifier: Apache-2.0
// Buffers: a block of the engine's or the program's memory [MTLBuffer.h].

#import "metal/MTLResourceOnEngine.hh"

#include <cstring>

namespace openmps {

std::shared_ptr<Memory> new_buffer_memory(const std::shared_ptr<Engine> &engine, NSUInteger bytes,
                                          MTLResourceOptions options) {
  const bool is_private = ((options >> MTLResourceStorageModeShift) & 0xf) == MTLStorageModePrivate;
  return is_private ? Memory::lazy_image(engine, bytes) : Memory::lazy_buffer(engine, bytes);
}

MTLBufferOnEngine *new_buffer(id<OpenMPSDevice> device, std::shared_ptr<Memory> memory, MTLResourceOptions options,
                              bool clear_first) {
  MTLBufferOnEngine *buffer = [[MTLBufferOnEngine alloc] init];
  buffer->_device = Ref<id<OpenMPSDevice>>(device);
  buffer->_memory = std::move(memory);
  buffer->_options = options;
  buffer->_purgeable = MTLPurgeableStateNonVolatile;
  buffer->_clearFirst = clear_first;
  return buffer;
}

id<OpenMPSBuffer> new_buffer_of_mps(id<MTLDevice> device, NSUInteger length, MTLStorageMode mode) {
  id made = [device newBufferWithLength:length
                                options:static_cast<MTLResourceOptions>(mode) << MTLResourceStorageModeShift];
  if ([made isKindOfClass:[MTLBufferOnEngine class]]) static_cast<MTLBufferOnEngine *>(made)->_storageOfMPS = YES;
  return made;
}

}  // namespace openmps

@implementation MTLBufferOnEngine

- (const std::shared_ptr<openmps::Memory> &)openmps_memory {
  if (_clearFirst && !_isFilled.load(std::memory_order_relaxed)) {
    openmps::touch(_memory, @"MTLBuffer");
    std::call_once(_cleared, [&] { openmps::clear_memory(_memory); });
  }
  return _memory;
}

- (const std::shared_ptr<openmps::Memory> &)openmps_memoryToFill {
  _isFilled.store(true, std::memory_order_relaxed);
  return _memory;
}

- (NSUInteger)length {
  return _memory->size();
}

- (void *)contents {
  if ([self storageMode] == MTLStorageModePrivate) return nullptr;
  openmps::touch_cpu(_memory, @"MTLBuffer");  // before it is cleared: it may move
  return openmps::touch_cpu([self openmps_memory], @"MTLBuffer");
}

- (void)openmps_checkRange:(NSRange)range {
  const NSUInteger length = [self length];
  if (range.location > length || range.length > length - range.location)
    openmps::raise_argument(@"MTLBuffer: range (%lu, %lu) ends beyond length (%lu).", (unsigned long)range.location,
                            (unsigned long)range.length, (unsigned long)length);
}

- (void)didModifyRange:(NSRange)range {
  if ([self storageMode] != MTLStorageModeManaged && !_storageOfMPS)
    openmps::raise_usage(@"MTLBuffer: didModifyRange: is for managed storage (mode 1); storageMode is %lu.",
                         (unsigned long)[self storageMode]);
  [self openmps_checkRange:range];
  _memory->copy_to_gpu(range.location, range.length);
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor
                                    offset:(NSUInteger)offset
                               bytesPerRow:(NSUInteger)bytesPerRow {
  if (descriptor == nil) openmps::raise_argument(@"MTLBuffer: descriptor is nil.");
  openmps::ImageView view;
  openmps::check_texture_descriptor(descriptor, &view);
  const NSUInteger element = openmps::size_of(view.format);
  const NSUInteger row = static_cast<NSUInteger>(view.w * view.c) * element;
  const NSUInteger alignment = [_device.get() minimumLinearTextureAlignmentForPixelFormat:[descriptor pixelFormat]];
  if ([descriptor textureType] != MTLTextureType2D || [descriptor arrayLength] != 1)
    openmps::raise_argument(@"MTLBuffer: textureType (%lu) of a texture on a buffer is not 2D (2).",
                            (unsigned long)[descriptor textureType]);
  if (offset % alignment != 0)
    openmps::raise_argument(@"MTLBuffer: offset (%lu) is not a multiple of %lu.", (unsigned long)offset,
                            (unsigned long)alignment);
  if (bytesPerRow < row || bytesPerRow % alignment != 0)
    openmps::raise_argument(@"MTLBuffer: bytesPerRow (%lu) is not a multiple of %lu that is at least %lu.",
                            (unsigned long)bytesPerRow, (unsigned long)alignment, (unsigned long)row);
  const auto bytes = openmps::product({bytesPerRow, static_cast<NSUInteger>(view.h - 1)});
  const NSUInteger length = [self length];
  if (!bytes || offset > length || row > length - offset || *bytes > length - offset - row)
    openmps::raise_argument(@"MTLBuffer: %ld rows of %lu bytes from offset %lu end beyond length (%lu).", (long)view.h,
                            (unsigned long)bytesPerRow, (unsigned long)offset, (unsigned long)length);
  view.memory = [self openmps_memory];
  view.offset = offset;
  view.h_stride = static_cast<std::int64_t>(bytesPerRow / element);
  view.n_stride = view.h * view.h_stride;
  MTLTextureOnEngine *texture = openmps::new_texture(_device.get(), descriptor, view, _options);
  texture->_buffer = openmps::Ref<id<MTLBuffer>>(self);
  texture->_bufferOffset = offset;
  texture->_bufferBytesPerRow = bytesPerRow;
  return texture;
}

- (void)addDebugMarker:(NSString *)marker range:(NSRange)range {
  (void)marker;
  [self openmps_checkRange:range];
}

- (void)removeAllDebugMarkers {
}

@end
