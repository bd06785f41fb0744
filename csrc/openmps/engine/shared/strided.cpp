// SPDX-License-Identifier: Apache-2.0
// The axis whose elements are closest together in dst is the innermost loop; with the one that is closest together in
// src it makes tiles, so that transposes use whole lines of the cache.
#include "engine/shared/strided.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/shared/elements.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps {
namespace {

constexpr std::int64_t kTile = 32;                      ///< elements along both axes of a tile
constexpr std::int64_t kGrain = std::int64_t{1} << 15;  ///< elements per thread

/// Copy of `count` elements in a row.
using CopyRow = void (*)(const std::byte* src, std::int64_t src_stride, std::byte* dst, std::int64_t dst_stride,
                         std::int64_t count);

/// How elements are stored; `Value` is an integer, bool, or float for all real numbers.
template <class T>
struct Plain {
  using Value = T;
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  static void store(std::byte* to, T value) { std::memcpy(to, &value, sizeof(T)); }
};
struct Boolean {
  using Value = bool;
  static bool load(const std::byte* from) { return *from != std::byte{0}; }
  static void store(std::byte* to, bool value) { *to = std::byte{value}; }
};
template <class T>
struct Unorm {
  using Value = float;
  static constexpr float kMax = std::numeric_limits<T>::max();
  static float load(const std::byte* from) { return unorm_to_float(Plain<T>::load(from), kMax); }
  static void store(std::byte* to, float value) { Plain<T>::store(to, static_cast<T>(float_to_unorm(value, kMax))); }
};
struct Half {
  using Value = float;
  static float load(const std::byte* from) { return half_to_float(Plain<std::uint16_t>::load(from)); }
  static void store(std::byte* to, float value) { Plain<std::uint16_t>::store(to, float_to_half(value)); }
};
struct BFloat {
  using Value = float;
  static float load(const std::byte* from) { return bfloat_to_float(Plain<std::uint16_t>::load(from)); }
  static void store(std::byte* to, float value) { Plain<std::uint16_t>::store(to, float_to_bfloat(value)); }
};

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return float_to_integer(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void convert_row(const std::byte* src, std::int64_t src_stride, std::byte* dst, std::int64_t dst_stride,
                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, src += src_stride, dst += dst_stride)
    To::store(dst, converted<typename To::Value>(From::load(src)));
}

/// Storage of the types before the complex ones, in the order of ElementType.
using Stored = std::tuple<Plain<std::uint8_t>, Plain<std::uint16_t>, Plain<std::uint32_t>, Plain<std::uint64_t>,
                          Plain<std::int8_t>, Plain<std::int16_t>, Plain<std::int32_t>, Plain<std::int64_t>, Boolean,
                          Unorm<std::uint8_t>, Unorm<std::uint16_t>, Half, BFloat, Plain<float>>;
constexpr std::size_t kConverted = std::tuple_size_v<Stored>;

template <std::size_t... I>
constexpr std::array<CopyRow, sizeof...(I)> conversions(std::index_sequence<I...>) {
  return {convert_row<std::tuple_element_t<I / kConverted, Stored>, std::tuple_element_t<I % kConverted, Stored>>...};
}
constexpr auto kConversions = conversions(std::make_index_sequence<kConverted * kConverted>{});

template <class T>
void copy_row(const std::byte* src, std::int64_t src_stride, std::byte* dst, std::int64_t dst_stride,
              std::int64_t count) {
  if (src_stride == sizeof(T) && dst_stride == sizeof(T)) {
    std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(dst + i * dst_stride, src + i * src_stride, sizeof(T));
}

CopyRow row_of(ElementType src, ElementType dst) {
  if (src != dst) return kConversions[static_cast<std::size_t>(src) * kConverted + static_cast<std::size_t>(dst)];
  switch (size_of(src)) {
    case 1: return copy_row<std::uint8_t>;
    case 2: return copy_row<std::uint16_t>;
    case 4: return copy_row<std::uint32_t>;
    default: return copy_row<std::uint64_t>;
  }
}

}  // namespace

std::vector<CopyAxis> merged_axes(std::vector<CopyAxis> axes) {
  std::erase_if(axes, [](const CopyAxis& axis) { return axis.length == 1; });
  std::ranges::sort(axes, {}, [](const CopyAxis& axis) { return std::abs(axis.dst_stride); });
  std::vector<CopyAxis> found;
  for (const CopyAxis& axis : axes) {
    if (!found.empty() && axis.src_stride == found.back().length * found.back().src_stride &&
        axis.dst_stride == found.back().length * found.back().dst_stride)
      found.back().length *= axis.length;
    else
      found.push_back(axis);
  }
  return found;
}

void copy_strided(std::byte* dst, ElementType dst_type, const std::byte* src, ElementType src_type,
                  std::vector<CopyAxis> given) {
  auto axes = merged_axes(std::move(given));
  if (axes.empty()) axes.emplace_back();
  // The innermost axis first, then the other one of the tiles.
  const auto closest =
      std::ranges::min_element(axes, {}, [](const CopyAxis& axis) { return std::abs(axis.src_stride); });
  if (closest - axes.begin() > 1) std::rotate(axes.begin() + 1, closest, closest + 1);
  const bool in_tiles = closest != axes.begin();
  const CopyAxis inner = axes[0], second = axes.size() > 1 ? axes[1] : CopyAxis{};
  const std::span<const CopyAxis> outer = std::span(axes).subspan(std::min<std::size_t>(2, axes.size()));
  const std::int64_t run = in_tiles ? std::min(kTile, inner.length) : inner.length;
  const std::int64_t height = in_tiles ? kTile : 1;  // of a tile
  const std::int64_t across = (inner.length + run - 1) / run, down = (second.length + height - 1) / height;
  std::int64_t tiles = across * down;
  for (const CopyAxis& axis : outer) tiles *= axis.length;
  const CopyRow row = row_of(src_type, dst_type);
  parallel_ranges(tiles, threads_for(tiles * run * height, kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t x = tile % across * run, y = tile / across % down * height;
      std::int64_t rest = tile / across / down;
      const std::byte* from = src + x * inner.src_stride + y * second.src_stride;
      std::byte* to = dst + x * inner.dst_stride + y * second.dst_stride;
      for (const CopyAxis& axis : outer) {
        from += rest % axis.length * axis.src_stride;
        to += rest % axis.length * axis.dst_stride;
        rest /= axis.length;
      }
      const std::int64_t count = std::min(run, inner.length - x), rows = std::min(height, second.length - y);
      for (std::int64_t i = 0; i < rows; ++i, from += second.src_stride, to += second.dst_stride)
        row(from, inner.src_stride, to, inner.dst_stride, count);
    }
  });
}

void copy_strided(const StridedCopyProblem& problem) {
  copy_strided(problem.dst->data() + problem.dst_offset, problem.dst_type, problem.src->data() + problem.src_offset,
               problem.src_type, problem.axes);
}

}  // namespace openmps
