// SPDX-License-Identifier: Apache-2.0
// The caller's padding policies as MPS calls them.
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

/// Throws what is wrong with the names of the policy's flags; `who` is to blame.
void check_padding_method(const std::string &who, PaddingPolicy &policy);

/// Extents of the result for that image. The policy, or MPS, has set the offset of the MPS object; its own padding is
/// what it was. Throws what the policy throws.
ImageShape ask_policy(const std::shared_ptr<GuardedPolicy> &policy, Kernel &kernel, MPSCNNKernel *object,
                      MPSImage *source);

}  // namespace mpscnn
