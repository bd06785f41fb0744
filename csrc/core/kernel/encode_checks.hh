// SPDX-License-Identifier: Apache-2.0
// Checks before every encode, where MPS would abort; `name` is the kernel's.
#pragma once

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/image.hpp>

#include "core/device/device_impl.hh"
#include "core/kernel/params.hpp"

namespace mpscnn {

inline void check_open(const CommandBuffer &buffer, const Device &device, const char *name) {
  check_same_device(*buffer.device(), device, name);
  check<std::runtime_error>(buffer.status() < CommandBufferStatus::committed, name,
                            ": the command buffer has been committed already; its status is ", name_of(buffer.status()),
                            ".");
}

inline void check_source(const Image &image, const Device &device, const char *name) {
  check_same_device(*image.device(), device, "x");
  check<std::runtime_error>(!image.is_temporary() || image.read_count() > 0, name,
                            ": x is a temporary image whose read_count is 0: its last read has been encoded.");
}

/// Throw unless a clip_rect lies within the destination.
inline void check_inside(std::string_view name, const Region3 &clip, ImageShape out) {
  const auto inside = [&](std::int64_t start, std::int64_t extent, std::int64_t size, const char *axis) {
    check(start + extent <= size, name, ": clip_rect reaches ", start + extent, " along the ", axis, " of out (", size,
          ").");
  };
  inside(clip.origin.y, clip.height, out.h, "height");
  inside(clip.origin.x, clip.width, out.w, "width");
  inside(clip.origin.image, clip.images, out.n, "images");
}

inline void check_target(const Image &image, const Device &device, const char *name) {
  check_same_device(*image.device(), device, "out");
  check<std::runtime_error>(!image.is_temporary() || image.read_count() > 0, name,
                            ": out is a temporary image whose read_count is 0.");
  check(!image.impl().shared || !image.impl().shared->read_only, name, ": out is read-only.");
}

}  // namespace mpscnn
