// SPDX-License-Identifier: Apache-2.0
// What upsampling and its gradients share.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct UpsamplingFactors {
  NSUInteger x = 1, y = 1;

  void check(const KernelState &state) const {
    constexpr NSUInteger most = NSUInteger{1} << 16;  // beyond the result of any image
    const auto check = [&](NSUInteger factor, const char *name) {
      if (factor < 1 || factor > most)
        raise_for(state, @"%s (%lu) is not between 1 and %lu.", name, (unsigned long)factor, (unsigned long)most);
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
