// SPDX-License-Identifier: Apache-2.0
// MPSKeyedUnarchiver: an unarchiver with the device for the decoded kernels [MPSKeyedUnarchiver.h].

#import "mps/MPSKernel+Engine.hh"

namespace {

/// Return whether the object is of one of the classes; nil is not.
bool is_one_of(id object, NSSet *classes) {
  for (Class cls in classes)
    if ([object isKindOfClass:cls]) return true;
  return false;
}

NSError *error_with(NSString *reason) {
  return [NSError errorWithDomain:NSCocoaErrorDomain
                             code:NSFileReadCorruptFileError
                         userInfo:[NSDictionary dictionaryWithObject:reason forKey:NSLocalizedDescriptionKey]];
}

}  // namespace

@implementation MPSKeyedUnarchiver

- (instancetype)initForReadingWithData:(NSData *)data device:(id<MTLDevice>)device {
  if (!(self = [super initForReadingWithData:data])) return nil;
  openmps::UnwindRelease unwind(self);
  _openmps = [openmps::device_of(device, "MPSKeyedUnarchiver") retain];
  return unwind.done();
}

- (instancetype)initForReadingFromData:(NSData *)data device:(id<MTLDevice>)device error:(NSError **)error {
  @try {
    return [self initForReadingWithData:data device:device];
  } @catch (NSException *exception) {
    if (![[exception name] isEqual:NSInvalidArgumentException] || device == nil) @throw;
    if (error != NULL) *error = error_with([exception reason]);
    return nil;
  }
}

/// Unavailable: there are no data to read.
- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initForReadingFromData:device:error:");
}

- (void)dealloc {
  [(id)_openmps release];
  [super dealloc];
}

- (id<MTLDevice>)mpsMTLDevice {
  return (id<MTLDevice>)_openmps;
}

// --------------------------------------------------------------------------------- archives in one call

+ (id)unarchiveObjectWithData:(NSData *)data device:(id<MTLDevice>)device {
  MPSKeyedUnarchiver *coder = [[[self alloc] initForReadingWithData:data device:device] autorelease];
  id object = [[[coder decodeObjectForKey:@"root"] retain] autorelease];
  [coder finishDecoding];
  return object;
}

+ (id)unarchiveObjectWithFile:(NSString *)path device:(id<MTLDevice>)device {
  NSData *data = [NSData dataWithContentsOfFile:path];
  return data == nil ? nil : [self unarchiveObjectWithData:data device:device];
}

+ (id)unarchiveTopLevelObjectWithData:(NSData *)data device:(id<MTLDevice>)device error:(NSError **)error {
  return [self unarchivedObjectOfClasses:[NSSet setWithObject:[NSObject class]]
                                fromData:data
                                  device:device
                                   error:error];
}

+ (id)unarchivedObjectOfClass:(Class)cls fromData:(NSData *)data device:(id<MTLDevice>)device error:(NSError **)error {
  return [self unarchivedObjectOfClasses:[NSSet setWithObject:cls] fromData:data device:device error:error];
}

/// Invalid data are reported in `error`; an invalid device raises.
+ (id)unarchivedObjectOfClasses:(NSSet<Class> *)classes
                       fromData:(NSData *)data
                         device:(id<MTLDevice>)device
                          error:(NSError **)error {
  openmps::device_of(device, "MPSKeyedUnarchiver");
  NSString *reason = nil;
  id object = nil;
  @try {
    object = [self unarchiveObjectWithData:data device:device];
    if (object == nil)
      reason = @"The data holds no archive.";
    else if (!is_one_of(object, classes))
      reason =
          [NSString stringWithFormat:@"The archive holds an object of class %@, not of %@.", [object class], classes];
  } @catch (NSException *exception) {
    reason = [exception reason];
  }
  if (reason == nil) return object;
  if (error != NULL) *error = error_with(reason);
  return nil;
}

@end
