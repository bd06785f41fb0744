// SPDX-License-Identifier: Apache-2.0
// Scalar types of the Metal Shading Language, and half where the compiler has no such type.
#pragma once

#if defined(__CUDACC_RTC__)
#define OPENMPS_ON_GPU 1
#define OPENMPS_INLINE __forceinline__
#define OPENMPS_COPY memcpy
#define OPENMPS_MATH(name) ::name
#define OPENMPS_INFINITY __int_as_float(0x7f800000)
#define OPENMPS_NAN __int_as_float(0x7fc00000)
#else
#define OPENMPS_ON_GPU 0
#define OPENMPS_INLINE inline __attribute__((always_inline))
#define OPENMPS_COPY __builtin_memcpy
#define OPENMPS_MATH(name) __builtin_##name
#define OPENMPS_INFINITY __builtin_inff()
#define OPENMPS_NAN __builtin_nanf("")
#endif

namespace metal {

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;
using ptrdiff_t = long;

template <bool kCondition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool kCondition, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <class A, class B>
constexpr bool is_same_v = false;
template <class A>
constexpr bool is_same_v<A, A> = true;
template <class A, class B>
struct is_same {
  static constexpr bool value = is_same_v<A, B>;
};
template <class T>
struct remove_reference {
  using type = T;
};
template <class T>
struct remove_reference<T&> {
  using type = T;
};
template <class T>
struct remove_const {
  using type = T;
};
template <class T>
struct remove_const<const T> {
  using type = T;
};

/// Return the bits of a value as another type.
template <class To, class From>
OPENMPS_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type: the types have different sizes");
  To to;
  OPENMPS_COPY(&to, &from, sizeof(to));
  return to;
}

#if defined(__FLT16_MANT_DIG__) && !OPENMPS_ON_GPU
using half = _Float16;
/// A constant with its bits.
constexpr half openmps_half_literal(float value, ushort) { return static_cast<half>(value); }
#else
OPENMPS_INLINE float openmps_float_of_half(ushort half) {
#if OPENMPS_ON_GPU
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint sign = (half & 0x8000u) << 16, body = half & 0x7fffu;
  const float tiny = as_type<float>(body | 0x4b000000u) - 8388608.0f;
  const float value = body >= 0x7c00u   ? as_type<float>((body << 13) | 0x7f800000u)
                      : body >= 0x0400u ? as_type<float>((body << 13) + (112u << 23))
                                        : tiny * 5.9604644775390625e-8f;
  return as_type<float>(as_type<uint>(value) | sign);
#endif
}

OPENMPS_INLINE ushort openmps_half_of_float(float value) {
#if OPENMPS_ON_GPU
  ushort half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  const uint bits = as_type<uint>(value), sign = (bits >> 16) & 0x8000u, body = bits & 0x7fffffffu;
  const uint normal = (body - (112u << 23) + 0xfffu + ((body >> 13) & 1u)) >> 13;
  const uint tiny = as_type<uint>(as_type<float>(body) + 0.5f) - 0x3f000000u;
  const uint magnitude = body > 0x7f800000u    ? 0x7e00u | ((body >> 13) & 0x3ffu)
                         : body >= 0x477ff000u ? 0x7c00u
                         : body < 0x38800000u  ? tiny
                                               : normal;
  return static_cast<ushort>(sign | magnitude);
#endif
}

/// Converts to and from float; each operation rounds once.
struct half {
  ushort bits;

  half() = default;
  constexpr half(ushort bits, decltype(nullptr)) : bits(bits) {}
  OPENMPS_INLINE half(float value) : bits(openmps_half_of_float(value)) {}
  template <class T, class = typename enable_if<is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, short> ||
                                                is_same_v<T, ushort> || is_same_v<T, char> || is_same_v<T, uchar> ||
                                                is_same_v<T, bool> || is_same_v<T, long> || is_same_v<T, ulong> ||
                                                is_same_v<T, double>>::type>
  OPENMPS_INLINE half(T value) : half(static_cast<float>(value)) {}
  /// Only to float: an int is then made a half in `condition ? half : int`.
  template <class T, class = typename enable_if<is_same_v<T, float>>::type>
  OPENMPS_INLINE operator T() const {
    return openmps_float_of_half(bits);
  }
  template <class T, class = typename enable_if<!is_same_v<T, float> && !is_same_v<T, half>>::type, class = void>
  OPENMPS_INLINE explicit operator T() const {
    return static_cast<T>(openmps_float_of_half(bits));
  }
};
constexpr half openmps_half_literal(float, ushort bits) { return half{bits, nullptr}; }
#endif

template <class T>
constexpr bool openmps_is_float = is_same_v<T, float> || is_same_v<T, half>;
template <class T>
constexpr bool openmps_is_integer =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, int8_t> || is_same_v<T, uchar> || is_same_v<T, short> ||
    is_same_v<T, ushort> || is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, long> || is_same_v<T, ulong> ||
    is_same_v<T, long long> || is_same_v<T, unsigned long long>;
template <class T>
constexpr bool openmps_is_scalar = openmps_is_float<T> || openmps_is_integer<T> || is_same_v<T, double>;
template <class T>
using openmps_if_scalar = typename enable_if<openmps_is_scalar<T>>::type;

#if !defined(__FLT16_MANT_DIG__) || OPENMPS_ON_GPU
#define OPENMPS_HALF_OPERATOR(op)                                                        \
  OPENMPS_INLINE half operator op(half a, half b) { return half(float(a) op float(b)); } \
  OPENMPS_INLINE float operator op(half a, float b) { return float(a) op b; }            \
  OPENMPS_INLINE float operator op(float a, half b) { return a op float(b); }            \
  template <class T, class = typename enable_if<openmps_is_integer<T>>::type>            \
  OPENMPS_INLINE half operator op(half a, T b) {                                         \
    return half(float(a) op float(b));                                                   \
  }                                                                                      \
  template <class T, class = typename enable_if<openmps_is_integer<T>>::type>            \
  OPENMPS_INLINE half operator op(T a, half b) {                                         \
    return half(float(a) op float(b));                                                   \
  }                                                                                      \
  template <class T, class = openmps_if_scalar<T>>                                       \
  OPENMPS_INLINE half& operator op## = (half & a, T b) {                                 \
    return a = half(float(a) op float(b));                                               \
  }
OPENMPS_HALF_OPERATOR(+)
OPENMPS_HALF_OPERATOR(-)
OPENMPS_HALF_OPERATOR(*)
OPENMPS_HALF_OPERATOR(/)
#undef OPENMPS_HALF_OPERATOR
#define OPENMPS_HALF_COMPARISON(op)                                                                 \
  OPENMPS_INLINE bool operator op(half a, half b) { return float(a) op float(b); }                  \
  template <class T, class = typename enable_if<openmps_is_scalar<T> && !is_same_v<T, half>>::type> \
  OPENMPS_INLINE bool operator op(half a, T b) {                                                    \
    return float(a) op float(b);                                                                    \
  }                                                                                                 \
  template <class T, class = typename enable_if<openmps_is_scalar<T> && !is_same_v<T, half>>::type> \
  OPENMPS_INLINE bool operator op(T a, half b) {                                                    \
    return float(a) op float(b);                                                                    \
  }
OPENMPS_HALF_COMPARISON(==)
OPENMPS_HALF_COMPARISON(!=)
OPENMPS_HALF_COMPARISON(<)
OPENMPS_HALF_COMPARISON(>)
OPENMPS_HALF_COMPARISON(<=)
OPENMPS_HALF_COMPARISON(>=)
#undef OPENMPS_HALF_COMPARISON
OPENMPS_INLINE half operator-(half a) { return half(-float(a)); }
OPENMPS_INLINE half operator+(half a) { return a; }
OPENMPS_INLINE half& operator++(half& a) { return a = a + half(1.0f); }
OPENMPS_INLINE half& operator--(half& a) { return a = a - half(1.0f); }
#endif

/// The type of an operation on two scalars, as C++ has it for its own types.
template <class A, class B>
struct openmps_common {
  using type = decltype(true ? A() : B());
};
template <>
struct openmps_common<half, half> {
  using type = half;
};
template <class B>
struct openmps_common<half, B> {
  using type = typename conditional<openmps_is_integer<B>, half, B>::type;
};
template <class A>
struct openmps_common<A, half> {
  using type = typename conditional<openmps_is_integer<A>, half, A>::type;
};

}  // namespace metal
