// SPDX-License-Identifier: Apache-2.0
// The division of convolutions by tiles into strips, and their copies.
#include "engine/cpu/convolution/tiles.hpp"

#include <cstring>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/shared/parallel.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::tiles {

namespace {

constexpr i64 kLeastStrip = 256 * 1024;  // bytes; weights are read again for each strip
constexpr i64 kMostStrip = 1024 * 1024;  // half of a second-level cache

/// Set the phases of a strip, and the distances of taps once its extents are known.
void set_taps(Plan& plan) {
  const Window& w = plan.call.window;
  plan.taps.clear();
  for (i64 p = 0; p < w.kernel_h; ++p)
    for (i64 q = 0; q < w.kernel_w; ++q) {
      const i64 y = p * w.dilation_h, x = q * w.dilation_w;
      const Phase phase = {y % w.stride_h, x % w.stride_w};
      auto found = std::find(plan.phases.begin(), plan.phases.end(), phase);
      if (found == plan.phases.end()) found = plan.phases.insert(found, phase);
      const i64 of_phase = (found - plan.phases.begin()) * plan.planes * plan.plane_bytes();
      plan.taps.push_back(of_phase + (y / w.stride_h * plan.pitch + x / w.stride_w) * kPixelBytes);
    }
}

/// Copy `channels` channels of `pixels` pixels, `step` elements apart, to planes, with zeros behind them.
MPSCNN_AVX512 void copy_pixels(const std::byte* from, i64 step, i64 pixels, i64 channels, std::byte* to, i64 of_plane) {
  const i64 whole = channels / kInputs, rest = channels % kInputs;
  const __mmask32 lanes = (__mmask32{1} << rest) - 1;
  for (i64 x = 0; x < pixels; ++x, from += step * static_cast<i64>(sizeof(bfloat16)), to += kPixelBytes) {
    for (i64 plane = 0; plane < whole; ++plane)
      _mm512_storeu_si512(to + plane * of_plane, _mm512_loadu_si512(from + plane * kPixelBytes));
    if (rest) _mm512_storeu_si512(to + whole * of_plane, _mm512_maskz_loadu_epi16(lanes, from + whole * kPixelBytes));
  }
}

/// Copy a phase of a strip by planes, with zeros outside of the source and behind its channels.
void copy_phase(const Strip& strip, const Phase& phase, std::byte* const to) {
  const Plan& plan = strip.plan;
  const Tensor& src = plan.call.src;
  const Window& w = plan.call.window;
  const i64 of_plane = plan.plane_bytes(), width = plan.pitch * kPixelBytes;
  const i64 first = w.start_w + phase[1];  // column of the source
  const i64 before = first < 0 ? std::min(ceil_div(-first, w.stride_w), plan.pitch) : 0;
  const i64 end = first < src.w ? std::clamp(ceil_div(src.w - first, w.stride_w), before, plan.pitch) : before;
  i64 at = 0;
  for (i64 image = 0; image < strip.images; ++image)
    for (i64 row = 0; row < strip.rows + plan.lost; ++row, at += width) {
      const i64 from_y = (strip.y + row) * w.stride_h + w.start_h + phase[0];
      const i64 pixels = from_y < 0 || from_y >= src.h ? 0 : end - before;
      for (i64 plane = 0; plane < plan.planes; ++plane) {
        std::byte* const line = to + plane * of_plane + at;
        const i64 zeros = pixels ? before * kPixelBytes : width, behind = (before + pixels) * kPixelBytes;
        std::memset(line, 0, static_cast<std::size_t>(zeros));
        if (pixels) std::memset(line + behind, 0, static_cast<std::size_t>(width - behind));
      }
      if (pixels)
        copy_pixels(src.at(strip.n + image, from_y, first + before * w.stride_w), src.w_stride * w.stride_w, pixels,
                    src.c, to + at + before * kPixelBytes, of_plane);
    }
}

/// Copy rows of the source as bfloat16, with zeros outside of it: those that the windows of a strip reach.
MPSCNN_AVX512_BF16 void copy_rows(const Strip& strip, bfloat16* to) {
  const Plan& plan = strip.plan;
  const Tensor& src = plan.call.src;
  const Window& w = plan.call.window;
  const i64 of_row = plan.padded_row(), pixels = of_row / src.c;
  const i64 begin = std::clamp<i64>(-w.start_w, 0, pixels), end = std::clamp(src.w - w.start_w, begin, pixels);
  for (i64 row = 0; row < (strip.rows - 1) * w.stride_h + w.kernel_h; ++row, to += of_row) {
    const i64 from_y = strip.y * w.stride_h + w.start_h + row;
    if (from_y < 0 || from_y >= src.h || begin == end) {
      std::fill_n(to, of_row, bfloat16{0});
      continue;
    }
    std::fill_n(to, begin * src.c, bfloat16{0});
    std::fill(to + end * src.c, to + of_row, bfloat16{0});
    const std::byte* const from = src.at(strip.n, from_y, begin + w.start_w);
    const i64 count = (end - begin) * src.c;
    if (src.format == Format::bfloat16) {
      std::memcpy(to + begin * src.c, from, static_cast<std::size_t>(count) * sizeof(bfloat16));
      continue;
    }
    for (i64 k = 0; k < count; k += kRows) {
      const __mmask16 lanes = avx512::lanes_of(count - k);
      store(lanes, to + begin * src.c + k, load(lanes, reinterpret_cast<const float*>(from) + k));
    }
  }
}

/// Copy the values of each window of a strip, one window after the other, with zeros behind them. The zeros of a vector
/// behind its values are overwritten by the next one.
MPSCNN_AVX512 void copy_patches(const Strip& strip, const bfloat16* rows, std::byte* to) {
  const Plan& plan = strip.plan;
  const Window& w = plan.call.window;
  const i64 of_row = plan.padded_row(), step = w.stride_w * plan.call.src.c, run = w.kernel_w * plan.call.src.c;
  const i64 run_bytes = run * static_cast<i64>(sizeof(bfloat16)), of_patch = plan.planes * kPixelBytes;
  const auto lanes = static_cast<__mmask32>((std::uint64_t{1} << run) - 1);
  for (i64 y = 0; y < strip.rows; ++y, rows += w.stride_h * of_row)
    for (i64 x = 0; x < plan.call.dst.w; ++x, to += of_patch) {
      const bfloat16* from = rows + x * step;
      std::byte* row = to;
      // Zeros first, in front of values where they overlap: one cache line.
      _mm512_store_si512(to + of_patch - kPixelBytes, _mm512_setzero_si512());
      if (run <= kRows)
        for (i64 p = 0; p < w.kernel_h; ++p, from += of_row, row += run_bytes)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(row),
                              _mm256_maskz_loadu_epi16(static_cast<__mmask16>(lanes), from));
      else
        for (i64 p = 0; p < w.kernel_h; ++p, from += of_row, row += run_bytes)
          _mm512_storeu_si512(row, _mm512_maskz_loadu_epi16(lanes, from));
    }
}

}  // namespace

std::optional<Reading> reading_of(const ConvCall& call) {
  const Window& w = call.window;
  const Tensor &src = call.src, &dst = call.dst;
  if (src.format == Format::float32 || (src.c < kRows && w.kernel_h * w.kernel_w > 1)) {
    const i64 of_row = w.kernel_w * src.c;
    if (w.dilation_h != 1 || w.dilation_w != 1 || of_row > kInputs || src.w_stride != src.c) return std::nullopt;
    return Reading::patches;
  }
  const bool is_pixel = w.kernel_h * w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1;
  const bool is_same = w.start_h == 0 && w.start_w == 0 && src.h == dst.h && src.w == dst.w;
  if (!is_pixel || !is_same || dst.n * dst.h * dst.w < kPixels) return Reading::planes;
  const bool is_one = is_one_row(src) && is_one_row(dst) && (!call.adds() || is_one_row(call.addend));
  return is_one ? Reading::in_place : Reading::planes;
}

Plan plan_of(const ConvCall& call, Reading reading, const Activation& activation, const Activation& after) {
  Plan plan = {call, activation, after, reading};
  const Window& w = call.window;
  const Tensor &src = call.src, &dst = call.dst;
  const i64 of_window = w.kernel_h * w.kernel_w;
  const i64 of_weights = call.weights->out_channels * of_window * src.c * static_cast<i64>(sizeof(bfloat16));
  const i64 of_images = (src.size() + dst.size()) * static_cast<i64>(sizeof(bfloat16));
  const i64 limit = std::clamp(of_weights / 4, kLeastStrip, kMostStrip);
  plan.by_outputs = of_weights > of_images;
  plan.planes = ceil_div(reading == Reading::patches ? of_window * src.c : src.c, kInputs);
  plan.pitch = dst.w, plan.rows = dst.h, plan.images = plan.parts = plan.blocks = 1, plan.lost = 0;
  if (reading == Reading::in_place) {
    // All outputs of a block one after the other, unless the weights leave the cache between blocks.
    if (of_weights > kMostStrip) plan.blocks = std::max<i64>(1, limit / (plan.planes * kPixels * kPixelBytes));
    plan.taps = {0};
    return plan;
  }
  if (reading == Reading::planes)
    plan.pitch += (reach_w(w) - 1) / w.stride_w, plan.lost = (reach_h(w) - 1) / w.stride_h, set_taps(plan);
  else
    plan.taps = {0}, plan.phases = {Phase{}};
  const i64 of_row = plan.pitch * plan.planes * kPixelBytes * static_cast<i64>(plan.phases.size());
  const auto divide = [&](i64 parts) { plan.rows = ceil_div(dst.h, parts), plan.parts = ceil_div(dst.h, plan.rows); };
  divide(ceil_div(dst.h, std::clamp<i64>(limit / of_row - plan.lost, 1, dst.h)));
  // Equal shares for the threads, as far as possible.
  if (plan.parts == 1 && reading == Reading::planes) {
    const i64 at_once = std::max<i64>(1, limit / ((plan.rows + plan.lost) * of_row));
    const i64 strips = ceil_div(ceil_div(dst.n, at_once), max_threads()) * max_threads();
    plan.images = ceil_div(dst.n, strips);
  }
  const i64 most_parts = std::min<i64>(dst.h, plan.parts + max_threads());
  const auto is_equal = [&] { return plan.by_outputs || plan.images > 1 || plan.strips() % max_threads() == 0; };
  for (i64 parts = plan.parts + 1; !is_equal() && parts <= most_parts; ++parts) divide(parts);
  if (reading == Reading::planes) set_taps(plan);
  return plan;
}

Source source_of(const Strip& strip, std::byte* to) {
  const Plan& plan = strip.plan;
  const Tensor& src = plan.call.src;
  if (plan.reading == Reading::in_place) {
    const i64 stride = src.w_stride * static_cast<i64>(sizeof(bfloat16)), whole = src.c / kInputs;
    const std::byte* const from = src.data + strip.first * stride;
    std::byte* const rest = to + kPixels * kPixelBytes;  // the last block may begin before the strip
    if (whole < plan.planes)
      copy_pixels(from + whole * kPixelBytes, src.w_stride, strip.count, src.c % kInputs, rest, 0);
    return {from, stride, kPixelBytes, whole, rest};
  }
  if (plan.reading == Reading::patches) {
    bfloat16* const rows = reinterpret_cast<bfloat16*>(to + plan.patches_bytes());
    copy_rows(strip, rows);
    copy_patches(strip, rows, to);
    return {to, plan.planes * kPixelBytes, kPixelBytes, plan.planes, nullptr};
  }
  for (std::size_t k = 0; k < plan.phases.size(); ++k)
    copy_phase(strip, plan.phases[k], to + static_cast<i64>(k) * plan.planes * plan.plane_bytes());
  return {to, kPixelBytes, plan.plane_bytes(), plan.planes, nullptr};
}

}  // namespace openmps::cpu::tiles

#endif
