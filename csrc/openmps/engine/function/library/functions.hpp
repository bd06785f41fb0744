// SPDX-License-Identifier: Apache-2.0
// Standard functions of the Metal Shading Language, by element.
#pragma once

#include "engine/function/library/vectors.hpp"

namespace metal {

template <class T>
struct openmps_float_of {
  using type = typename conditional<is_same_v<T, half>, half, float>::type;
};

#define OPENMPS_VALUES(...) class = typename enable_if<(openmps_is_value<__VA_ARGS__>)>::type
/// Element type of the arguments A, and of functions of real numbers.
#define OPENMPS_ELEMENT(...) typename openmps_joined<__VA_ARGS__>::Element
#define OPENMPS_REAL(...) typename openmps_float_of<OPENMPS_ELEMENT(__VA_ARGS__)>::type

/// A function of real numbers, computed in float.
#define OPENMPS_REAL_1(name, ...)                                                       \
  template <class A, OPENMPS_VALUES(A)>                                                 \
  OPENMPS_INLINE auto name(const A& a) {                                                \
    return openmps_map<float, OPENMPS_REAL(A)>([](float x) { return __VA_ARGS__; }, a); \
  }
#define OPENMPS_REAL_2(name, ...)                                                                      \
  template <class A, class B, OPENMPS_VALUES(A > &&openmps_is_value < B)>                              \
  OPENMPS_INLINE auto name(const A& a, const B& b) {                                                   \
    return openmps_map<float, OPENMPS_REAL(A, B)>([](float x, float y) { return __VA_ARGS__; }, a, b); \
  }
#define OPENMPS_REAL_3(name, ...)                                                                                     \
  template <class A, class B, class C, OPENMPS_VALUES(A > &&openmps_is_value<B> && openmps_is_value < C)>             \
  OPENMPS_INLINE auto name(const A& a, const B& b, const C& c) {                                                      \
    return openmps_map<float, OPENMPS_REAL(A, B, C)>([](float x, float y, float z) { return __VA_ARGS__; }, a, b, c); \
  }
/// A function of numbers of any type.
#define OPENMPS_ANY_1(name, ...)                                  \
  template <class A, OPENMPS_VALUES(A)>                           \
  constexpr OPENMPS_INLINE auto name(const A& a) {                \
    using T = OPENMPS_ELEMENT(A);                                 \
    return openmps_map<T, T>([](T x) { return __VA_ARGS__; }, a); \
  }
#define OPENMPS_ANY_2(name, ...)                                          \
  template <class A, class B, OPENMPS_VALUES(A > &&openmps_is_value < B)> \
  constexpr OPENMPS_INLINE auto name(const A& a, const B& b) {            \
    using T = OPENMPS_ELEMENT(A, B);                                      \
    return openmps_map<T, T>([](T x, T y) { return __VA_ARGS__; }, a, b); \
  }
#define OPENMPS_ANY_3(name, ...)                                                                          \
  template <class A, class B, class C, OPENMPS_VALUES(A > &&openmps_is_value<B> && openmps_is_value < C)> \
  constexpr OPENMPS_INLINE auto name(const A& a, const B& b, const C& c) {                                \
    using T = OPENMPS_ELEMENT(A, B, C);                                                                   \
    return openmps_map<T, T>([](T x, T y, T z) { return __VA_ARGS__; }, a, b, c);                         \
  }
#define OPENMPS_TEST_1(name, ...)                                                               \
  template <class A, OPENMPS_VALUES(A)>                                                         \
  OPENMPS_INLINE auto name(const A& a) {                                                        \
    return openmps_map<float, bool>([](float x) { return static_cast<bool>(__VA_ARGS__); }, a); \
  }

OPENMPS_REAL_1(acos, OPENMPS_MATH(acosf)(x))
OPENMPS_REAL_1(acosh, OPENMPS_MATH(acoshf)(x))
OPENMPS_REAL_1(asin, OPENMPS_MATH(asinf)(x))
OPENMPS_REAL_1(asinh, OPENMPS_MATH(asinhf)(x))
OPENMPS_REAL_1(atan, OPENMPS_MATH(atanf)(x))
OPENMPS_REAL_1(atanh, OPENMPS_MATH(atanhf)(x))
OPENMPS_REAL_1(ceil, OPENMPS_MATH(ceilf)(x))
OPENMPS_REAL_1(cos, OPENMPS_MATH(cosf)(x))
OPENMPS_REAL_1(cosh, OPENMPS_MATH(coshf)(x))
OPENMPS_REAL_1(cospi, OPENMPS_MATH(cosf)(x * 3.14159265358979323846f))
#if !OPENMPS_ON_GPU
/// Replace four values by their exponentials, together: a call of the C library takes one. In double, so that only the
/// rounding to float counts. Beyond +-200 the results are infinite or 0 in float.
OPENMPS_INLINE void openmps_exp_of_four(float (&x)[4]) {
  using Doubles = double __attribute__((vector_size(32)));
  using Longs = long __attribute__((vector_size(32)));
  using Ints = int __attribute__((vector_size(16)));
  const Doubles zero = {}, limit = zero + 200.0, half = zero + 0.5;
  Doubles d = {x[0], x[1], x[2], x[3]};
  d = d != d ? zero : d < -limit ? -limit : d > limit ? limit : d;  // a NaN is put back in the end
  const Doubles quotient = d * 1.4426950408889634;                  // log2(e)
  const Ints k = __builtin_convertvector(quotient + (quotient < zero ? -half : half), Ints);
  const Doubles r = d - __builtin_convertvector(k, Doubles) * 0.6931471805599453;
  // The series of e^r to r^8: the next term is at most 2e-10, since |r| <= ln(2) / 2.
  Doubles sum = zero + 1.0 / 40320.0;
  const double factors[] = {1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0};
  for (const double factor : factors) sum = sum * r + factor;
  const Longs bits = (__builtin_convertvector(k, Longs) + 1023) << 52;  // of 2^k
  Doubles scale;
  OPENMPS_COPY(&scale, &bits, sizeof scale);
  const Doubles result = sum * scale;
  for (int i = 0; i < 4; ++i) x[i] = x[i] == x[i] ? static_cast<float>(result[i]) : x[i];
}
#endif
template <class A, OPENMPS_VALUES(A)>
OPENMPS_INLINE auto exp(const A& a) {
#if !OPENMPS_ON_GPU
  if constexpr (openmps_shape<A>::kCount == 3 || openmps_shape<A>::kCount == 4) {
    float values[4] = {};
    for (int i = 0; i < openmps_shape<A>::kCount; ++i) values[i] = static_cast<float>(a.at(i));
    openmps_exp_of_four(values);
    int i = 0;
    return openmps_map<float, OPENMPS_REAL(A)>([&](float) { return values[i++]; }, a);
  }
#endif
  return openmps_map<float, OPENMPS_REAL(A)>([](float x) { return OPENMPS_MATH(expf)(x); }, a);
}
OPENMPS_REAL_1(exp2, OPENMPS_MATH(exp2f)(x))
OPENMPS_REAL_1(exp10, OPENMPS_MATH(powf)(10.0f, x))
OPENMPS_REAL_1(fabs, OPENMPS_MATH(fabsf)(x))
OPENMPS_REAL_1(floor, OPENMPS_MATH(floorf)(x))
OPENMPS_REAL_1(fract, OPENMPS_MATH(fminf)(x - OPENMPS_MATH(floorf)(x), 0.999999940395355225f))
OPENMPS_REAL_1(log, OPENMPS_MATH(logf)(x))
OPENMPS_REAL_1(log2, OPENMPS_MATH(log2f)(x))
OPENMPS_REAL_1(log10, OPENMPS_MATH(log10f)(x))
OPENMPS_REAL_1(rint, OPENMPS_MATH(rintf)(x))
OPENMPS_REAL_1(round, OPENMPS_MATH(roundf)(x))
OPENMPS_REAL_1(rsqrt, 1.0f / OPENMPS_MATH(sqrtf)(x))
OPENMPS_REAL_1(sin, OPENMPS_MATH(sinf)(x))
OPENMPS_REAL_1(sinh, OPENMPS_MATH(sinhf)(x))
OPENMPS_REAL_1(sinpi, OPENMPS_MATH(sinf)(x * 3.14159265358979323846f))
OPENMPS_REAL_1(sqrt, OPENMPS_MATH(sqrtf)(x))
OPENMPS_REAL_1(tan, OPENMPS_MATH(tanf)(x))
OPENMPS_REAL_1(tanh, OPENMPS_MATH(tanhf)(x))
OPENMPS_REAL_1(trunc, OPENMPS_MATH(truncf)(x))
OPENMPS_REAL_1(saturate, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
OPENMPS_REAL_1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
OPENMPS_REAL_1(degrees, x * 57.29577951308232f)
OPENMPS_REAL_1(radians, x * 0.017453292519943295f)
OPENMPS_REAL_2(atan2, OPENMPS_MATH(atan2f)(x, y))
OPENMPS_REAL_2(copysign, OPENMPS_MATH(copysignf)(x, y))
OPENMPS_REAL_2(fdim, OPENMPS_MATH(fdimf)(x, y))
OPENMPS_REAL_2(fmax, OPENMPS_MATH(fmaxf)(x, y))
OPENMPS_REAL_2(fmin, OPENMPS_MATH(fminf)(x, y))
OPENMPS_REAL_2(fmod, OPENMPS_MATH(fmodf)(x, y))
OPENMPS_REAL_2(pow, OPENMPS_MATH(powf)(x, y))
OPENMPS_REAL_2(powr, OPENMPS_MATH(powf)(x, y))
OPENMPS_REAL_2(step, y < x ? 0.0f : 1.0f)
OPENMPS_REAL_2(divide, x / y)
OPENMPS_REAL_2(ldexp, x* OPENMPS_MATH(exp2f)(y))
OPENMPS_REAL_3(fma, OPENMPS_MATH(fmaf)(x, y, z))
OPENMPS_REAL_3(mix, x + (y - x) * z)

OPENMPS_INLINE float openmps_smooth(float t) {
  t = t > 0.0f ? (t < 1.0f ? t : 1.0f) : 0.0f;
  return t * t * (3.0f - 2.0f * t);
}
OPENMPS_REAL_3(smoothstep, openmps_smooth((z - x) / (y - x)))

OPENMPS_TEST_1(isnan, x != x)
OPENMPS_TEST_1(isinf, OPENMPS_MATH(fabsf)(x) == OPENMPS_INFINITY)
OPENMPS_TEST_1(isfinite, OPENMPS_MATH(fabsf)(x) < OPENMPS_INFINITY)
OPENMPS_TEST_1(isnormal, OPENMPS_MATH(fabsf)(x) < OPENMPS_INFINITY && OPENMPS_MATH(fabsf)(x) >= 1.17549435e-38f)
OPENMPS_TEST_1(signbit, OPENMPS_MATH(copysignf)(1.0f, x) < 0.0f)

OPENMPS_ANY_1(abs, x < T(0) ? T(-x) : x)
OPENMPS_ANY_2(max, x < y ? y : x)
OPENMPS_ANY_2(min, y < x ? y : x)
OPENMPS_ANY_2(absdiff, x < y ? T(y - x) : T(x - y))
OPENMPS_ANY_3(clamp, x < y ? y : z < x ? z : x)
OPENMPS_ANY_3(max3, x < y ? (y < z ? z : y) : (x < z ? z : x))
OPENMPS_ANY_3(min3, y < x ? (z < y ? z : y) : (z < x ? z : x))
OPENMPS_ANY_3(fmax3, x < y ? (y < z ? z : y) : (x < z ? z : x))
OPENMPS_ANY_3(fmin3, y < x ? (z < y ? z : y) : (z < x ? z : x))
OPENMPS_ANY_3(mad24, T(x* y + z))
OPENMPS_ANY_2(mul24, T(x* y))

#if OPENMPS_ON_GPU
OPENMPS_ANY_1(popcount, T(__popcll(static_cast<unsigned long long>(x) & (~0ull >> (64 - 8 * sizeof(T))))))
OPENMPS_ANY_1(clz, T(x == T(0) ? 8 * sizeof(T)
                               : __clzll(static_cast<unsigned long long>(x) & (~0ull >> (64 - 8 * sizeof(T)))) - 64 +
                                     8 * sizeof(T)))
OPENMPS_ANY_1(ctz, T(x == T(0) ? 8 * sizeof(T) : __ffsll(static_cast<long long>(x)) - 1))
#else
OPENMPS_ANY_1(popcount, T(__builtin_popcountll(static_cast<unsigned long long>(x) & (~0ull >> (64 - 8 * sizeof(T))))))
OPENMPS_ANY_1(clz, T(x == T(0) ? 8 * sizeof(T)
                               : __builtin_clzll(static_cast<unsigned long long>(x) & (~0ull >> (64 - 8 * sizeof(T)))) -
                                     64 + 8 * sizeof(T)))
OPENMPS_ANY_1(ctz, T(x == T(0) ? 8 * sizeof(T) : __builtin_ctzll(static_cast<unsigned long long>(x))))
#endif

#undef OPENMPS_REAL_1
#undef OPENMPS_REAL_2
#undef OPENMPS_REAL_3
#undef OPENMPS_ANY_1
#undef OPENMPS_ANY_2
#undef OPENMPS_ANY_3
#undef OPENMPS_TEST_1

/// Return b where the condition holds, else a.
template <class A, class B>
OPENMPS_INLINE auto select(const A& a, const B& b, bool condition) -> typename openmps_common<A, B>::type {
  return condition ? b : a;
}
template <class T, int N>
OPENMPS_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> condition) {
  vec<T, N> result;
  for (int i = 0; i < N; ++i) result[i] = condition[i] ? b[i] : a[i];
  return result;
}
template <class T, int N, class S, class = openmps_if_scalar<S>>
OPENMPS_INLINE vec<T, N> select(vec<T, N> a, S b, vec<bool, N> condition) {
  return select(a, vec<T, N>(b), condition);
}
template <class T, int N, class S, class = openmps_if_scalar<S>>
OPENMPS_INLINE vec<T, N> select(S a, vec<T, N> b, vec<bool, N> condition) {
  return select(vec<T, N>(a), b, condition);
}
OPENMPS_INLINE bool all(bool x) { return x; }
OPENMPS_INLINE bool any(bool x) { return x; }
template <int N>
OPENMPS_INLINE bool all(vec<bool, N> v) {
  bool result = true;
  for (int i = 0; i < N; ++i) result = result && v[i];
  return result;
}
template <int N>
OPENMPS_INLINE bool any(vec<bool, N> v) {
  bool result = false;
  for (int i = 0; i < N; ++i) result = result || v[i];
  return result;
}

template <class T, int N>
OPENMPS_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) sum += a[i] * b[i];
  return sum;
}
template <class T, int N>
OPENMPS_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
OPENMPS_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
OPENMPS_INLINE T distance(vec<T, N> a, vec<T, N> b) {
  return length(a - b);
}
template <class T, int N>
OPENMPS_INLINE T distance_squared(vec<T, N> a, vec<T, N> b) {
  return length_squared(a - b);
}
template <class T, int N>
OPENMPS_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * rsqrt(dot(a, a));
}
template <class T>
OPENMPS_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class T, int N>
OPENMPS_INLINE vec<T, N> reflect(vec<T, N> i, vec<T, N> n) {
  return i - n * (T(2) * dot(n, i));
}
template <class A, class B>
OPENMPS_INLINE auto modf(const A& x, B& whole) {
  whole = trunc(x);
  return x - whole;
}
template <class A, class B>
OPENMPS_INLINE auto sincos(const A& x, B& cosine) {
  cosine = cos(x);
  return sin(x);
}

template <class T, int C, int R>
OPENMPS_INLINE matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> result;
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) result[r][c] = m[c][r];
  return result;
}
template <class T>
OPENMPS_INLINE T determinant(const matrix<T, 2, 2>& m) {
  return m[0][0] * m[1][1] - m[1][0] * m[0][1];
}
template <class T>
OPENMPS_INLINE T determinant(const matrix<T, 3, 3>& m) {
  return dot(m[0], cross(m[1], m[2]));
}

// metal::fast and metal::precise have the same functions; -fastMathEnabled decides how they are compiled.
namespace fast {
using namespace metal;
}
namespace precise {
using namespace metal;
}

}  // namespace metal
