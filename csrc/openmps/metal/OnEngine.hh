// SPDX-License-Identifier: Apache-2.0
// The private interface of our Metal objects, and the functions that raise exceptions. Used by the MPS classes; not
// visible to programs.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <memory>
#include <mutex>

#include "engine/memory.hpp"
#include "metal/block.hpp"
#include "metal/device_rules.hpp"
#include "metal/host.hpp"
#include "metal/recording.hpp"
#include "mps/Ref.hh"

/// Names of the exceptions besides Foundation's NSInvalidArgumentException (a wrong argument) and NSMallocException (no
/// memory).
FOUNDATION_EXPORT NSString *const MPSNotImplementedException;  ///< class or method that is not implemented (yet)
FOUNDATION_EXPORT NSString *const MPSUsageException;           ///< right argument at the wrong time (state)

namespace openmps {

/// A C++ autorelease pool. C++ exceptions drain it too, unlike @autoreleasepool on this runtime.
class Pool {
 public:
  Pool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

 private:
  NSAutoreleasePool *pool_;
};

/// An `atomic, copy` string property.
class Label {
 public:
  Label() = default;
  ~Label() { [text_ release]; }
  Label(const Label &) = delete;
  Label &operator=(const Label &) = delete;
  NSString *get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return [[text_ retain] autorelease];
  }
  void set(NSString *text) {
    NSString *copy = [text copy];
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(copy, text_);
    }
    [copy release];
  }

 private:
  mutable std::mutex mutex_;
  NSString *text_ = nil;
};

/// Raise an exception with a whole sentence: name, given value, limit. `raise_argument`: NSInvalidArgumentException.
[[noreturn]] void raise_argument(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_usage(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_memory(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
/// Return the selector's name, even if it is not registered with the runtime yet (sent by a program's initializer).
NSString *name_of(SEL selector);
/// Raise the failure of `who`, if it is one.
void raise_failure(const char *who, const Failure &failure);
/// Raise "-[Class selector] is not implemented by openmps yet."
[[noreturn]] void raise_not_implemented(id object, SEL selector);
/// Raise "-[Class selector] is unavailable; use instead." For initializers that Apple marks unavailable.
[[noreturn]] void raise_unavailable(id object, SEL selector, const char *instead);

/// Raise MPSUsageException if a command buffer still uses the image or texture `what`.
void check_cpu_may_read(const Usage &usage, NSString *what);
void check_cpu_may_write(const Usage &usage, NSString *what);

/// Allocate the block unless it is allocated. Raise NSMallocException with `what` if there is no memory.
void touch(const std::shared_ptr<Memory> &memory, NSString *what);
/// Return the first byte of the access to `memory`; raise likewise.
std::byte *checked_data(const HostAccess &access, const std::shared_ptr<Memory> &memory, NSString *what);
/// Return the first byte of the CPU's copy of managed storage, else of the block; raise likewise.
std::byte *touch_cpu(const std::shared_ptr<Memory> &memory, NSString *what);
/// Record a copy of managed storage to the CPU; no-op if the memory is unified.
void synchronize(Recorder &recorder, const std::shared_ptr<Memory> &memory, NSString *what);

/// Default storage mode of images, textures and states.
inline MTLStorageMode default_storage_mode() {
  return device_rules().copies_managed_storage ? MTLStorageModeManaged : MTLStorageModeShared;
}

/// Return whether the selector is beyond Apple's interface and the device's rules exclude such extensions.
bool is_hidden(SEL selector);
/// Called by the methods of extensions. Raise as NSObject does for unknown selectors if `selector` is hidden.
void check_offered(id object, SEL selector);

/// Raise the breach that note_breach() kept, if any.
void raise_breach();

}  // namespace openmps

/// For root classes: unknown selectors raise MPSNotImplementedException, because they are API that is not implemented
/// yet. Their signature is made up: without one the runtime raises its own exception.
#define OPENMPS_UNKNOWN_SELECTORS_OF(KIND)                                                                             \
  KIND(void) doesNotRecognizeSelector : (SEL)selector { openmps::raise_not_implemented(self, selector); }              \
  KIND(void) forwardInvocation : (NSInvocation *)invocation { [self doesNotRecognizeSelector:[invocation selector]]; } \
  KIND(NSMethodSignature *) methodSignatureForSelector : (SEL)selector {                                               \
    NSMethodSignature *signature = [super methodSignatureForSelector:selector];                                        \
    return signature != nil ? signature : [NSMethodSignature signatureWithObjCTypes:"v@:"];                            \
  }
#define OPENMPS_UNKNOWN_SELECTORS                                                        \
  OPENMPS_UNKNOWN_SELECTORS_OF(-)                                                        \
  OPENMPS_UNKNOWN_SELECTORS_OF(+)                                                        \
  -(BOOL)respondsToSelector : (SEL)selector {                                            \
    return !openmps::is_hidden(selector) && [super respondsToSelector:selector];         \
  }                                                                                      \
  +(BOOL)instancesRespondToSelector : (SEL)selector {                                    \
    return !openmps::is_hidden(selector) && [super instancesRespondToSelector:selector]; \
  }

/// The `label` property of a class with a member `openmps::Label _label`.
#define OPENMPS_LABEL               \
  -(NSString *)label {              \
    return _label.get();            \
  }                                 \
  -(void)setLabel : (NSString *)s { \
    _label.set(s);                  \
  }

/// Adopted by openmps's devices, command buffers, buffers and textures.
@protocol OpenMPSDevice <MTLDevice>
- (const std::shared_ptr<openmps::Engine> &)openmps_engine;
@end

@protocol OpenMPSCommandBuffer <MTLCommandBuffer>
/// Raise MPSUsageException if the buffer has been committed or a command encoder is open.
- (openmps::Recorder &)openmps_recorder;
/// The recorder's completion, without that check.
- (const std::shared_ptr<openmps::Completion> &)openmps_completion;
/// Temporary images and states made for this buffer; the same object after -[MPSCommandBuffer commitAndContinue].
- (const std::shared_ptr<openmps::TemporaryScope> &)openmps_temporaries;
/// Commit without the check for unread temporaries, which are handed over to `next`.
- (void)openmps_commitContinuingIn:(id<OpenMPSCommandBuffer>)next;
- (void)openmps_adoptTemporaries:(std::shared_ptr<openmps::TemporaryScope>)scope;
@end

@protocol OpenMPSBuffer <MTLBuffer>
/// Zero-filled if the program has not written it yet (Metal promises zeros).
- (const std::shared_ptr<openmps::Memory> &)openmps_memory;
/// The same for a command that writes all of it; not filled with zeros before.
- (const std::shared_ptr<openmps::Memory> &)openmps_memoryToFill;
@end

@protocol OpenMPSTexture <MTLTexture>
/// For a texture made by a device: view its memory as `images` images of `channels` channels. Raise if they do not fit.
- (openmps::ImageView)openmps_viewWithImages:(NSUInteger)images channels:(NSUInteger)channels;
- (const std::shared_ptr<openmps::Usage> &)openmps_usage;
@end

namespace openmps {
/// Return a texture that shows images of `view.c` channels as slices of up to 4 lanes, N * ((C + 3) / 4) of them, on
/// the same memory (MPSImage.texture); `in_use` tracks its use. Lanes without a channel of a four-lane format read as
/// 0. Owned by the caller.
id<MTLTexture> new_texture(id<MTLDevice> device, const ImageView &view, MTLPixelFormat format, MTLTextureUsage usage,
                           std::shared_ptr<Usage> in_use = std::make_shared<Usage>());

/// Return a zero-filled buffer whose storage mode MPS chose: the CPU can access it, and didModifyRange: is allowed
/// although it is shared, because Apple's may be managed [MPSMatrix.h]. Owned by the caller; nil without memory.
id<OpenMPSBuffer> new_buffer_of_mps(id<MTLDevice> device, NSUInteger length,
                                    MTLStorageMode mode = MTLStorageModeShared);

/// Unwrap. Raise NSInvalidArgumentException with `what` for nil and for objects that are not openmps's.
id<OpenMPSDevice> device_of(id<MTLDevice> device, const char *what);
id<OpenMPSCommandBuffer> command_buffer_of(id<MTLCommandBuffer> buffer, const char *what);
id<OpenMPSBuffer> buffer_of(id<MTLBuffer> buffer, const char *what);
id<OpenMPSTexture> texture_of(id<MTLTexture> texture, const char *what);
}  // namespace openmps
