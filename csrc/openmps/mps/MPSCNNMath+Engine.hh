// SPDX-License-Identifier: Apache-2.0
// The state that arithmetic makes for its gradient kernels.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct ArithmeticData : GradientData {
  float scales[2] = {1, 1};
  NSUInteger channel_strides[2] = {1, 1};
  /// 1 where the bounds let the value through, 0 elsewhere. No memory: no bounds, or no encode.
  ImageView mask;
};

}  // namespace openmps
