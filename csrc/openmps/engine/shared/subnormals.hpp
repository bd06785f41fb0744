// SPDX-License-Identifier: Apache-2.0
// Subnormal numbers: those smaller than the smallest normal one, 1.2e-38 in float32. On Intel's processors each vector
// with one takes some 150 cycles longer, and a swish of large negative numbers makes many.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace openmps {

#if defined(__x86_64__)
using FloatControl = std::uint32_t;
constexpr FloatControl kZeroForSubnormals = 0x8040;  // results (bit 15) and operands (bit 6) [Intel SDM, 10.2.3]
inline FloatControl float_control() noexcept { return _mm_getcsr(); }
inline void set_float_control(FloatControl value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
using FloatControl = std::uint64_t;
constexpr FloatControl kZeroForSubnormals = std::uint64_t{1} << 24;  // FZ [Arm ARM, FPCR]
inline FloatControl float_control() noexcept {
  FloatControl value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
inline void set_float_control(FloatControl value) noexcept { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
using FloatControl = std::uint32_t;
constexpr FloatControl kZeroForSubnormals = 0;
inline FloatControl float_control() noexcept { return 0; }
inline void set_float_control(FloatControl) noexcept {}
#endif

/// Takes subnormal operands and results of the calling thread, and of teams that it begins, as zeros while this lives.
class ZeroSubnormals {
 public:
  ZeroSubnormals() noexcept : before_(float_control()) { set_float_control(before_ | kZeroForSubnormals); }
  ~ZeroSubnormals() { set_float_control(before_); }
  ZeroSubnormals(const ZeroSubnormals&) = delete;
  ZeroSubnormals& operator=(const ZeroSubnormals&) = delete;

 private:
  const FloatControl before_;
};

}  // namespace openmps
