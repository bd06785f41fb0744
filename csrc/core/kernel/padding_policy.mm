// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/padding_policy.hh"

#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

#include "core/device/objc_ref.hh"
#include "core/device/objc_scope.hh"

namespace mpscnn {
namespace {

/// A flag of MPSNNPaddingMethod without its prefix; Custom is set for every policy.
struct Flag {
  std::string_view name;
  MPSNNPaddingMethod bits, field;
};
constexpr Flag kFlags[] = {
    {"align_centered", MPSNNPaddingMethodAlignCentered, MPSNNPaddingMethodAlignMask},
    {"align_top_left", MPSNNPaddingMethodAlignTopLeft, MPSNNPaddingMethodAlignMask},
    {"align_bottom_right", MPSNNPaddingMethodAlignBottomRight, MPSNNPaddingMethodAlignMask},
    {"add_remainder_to_top_left", MPSNNPaddingMethodAddRemainderToTopLeft, MPSNNPaddingMethodAddRemainderToMask},
    {"add_remainder_to_top_right", MPSNNPaddingMethodAddRemainderToTopRight, MPSNNPaddingMethodAddRemainderToMask},
    {"add_remainder_to_bottom_left", MPSNNPaddingMethodAddRemainderToBottomLeft, MPSNNPaddingMethodAddRemainderToMask},
    {"add_remainder_to_bottom_right", MPSNNPaddingMethodAddRemainderToBottomRight,
     MPSNNPaddingMethodAddRemainderToMask},
    {"size_valid_only", MPSNNPaddingMethodSizeValidOnly, MPSNNPaddingMethodSizeMask},
    {"size_same", MPSNNPaddingMethodSizeSame, MPSNNPaddingMethodSizeMask},
    {"size_full", MPSNNPaddingMethodSizeFull, MPSNNPaddingMethodSizeMask},
};

const Flag &flag_of(const std::string &who, std::string_view name) {
  std::string choices;
  for (const Flag &flag : kFlags) {
    if (flag.name == name) return flag;
    choices += say(choices.empty() ? "" : ", ", '"', flag.name, '"');
  }
  throw std::invalid_argument(say(who, ": padding_method (\"", name, "\") is not one of ", choices, "."));
}

}  // namespace

MPSNNPaddingMethod method_of(const std::string &who, const std::vector<std::string> &names) {
  MPSNNPaddingMethod method = MPSNNPaddingMethodCustom;
  std::vector<const Flag *> flags;
  for (const auto &name : names) {
    const Flag &flag = flag_of(who, name);
    for (const Flag *other : flags)
      check(other->field != flag.field || other == &flag, who, ": padding_method has both \"", other->name, "\" and \"",
            flag.name, "\", of which one is possible.");
    flags.push_back(&flag);
    method |= flag.bits;
  }
  return method;
}

ImageShape shape_of(MPSImage *image) {
  return {static_cast<std::int64_t>(image.numberOfImages), static_cast<std::int64_t>(image.height),
          static_cast<std::int64_t>(image.width), static_cast<std::int64_t>(image.featureChannels)};
}

ImageShape shape_of(MPSImageDescriptor *descriptor) {
  return {static_cast<std::int64_t>(descriptor.numberOfImages), static_cast<std::int64_t>(descriptor.height),
          static_cast<std::int64_t>(descriptor.width), static_cast<std::int64_t>(descriptor.featureChannels)};
}

namespace {

/// Sets the kernel's policy for the duration of a call: otherwise the object, its copies and its archives would own the
/// policy as well.
class PaddingScope {
 public:
  PaddingScope(MPSCNNKernel *kernel, id<MPSNNPadding> padding)
      : kernel_(kernel), own_(Ref<id<MPSNNPadding>>::retain(kernel.padding)) {
    kernel_.padding = padding;
  }
  ~PaddingScope() { kernel_.padding = own_.get(); }
  PaddingScope(const PaddingScope &) = delete;
  PaddingScope &operator=(const PaddingScope &) = delete;

 private:
  MPSCNNKernel *kernel_;
  Ref<id<MPSNNPadding>> own_;
};

}  // namespace

void check_padding_method(const std::string &who, PaddingPolicy &policy) { method_of(who, policy.method()); }

ImageShape ask_policy(const std::shared_ptr<GuardedPolicy> &policy, Kernel &kernel, MPSCNNKernel *object,
                      MPSImage *source) {
  GuardedPolicy::Asking asking(*policy, kernel);
  policy->method_bits = method_of(blame(kernel, *policy->policy()), policy->policy()->method());
  const auto padding = Ref<PyMPSCallersPadding *>::adopt([[PyMPSCallersPadding alloc] initWithGuardedPolicy:policy]);
  const PaddingScope scope(object, padding.get());
  MPSImageDescriptor *result = [object destinationImageDescriptorForSourceImages:@[ source ] sourceStates:nil];
  asking.rethrow();
  return shape_of(result);
}

}  // namespace mpscnn

@implementation PyMPSPadding

- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}

+ (BOOL)supportsSecureCoding {
  return YES;
}

/// An archived kernel does not hold the policy, see PaddingScope, and nodes are not archived.
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
  [NSException raise:NSInvalidArgumentException format:@"A padding policy of the caller's cannot be archived."];
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  [self release];
  return nil;
}

@end

@implementation PyMPSCallersPadding

- (instancetype)initWithGuardedPolicy:(std::shared_ptr<mpscnn::GuardedPolicy>)policy {
  if ((self = [super init])) policy_ = std::move(policy);
  return self;
}

- (MPSNNPaddingMethod)paddingMethod {
  return policy_->method_bits;
}

- (NSString *)label {
  return @"mpscnn.PaddingPolicy";
}

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceStates;
  std::vector<mpscnn::ImageShape> sources;
  for (MPSImage *image in sourceImages) sources.push_back(mpscnn::shape_of(image));
  const auto answer = policy_->destination(sources, mpscnn::shape_of(inDescriptor));
  // After a failure, return any size that MPS accepts; it is not used.
  inDescriptor.height = answer ? static_cast<NSUInteger>(answer->shape.h) : 1;
  inDescriptor.width = answer ? static_cast<NSUInteger>(answer->shape.w) : 1;
  if (!answer) return inDescriptor;
  inDescriptor.featureChannels = static_cast<NSUInteger>(answer->shape.c);
  if (!answer->offset) return inDescriptor;
  const auto x = static_cast<NSInteger>(answer->offset->x), y = static_cast<NSInteger>(answer->offset->y);
  if ([kernel respondsToSelector:@selector(setKernelOffsetX:)]) {
    auto *transpose = static_cast<MPSCNNConvolutionTranspose *>(kernel);
    transpose.kernelOffsetX = x;
    transpose.kernelOffsetY = y;
  } else {
    static_cast<MPSCNNKernel *>(kernel).offset = {.x = x, .y = y, .z = 0};
  }
  return inDescriptor;
}

@end
