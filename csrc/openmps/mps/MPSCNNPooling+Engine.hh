// SPDX-License-Identifier: Apache-2.0
// Common parts of pooling and its gradients.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// Zeros around the source that an average with edge mode Clamp counts.
struct ZeroPad {
  NSUInteger x = 0, y = 0;

  void check(const KernelState &state) const {
    constexpr NSUInteger max = NSUInteger{1} << 31;
    if (x > max || y > max)
      raise_for(state, @"zeroPadSizeX (%lu) or zeroPadSizeY (%lu) is greater than %lu.", (unsigned long)x,
                (unsigned long)y, (unsigned long)max);
  }
  void archive(Archive &archive, NSString *prefix) {
    archive.field([prefix stringByAppendingString:@".zeroPadSizeX"], x);
    archive.field([prefix stringByAppendingString:@".zeroPadSizeY"], y);
  }
};

struct PoolingData : GradientData {
  ZeroPad zero_pad;
};

}  // namespace openmps
