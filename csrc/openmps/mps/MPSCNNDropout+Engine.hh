// SPDX-License-Identifier: Apache-2.0
// The state that a dropout makes for its gradient kernel.
#pragma once

#include "engine/problem/pointwise.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// Parameters of a dropout kernel and of its gradient kernel.
struct DropoutParameters {
  float keep = 0.5f;
  NSUInteger seed = 0;
  MTLSize mask_stride = {1, 1, 1};

  void check(const KernelState &state) const {
    if (!(keep > 0 && keep < 1)) raise_for(state, @"keepProbability (%g) is not between 0 and 1.", keep);
    if (mask_stride.width > 1 || mask_stride.height > 1 || mask_stride.depth > 1)
      raise_for(state, @"maskStrideInPixels (%lu, %lu, %lu) has a value that is neither 0 nor 1.",
                (unsigned long)mask_stride.width, (unsigned long)mask_stride.height, (unsigned long)mask_stride.depth);
  }
  void archive(Archive &archive, NSString *prefix) {
    const auto key = [prefix](NSString *name) { return [prefix stringByAppendingString:name]; };
    archive.field(key(@".keepProbability"), keep);
    archive.field(key(@".seed"), seed);
    archive.field(key(@".maskStrideInPixels.width"), mask_stride.width);
    archive.field(key(@".maskStrideInPixels.height"), mask_stride.height);
    archive.field(key(@".maskStrideInPixels.depth"), mask_stride.depth);
  }
};

/// The numbers that determine the mask, which itself is not kept.
struct DropoutData : GradientData {
  DropoutMask mask;
  std::int64_t images = 0;  ///< of the encode; 0: none yet
};

}  // namespace openmps

@interface MPSCNNDropoutGradientState (Engine)
/// Raise for a state that no kernel has made.
- (openmps::DropoutData &)openmps_dropoutData;
@end
