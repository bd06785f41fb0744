// SPDX-License-Identifier: Apache-2.0
// How a padding method sizes a result and places the windows, one axis at a time [MPSNeuralNetworkTypes.h].
// All divisions are C integer divisions (toward zero), as in Apple's formulas.
#pragma once

#include <cstdint>

namespace openmps {

/// Bits of MPSNNPaddingMethod.
namespace padding_bits {
constexpr std::uint64_t kAlignMask = 0x3, kAlignTopLeft = 1, kAlignBottomRight = 2;
constexpr std::uint64_t kRemainderTopRight = 4, kRemainderBottomLeft = 8, kRemainderMask = 0xC;
constexpr std::uint64_t kSizeMask = 0x7F0, kSizeSame = 0x10, kSizeFull = 0x20;
constexpr std::uint64_t kCustomAllowForNodeFusion = 0x2000, kCustom = 0x4000, kExcludeEdges = 0x8000;
constexpr std::uint64_t kAll =
    kAlignMask | kRemainderMask | kSizeMask | kCustomAllowForNodeFusion | kCustom | kExcludeEdges;
}  // namespace padding_bits

enum class Align : std::uint8_t { centered, top_left, bottom_right };

/// The part of a padding method for one axis.
struct AxisMethod {
  int style = -1;  ///< -1 only windows inside the source, 0 size kept, +1 all windows that overlap the source
  bool remainder_first = true;  ///< an odd pixel of padding goes to the top or left
  Align align = Align::centered;
};

struct Axis {
  std::int64_t size = 0;    ///< pixels of the result; may be <= 0 when the source is smaller than the kernel
  std::int64_t offset = 0;  ///< MPSOffset of the kernel; reverse kernels: pixels of the up-sampled source
};

/// Return whether the method has no reserved values.
constexpr bool is_padding_method(std::uint64_t method) {
  const std::uint64_t size = method & padding_bits::kSizeMask;
  return (method & ~padding_bits::kAll) == 0 && (method & padding_bits::kAlignMask) != 3 &&
         (size == 0 || size == padding_bits::kSizeSame || size == padding_bits::kSizeFull);
}

constexpr AxisMethod axis_method(std::uint64_t method, bool vertical) {
  using namespace padding_bits;
  AxisMethod result;
  const std::uint64_t size = method & kSizeMask;
  result.style = size == kSizeSame ? 0 : size == kSizeFull ? 1 : -1;
  result.remainder_first = (method & (vertical ? kRemainderBottomLeft : kRemainderTopRight)) == 0;
  const std::uint64_t align = method & kAlignMask;
  result.align = align == kAlignTopLeft       ? Align::top_left
                 : align == kAlignBottomRight ? Align::bottom_right
                                              : Align::centered;
  return result;
}

/// Return the pixels of padding before the source (negative: pixels of the source that no window reads). Alignment
/// other than centered puts everything on one side; unverified: the exact formula.
constexpr std::int64_t leading_padding(const AxisMethod &method, std::int64_t extra) {
  if (method.align == Align::top_left) return extra;
  if (method.align == Align::bottom_right) return 0;
  return (extra + (method.remainder_first ? 1 : 0)) / 2;
}

/// Size the result of a forward kernel: convolution, pooling. `kernel` is the dilated size.
constexpr Axis forward_axis(const AxisMethod &method, std::int64_t source, std::int64_t kernel, std::int64_t stride) {
  Axis axis;
  axis.size = (source + method.style * (kernel - 1) + stride - 1) / stride;
  const std::int64_t extra = (axis.size - 1) * stride + kernel - source;
  axis.offset = kernel / 2 - leading_padding(method, extra);
  return axis;
}

/// Size the result of a reverse kernel: the source is up-sampled with `stride` - 1 zeros between its pixels, then read
/// with stride 1. unverified: the offset, which is the forward formula on the up-sampled source.
constexpr Axis reverse_axis(const AxisMethod &method, std::int64_t source, std::int64_t kernel, std::int64_t stride) {
  Axis axis;
  const std::int64_t up_sampled = (source - 1) * stride + 1;
  axis.size = up_sampled + method.style * (kernel - 1);
  axis.offset = kernel / 2 - leading_padding(method, axis.size - 1 + kernel - up_sampled);
  return axis;
}

/// Return the policy of the gradient kernel: Valid <-> Full, Same stays, odd pixels stay on their side.
/// unverified: the exact mapping, see docs/differences_from_apple.md.
constexpr std::uint64_t inverse_padding_method(std::uint64_t method) {
  using namespace padding_bits;
  const std::uint64_t size = method & kSizeMask;
  const std::uint64_t inverse_size = size == kSizeSame ? kSizeSame : size == kSizeFull ? 0 : kSizeFull;
  return (method & ~kSizeMask) | inverse_size;
}

}  // namespace openmps
