// SPDX-License-Identifier: Apache-2.0
// Textures and samplers. Reads outside of a texture return 0, and writes outside of it are dropped.
#pragma once

#include "engine/function/library/abi.hpp"
#include "engine/function/library/functions.hpp"

namespace metal {

enum class access { sample, read, write, read_write };

enum class coord { normalized, pixel };
enum class filter { nearest, linear };
enum class mag_filter { nearest, linear };
enum class min_filter { nearest, linear };
enum class mip_filter { none, nearest, linear };
#define OPENMPS_ADDRESS(name)                               \
  enum class name {                                         \
    clamp_to_edge = openmps::function_abi::kClampToEdge,    \
    clamp_to_zero = openmps::function_abi::kClampToZero,    \
    repeat = openmps::function_abi::kRepeat,                \
    mirrored_repeat = openmps::function_abi::kMirrorRepeat, \
    clamp_to_border = openmps::function_abi::kClampToBorder \
  };
OPENMPS_ADDRESS(address)
OPENMPS_ADDRESS(s_address)
OPENMPS_ADDRESS(t_address)
OPENMPS_ADDRESS(r_address)
#undef OPENMPS_ADDRESS
enum class border_color {
  transparent_black = openmps::function_abi::kTransparentBlack,
  opaque_black = openmps::function_abi::kOpaqueBlack,
  opaque_white = openmps::function_abi::kOpaqueWhite
};

struct sampler : openmps::function_abi::Sampler {
  explicit OPENMPS_INLINE sampler(const openmps::function_abi::Sampler& bound) : Sampler(bound) {}
  sampler(const sampler&) = default;
  template <class... Options>
  constexpr sampler(Options... options) : Sampler{} {
    (set(options), ...);
  }

 private:
  constexpr void set(coord value) { is_pixel = value == coord::pixel; }
  constexpr void set(filter value) { is_linear = value == filter::linear; }
  constexpr void set(mag_filter value) { is_linear = value == mag_filter::linear; }
  constexpr void set(min_filter value) { is_linear = value == min_filter::linear; }
  constexpr void set(mip_filter) {}
  constexpr void set(address value) { across = down = static_cast<unsigned char>(value); }
  constexpr void set(s_address value) { across = static_cast<unsigned char>(value); }
  constexpr void set(t_address value) { down = static_cast<unsigned char>(value); }
  constexpr void set(r_address) {}
  constexpr void set(border_color value) { border = static_cast<unsigned char>(value); }
};

struct level {
  explicit constexpr level(float) {}
};

/// Return the index of texel i of n, or -1 if the sampler takes no texel there.
OPENMPS_INLINE int openmps_texel(int mode, int i, int n) {
  switch (mode) {
    case openmps::function_abi::kMirrorClampToEdge: i = i < 0 ? -1 - i : i; [[fallthrough]];
    case openmps::function_abi::kClampToEdge: return i < 0 ? 0 : i < n ? i : n - 1;
    case openmps::function_abi::kRepeat: return (i % n + n) % n;
    case openmps::function_abi::kMirrorRepeat: {
      const int j = (i % (2 * n) + 2 * n) % (2 * n);
      return j < n ? j : 2 * n - 1 - j;
    }
    default: return i >= 0 && i < n ? i : -1;
  }
}
/// Return a float as an int, away from the limits of int; 0 for NaN.
OPENMPS_INLINE int openmps_index(float x) {
  return x > -1e9f ? x < 1e9f ? static_cast<int>(x) : 1000000000 : x == x ? -1000000000 : 0;
}

/// Texels of a bound texture as vectors of four values.
struct openmps_texels : openmps::function_abi::Texture {
  bool is_full = false;  ///< one image, and a channel in each lane

  OPENMPS_INLINE unsigned char* texel(uint x, uint y, uint slice, uint* present) const {
    uint image = 0, in_image = slice;
    if (!is_full && slice >= slices_per_image) image = slice / slices_per_image, in_image = slice % slices_per_image;
    const uint first = in_image * lanes;
    *present = is_full ? 4 : channels - first < lanes ? channels - first : lanes;
    const uint bytes = format == openmps::function_abi::kUnorm8 ? 1 : format == openmps::function_abi::kFloat32 ? 4 : 2;
    return data + image * this->image + y * row + x * pixel + first * bytes;
  }

  template <class V>
  OPENMPS_INLINE V value(const unsigned char* from, uint i) const {
    switch (format) {
      case openmps::function_abi::kFloat32: return static_cast<V>(reinterpret_cast<const float*>(from)[i]);
      case openmps::function_abi::kFloat16: return static_cast<V>(reinterpret_cast<const half*>(from)[i]);
      case openmps::function_abi::kUnorm16:
        return static_cast<V>(static_cast<float>(reinterpret_cast<const ushort*>(from)[i]) / 65535.0f);
      default: return static_cast<V>(static_cast<float>(from[i]) / 255.0f);
    }
  }
  template <class V>
  OPENMPS_INLINE void set_value(unsigned char* to, uint i, V value) const {
    switch (format) {
      case openmps::function_abi::kFloat32: reinterpret_cast<float*>(to)[i] = static_cast<float>(value); break;
      case openmps::function_abi::kFloat16: reinterpret_cast<half*>(to)[i] = static_cast<half>(value); break;
      case openmps::function_abi::kUnorm16:
        reinterpret_cast<ushort*>(to)[i] = static_cast<ushort>(unorm(static_cast<float>(value), 65535.0f));
        break;
      default: to[i] = static_cast<uchar>(unorm(static_cast<float>(value), 255.0f));
    }
  }
  /// Round to nearest even; NaN is 0.
  OPENMPS_INLINE static uint unorm(float value, float max) {
    float t = value > 0.0f ? value : 0.0f;
    t = t < 1.0f ? t : 1.0f;
    return as_type<uint>(t * max + 8388608.0f) & 0xffffu;
  }

  template <class V>
  static constexpr int kOwnFormat = is_same_v<V, float>  ? openmps::function_abi::kFloat32
                                    : is_same_v<V, half> ? openmps::function_abi::kFloat16
                                                         : openmps::function_abi::kAnyFormat;
  template <class V>
  OPENMPS_INLINE vec<V, 4> values(const unsigned char* from) const {
    if (!OPENMPS_ON_GPU && format == kOwnFormat<V>) {  // there, bytes of unknown alignment are copied one by one
      vec<V, 4> result;
      OPENMPS_COPY(&result, from, sizeof(result));
      return result;
    }
    if constexpr (OPENMPS_CONVERTS_FOUR && is_same_v<V, float>)
      if (format == openmps::function_abi::kFloat16) return openmps_floats_of(from);
    return vec<V, 4>(value<V>(from, 0), value<V>(from, 1), value<V>(from, 2), value<V>(from, 3));
  }
  template <class V>
  OPENMPS_INLINE void set_values(unsigned char* to, const vec<V, 4>& color) const {
    if (!OPENMPS_ON_GPU && format == kOwnFormat<V>) {
      OPENMPS_COPY(to, &color, sizeof(color));
      return;
    }
    if constexpr (OPENMPS_CONVERTS_FOUR && is_same_v<V, float>)
      if (format == openmps::function_abi::kFloat16) return openmps_store_halves(to, color);
    for (uint i = 0; i < 4; ++i) set_value(to, i, color[i]);
  }

  template <class V>
  OPENMPS_INLINE vec<V, 4> load(uint x, uint y, uint slice) const {
    if (x >= width || y >= height || slice >= slices) return vec<V, 4>(V(0));
    uint present;
    const unsigned char* const from = texel(x, y, slice, &present);
    if (present == 4) return values<V>(from);
    // Lanes that the format lacks are (0, 0, 0, 1), lanes that have no channel 0.
    vec<V, 4> result(V(0));
    for (uint i = 0; i < present; ++i) result[i] = value<V>(from, i);
    if (lanes < 4) result.w = V(1);
    return result;
  }
  template <class V>
  OPENMPS_INLINE void store(const vec<V, 4>& color, uint x, uint y, uint slice) const {
    if (x >= width || y >= height || slice >= slices) return;
    uint present;
    unsigned char* const to = texel(x, y, slice, &present);
    if (present == 4) {
      set_values(to, color);
    } else {
      for (uint i = 0; i < present; ++i) set_value(to, i, color[i]);
    }
  }

  template <class V>
  OPENMPS_INLINE vec<V, 4> load_by(const sampler& s, int x, int y, uint slice) const {
    const int i = openmps_texel(s.across, x, static_cast<int>(width)),
              j = openmps_texel(s.down, y, static_cast<int>(height));
    if (i >= 0 && j >= 0) return load<V>(static_cast<uint>(i), static_cast<uint>(j), slice);
    const bool has_border = (i < 0 ? s.across : s.down) == openmps::function_abi::kClampToBorder;
    const int border = has_border ? s.border : openmps::function_abi::kTransparentBlack;
    vec<V, 4> color(V(border == openmps::function_abi::kOpaqueWhite));
    if (border == openmps::function_abi::kOpaqueBlack) color.w = V(1);
    return color;
  }
  template <class V>
  OPENMPS_INLINE vec<V, 4> take(const sampler& s, float x, float y, uint slice) const {
    if (slice >= slices) slice = slices - 1;
    if (!s.is_pixel) x *= static_cast<float>(width), y *= static_cast<float>(height);
    if (!s.is_linear)
      return load_by<V>(s, openmps_index(OPENMPS_MATH(floorf)(x)), openmps_index(OPENMPS_MATH(floorf)(y)), slice);
    const float left = OPENMPS_MATH(floorf)(x - 0.5f), top = OPENMPS_MATH(floorf)(y - 0.5f);
    const float u = x - 0.5f - left, v = y - 0.5f - top;
    const int i = openmps_index(left), j = openmps_index(top);
    const float4 upper = load_by<float>(s, i, j, slice) * (1.0f - u) + load_by<float>(s, i + 1, j, slice) * u;
    const float4 lower = load_by<float>(s, i, j + 1, slice) * (1.0f - u) + load_by<float>(s, i + 1, j + 1, slice) * u;
    return vec<V, 4>(upper * (1.0f - v) + lower * v);
  }
};

template <class T, access kAccess>
struct openmps_texture : openmps_texels {
  static constexpr bool kReads = kAccess != access::write;
  static constexpr bool kWrites = kAccess == access::write || kAccess == access::read_write;

  OPENMPS_INLINE uint get_width(uint = 0) const { return width; }
  OPENMPS_INLINE uint get_height(uint = 0) const { return height; }
  OPENMPS_INLINE uint get_num_mip_levels() const { return 1; }
  OPENMPS_INLINE void fence() const {}
};

template <class T, access kAccess = access::sample>
struct texture2d : openmps_texture<T, kAccess> {
  using Base = openmps_texture<T, kAccess>;
  template <class C>
  OPENMPS_INLINE vec<T, 4> read(const vec<C, 2>& at, uint = 0) const {
    static_assert(Base::kReads, "read() of a texture with access::write");
    return this->template load<T>(static_cast<uint>(at.x), static_cast<uint>(at.y), 0);
  }
  template <class C>
  OPENMPS_INLINE void write(const vec<T, 4>& color, const vec<C, 2>& at, uint = 0) const {
    static_assert(Base::kWrites, "write() to a texture without access::write or access::read_write");
    this->template store<T>(color, static_cast<uint>(at.x), static_cast<uint>(at.y), 0);
  }
  OPENMPS_INLINE vec<T, 4> sample(const sampler& s, float2 at) const {
    static_assert(kAccess == access::sample, "sample() of a texture without access::sample");
    return this->template take<T>(s, at.x, at.y, 0);
  }
  OPENMPS_INLINE vec<T, 4> sample(const sampler& s, float2 at, level) const { return sample(s, at); }
};

template <class T, access kAccess = access::sample>
struct texture2d_array : openmps_texture<T, kAccess> {
  using Base = openmps_texture<T, kAccess>;
  OPENMPS_INLINE uint get_array_size() const { return this->slices; }
  template <class C>
  OPENMPS_INLINE vec<T, 4> read(const vec<C, 2>& at, uint slice, uint = 0) const {
    static_assert(Base::kReads, "read() of a texture with access::write");
    return this->template load<T>(static_cast<uint>(at.x), static_cast<uint>(at.y), slice);
  }
  template <class C>
  OPENMPS_INLINE void write(const vec<T, 4>& color, const vec<C, 2>& at, uint slice, uint = 0) const {
    static_assert(Base::kWrites, "write() to a texture without access::write or access::read_write");
    this->template store<T>(color, static_cast<uint>(at.x), static_cast<uint>(at.y), slice);
  }
  OPENMPS_INLINE vec<T, 4> sample(const sampler& s, float2 at, uint slice) const {
    static_assert(kAccess == access::sample, "sample() of a texture without access::sample");
    return this->template take<T>(s, at.x, at.y, slice);
  }
  OPENMPS_INLINE vec<T, 4> sample(const sampler& s, float2 at, uint slice, level) const { return sample(s, at, slice); }
};

template <class T, access kAccess>
OPENMPS_INLINE bool is_null_texture(const openmps_texture<T, kAccess>& texture) {
  return texture.data == nullptr;
}

}  // namespace metal
