// SPDX-License-Identifier: Apache-2.0
// MPSNNDefaultPadding: the padding policies of MPS [MPSNeuralNetworkTypes.h].

#import "mps/MPSCNNKernel+Engine.hh"
#include "mps/PaddingPolicy.hpp"

static NSString *const kMethodKey = @"MPSNNDefaultPadding.method";

namespace {

/// Policies are immutable: the opaque variable holds the bits themselves.
MPSNNPaddingMethod bits_of(void *opaque) { return reinterpret_cast<MPSNNPaddingMethod>(opaque); }

constexpr MPSNNPaddingMethod kTensorflowAveragePooling =
    MPSNNPaddingMethodCustom | MPSNNPaddingMethodAddRemainderToBottomRight | MPSNNPaddingMethodAlignCentered;

}  // namespace

@interface MPSNNDefaultPadding (Engine)
- (instancetype)openmps_initWithMethod:(MPSNNPaddingMethod)method;
@end

/// Average pooling as in TensorFlow: Clamp makes the kernel count only pixels inside the source.
@interface OpenMPSAveragePoolingPadding : MPSNNDefaultPadding
@end

@implementation MPSNNDefaultPadding

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)openmps_initWithMethod:(MPSNNPaddingMethod)method {
  if (!(self = [super init])) return nil;
  openmps::UnwindRelease unwind(self);
  if (!openmps::is_padding_method(method))
    openmps::raise_argument(@"MPSNNDefaultPadding: method (0x%lx) has bits that mean nothing.", (unsigned long)method);
  _openmps = reinterpret_cast<void *>(method);
  return unwind.done();
}

- (instancetype)init {
  return [self openmps_initWithMethod:MPSNNPaddingMethodSizeValidOnly];
}

+ (instancetype)paddingWithMethod:(MPSNNPaddingMethod)method {
  return [[[self alloc] openmps_initWithMethod:method] autorelease];
}

+ (instancetype)paddingForTensorflowAveragePooling {
  return [[[OpenMPSAveragePoolingPadding alloc]
      openmps_initWithMethod:kTensorflowAveragePooling | MPSNNPaddingMethodSizeSame] autorelease];
}

+ (instancetype)paddingForTensorflowAveragePoolingValidOnly {
  return [[[OpenMPSAveragePoolingPadding alloc]
      openmps_initWithMethod:kTensorflowAveragePooling | MPSNNPaddingMethodSizeValidOnly] autorelease];
}

- (MPSNNPaddingMethod)paddingMethod {
  return bits_of(_openmps);
}

- (NSString *)label {
  static NSString *const align[] = {@"centered", @"top left", @"bottom right", @"?"};
  static NSString *const remainder[] = {@"top left", @"top right", @"bottom left", @"bottom right"};
  const MPSNNPaddingMethod method = bits_of(_openmps);
  const int style = openmps::axis_method(method, false).style;
  return [NSString stringWithFormat:@"size %@, aligned %@, remainder %@",
                                    style < 0    ? @"valid only"
                                    : style == 0 ? @"same"
                                                 : @"full",
                                    align[method & MPSNNPaddingMethodAlignMask],
                                    remainder[(method & MPSNNPaddingMethodAddRemainderToMask) / 4]];
}

- (instancetype)inverse {
  return [[[[self class] alloc] openmps_initWithMethod:openmps::inverse_padding_method(bits_of(_openmps))] autorelease];
}

- (BOOL)isEqual:(id)other {
  return other == self || ([other isMemberOfClass:[self class]] && [other paddingMethod] == bits_of(_openmps));
}

- (NSUInteger)hash {
  return bits_of(_openmps);
}

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (void)encodeWithCoder:(NSCoder *)coder {
  [coder encodeInt64:static_cast<int64_t>(bits_of(_openmps)) forKey:kMethodKey];
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  return [self openmps_initWithMethod:static_cast<MPSNNPaddingMethod>([coder decodeInt64ForKey:kMethodKey])];
}

@end

@implementation OpenMPSAveragePoolingPadding

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceImages, (void)sourceStates;
  if ([kernel isKindOfClass:[MPSCNNKernel class]]) [(MPSCNNKernel *)kernel setEdgeMode:MPSImageEdgeModeClamp];
  return inDescriptor;
}

@end
