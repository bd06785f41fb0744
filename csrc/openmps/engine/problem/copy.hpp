// SPDX-License-Identifier: Apache-2.0
// Copies, fills and work of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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

/// Bytes of one buffer to another (may be the same block when the ranges do not overlap).
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

/// Anything that has to happen at this place of the command buffer on the host: events, and work that is
/// not worth an entry of its own. Must not throw.
struct HostTask {
  std::function<void()> run;
};

}  // namespace openmps
