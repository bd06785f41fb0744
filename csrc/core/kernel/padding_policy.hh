// SPDX-License-Identifier: Apache-2.0
// Padding policies of the caller, as called by MPS.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kernel/guarded_policy.hpp"

/// Base class of all policies: none can be archived.
@interface PyMPSPadding : NSObject <MPSNNPadding>
@end

@interface PyMPSCallersPadding : PyMPSPadding {
 @private
  std::shared_ptr<mpscnn::GuardedPolicy> policy_;
}
- (instancetype)initWithGuardedPolicy:(std::shared_ptr<mpscnn::GuardedPolicy>)policy;
@end

namespace mpscnn {

/// Return the MPSNNPaddingMethod of a policy of the caller's from the names of its flags. Throw if they are invalid;
/// `who` is the prefix of the message.
MPSNNPaddingMethod method_of(const std::string &who, const std::vector<std::string> &names);

ImageShape shape_of(MPSImage *image);
/// Negative sizes are values near 2^64 in the descriptor.
ImageShape shape_of(MPSImageDescriptor *descriptor);

/// Throw if the names of the policy's flags are invalid; `who` is the prefix of the message.
void check_padding_method(const std::string &who, PaddingPolicy &policy);

/// Return the extents of the result for the image. Sets the offset of the MPS object and restores its padding. Rethrows
/// the policy's exception.
ImageShape ask_policy(const std::shared_ptr<GuardedPolicy> &policy, Kernel &kernel, MPSCNNKernel *object,
                      MPSImage *source);

}  // namespace mpscnn
