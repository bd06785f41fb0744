// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/OnEngine.hh"

@interface MTLFenceOnEngine : NSObject <MTLFence> {
  openmps::Ref<id<MTLDevice>> _device;
  openmps::Label _label;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device;
@end
