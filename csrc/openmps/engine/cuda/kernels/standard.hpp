// SPDX-License-Identifier: Apache-2.0
// Replaces the standard library, engine/memory.hpp and engine/problem/fields.hpp when NVRTC compiles a kernel: it
// has no standard library. Only declarations that problems and formulas use; never included by a host compiler.
#pragma once

namespace std {

using size_t = decltype(sizeof(0));
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;

template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000); }
};

template <>
struct numeric_limits<double> {
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000); }
  static constexpr double quiet_NaN() { return __builtin_bit_cast(double, 0x7ff8000000000000); }
  static constexpr double lowest() { return __builtin_bit_cast(double, 0xffefffffffffffff); }
};

template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
constexpr const T& clamp(const T& value, const T& low, const T& high) {
  return value < low ? low : high < value ? high : value;
}

inline double log(double x) { return ::log(x); }
inline double floor(double x) { return ::floor(x); }
inline double ceil(double x) { return ::ceil(x); }
inline double sin(double x) { return ::sin(x); }
inline double sqrt(double x) { return ::sqrt(x); }

// Members that no kernel uses.
template <class T>
struct vector {
  bool empty() const { return true; }
};
template <class T>
struct shared_ptr {
  T* get() const { return nullptr; }
  T* operator->() const { return nullptr; }
  explicit operator bool() const { return false; }
};
template <class... T>
constexpr int tuple(T...) {
  return 0;
}

}  // namespace std

namespace openmps {

class Memory;

enum class Format : std::uint8_t { unorm8, unorm16, float16, float32 };

struct ImageView {};  // kernels have cuda::View

namespace roles {

struct AnyRole {
  template <class M>
  constexpr int operator()(const char*, M) const {
    return 0;
  }
};
inline constexpr AnyRole in, out, inout, shape, weights, value, chunks;

}  // namespace roles
}  // namespace openmps
