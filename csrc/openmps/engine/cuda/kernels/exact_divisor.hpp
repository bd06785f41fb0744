// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

/// Divides numbers below 2^31 by another one, above 1, with a multiplication [Granlund and Montgomery, Division by
/// Invariant Integers using Multiplication, 1994].
struct ExactDivisor {
  std::uint32_t factor = 0;
  int shift = 0;

  ExactDivisor() = default;
#if !MPSCNN_ON_GPU
  explicit ExactDivisor(std::uint32_t by) {
    while ((2u << shift) < by) ++shift;  // 2^(shift + 1) >= by
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << (32 + shift)) + by - 1) / by);
  }
#endif
  MPSCNN_HOST_DEVICE std::uint32_t operator()(std::uint32_t number) const {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(number) * factor) >> 32) >> shift;
  }
};

}  // namespace openmps::cuda
