// SPDX-License-Identifier: Apache-2.0
#include "mps/TexelConversion.hpp"

#include <algorithm>
#include <new>

#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps {
namespace {

constexpr std::int64_t kChunk = 64;  ///< texels on the stack
constexpr std::int64_t kGrain = 1 << 14;

void convert(const TexelConversion& conversion, const float* src, float* dst) {
  const bool has_alpha = conversion.src_alpha != Alpha::one;
  const float a = has_alpha ? src[3] : 1;
  for (int k = 0; k < 3; ++k) {
    float c = src[k];
    if (conversion.src_alpha == Alpha::premultiplied) {
      if (conversion.dst_alpha == Alpha::non_premultiplied) c = a == 0 ? 0 : c / a;
    } else if (conversion.dst_alpha != Alpha::non_premultiplied) {
      c *= a;
    }
    if (conversion.dst_alpha == Alpha::one) c += conversion.background[static_cast<std::size_t>(k)] * (1 - a);
    dst[k] = c;
  }
  dst[3] = conversion.dst_alpha == Alpha::one ? 1 : a;
}

}  // namespace

void convert_texels(const TexelConversion& conversion) {
  const HostAccess from(conversion.src.memory, HostAccess::Mode::read);
  const HostAccess to(conversion.dst.memory, HostAccess::Mode::update);
  if (!from.data() || !to.data()) throw std::bad_alloc();
  const Tensor src = tensor_of(conversion.src, from.data()), dst = tensor_of(conversion.dst, to.data());
  const auto inside = [](std::int64_t position, std::int64_t size) { return position >= 0 && position < size; };
  parallel_ranges(dst.n * dst.h, threads_for(dst.n * dst.h * dst.w, kGrain),
                  [&](std::int64_t first, std::int64_t last) {
                    float given[4], made[kChunk * 4];
                    for (std::int64_t row = first; row < last; ++row) {
                      const std::int64_t n = row / dst.h, y = row % dst.h;
                      for (std::int64_t begin = 0; begin < dst.w; begin += kChunk) {
                        const std::int64_t end = std::min(begin + kChunk, dst.w);
                        for (std::int64_t x = begin; x < end; ++x) {
                          std::int64_t from_h = conversion.start_h + y, from_w = conversion.start_w + x;
                          std::fill(given, given + 4, 0.0f);
                          if (conversion.edge == Edge::clamp) {
                            from_h = std::clamp<std::int64_t>(from_h, 0, src.h - 1);
                            from_w = std::clamp<std::int64_t>(from_w, 0, src.w - 1);
                          }
                          if (src.c < 4) given[3] = 1;
                          if (inside(from_h, src.h) && inside(from_w, src.w))
                            row_to_float(src.at(n, from_h, from_w), src.format, given, src.c);
                          float texel[4];
                          convert(conversion, given, texel);
                          std::copy(texel, texel + dst.c, made + (x - begin) * dst.c);
                        }
                        if (dst.w_stride == dst.c) {
                          row_from_float(made, dst.at(n, y, begin), dst.format, (end - begin) * dst.c);
                        } else {
                          for (std::int64_t x = begin; x < end; ++x)
                            row_from_float(made + (x - begin) * dst.c, dst.at(n, y, x), dst.format, dst.c);
                        }
                      }
                    }
                  });
}

}  // namespace openmps
