// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

// The classes of the headers that have no @implementation elsewhere in openmps. They exist, so that programs link
// and the classes can be named, but every attempt to make or ask one raises MPSNotImplementedException.

#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

namespace {

[[noreturn]] void raise_not_implemented(NSString *name) {
    [[NSException exceptionWithName:@"MPSNotImplementedException"
                             reason:[name stringByAppendingString:@" is not implemented by openmps yet."]
                           userInfo:nil] raise];
    __builtin_unreachable();
}

}  // namespace

// The methods which the headers declare are left out on purpose (the build turns the warnings off for this file):
// the runtime then ends in +doesNotRecognizeSelector:, or in +forwardInvocation: if it has a signature.
#define OPENMPS_NOT_IMPLEMENTED(NAME)                                                             \
    @implementation NAME                                                                          \
    + (id)allocWithZone:(NSZone *)zone { raise_not_implemented(@#NAME); }                         \
    + (void)doesNotRecognizeSelector:(SEL)selector { raise_not_implemented(@#NAME); }             \
    + (void)forwardInvocation:(NSInvocation *)invocation { raise_not_implemented(@#NAME); }       \
    @end

OPENMPS_NOT_IMPLEMENTED(MPSPredicate)
