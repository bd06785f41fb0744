// SPDX-License-Identifier: Apache-2.0
// Copies between buffers and textures [MTLBlitCommandEncoder.h].

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLFenceOnEngine.hh"
#import "metal/MTLResourceOnEngine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

void check_buffer_range(const char *name, id<MTLBuffer> buffer, NSUInteger offset, NSUInteger bytes) {
  const NSUInteger length = [buffer length];
  if (offset > length || bytes > length - offset)
    raise_argument(@"MTLBlitCommandEncoder: %s: %lu bytes from offset %lu end beyond length (%lu).", name,
                   (unsigned long)bytes, (unsigned long)offset, (unsigned long)length);
}

MTLTextureOnEngine *own_texture(id<MTLTexture> texture, const char *what) {
  return (MTLTextureOnEngine *)texture_of(texture, what);
}

/// Return the bytes that the rows take from the offset on. Raise if bytesPerRow is less than a row.
NSUInteger rows_extent(const SlicePixels &slice, NSUInteger bytes_per_row, MTLSize size) {
  const NSUInteger row = size.width * slice.lanes * slice.element;
  if (size.height > 1 && bytes_per_row < row)
    raise_argument(@"MTLBlitCommandEncoder: bytesPerRow (%lu) is less than a row of the region (%lu).",
                   (unsigned long)bytes_per_row, (unsigned long)row);
  const auto extent = product({size.height - 1, bytes_per_row});
  if (!extent) raise_argument(@"MTLBlitCommandEncoder: bytesPerRow (%lu) is too large.", (unsigned long)bytes_per_row);
  return *extent + row;
}

PixelRows rows_of(const SlicePixels &slice) { return {slice.memory, slice.offset, slice.pixel, slice.row}; }

PixelCopyProblem pixel_copy(const PixelRows &src, const PixelRows &dst, MTLSize size, std::size_t bytes,
                            std::size_t zeros = 0) {
  PixelCopyProblem problem;
  problem.src = src, problem.dst = dst;
  problem.h = static_cast<std::int64_t>(size.height), problem.w = static_cast<std::int64_t>(size.width);
  problem.bytes = bytes, problem.zeros = zeros;
  return problem;
}

void check_no_options(MTLBlitOption options) {
  if (options != MTLBlitOptionNone)
    raise_argument(@"MTLBlitCommandEncoder: options (%lu) are not 0, all that colour formats can have.",
                   (unsigned long)options);
}

}  // namespace
}  // namespace openmps

@implementation MTLBlitCommandEncoderOnEngine

- (const char *)openmps_name {
  return "MTLBlitCommandEncoder";
}

- (void)synchronizeResource:(id<MTLResource>)resource {
  if (resource == nil) openmps::raise_argument(@"MTLBlitCommandEncoder: resource is nil.");
  openmps::Recorder &recorder = [self openmps_recording];
  if ([(id)resource isKindOfClass:[MTLResourceOnEngine class]])
    openmps::synchronize(recorder, ((MTLResourceOnEngine *)resource)->_memory, @"MTLResource");
}

- (void)synchronizeTexture:(id<MTLTexture>)texture slice:(NSUInteger)slice level:(NSUInteger)level {
  if (texture == nil) openmps::raise_argument(@"MTLBlitCommandEncoder: texture is nil.");
  if (slice >= [texture arrayLength] || level != 0)
    openmps::raise_argument(
        @"MTLBlitCommandEncoder: slice (%lu) or level (%lu) is not of the texture (%lu slices, 1 level).",
        (unsigned long)slice, (unsigned long)level, (unsigned long)[texture arrayLength]);
  [self synchronizeResource:texture];
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
           sourceOrigin:(MTLOrigin)sourceOrigin
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  using namespace openmps;
  Recorder &recorder = [self openmps_recording];
  MTLTextureOnEngine *src = own_texture(sourceTexture, "MTLBlitCommandEncoder: sourceTexture");
  MTLTextureOnEngine *dst = own_texture(destinationTexture, "MTLBlitCommandEncoder: destinationTexture");
  if ([src pixelFormat] != [dst pixelFormat])
    raise_argument(@"MTLBlitCommandEncoder: pixelFormat of the source (%lu) differs from the destination's (%lu).",
                   (unsigned long)[src pixelFormat], (unsigned long)[dst pixelFormat]);
  check_region("MTLBlitCommandEncoder: source", src, {sourceOrigin, sourceSize}, sourceLevel, sourceSlice);
  check_writable("MTLBlitCommandEncoder: destinationTexture", dst);
  check_region("MTLBlitCommandEncoder: destination", dst, {destinationOrigin, sourceSize}, destinationLevel,
               destinationSlice);
  const SlicePixels from = slice_of(src, sourceSlice, sourceOrigin),
                    to = slice_of(dst, destinationSlice, destinationOrigin);
  touch(from.memory, @"MTLTexture");
  touch(to.memory, @"MTLTexture");
  recorder.append(pixel_copy(rows_of(from), rows_of(to), sourceSize, std::min(from.present, to.present) * from.element),
                  "MTLBlitCommandEncoder copyFromTexture:toTexture:");
  src->_usage->read_by(recorder.completion());
  dst->_usage->written_by(recorder.completion());
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  using namespace openmps;
  (void)sourceBytesPerImage;  // a region has one image
  Recorder &recorder = [self openmps_recording];
  const std::shared_ptr<Memory> src = [buffer_of(sourceBuffer, "MTLBlitCommandEncoder: sourceBuffer") openmps_memory];
  MTLTextureOnEngine *dst = own_texture(destinationTexture, "MTLBlitCommandEncoder: destinationTexture");
  check_writable("MTLBlitCommandEncoder: destinationTexture", dst);
  check_region("MTLBlitCommandEncoder: destination", dst, {destinationOrigin, sourceSize}, destinationLevel,
               destinationSlice);
  const SlicePixels to = slice_of(dst, destinationSlice, destinationOrigin);
  check_buffer_range("source", sourceBuffer, sourceOffset, rows_extent(to, sourceBytesPerRow, sourceSize));
  touch(src, @"MTLBuffer");
  touch(to.memory, @"MTLTexture");
  const PixelRows from = {src, sourceOffset, to.lanes * to.element, sourceBytesPerRow};
  recorder.append(pixel_copy(from, rows_of(to), sourceSize, to.present * to.element),
                  "MTLBlitCommandEncoder copyFromBuffer:toTexture:");
  dst->_usage->written_by(recorder.completion());
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin
                options:(MTLBlitOption)options {
  openmps::check_no_options(options);
  [self copyFromBuffer:sourceBuffer
             sourceOffset:sourceOffset
        sourceBytesPerRow:sourceBytesPerRow
      sourceBytesPerImage:sourceBytesPerImage
               sourceSize:sourceSize
                toTexture:destinationTexture
         destinationSlice:destinationSlice
         destinationLevel:destinationLevel
        destinationOrigin:destinationOrigin];
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage {
  using namespace openmps;
  (void)destinationBytesPerImage;
  Recorder &recorder = [self openmps_recording];
  MTLTextureOnEngine *src = own_texture(sourceTexture, "MTLBlitCommandEncoder: sourceTexture");
  const std::shared_ptr<Memory> dst =
      [buffer_of(destinationBuffer, "MTLBlitCommandEncoder: destinationBuffer") openmps_memory];
  check_region("MTLBlitCommandEncoder: source", src, {sourceOrigin, sourceSize}, sourceLevel, sourceSlice);
  const SlicePixels from = slice_of(src, sourceSlice, sourceOrigin);
  check_buffer_range("destination", destinationBuffer, destinationOffset,
                     rows_extent(from, destinationBytesPerRow, sourceSize));
  touch(dst, @"MTLBuffer");
  touch(from.memory, @"MTLTexture");
  const PixelRows to = {dst, destinationOffset, from.lanes * from.element, destinationBytesPerRow};
  recorder.append(pixel_copy(rows_of(from), to, sourceSize, from.present * from.element,
                             (from.lanes - from.present) * from.element),
                  "MTLBlitCommandEncoder copyFromTexture:toBuffer:");
  src->_usage->read_by(recorder.completion());
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage
                     options:(MTLBlitOption)options {
  openmps::check_no_options(options);
  [self copyFromTexture:sourceTexture
                   sourceSlice:sourceSlice
                   sourceLevel:sourceLevel
                  sourceOrigin:sourceOrigin
                    sourceSize:sourceSize
                      toBuffer:destinationBuffer
             destinationOffset:destinationOffset
        destinationBytesPerRow:destinationBytesPerRow
      destinationBytesPerImage:destinationBytesPerImage];
}

- (void)generateMipmapsForTexture:(id<MTLTexture>)texture {
  (void)texture;
  openmps::raise_usage(@"MTLBlitCommandEncoder: mipmapLevelCount (1) of the texture is less than 2.");
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  using namespace openmps;
  Recorder &recorder = [self openmps_recording];
  id<OpenMPSBuffer> dst = buffer_of(buffer, "MTLBlitCommandEncoder: buffer");
  if (range.length == 0) raise_argument(@"MTLBlitCommandEncoder: range.length (0) is less than the minimum (1).");
  check_buffer_range("fillBuffer", buffer, range.location, range.length);
  BufferFillProblem problem;
  problem.dst = [dst openmps_memory];
  problem.offset = range.location;
  problem.bytes = range.length;
  problem.value = value;
  recorder.append(std::move(problem), "MTLBlitCommandEncoder fillBuffer");
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
             sliceCount:(NSUInteger)sliceCount
             levelCount:(NSUInteger)levelCount {
  if (levelCount != 1)
    openmps::raise_argument(@"MTLBlitCommandEncoder: levelCount (%lu) is not 1.", (unsigned long)levelCount);
  const MTLSize size = {[sourceTexture width], [sourceTexture height], 1};
  const MTLOrigin origin = {0, 0, 0};
  for (NSUInteger i = 0; i < sliceCount; ++i) {
    [self copyFromTexture:sourceTexture
              sourceSlice:sourceSlice + i
              sourceLevel:sourceLevel
             sourceOrigin:origin
               sourceSize:size
                toTexture:destinationTexture
         destinationSlice:destinationSlice + i
         destinationLevel:destinationLevel
        destinationOrigin:origin];
  }
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture toTexture:(id<MTLTexture>)destinationTexture {
  [self copyFromTexture:sourceTexture
            sourceSlice:0
            sourceLevel:0
              toTexture:destinationTexture
       destinationSlice:0
       destinationLevel:0
             sliceCount:[sourceTexture arrayLength]
             levelCount:1];
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  using namespace openmps;
  Recorder &recorder = [self openmps_recording];
  id<OpenMPSBuffer> src = buffer_of(sourceBuffer, "MTLBlitCommandEncoder: sourceBuffer");
  id<OpenMPSBuffer> dst = buffer_of(destinationBuffer, "MTLBlitCommandEncoder: destinationBuffer");
  if (size == 0) raise_argument(@"MTLBlitCommandEncoder: size (0) is less than the minimum (1).");
  check_buffer_range("source", sourceBuffer, sourceOffset, size);
  check_buffer_range("destination", destinationBuffer, destinationOffset, size);
  if (src == dst && sourceOffset < destinationOffset + size && destinationOffset < sourceOffset + size)
    raise_argument(
        @"MTLBlitCommandEncoder: the source range from %lu and the destination range from %lu of %lu bytes overlap.",
        (unsigned long)sourceOffset, (unsigned long)destinationOffset, (unsigned long)size);
  BufferCopyProblem problem;
  problem.src = [src openmps_memory];
  problem.dst = [dst openmps_memory];
  problem.src_offset = sourceOffset;
  problem.dst_offset = destinationOffset;
  problem.bytes = size;
  recorder.append(std::move(problem), "MTLBlitCommandEncoder copyFromBuffer:toBuffer:");
}

@end
