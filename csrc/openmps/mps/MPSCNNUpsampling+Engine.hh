// SPDX-License-Identifier: Apache-2.0
// Common parts of upsampling and its gradients.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct UpsamplingFactors {
  NSUInteger x = 1, y = 1;

  void check(const KernelState &state) const {
    constexpr NSUInteger max = NSUInteger{1} << 16;  // beyond the result of any image
    const auto check = [&](NSUInteger factor, const char *name) {
      if (factor < 1 || factor > max)
        raise_for(state, @"%s (%lu) is not between 1 and %lu.", name, (unsigned long)factor, (unsigned long)max);
    };
    check(x, "integerScaleFactorX");
    check(y, "integerScaleFactorY");
  }
  void archive(Archive &archive, NSString *prefix) {
    archive.field([prefix stringByAppendingString:@".scaleFactorX"], x);
    archive.field([prefix stringByAppendingString:@".scaleFactorY"], y);
  }
};

struct UpsamplingData : GradientData {
  bool align_corners = false;
};

}  // namespace openmps
