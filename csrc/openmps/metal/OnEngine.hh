// SPDX-License-Identifier: Apache-2.0
// What our own Metal objects answer beyond Apple's protocols, and how a breach of the rules is raised.
// Used by the MPS classes; programs never see it.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <memory>

#include "engine/engine.hpp"
#include "metal/recording.hpp"

/// Names of the exceptions raised besides Foundation's NSInvalidArgumentException (a wrong argument), NSRangeException and
/// NSMallocException (memory).
FOUNDATION_EXPORT NSString *const MPSNotImplementedException;  ///< class or method not there (yet)
FOUNDATION_EXPORT NSString *const MPSUsageException;           ///< right argument at the wrong time (state)

namespace openmps {

/// A C++ autorelease pool: drained by C++ exceptions too, unlike @autoreleasepool on this runtime.
class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

 private:
  NSAutoreleasePool *pool_;
};

/// Raise with a whole sentence: name, value given, limit. `raise_argument` is NSInvalidArgumentException.
[[noreturn]] void raise_argument(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_usage(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_memory(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
/// "-[Class selector] is not implemented by openmps yet."
[[noreturn]] void raise_not_implemented(id object, SEL selector);

}  // namespace openmps

/// Answered by devices, command buffers, buffers and textures of openmps.
@protocol OpenMPSDevice <MTLDevice>
- (const std::shared_ptr<openmps::Engine> &)openmps_engine;
@end

@protocol OpenMPSCommandBuffer <MTLCommandBuffer>
/// Raises MPSUsageException when the buffer has been committed.
- (openmps::Recorder &)openmps_recorder;
/// The same without the check.
- (const std::shared_ptr<openmps::Completion> &)openmps_completion;
@end

@protocol OpenMPSBuffer <MTLBuffer>
- (const std::shared_ptr<openmps::Memory> &)openmps_memory;
@end

@protocol OpenMPSTexture <MTLTexture>
/// A texture made by a device: `images` images of `channels` channels on its memory. Raises when they do not fit.
- (openmps::ImageView)openmps_viewWithImages:(NSUInteger)images channels:(NSUInteger)channels;
@end

namespace openmps {
/// A texture that shows images of `view.c` channels as slices of up to 4 lanes, N * ((C + 3) / 4) of them, on the same memory
/// (MPSImage.texture). Lanes without a channel read as Metal's default texel (0, 0, 0, 1).
id<MTLTexture> new_texture(id<MTLDevice> device, const ImageView &view, MTLPixelFormat format, MTLTextureUsage usage);

/// Unwraps; raises NSInvalidArgumentException for nil and for objects that are not openmps's, naming `what`.
id<OpenMPSDevice> device_of(id<MTLDevice> device, const char *what);
id<OpenMPSCommandBuffer> command_buffer_of(id<MTLCommandBuffer> buffer, const char *what);
}  // namespace openmps
