// SPDX-License-Identifier: Apache-2.0
// Copies, fills and host tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/problem/element_type.hpp"
#include "engine/problem/fields.hpp"

namespace openmps {

/// dst = src, same extents, formats may differ (converted through float, rounded to nearest even once, unorm clamped to
/// [0, 1]).
struct CopyProblem {
  ImageView src, dst;

  static constexpr auto fields() {
    using P = CopyProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst));
  }
};

/// Copy of bytes between buffers; both may be the same block if the ranges do not overlap.
struct BufferCopyProblem {
  std::shared_ptr<Memory> src, dst;
  std::size_t src_offset = 0, dst_offset = 0, bytes = 0;

  static constexpr auto fields() {
    using P = BufferCopyProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("src_offset", &P::src_offset),
                      shape("dst_offset", &P::dst_offset), shape("bytes", &P::bytes));
  }
};

struct BufferFillProblem {
  std::shared_ptr<Memory> dst;
  std::size_t offset = 0, bytes = 0;
  std::uint8_t value = 0;

  static constexpr auto fields() {
    using P = BufferFillProblem;
    using namespace roles;
    return std::tuple(out("dst", &P::dst), shape("offset", &P::offset), shape("bytes", &P::bytes),
                      roles::value("value", &P::value));
  }
};

/// Pixels as bytes; strides in bytes.
struct PixelRows {
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0, pixel_stride = 0, row_stride = 0;

  static constexpr auto fields() {
    using P = PixelRows;
    using namespace roles;
    return std::tuple(inout("memory", &P::memory), shape("offset", &P::offset), shape("pixel_stride", &P::pixel_stride),
                      shape("row_stride", &P::row_stride));
  }
};

/// Copy of the first `bytes` of each of h x w pixels; the next `zeros` bytes of dst become 0. No two pixels overlap.
struct PixelCopyProblem {
  PixelRows src, dst;
  std::int64_t h = 1, w = 1;
  std::size_t bytes = 0, zeros = 0;

  static constexpr auto fields() {
    using P = PixelCopyProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("h", &P::h), shape("w", &P::w),
                      shape("bytes", &P::bytes), shape("zeros", &P::zeros));
  }
};

/// An axis of a strided copy. Strides in bytes: negative ones are allowed, and 0 in the source.
struct CopyAxis {
  std::int64_t length = 1, src_stride = 0, dst_stride = 0;

  static constexpr auto fields() {
    using P = CopyAxis;
    using namespace roles;
    return std::tuple(shape("length", &P::length), shape("src_stride", &P::src_stride),
                      shape("dst_stride", &P::dst_stride));
  }
};

/// Copy of the elements of an array; the offsets are those of the element with all indices 0. No two elements of dst
/// overlap, and none overlaps src. Types are converted: integers to integers keep their low bits; real numbers to
/// integers are truncated and clamped, with NaN as 0; unorm numbers are clamped to [0, 1] and rounded to nearest even;
/// booleans are true for values other than 0; others are rounded to nearest even.
struct StridedCopyProblem {
  std::shared_ptr<Memory> src, dst;
  std::size_t src_offset = 0, dst_offset = 0;  ///< bytes
  ElementType src_type = ElementType::float32, dst_type = ElementType::float32;
  std::vector<CopyAxis> axes;  ///< in any order; none: one element

  static constexpr auto fields() {
    using P = StridedCopyProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), shape("src_offset", &P::src_offset),
                      shape("dst_offset", &P::dst_offset), shape("src_type", &P::src_type),
                      shape("dst_type", &P::dst_type), shape("axes", &P::axes));
  }
};

/// Host work at this point of the command buffer: events, and work too small for a problem of its own. May throw
/// std::bad_alloc.
struct HostTask {
  std::function<void()> run;
  /// Alternative to run() that an engine does in the order of its work, without the host; returns false if it cannot.
  std::function<bool(Engine&)> run_on = {};
};

}  // namespace openmps
