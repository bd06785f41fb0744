// SPDX-License-Identifier: Apache-2.0
// Padding policies of the caller, as called by MPS.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include "core/kernel/guarded_policy.hpp"

@interface PyMPSCallersPadding : NSObject <MPSNNPadding> {
 @private
  std::shared_ptr<mpscnn::GuardedPolicy> policy_;
}
- (instancetype)initWithGuardedPolicy:(std::shared_ptr<mpscnn::GuardedPolicy>)policy;
@end

namespace mpscnn {

/// Throw if the names of the policy's flags are invalid; `who` is the prefix of the message.
void check_padding_method(const std::string &who, PaddingPolicy &policy);

/// Return the extents of the result for the image. Sets the offset of the MPS object and restores its padding. Rethrows
/// the policy's exception.
ImageShape ask_policy(const std::shared_ptr<GuardedPolicy> &policy, Kernel &kernel, MPSCNNKernel *object,
                      MPSImage *source);

}  // namespace mpscnn
