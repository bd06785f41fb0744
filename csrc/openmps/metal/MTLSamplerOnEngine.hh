// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/OnEngine.hh"

#include "engine/problem/function.hpp"

@interface MTLSamplerStateOnEngine : NSObject <MTLSamplerState> {
 @public
  openmps::Ref<id<MTLDevice>> _device;
  openmps::Ref<NSString *> _label;
  openmps::FunctionSampler _sampler;
}
@end

namespace openmps {
/// Return the sampler that a descriptor describes. Owned by the caller. Raise NSInvalidArgumentException if it cannot
/// be.
id<MTLSamplerState> new_sampler(id<MTLDevice> device, MTLSamplerDescriptor *descriptor);
}  // namespace openmps
