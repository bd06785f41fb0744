// SPDX-License-Identifier: Apache-2.0
// What the state classes of the kernels ask of MPSState beyond Apple's interface.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

namespace openmps {

/// The data of a subclass of MPSState; each subclass derives its own.
struct StateData {
  virtual ~StateData() = default;
};

}  // namespace openmps

@interface MPSState (Engine)
/// nullptr until it is set; dies with the state.
- (openmps::StateData *)openmps_data;
- (void)openmps_setData:(std::unique_ptr<openmps::StateData>)data;
/// An encode on `buffer` is going to use the state: raises when it may not (a temporary state of another command
/// buffer, readCount 0).
- (void)openmps_willUseOn:(id<MTLCommandBuffer>)buffer;
/// Once per encode that read it. Temporary states: readCount - 1, storage released at 0. Others: nothing.
- (void)openmps_didRead;
@end
