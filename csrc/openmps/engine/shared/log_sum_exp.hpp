// SPDX-License-Identifier: Apache-2.0
// Logarithm of a sum of exponentials, for log-softmax and cross entropy.
#pragma once

#include "engine/shared/fast_math.hpp"

namespace openmps {

/// ln(sum exp(x)) as high + low: (x - high) - low is exact near the max of x, also where the logarithm is lost beside
/// the max, as for values near 1e38. `sum` is that of exp(x - max).
struct LogSumExp {
  float high, low;
  MPSCNN_HOST_DEVICE LogSumExp(float max, double sum) {
    const double log = FastMath::log(sum);
    high = static_cast<float>(max + log);
    low = static_cast<float>((double(max) - high) + log);
  }
};

}  // namespace openmps
