// SPDX-License-Identifier: Apache-2.0
// What our own Metal objects answer beyond Apple's protocols, and how a breach of the rules is raised.
// Used by the MPS classes; programs never see it.
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

/// Names of the exceptions raised besides Foundation's NSInvalidArgumentException (a wrong argument) and
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

/// Raise with a whole sentence: name, value given, limit. `raise_argument` is NSInvalidArgumentException.
[[noreturn]] void raise_argument(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_usage(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
[[noreturn]] void raise_memory(NSString *format, ...) NS_FORMAT_FUNCTION(1, 2);
/// Also of a selector that the runtime does not know yet, as an initializer of a program may send one.
NSString *name_of(SEL selector);
/// "-[Class selector] is not implemented by openmps yet."
[[noreturn]] void raise_not_implemented(id object, SEL selector);
/// For initialisers that Apple marks unavailable: "-[Class selector] is unavailable; use instead."
[[noreturn]] void raise_unavailable(id object, SEL selector, const char *instead);

/// Raises MPSUsageException for an image or texture (`what`) that a command buffer still writes or reads.
void check_cpu_may_read(const Usage &usage, NSString *what);
void check_cpu_may_write(const Usage &usage, NSString *what);

/// Allocate the block, if it is not yet; raises NSMallocException naming `what` when there is no memory.
void touch(const std::shared_ptr<Memory> &memory, NSString *what);
/// First byte of the access to `memory`; raises likewise.
std::byte *checked_data(const HostAccess &access, const std::shared_ptr<Memory> &memory, NSString *what);
/// First byte of the CPU's copy, where managed storage has one, else of the block; raises likewise.
std::byte *touch_cpu(const std::shared_ptr<Memory> &memory, NSString *what);
/// Copy managed storage to the CPU when the command buffer gets there; nothing where memory is one.
void synchronize(Recorder &recorder, const std::shared_ptr<Memory> &memory, NSString *what);

/// Default storage mode of images, textures and states.
inline MTLStorageMode default_storage_mode() {
  return device_rules().copies_managed_storage ? MTLStorageModeManaged : MTLStorageModeShared;
}

/// Whether the selector is one beyond Apple's interface, and the device's rules have none of these.
bool is_hidden(SEL selector);
/// In the methods of these: what NSObject does about selectors that it does not know.
void check_offered(id object, SEL selector);

/// Raise what note_breach() has kept.
void raise_breach();

}  // namespace openmps

/// In root classes: a selector that nobody implements is Apple's API which is not there yet. The signature is made up
/// for such selectors, because the runtime raises an exception of its own when there is none.
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

/// Answered by devices, command buffers, buffers and textures of openmps.
@protocol OpenMPSDevice <MTLDevice>
- (const std::shared_ptr<openmps::Engine> &)openmps_engine;
@end

@protocol OpenMPSCommandBuffer <MTLCommandBuffer>
/// Raises MPSUsageException when the buffer has been committed, or while a command encoder is open.
- (openmps::Recorder &)openmps_recorder;
/// The same without the check.
- (const std::shared_ptr<openmps::Completion> &)openmps_completion;
/// Temporary images and states made for this buffer; the same object after -[MPSCommandBuffer commitAndContinue].
- (const std::shared_ptr<openmps::TemporaryScope> &)openmps_temporaries;
/// commit without the check for unread temporaries, which are handed over to `next`.
- (void)openmps_commitContinuingIn:(id<OpenMPSCommandBuffer>)next;
- (void)openmps_adoptTemporaries:(std::shared_ptr<openmps::TemporaryScope>)scope;
@end

@protocol OpenMPSBuffer <MTLBuffer>
/// Zero-filled if the program has not written it yet (Metal promises zeros).
- (const std::shared_ptr<openmps::Memory> &)openmps_memory;
@end

@protocol OpenMPSTexture <MTLTexture>
/// A texture made by a device: `images` images of `channels` channels on its memory. Raises when they do not fit.
- (openmps::ImageView)openmps_viewWithImages:(NSUInteger)images channels:(NSUInteger)channels;
- (const std::shared_ptr<openmps::Usage> &)openmps_usage;
@end

namespace openmps {
/// A texture that shows images of `view.c` channels as slices of up to 4 lanes, N * ((C + 3) / 4) of them, on the same
/// memory (MPSImage.texture), which `usage` watches. Lanes of a four-lane format without a channel read as 0. Owned by
/// the caller.
id<MTLTexture> new_texture(id<MTLDevice> device, const ImageView &view, MTLPixelFormat format, MTLTextureUsage usage,
                           std::shared_ptr<Usage> in_use = std::make_shared<Usage>());

/// A buffer of zeros whose storage MPS chose, not the program: the CPU sees it, and didModifyRange: is allowed on it
/// although it is shared, because Apple's may be managed [MPSMatrix.h]. Owned by the caller; nil without memory.
id<OpenMPSBuffer> new_buffer_of_mps(id<MTLDevice> device, NSUInteger length,
                                    MTLStorageMode mode = MTLStorageModeShared);

/// Unwraps; raises NSInvalidArgumentException for nil and for objects that are not openmps's, naming `what`.
id<OpenMPSDevice> device_of(id<MTLDevice> device, const char *what);
id<OpenMPSCommandBuffer> command_buffer_of(id<MTLCommandBuffer> buffer, const char *what);
id<OpenMPSBuffer> buffer_of(id<MTLBuffer> buffer, const char *what);
id<OpenMPSTexture> texture_of(id<MTLTexture> texture, const char *what);
}  // namespace openmps
