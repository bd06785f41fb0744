// SPDX-License-Identifier: Apache-2.0
// MPSState's interface for the kernels and their state classes.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

namespace openmps {

/// Base of the data of MPSState's subclasses.
struct StateData {
  virtual ~StateData() = default;
};

}  // namespace openmps

@interface MPSState (Engine)
/// Null until it is set; owned by the state.
- (openmps::StateData *)openmps_data;
- (void)openmps_setData:(std::unique_ptr<openmps::StateData>)data;
/// Call before an encode on `buffer` that uses the state. Raise if it may not be used (a temporary state of another
/// command buffer, readCount 0).
- (void)openmps_willUseOn:(id<MTLCommandBuffer>)buffer;
/// Call once per encode that read the state. Decrement a temporary state's readCount; release its storage at 0.
- (void)openmps_didRead;
@end
