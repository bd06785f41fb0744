// SPDX-License-Identifier: Apache-2.0
// The logarithm of a sum of exponentials, as log-softmax and cross entropy subtract it.
#pragma once

#include "engine/shared/fast_math.hpp"

namespace openmps {

/// ln(sum exp(x)) as high + low: (x - high) - low is exact near the max of x, and also where the logarithm vanishes
/// beside the max, as of values near 1e38. `sum` is that of exp(x - max).
struct LogSumExp {
  float high, low;
  MPSCNN_HOST_DEVICE LogSumExp(float max, double sum) {
    const double log = FastMath::log(sum);
    high = static_cast<float>(max + log);
    low = static_cast<float>((double(max) - high) + log);
  }
};

}  // namespace openmps
