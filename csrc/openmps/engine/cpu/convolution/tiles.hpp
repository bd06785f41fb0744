// SPDX-License-Identifier: Apache-2.0
// How the tiles of AMX read the source of a convolution. The pixels follow each other in a strip: rows of the source
// with zeros on both sides, copied by planes of 32 channels. So a tile of pixels is 16 cache lines that follow each
// other, of all sets of the first-level cache, and each tap of a window is one distance in the strip, also for pixels
// of several rows and images. Results of the pixels between two rows are not stored. With strides, a strip has several
// sets of planes: for strides of 2, the even and the odd pixels of even and odd rows. Windows of one pixel read the
// source without a copy, and of images of few channels, all values of a window are copied to one row.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"

#if defined(__x86_64__)

namespace openmps::cpu::tiles {

using i64 = std::int64_t;
using bfloat16 = std::uint16_t;

constexpr i64 kRows = 16;            // of a tile: pixels, or pairs of inputs
constexpr i64 kInputs = 32;          // of a tile
constexpr i64 kPixels = 2 * kRows;   // of a block of results
constexpr i64 kOutputs = 2 * kRows;  // of a block of results
constexpr i64 kTileValues = kRows * kInputs;
constexpr i64 kPixelBytes = kInputs * static_cast<i64>(sizeof(bfloat16));  // of a plane

inline i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

/// Pixels of a strip that windows with strides reach together: [y, x] of the first one.
using Phase = std::array<i64, 2>;

/// How tiles read the source.
enum class Reading : std::uint8_t {
  in_place,  ///< windows of one pixel: channels that fill a plane in part are copied
  patches,   ///< of few channels: all values of each window are copied
  planes     ///< a copy with zeros around it, by planes of kInputs channels
};

/// A convolution, and its division into strips.
struct Plan {
  ConvCall call;
  Activation activation, after;
  Reading reading;
  i64 planes;        ///< of kInputs channels
  i64 blocks;        ///< of kPixels results in a strip, if it is read in place
  i64 pitch;         ///< pixels from one row of a strip to the next
  i64 lost;          ///< rows that a strip has more for each image than rows of results
  i64 rows, images;  ///< of results in a strip
  i64 parts;         ///< strips of an image
  bool by_outputs;   ///< the threads share the outputs of each strip
  std::vector<Phase> phases;
  std::vector<i64> taps;  ///< their distances, in bytes

  i64 positions() const { return call.dst.n * call.dst.h * call.dst.w; }
  i64 strips() const {
    return reading == Reading::in_place ? ceil_div(positions(), blocks * kPixels)
                                        : ceil_div(call.dst.n, images) * parts;
  }
  /// Return the bytes of a plane; the last block of pixels may read behind the strip.
  i64 plane_bytes() const { return (images * (rows + lost) * pitch + kPixels) * kPixelBytes; }
  /// Return the bytes of patches, which are written by whole vectors.
  i64 patches_bytes() const { return (planes * (rows * pitch + kPixels) + 1) * kPixelBytes; }
  /// Return the extents of the rows of the source behind patches, and their number.
  i64 padded_row() const { return ((call.dst.w - 1) * call.window.stride_w + call.window.kernel_w) * call.src.c; }
  i64 padded_rows() const { return (rows - 1) * call.window.stride_h + call.window.kernel_h; }
  /// Return the bytes of the copy of a strip. A row of patches is read by whole vectors.
  i64 copied_bytes() const {
    if (reading == Reading::in_place) return call.src.c % kInputs ? (blocks + 1) * kPixels * kPixelBytes : 0;
    if (reading == Reading::planes) return static_cast<i64>(phases.size()) * planes * plane_bytes();
    const i64 of_rows = (padded_rows() * padded_row() + kInputs) * static_cast<i64>(sizeof(bfloat16));
    return patches_bytes() + ceil_div(of_rows, kPixelBytes) * kPixelBytes;  // threads' copies are aligned
  }
};

/// Return how tiles read the source, nothing if they cannot.
std::optional<Reading> reading_of(const ConvCall& call);

Plan plan_of(const ConvCall& call, Reading reading, const Activation& activation, const Activation& after);

/// Where a block's pixels are in the result: their numbers there, -1 for those that are not stored.
using Places = std::array<i64, kPixels>;

/// Results that are computed from one copy.
struct Strip {
  const Plan& plan;
  i64 n = 0, y = 0, images = 1, rows = 1;  ///< if the source is not read in place
  i64 first;                               ///< number of the first result
  i64 count;                               ///< of results, with those between two rows

  Strip(const Plan& of, i64 index) : plan(of) {
    const Tensor& dst = plan.call.dst;
    if (plan.reading == Reading::in_place) {
      first = index * plan.blocks * kPixels, count = std::min(plan.blocks * kPixels, plan.positions() - first);
      return;
    }
    n = index / plan.parts * plan.images, y = index % plan.parts * plan.rows;
    images = std::min(plan.images, dst.n - n), rows = std::min(plan.rows, dst.h - y);
    first = (n * dst.h + y) * dst.w;
    count = (images * (rows + plan.lost) - plan.lost - 1) * plan.pitch + dst.w;
  }
  /// Return whether results between two rows are not stored.
  bool has_gaps() const { return plan.pitch != plan.call.dst.w || plan.lost != 0; }
  /// Return the last position whose block ends inside of a source that is read in place.
  i64 last_block() const { return plan.positions() - kPixels - first; }
  void set_places(i64 begin, Places& places) const {
    const Tensor& dst = plan.call.dst;
    const i64 of_image = (rows + plan.lost) * plan.pitch;
    i64 image = begin / of_image, row = begin % of_image / plan.pitch, column = begin % plan.pitch;
    for (i64& place : places) {
      const bool is_stored = image < images && row < rows && column < dst.w;
      place = is_stored ? ((n + image) * dst.h + y + row) * dst.w + column : -1;
      if (++column < plan.pitch) continue;
      column = 0;
      if (++row < rows + plan.lost) continue;
      row = 0, ++image;
    }
  }
};

/// A strip as tiles read it.
struct Source {
  const std::byte* data;
  i64 stride, of_plane;   ///< bytes from a pixel, and a plane, to the next
  i64 whole;              ///< planes of `data`
  const std::byte* rest;  ///< the plane behind them
};

/// Return a strip, or its parts that cannot be read in place, in a copy of Plan::copied_bytes() at `to`.
Source source_of(const Strip& strip, std::byte* to);

}  // namespace openmps::cpu::tiles

#endif
