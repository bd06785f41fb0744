// SPDX-License-Identifier: Apache-2.0
// The classes of Foundation that threads may use first at the same time.
//
// +initialize of a GNUstep class cluster sends messages to its subclasses. GCC's runtime then installs the methods of
// NSMutableArray before NSMutableArray's own +initialize has run, so [NSMutableArray alloc] on another thread makes an
// object whose class is nil, and the next message to it ends the process. One thread loads the library: the classes are
// initialized there.

#import "metal/OnEngine.hh"

#include <objc/runtime.h>

@interface OpenMPSFoundation : NSObject
@end

@implementation OpenMPSFoundation
+ (void)load {
  const openmps::Pool pool;
  // A message to a class initializes it and the classes that it inherits from.
  for (const char *name : {"NSMutableArray",
                           "NSMutableDictionary",
                           "NSCountedSet",
                           "NSMutableOrderedSet",
                           "NSMutableIndexSet",
                           "NSMutableString",
                           "NSConstantString",
                           "NSMutableData",
                           "NSNumber",
                           "NSNull",
                           "NSDate",
                           "NSError",
                           "NSException",
                           "NSURL",
                           "NSThread",
                           "NSRecursiveLock",
                           "NSConditionLock",
                           "NSMethodSignature",
                           "NSInvocation",
                           "NSEnumerator",
                           "NSFileManager"})
    [objc_getClass(name) class];
}
@end
