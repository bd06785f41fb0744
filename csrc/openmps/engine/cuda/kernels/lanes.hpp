// SPDX-License-Identifier: Apache-2.0
// For kernels whose threads compute several adjacent values each, with loads and stores of up to 16 bytes.
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

constexpr int kMaxLanes = 8;

/// Adjacent values of one thread.
struct Lanes {
  float v[kMaxLanes];
};

/// How the values of a result are divided among threads.
struct Chunks {
  int lanes = kMaxLanes;  ///< values per thread: 4 if all images are float32, else 8
  bool is_flat = false;   ///< images have the same extents and no gaps: chunks are counted through all values
  i64 values = 0;         ///< of the result
};

/// Return chunks.lanes, a constant on GPUs.
MPSCNN_HOST_DEVICE int lanes_of(const Chunks& chunks) {
#if !MPSCNN_ON_GPU
  return chunks.lanes;
#elif defined(MPSCNN_FORMAT)
  return static_cast<Format>(MPSCNN_FORMAT) == Format::float32 ? 4 : 8;
#else
  return 8;
#endif
}

/// The first value of a thread, and how many it computes: all lanes, or less at the end of flat images.
struct Chunk {
  Place at;
  int count;
};

/// Return chunk `index`. Of flat images, all values are channels of one pixel.
MPSCNN_HOST_DEVICE Chunk chunk_of(i64 index, const Chunks& chunks, const View& dst) {
  const int lanes = lanes_of(chunks);
  if (chunks.is_flat) {
    const i64 first = index * lanes, rest = chunks.values - first;
    return {{0, 0, 0, first}, rest < lanes ? static_cast<int>(rest) : lanes};
  }
  Place at = place_of(index, dst.h, dst.w, dst.c / lanes);
  at.k *= lanes;
  return {at, lanes};
}

/// Words that one instruction moves; aligned to their size.
template <int bytes>
struct alignas(bytes) Words {
  std::uint32_t word[bytes / 4];
};
template <>
struct Words<2> {
  std::uint16_t word;
};
template <>
struct Words<1> {
  std::uint8_t word;
};

template <int bytes>
MPSCNN_HOST_DEVICE Words<bytes> load_words(const unsigned char* from) {
#if MPSCNN_ON_GPU
  return *reinterpret_cast<const Words<bytes>*>(from);
#else
  if (reinterpret_cast<std::uintptr_t>(from) % bytes) __builtin_trap();  // like a GPU
  Words<bytes> words;
  __builtin_memcpy(&words, from, bytes);
  return words;
#endif
}
template <int bytes>
MPSCNN_HOST_DEVICE void store_words(unsigned char* to, const Words<bytes>& words) {
#if MPSCNN_ON_GPU
  *reinterpret_cast<Words<bytes>*>(to) = words;
#else
  if (reinterpret_cast<std::uintptr_t>(to) % bytes) __builtin_trap();
  __builtin_memcpy(to, &words, bytes);
#endif
}

/// Four adjacent pixels of three unorm8 channels, aligned to 4 bytes.
struct FourPixelsOfBytes {
  std::uint32_t word[3];
  MPSCNN_HOST_DEVICE explicit FourPixelsOfBytes(const unsigned char* from) {
    for (int i = 0; i < 3; ++i) word[i] = load_words<4>(from + 4 * i).word[0];
  }
  /// Return value `i` of 12.
  MPSCNN_HOST_DEVICE float value(int i) const { return unorm_to_float((word[i / 4] >> (i % 4 * 8)) & 0xffu, 255.0f); }
};

MPSCNN_HOST_DEVICE Lanes all_lanes(float value) {
  Lanes result;
  for (int i = 0; i < kMaxLanes; ++i) result.v[i] = value;
  return result;
}

/// Return `lanes` values from `offset` on, the first of which is aligned to 16 bytes, or 8 for unorm8.
MPSCNN_HOST_DEVICE Lanes load_lanes(Format format, const unsigned char* data, i64 offset, int lanes) {
  Lanes result = all_lanes(0);
  if (format == Format::float32) {
    for (int i = 0; i < lanes; i += 4) {
      const auto words = load_words<16>(data + (offset + i) * 4);
      for (int j = 0; j < 4; ++j) result.v[i + j] = std::bit_cast<float>(words.word[j]);
    }
  } else if (format == Format::unorm8) {
    const auto words = load_words<8>(data + offset);
    for (int i = 0; i < 8; ++i) result.v[i] = unorm_to_float((words.word[i / 4] >> (i % 4 * 8)) & 0xffu, 255.0f);
  } else {
    const auto words = load_words<16>(data + offset * 2);
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t bits = (words.word[i / 2] >> (i % 2 * 16)) & 0xffffu;
      result.v[i] =
          format == Format::float16 ? half_value(static_cast<std::uint16_t>(bits)) : unorm_to_float(bits, 65535.0f);
    }
  }
  return result;
}

MPSCNN_HOST_DEVICE void store_lanes(Format format, unsigned char* data, i64 offset, int lanes, const Lanes& values) {
  if (format == Format::float32) {
    for (int i = 0; i < lanes; i += 4) {
      Words<16> words;
      for (int j = 0; j < 4; ++j) words.word[j] = std::bit_cast<std::uint32_t>(values.v[i + j]);
      store_words(data + (offset + i) * 4, words);
    }
  } else if (format == Format::unorm8) {
    Words<8> words = {};
    for (int i = 0; i < 8; ++i) words.word[i / 4] |= float_to_unorm(values.v[i], 255.0f) << (i % 4 * 8);
    store_words(data + offset, words);
  } else {
    Words<16> words = {};
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t bits =
          format == Format::float16 ? half_bits(values.v[i]) : float_to_unorm(values.v[i], 65535.0f);
      words.word[i / 2] |= bits << (i % 2 * 16);
    }
    store_words(data + offset * 2, words);
  }
}

MPSCNN_HOST_DEVICE Lanes load_lanes(Format format, const unsigned char* data, i64 offset, const Chunk& chunk,
                                    int lanes) {
  if (chunk.count == lanes) return load_lanes(format, data, offset, lanes);
  Lanes result = all_lanes(0);
  for (int i = 0; i < kMaxLanes; ++i)
    if (i < chunk.count) result.v[i] = load(format, data, offset + i);
  return result;
}
MPSCNN_HOST_DEVICE Lanes load_lanes(const View& view, const Chunk& chunk, int lanes) {
  const Place& at = chunk.at;
  return load_lanes(format_of(view), view.data.get(), view.offset(at.n, at.y, at.x, at.k), chunk, lanes);
}
MPSCNN_HOST_DEVICE void store_lanes(const View& view, const Chunk& chunk, int lanes, const Lanes& values) {
  const Place& at = chunk.at;
  const i64 offset = view.offset(at.n, at.y, at.x, at.k);
  if (chunk.count == lanes) return store_lanes(format_of(view), view.data.get(), offset, lanes, values);
  for (int i = 0; i < kMaxLanes; ++i)
    if (i < chunk.count) store(format_of(view), view.data.get(), offset + i, values.v[i]);
}

/// Return the values that a chunk of the result reads.
MPSCNN_HOST_DEVICE Lanes load_lanes(const Source& source, const Chunk& chunk, int lanes) {
  if (source.repeat_c) return all_lanes(load(source, chunk.at));
  const View& view = source.view;
  const Place& at = chunk.at;
  i64 y = source.start_h + (source.repeat_h ? 0 : at.y), x = source.start_w + (source.repeat_w ? 0 : at.x);
  if (source.edge == Edge::clamp) {
    y = y < 0 ? 0 : y >= view.h ? view.h - 1 : y;
    x = x < 0 ? 0 : x >= view.w ? view.w - 1 : x;
  } else if (y < 0 || y >= view.h || x < 0 || x >= view.w) {
    return all_lanes(0);
  }
  return load_lanes(format_of(view), view.data.get(), view.offset(at.n, y, x, at.k), chunk, lanes);
}

}  // namespace openmps::cuda
