// SPDX-License-Identifier: Apache-2.0
// What a dropout leaves for its gradient kernel.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// The mask is a function of these numbers: nothing else is kept.
struct DropoutData : GradientData {
  DropoutMask mask;
  std::int64_t images = 0;  ///< that the encode had; 0: none yet
};

}  // namespace openmps

@interface MPSCNNDropoutGradientState (Engine)
/// Raises for a state that no kernel has made.
- (openmps::DropoutData &)openmps_dropoutData;
@end
