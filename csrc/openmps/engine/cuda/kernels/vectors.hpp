// SPDX-License-Identifier: Apache-2.0
// Kernels whose threads compute either 16 bytes of adjacent channels or one channel, from the same text.
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

constexpr int kMostLanes = 8;  ///< values in 16 bytes

struct alignas(16) Vector {
  std::uint32_t words[4];
};

/// Return the number of channels per thread. With vectors, all images have one format, float16 or float32, and the
/// channels and strides are multiples of this number.
template <bool by_vectors>
MPSCNN_HOST_DEVICE int lanes_of(const View& view) {
  if constexpr (!by_vectors) return 1;
  return format_of(view) == Format::float16 ? 8 : 4;
}

/// Return the place of the first value of thread `index` of n x h x w x c values.
MPSCNN_HOST_DEVICE Place first_place_of(i64 index, i64 h, i64 w, i64 c, int lanes) {
  Place at = place_of(index, h, w, c / lanes);
  at.k *= lanes;
  return at;
}
MPSCNN_HOST_DEVICE Place first_place_of(i64 index, const View& view, int lanes) {
  return first_place_of(index, view.h, view.w, view.c, lanes);
}

/// Load 16 bytes as they are stored: several loads under way take few registers.
MPSCNN_HOST_DEVICE Vector load_vector(const View& view, i64 offset) {
  const i64 size = format_of(view) == Format::float16 ? 2 : 4;
  return *reinterpret_cast<const Vector*>(view.data.get() + offset * size);
}
MPSCNN_HOST_DEVICE void store_vector(const View& view, i64 offset, const Vector& vector) {
  const i64 size = format_of(view) == Format::float16 ? 2 : 4;
  *reinterpret_cast<Vector*>(view.data.get() + offset * size) = vector;
}
MPSCNN_HOST_DEVICE void unpack(const View& view, const Vector& vector, float (&values)[kMostLanes]) {
  if (format_of(view) == Format::float16) {
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = half_value(static_cast<std::uint16_t>(vector.words[i] & 0xffff));
      values[2 * i + 1] = half_value(static_cast<std::uint16_t>(vector.words[i] >> 16));
    }
  } else {
    for (int i = 0; i < 4; ++i) values[i] = std::bit_cast<float>(vector.words[i]);
  }
}

/// Return or replace one value. The GPU's compiler has to know the index, for words that are in registers.
MPSCNN_HOST_DEVICE float lane_of(const View& view, const Vector& vector, int i) {
  if (format_of(view) != Format::float16) return std::bit_cast<float>(vector.words[i]);
  return half_value(static_cast<std::uint16_t>(vector.words[i / 2] >> (i % 2 * 16) & 0xffff));
}
MPSCNN_HOST_DEVICE void set_lane(const View& view, Vector& vector, int i, float value) {
  if (format_of(view) != Format::float16) {
    vector.words[i] = std::bit_cast<std::uint32_t>(value);
    return;
  }
  std::uint32_t& word = vector.words[i / 2];
  const int shift = i % 2 * 16;
  word = (word & ~(0xffffu << shift)) | static_cast<std::uint32_t>(half_bits(value)) << shift;
}

template <bool by_vectors>
MPSCNN_HOST_DEVICE void load_lanes(const View& view, i64 offset, float (&values)[kMostLanes]) {
  if constexpr (by_vectors)
    unpack(view, load_vector(view, offset), values);
  else
    values[0] = load(format_of(view), view.data.get(), offset);
}
template <bool by_vectors>
MPSCNN_HOST_DEVICE void load_lanes(const View& view, const Place& at, float (&values)[kMostLanes]) {
  load_lanes<by_vectors>(view, view.offset(at.n, at.y, at.x, at.k), values);
}
/// As load(source, at). No axis is repeated.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void load_lanes(const Source& source, const Place& at, float (&values)[kMostLanes]) {
  i64 y = source.start_h + at.y, x = source.start_w + at.x;
  const View& view = source.view;
  if (source.edge == Edge::clamp) {
    y = y < 0 ? 0 : y >= view.h ? view.h - 1 : y;
    x = x < 0 ? 0 : x >= view.w ? view.w - 1 : x;
  } else if (y < 0 || y >= view.h || x < 0 || x >= view.w) {
    for (int i = 0; i < lanes_of<by_vectors>(view); ++i) values[i] = 0;
    return;
  }
  load_lanes<by_vectors>(view, view.offset(at.n, y, x, at.k), values);
}

template <bool by_vectors>
MPSCNN_HOST_DEVICE void store_lanes(const View& view, const Place& at, const float (&values)[kMostLanes]) {
  const i64 offset = view.offset(at.n, at.y, at.x, at.k);
  if constexpr (!by_vectors) {
    store(format_of(view), view.data.get(), offset, values[0]);
  } else if (format_of(view) == Format::float16) {
    Vector vector;
    for (int i = 0; i < 4; ++i)
      vector.words[i] = half_bits(values[2 * i]) | static_cast<std::uint32_t>(half_bits(values[2 * i + 1])) << 16;
    *reinterpret_cast<Vector*>(view.data.get() + offset * 2) = vector;
  } else {
    Vector vector;
    for (int i = 0; i < 4; ++i) vector.words[i] = std::bit_cast<std::uint32_t>(values[i]);
    *reinterpret_cast<Vector*>(view.data.get() + offset * 4) = vector;
  }
}

/// Load or store 32-bit values of each channel, from a multiple of 16 bytes on if by vectors.
template <bool by_vectors, class T>
MPSCNN_HOST_DEVICE void load_words(const Pointer<T>& from, i64 offset, int lanes, T (&values)[kMostLanes]) {
  static_assert(sizeof(T) == 4);
  if constexpr (!by_vectors) {
    values[0] = from[offset];
  } else {
    for (int i = 0; i < lanes; i += 4) {
      const Vector vector = *reinterpret_cast<const Vector*>(from.get() + offset + i);
      for (int j = 0; j < 4; ++j) values[i + j] = std::bit_cast<T>(vector.words[j]);
    }
  }
}
template <bool by_vectors, class T>
MPSCNN_HOST_DEVICE void store_words(const Pointer<T>& to, i64 offset, int lanes, const T (&values)[kMostLanes]) {
  static_assert(sizeof(T) == 4);
  if constexpr (!by_vectors) {
    to[offset] = values[0];
  } else {
    for (int i = 0; i < lanes; i += 4) {
      Vector vector;
      for (int j = 0; j < 4; ++j) vector.words[j] = std::bit_cast<std::uint32_t>(values[i + j]);
      *reinterpret_cast<Vector*>(to.get() + offset + i) = vector;
    }
  }
}

}  // namespace openmps::cuda
