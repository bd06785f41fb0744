// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/lanes.hpp"

#include <algorithm>

namespace openmps::cuda {
namespace {

/// Return whether all chunks of `lanes` channels can be moved as words.
bool is_aligned(const View& view, int lanes, bool is_flat) {
  const auto size = static_cast<i64>(size_of(view.format)), alignment = std::min<i64>(16, lanes * size);
  if (view.data.address % static_cast<std::uint64_t>(alignment)) return false;
  const auto fits = [&](i64 extent, i64 stride) { return extent == 1 || stride * size % alignment == 0; };
  return is_flat || (fits(view.n, view.n_stride) && fits(view.h, view.h_stride) && fits(view.w, view.w_stride));
}

}  // namespace

bool is_dense(const View& view) {
  return (view.w == 1 || view.w_stride == view.c) && (view.h == 1 || view.h_stride == view.w * view.c) &&
         (view.n == 1 || view.n_stride == view.h * view.w * view.c);
}

bool is_like(const Source& source, const View& dst) {
  return !source.repeat_h && !source.repeat_w && !source.repeat_c && source.start_h == 0 && source.start_w == 0 &&
         source.view.h == dst.h && source.view.w == dst.w;
}

const char* divide(const View& dst, std::initializer_list<const View*> images,
                   std::initializer_list<const Source*> sources, bool by_channel, Chunks& chunks) {
  bool is_flat = !by_channel, is_float = true;
  const auto each_image = [&](const auto& visit) {
    bool all = true;
    for (const View* view : images) all = all && (!*view || visit(*view));
    return all;
  };
  const auto each_source = [&](const auto& visit) {
    bool all = true;
    for (const Source* source : sources) all = all && (!source->view || visit(*source));
    return all;
  };
  const auto is_float32 = [](const View& view) { return view.format == Format::float32; };
  is_float = each_image(is_float32) && each_source([&](const Source& source) { return is_float32(source.view); });
  is_flat = is_flat && each_image(is_dense) &&
            each_source([&](const Source& source) { return is_like(source, dst) && is_dense(source.view); });
  chunks = {.lanes = is_float ? 4 : 8, .is_flat = is_flat, .values = dst.size()};
  if (!is_flat && dst.c % chunks.lanes) return "a number of channels that threads cannot divide";
  const auto aligned = [&](const View& view) { return is_aligned(view, chunks.lanes, is_flat); };
  if (!each_image(aligned) ||
      !each_source([&](const Source& source) { return source.repeat_c || aligned(source.view); }))
    return "values are not aligned";
  return nullptr;
}

}  // namespace openmps::cuda
