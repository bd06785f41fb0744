// SPDX-License-Identifier: Apache-2.0
// Rows of depth-wise convolutions of float32 for AVX-512 and AVX2 (depthwise_rows.inc).
#pragma once

#include <array>
#include <memory>
#include <type_traits>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/problem/conv.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::depthwise {

using i64 = std::int64_t;

constexpr int kWide = 7, kNarrow = 3;  // results side by side: widths of networks are often multiples of 7

#define MPSCNN_LOOPS "engine/cpu/convolution/depthwise_rows.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

}  // namespace openmps::cpu::depthwise

#endif
