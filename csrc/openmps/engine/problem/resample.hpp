// SPDX-License-Identifier: Apache-2.0
// Resizing, cropping and resizing of regions, and the adjoint; sampling at given positions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/problem/common.hpp"

namespace openmps {

/// Sample positions along an axis: result i samples position start + i * numerator / denominator, in pixels; pixel 0 is
/// at 0.
struct Positions {
  double start = 0, numerator = 1, denominator = 1;

  static constexpr auto fields() {
    using P = Positions;
    using namespace roles;
    return std::tuple(value("start", &P::start), value("numerator", &P::numerator),
                      value("denominator", &P::denominator));
  }
};

enum class ResampleType : std::uint8_t { nearest, bilinear };

/// Out-of-bounds pixels: zero, or clamped to the edge. zero_samples: a sample beyond the first or the last pixel is 0,
/// even if it is near.
enum class ResampleEdge : std::uint8_t { zero, clamp, zero_samples };

/// Image n of dst is image n / R of src, sampled through region n % R of the R regions. nearest: the pixel at the
/// position rounded down; bilinear: linear interpolation between the pixels on both sides.
struct ResampleProblem {
  struct Region {
    Positions h, w;

    static constexpr auto fields() {
      using P = Region;
      using namespace roles;
      return std::tuple(value("h", &P::h), value("w", &P::w));
    }
  };
  ImageView src, dst;
  ResampleType type = ResampleType::nearest;
  ResampleEdge edge = ResampleEdge::zero;
  std::vector<Region> regions;

  static constexpr auto fields() {
    using P = ResampleProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("type", &P::type), shape("edge", &P::edge),
                      value("regions", &P::regions));
  }
};

/// Adjoint of a ResampleProblem with one region and a source of src_h x src_w pixels: diff_src(y, x) is the sum over
/// the pixels of diff_dst, each times the weight of source pixel (first_h + y, first_w + x) in it.
struct ResampleGradientProblem {
  ImageView diff_dst, diff_src;  ///< share no memory
  std::int64_t src_h = 1, src_w = 1, first_h = 0, first_w = 0;
  ResampleType type = ResampleType::nearest;
  ResampleEdge edge = ResampleEdge::zero;
  ResampleProblem::Region region;

  static constexpr auto fields() {
    using P = ResampleGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), out("diff_src", &P::diff_src), shape("src_h", &P::src_h),
                      shape("src_w", &P::src_w), shape("first_h", &P::first_h), shape("first_w", &P::first_w),
                      shape("type", &P::type), shape("edge", &P::edge), value("region", &P::region));
  }
};

/// Result pixel (y, x) is the mean of the pixels around its position, weighted by a Lanczos window of three lobes
/// (engine/shared/lanczos.hpp). If positions are more than a pixel apart, the window is wider by that factor.
struct LanczosProblem {
  ImageView src, dst;
  ResampleEdge edge = ResampleEdge::zero;  ///< zero or clamp
  Positions h, w;                          ///< numerator / denominator > 0

  static constexpr auto fields() {
    using P = LanczosProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("edge", &P::edge), shape("h", &P::h),
                      shape("w", &P::w));
  }
};

/// Result pixel (y, x) is a sample of src, interpolated linearly. Its position is (start_h, start_w) plus channels 1
/// (rows) and 0 (columns) of the pixel of `grid` that it reads, plus (y, x) if `adds_position`. NaN is a position
/// beyond the first pixel.
struct GridSampleProblem {
  ImageView src;
  Operand grid;                            ///< two channels
  ImageView dst;                           ///< channels of src; shares no memory with the sources
  ResampleEdge edge = ResampleEdge::zero;  ///< zero or clamp
  bool adds_position = false;
  std::int64_t start_h = 0, start_w = 0;

  static constexpr auto fields() {
    using P = GridSampleProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), in("grid", &P::grid), out("dst", &P::dst), shape("edge", &P::edge),
                      shape("adds_position", &P::adds_position), shape("start_h", &P::start_h),
                      shape("start_w", &P::start_w));
  }
};

}  // namespace openmps
