// SPDX-License-Identifier: Apache-2.0
// Loads of memory that no thread changes while the kernel runs: weights and sources.
#pragma once

#include "engine/cuda/kernels/device.hpp"

#if !MPSCNN_ON_GPU
#include <bit>
#endif

namespace openmps::cuda {

/// 4, 8 or 16 bytes that one instruction loads.
template <int kWords>
struct alignas(4 * kWords) Bits {
  std::uint32_t words[kWords];
};
using Halves8 = Bits<4>;  ///< 8 adjacent values of float16

/// Load words from an aligned address, or zeros. All threads of a warp compute on without branching.
template <int kWords>
MPSCNN_HOST_DEVICE Bits<kWords> load_constant(const void* from, bool is_inside = true) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
#if MPSCNN_ON_GPU
  Bits<kWords> r;
  const auto inside = static_cast<std::uint32_t>(is_inside);
  if constexpr (kWords == 4) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\tmov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\tmov.u32 %2, 0;\n\t"
        "mov.u32 %3, 0;\n\t@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=&r"(r.words[0]), "=&r"(r.words[1]), "=&r"(r.words[2]), "=&r"(r.words[3])
        : "l"(from), "r"(inside));
  } else if constexpr (kWords == 2) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\tmov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
        "@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n\t}"
        : "=&r"(r.words[0]), "=&r"(r.words[1])
        : "l"(from), "r"(inside));
  } else {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\tmov.u32 %0, 0;\n\t@p ld.global.nc.u32 %0, [%1];\n\t}"
        : "=&r"(r.words[0])
        : "l"(from), "r"(inside));
  }
  return r;
#else
  if (!is_inside) return {};
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Bits<kWords>)) __builtin_trap();  // like a GPU
  return *static_cast<const Bits<kWords>*>(from);
#endif
}

/// Return value `i` of words of float16.
template <int kWords>
MPSCNN_HOST_DEVICE float half_of(const Bits<kWords>& bits, int i) {
  return half_value(static_cast<std::uint16_t>(bits.words[i / 2] >> (i % 2 * 16)));
}
/// Return two values as a word of float16.
MPSCNN_HOST_DEVICE std::uint32_t half_pair(float low, float high) {
#if MPSCNN_ON_GPU && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return half_bits(low) | static_cast<std::uint32_t>(half_bits(high)) << 16;
#endif
}

/// Return the max of each half of two words; NaN is greater than any number.
MPSCNN_HOST_DEVICE std::uint32_t max_of_halves(std::uint32_t a, std::uint32_t b) {
#if MPSCNN_ON_GPU && __CUDA_ARCH__ >= 800
  std::uint32_t result;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  const auto one = [](std::uint32_t x, std::uint32_t y) {
    const float v = half_value(static_cast<std::uint16_t>(x)), w = half_value(static_cast<std::uint16_t>(y));
    return v > w || v != v ? x : y;
  };
  return one(a & 0xffff, b & 0xffff) | one(a >> 16, b >> 16) << 16;
#endif
}

/// Whether Clip computes an activation.
MPSCNN_HOST_DEVICE bool is_clip(NeuronType type, float a) {
  return type == NeuronType::none || ((type == NeuronType::relu || type == NeuronType::relun) && a == 0);
}

/// None, ReLU and ReLUN without slopes: two instructions, for kernels whose registers have no room for all formulas.
struct Clip {
  float min, max;

  MPSCNN_HOST_DEVICE explicit Clip(const Activation& f)
      : min(f.type == NeuronType::none ? -std::numeric_limits<float>::infinity() : 0.0f),
        max(f.type == NeuronType::relun ? f.b : std::numeric_limits<float>::infinity()) {}
  /// NaN stays NaN.
  MPSCNN_HOST_DEVICE float operator()(float x) const {
#if MPSCNN_ON_GPU && __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(min));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(max));
    return x;
#else
    const float t = x < min ? min : x;
    return t > max ? max : t;
#endif
  }
};

}  // namespace openmps::cuda
