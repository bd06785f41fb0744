// SPDX-License-Identifier: Apache-2.0
// Vectors and matrices of the Metal Shading Language. Swizzles of two to four letters are calls of openmps_get() and
// openmps_set(), which the translator writes.
#pragma once

#include "engine/function/library/scalars.hpp"

namespace metal {

template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;

template <int... kLanes>
struct openmps_lanes {};

/// Element type and count of a vector or scalar; count 0: scalar.
template <class T>
struct openmps_shape {
  using Element = T;
  static constexpr int kCount = 0;
};
template <class T, int N>
struct openmps_shape<vec<T, N>> {
  using Element = T;
  static constexpr int kCount = N;
};
template <class T, int N>
struct openmps_shape<packed_vec<T, N>> {
  using Element = T;
  static constexpr int kCount = N;
};
template <class T>
constexpr bool openmps_is_vec = openmps_shape<T>::kCount != 0;
template <class T>
constexpr bool openmps_is_value = openmps_is_vec<T> || openmps_is_scalar<T>;

/// Elements of constructor arguments, one after the other.
template <class T, int N>
struct openmps_parts {
  T values[N] = {};
  int count = 0;

  template <class A>
  constexpr OPENMPS_INLINE void put(const A& a) {
    if constexpr (openmps_is_vec<A>) {
      for (int i = 0; i < openmps_shape<A>::kCount; ++i) values[count++] = static_cast<T>(a.at(i));
    } else {
      values[count++] = static_cast<T>(a);
    }
  }
};
template <class T, int N, class... A>
constexpr OPENMPS_INLINE openmps_parts<T, N> openmps_parts_of(const A&... a) {
  constexpr auto size = [](int count) { return count == 0 ? 1 : count; };
  static_assert((size(openmps_shape<A>::kCount) + ...) == N, "a vector is made of as many elements as it has");
  openmps_parts<T, N> parts;
  (parts.put(a), ...);
  return parts;
}

/// Return the elements of a vector as another type.
template <class T, class U, int N>
constexpr openmps_parts<T, N> openmps_cast(const vec<U, N>& v);

/// Lanes of a vector that are assigned to.
template <class T, int... kLanes>
struct openmps_reference {
  static constexpr int kCount = sizeof...(kLanes);
  T* data;

  OPENMPS_INLINE operator vec<T, kCount>() const { return vec<T, kCount>(data[kLanes]...); }
  OPENMPS_INLINE const openmps_reference& operator=(vec<T, kCount> value) const {
    int i = 0;
    ((data[kLanes] = value[i++]), ...);
    return *this;
  }
#define OPENMPS_ASSIGNMENT(op)                                                 \
  template <class B>                                                           \
  OPENMPS_INLINE const openmps_reference& operator op## = (const B& b) const { \
    return *this = vec<T, kCount>(*this) op b;                                 \
  }
  OPENMPS_ASSIGNMENT(+)
  OPENMPS_ASSIGNMENT(-)
  OPENMPS_ASSIGNMENT(*)
  OPENMPS_ASSIGNMENT(/)
  OPENMPS_ASSIGNMENT(%)
  OPENMPS_ASSIGNMENT(&)
  OPENMPS_ASSIGNMENT(|)
  OPENMPS_ASSIGNMENT(^)
  OPENMPS_ASSIGNMENT(<<)
  OPENMPS_ASSIGNMENT(>>)
#undef OPENMPS_ASSIGNMENT
};

#define OPENMPS_VECTOR(NAME, COUNT, ALIGNMENT, XYZW, RGBA, SPLAT, PARTS, AT, ...)                    \
  template <class T>                                                                                 \
  struct alignas(ALIGNMENT * sizeof(T)) NAME<T, COUNT> {                                             \
    union {                                                                                          \
      T data[COUNT];                                                                                 \
      struct {                                                                                       \
        T XYZW;                                                                                      \
      };                                                                                             \
      struct {                                                                                       \
        T RGBA;                                                                                      \
      };                                                                                             \
    };                                                                                               \
    NAME() = default;                                                                                \
    constexpr OPENMPS_INLINE NAME(T s) : SPLAT {}                                                    \
    constexpr OPENMPS_INLINE NAME(const openmps_parts<T, COUNT>& p) : PARTS {}                       \
    template <class A, class B, class... R>                                                          \
    constexpr OPENMPS_INLINE NAME(const A& a, const B& b, const R&... r)                             \
        : NAME(openmps_parts_of<T, COUNT>(a, b, r...)) {}                                            \
    constexpr OPENMPS_INLINE T at(int i) const { return AT; }                                        \
    OPENMPS_INLINE T& operator[](long i) { return data[i]; }                                         \
    OPENMPS_INLINE const T& operator[](long i) const { return data[i]; }                             \
    template <int... kLanes>                                                                         \
    constexpr OPENMPS_INLINE vec<T, sizeof...(kLanes)> openmps_get(openmps_lanes<kLanes...>) const { \
      static_assert(((kLanes < COUNT) && ...), "the vector has no such element");                    \
      return vec<T, sizeof...(kLanes)>(at(kLanes)...);                                               \
    }                                                                                                \
    template <int... kLanes>                                                                         \
    OPENMPS_INLINE openmps_reference<T, kLanes...> openmps_set(openmps_lanes<kLanes...>) {           \
      static_assert(((kLanes < COUNT) && ...), "the vector has no such element");                    \
      return {data};                                                                                 \
    }                                                                                                \
    __VA_ARGS__                                                                                      \
  };
#define OPENMPS_LIST(...) __VA_ARGS__
#define OPENMPS_VECTORS(COUNT, ALIGNMENT, XYZW, RGBA, SPLAT, PARTS, AT)                                       \
  OPENMPS_VECTOR(vec, COUNT, ALIGNMENT, OPENMPS_LIST(XYZW), OPENMPS_LIST(RGBA), OPENMPS_LIST(SPLAT),          \
                 OPENMPS_LIST(PARTS), OPENMPS_LIST(AT),                                                       \
                 template <class U>                                                                           \
                 constexpr OPENMPS_INLINE explicit vec(const vec<U, COUNT>& v) : vec(openmps_cast<T>(v)){})   \
  /* with the alignment of its elements */                                                                    \
  OPENMPS_VECTOR(                                                                                             \
      packed_vec, COUNT, 1, OPENMPS_LIST(XYZW), OPENMPS_LIST(RGBA), OPENMPS_LIST(SPLAT), OPENMPS_LIST(PARTS), \
      OPENMPS_LIST(AT),                                                                                       \
      constexpr OPENMPS_INLINE packed_vec(const vec<T, COUNT>& v) : packed_vec(                               \
          openmps_parts_of<T, COUNT>(v)) {} constexpr OPENMPS_INLINE                                          \
      operator vec<T, COUNT>() const { return vec<T, COUNT>(openmps_parts_of<T, COUNT>(*this)); })
OPENMPS_VECTORS(2, 2, OPENMPS_LIST(x, y), OPENMPS_LIST(r, g), OPENMPS_LIST(x(s), y(s)),
                OPENMPS_LIST(x(p.values[0]), y(p.values[1])), OPENMPS_LIST(i == 0 ? x : y))
OPENMPS_VECTORS(3, 4, OPENMPS_LIST(x, y, z), OPENMPS_LIST(r, g, b), OPENMPS_LIST(x(s), y(s), z(s)),
                OPENMPS_LIST(x(p.values[0]), y(p.values[1]), z(p.values[2])),
                OPENMPS_LIST(i == 0   ? x
                             : i == 1 ? y
                                      : z))
OPENMPS_VECTORS(4, 4, OPENMPS_LIST(x, y, z, w), OPENMPS_LIST(r, g, b, a), OPENMPS_LIST(x(s), y(s), z(s), w(s)),
                OPENMPS_LIST(x(p.values[0]), y(p.values[1]), z(p.values[2]), w(p.values[3])),
                OPENMPS_LIST(i == 0   ? x
                             : i == 1 ? y
                             : i == 2 ? z
                                      : w))
#undef OPENMPS_VECTORS
#undef OPENMPS_VECTOR
#undef OPENMPS_LIST

#define OPENMPS_TYPES(type)                     \
  using type##2 = vec<type, 2>;                 \
  using type##3 = vec<type, 3>;                 \
  using type##4 = vec<type, 4>;                 \
  using packed_##type##2 = packed_vec<type, 2>; \
  using packed_##type##3 = packed_vec<type, 3>; \
  using packed_##type##4 = packed_vec<type, 4>;
OPENMPS_TYPES(float)
OPENMPS_TYPES(half)
OPENMPS_TYPES(int)
OPENMPS_TYPES(uint)
OPENMPS_TYPES(short)
OPENMPS_TYPES(ushort)
OPENMPS_TYPES(char)
OPENMPS_TYPES(uchar)
OPENMPS_TYPES(bool)
OPENMPS_TYPES(long)
OPENMPS_TYPES(ulong)
#undef OPENMPS_TYPES

template <class A>
using openmps_if_vec = typename enable_if<openmps_is_vec<A>>::type;

/// The type of a function's result on vectors and scalars: a vector if an argument is one.
template <class... A>
struct openmps_joined;
template <class A>
struct openmps_joined<A> {
  using Element = typename openmps_shape<A>::Element;
  static constexpr int kCount = openmps_shape<A>::kCount;
};
template <class A, class... R>
struct openmps_joined<A, R...> {
  using Own = openmps_shape<A>;
  using Rest = openmps_joined<R...>;
  static_assert(Own::kCount == 0 || Rest::kCount == 0 || Own::kCount == Rest::kCount,
                "vectors of different lengths are combined");
  static constexpr int kCount = Own::kCount ? Own::kCount : Rest::kCount;
  using Both = typename openmps_common<typename Own::Element, typename Rest::Element>::type;
  using Element = typename conditional<
      (Own::kCount != 0) == (Rest::kCount != 0), Both,
      typename conditional<Own::kCount != 0, typename Own::Element, typename Rest::Element>::type>::type;
};
template <class T, int N>
struct openmps_value {
  using type = vec<T, N>;
};
template <class T>
struct openmps_value<T, 0> {
  using type = T;
};

template <class A>
constexpr OPENMPS_INLINE auto openmps_element(const A& a, int i) {
  if constexpr (openmps_is_vec<A>)
    return a.at(i);
  else
    return a;
}

// Versions of clang lack one of these functions, and g++ before 10 the question.
#if defined(__F16C__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vcvtph2ps) && __has_builtin(__builtin_ia32_vcvtps2ph)
#define OPENMPS_CONVERTS_FOUR 1
#endif
#endif
#ifdef OPENMPS_CONVERTS_FOUR
/// Four halves as floats and back, by one instruction. Compilers convert _Float16 one by one.
using openmps_v4sf = float __attribute__((vector_size(16)));
using openmps_v8hi = short __attribute__((vector_size(16)));
using openmps_v2di = long long __attribute__((vector_size(16)));
OPENMPS_INLINE float4 openmps_floats_of(const void* halves) {
  long long bits;
  OPENMPS_COPY(&bits, halves, 8);
  const openmps_v4sf floats = __builtin_ia32_vcvtph2ps(reinterpret_cast<openmps_v8hi>(openmps_v2di{bits, 0}));
  float4 result;
  OPENMPS_COPY(&result, &floats, 16);
  return result;
}
OPENMPS_INLINE void openmps_store_halves(void* to, const float4& values) {
  openmps_v4sf floats;
  OPENMPS_COPY(&floats, &values, 16);
  const openmps_v8hi halves = __builtin_ia32_vcvtps2ph(floats, 0);
  OPENMPS_COPY(to, &halves, 8);
}
#else
#define OPENMPS_CONVERTS_FOUR 0
OPENMPS_INLINE float4 openmps_floats_of(const void*) { return float4(0.0f); }
OPENMPS_INLINE void openmps_store_halves(void*, const float4&) {}
#endif

template <class T, class U, int N>
constexpr OPENMPS_INLINE openmps_parts<T, N> openmps_cast(const vec<U, N>& v) {
  openmps_parts<T, N> parts;
  if constexpr (OPENMPS_CONVERTS_FOUR && N == 4 && is_same_v<T, float> && is_same_v<U, half>) {
    const float4 floats = openmps_floats_of(&v);
    for (int i = 0; i < 4; ++i) parts.values[i] = floats.at(i);
  } else if constexpr (OPENMPS_CONVERTS_FOUR && N == 4 && is_same_v<T, half> && is_same_v<U, float>) {
    openmps_store_halves(parts.values, v);
  } else {
    parts.put(v);
  }
  return parts;
}

/// Return a value whose elements at(i) can be read; four halves that become floats are converted together.
template <class Element, class A>
constexpr OPENMPS_INLINE auto openmps_converted(const A& a) {
  if constexpr (OPENMPS_CONVERTS_FOUR && is_same_v<Element, float> && is_same_v<A, half4>)
    return openmps_floats_of(&a);
  else
    return a;
}

template <class Element, class Result, int kCount, class F, class... A>
constexpr OPENMPS_INLINE auto openmps_map_vectors(const F& f, const A&... a) {
  if constexpr (OPENMPS_CONVERTS_FOUR && is_same_v<Element, float> && is_same_v<Result, half> && kCount == 4) {
    openmps_parts<float, 4> parts;
    for (int i = 0; i < 4; ++i) parts.values[i] = f(static_cast<float>(openmps_element(a, i))...);
    half4 result;
    openmps_store_halves(&result, float4(parts));
    return result;
  } else {
    openmps_parts<Result, kCount> parts;
    for (int i = 0; i < kCount; ++i)
      parts.values[i] = static_cast<Result>(f(static_cast<Element>(openmps_element(a, i))...));
    return vec<Result, kCount>(parts);
  }
}

/// Return f of the arguments' elements, converted to Element; the result has elements of type Result.
template <class Element, class Result, class F, class... A>
constexpr OPENMPS_INLINE auto openmps_map(const F& f, const A&... a) {
  constexpr int kCount = openmps_joined<A...>::kCount;
  if constexpr (kCount == 0) {
    return static_cast<Result>(f(static_cast<Element>(a)...));
  } else {
    return openmps_map_vectors<Element, Result, kCount>(f, openmps_converted<Element>(a)...);
  }
}

#define OPENMPS_BINARY(op, ...)                                                                           \
  template <class A, class B,                                                                             \
            class = typename enable_if<(openmps_is_vec<A> || openmps_is_vec<B>) && openmps_is_value<A> && \
                                       openmps_is_value<B>>::type>                                        \
  constexpr OPENMPS_INLINE auto operator op(const A& a, const B& b) {                                     \
    using Element = typename openmps_joined<A, B>::Element;                                               \
    static_assert(openmps_is_vec<A> != openmps_is_vec<B> ||                                               \
                      is_same_v<typename openmps_shape<A>::Element, typename openmps_shape<B>::Element>,  \
                  "vectors of different element types are combined; convert one of them");                \
    using Result = __VA_ARGS__;                                                                           \
    using Computed = typename conditional<is_same_v<Element, half>, float, Element>::type;                \
    return openmps_map<Computed, Result>(                                                                 \
        [](Computed x, Computed y) {                                                                      \
          using Kept = typename conditional<is_same_v<Result, half>, float, Result>::type;                \
          return static_cast<Kept>(x op y);                                                               \
        },                                                                                                \
        a, b);                                                                                            \
  }
#define OPENMPS_ARITHMETIC(op)                                                                    \
  OPENMPS_BINARY(op, Element)                                                                     \
  template <class T, int N, class B, class = typename enable_if<openmps_is_value<B>>::type>       \
  constexpr OPENMPS_INLINE vec<T, N>& operator op## = (vec<T, N> & a, const B& b) {               \
    return a = a op b;                                                                            \
  }                                                                                               \
  template <class T, int N, class B, class = typename enable_if<openmps_is_value<B>>::type>       \
  constexpr OPENMPS_INLINE packed_vec<T, N>& operator op## = (packed_vec<T, N> & a, const B& b) { \
    return a = a op b;                                                                            \
  }
OPENMPS_ARITHMETIC(+)
OPENMPS_ARITHMETIC(-)
OPENMPS_ARITHMETIC(*)
OPENMPS_ARITHMETIC(/)
OPENMPS_ARITHMETIC(%)
OPENMPS_ARITHMETIC(&)
OPENMPS_ARITHMETIC(|)
OPENMPS_ARITHMETIC(^)
OPENMPS_ARITHMETIC(<<)
OPENMPS_ARITHMETIC(>>)
OPENMPS_BINARY(==, bool)
OPENMPS_BINARY(!=, bool)
OPENMPS_BINARY(<, bool)
OPENMPS_BINARY(>, bool)
OPENMPS_BINARY(<=, bool)
OPENMPS_BINARY(>=, bool)
OPENMPS_BINARY(&&, bool)
OPENMPS_BINARY(||, bool)
#undef OPENMPS_ARITHMETIC
#undef OPENMPS_BINARY

#define OPENMPS_UNARY(op, ...)                                                                             \
  template <class A, class = openmps_if_vec<A>>                                                            \
  constexpr OPENMPS_INLINE auto operator op(const A& a) {                                                  \
    using Element = typename openmps_shape<A>::Element;                                                    \
    return openmps_map<Element, __VA_ARGS__>([](Element x) { return static_cast<__VA_ARGS__>(op x); }, a); \
  }
OPENMPS_UNARY(-, Element)
OPENMPS_UNARY(+, Element)
OPENMPS_UNARY(~, Element)
OPENMPS_UNARY(!, bool)
#undef OPENMPS_UNARY

template <class T, int N>
OPENMPS_INLINE vec<T, N>& operator++(vec<T, N>& a) {
  return a = a + T(1);
}
template <class T, int N>
OPENMPS_INLINE vec<T, N>& operator--(vec<T, N>& a) {
  return a = a - T(1);
}

/// C columns of R rows.
template <class T, int C, int R>
struct matrix {
  vec<T, R> columns[C];

  matrix() = default;
  OPENMPS_INLINE explicit matrix(T diagonal) {
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r) columns[c][r] = c == r ? diagonal : T(0);
  }
  template <class U>
  OPENMPS_INLINE explicit matrix(const matrix<U, C, R>& m) {
    for (int c = 0; c < C; ++c) columns[c] = vec<T, R>(m.columns[c]);
  }
  template <class A, class B, class... Rest>
  OPENMPS_INLINE matrix(const A& a, const B& b, const Rest&... rest) {
    const openmps_parts<T, C * R> parts = openmps_parts_of<T, C * R>(a, b, rest...);
    for (int i = 0; i < C * R; ++i) columns[i / R][i % R] = parts.values[i];
  }
  OPENMPS_INLINE vec<T, R>& operator[](long c) { return columns[c]; }
  OPENMPS_INLINE const vec<T, R>& operator[](long c) const { return columns[c]; }
};

template <class T, int C, int R>
OPENMPS_INLINE vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
  vec<T, R> sum = m[0] * v[0];
  for (int c = 1; c < C; ++c) sum += m[c] * v[c];
  return sum;
}
template <class T, int C, int R>
OPENMPS_INLINE vec<T, C> operator*(const vec<T, R>& v, const matrix<T, C, R>& m) {
  vec<T, C> result;
  for (int c = 0; c < C; ++c) {
    T sum = v[0] * m[c][0];
    for (int r = 1; r < R; ++r) sum += v[r] * m[c][r];
    result[c] = sum;
  }
  return result;
}
template <class T, int C, int R, int K>
OPENMPS_INLINE matrix<T, K, R> operator*(const matrix<T, C, R>& a, const matrix<T, K, C>& b) {
  matrix<T, K, R> result;
  for (int k = 0; k < K; ++k) result[k] = a * b[k];
  return result;
}
#define OPENMPS_MATRIX_SCALAR(type)                                            \
  template <class T, int C, int R>                                             \
  OPENMPS_INLINE matrix<T, C, R> operator*(const matrix<T, C, R>& m, type s) { \
    matrix<T, C, R> result;                                                    \
    for (int c = 0; c < C; ++c) result[c] = m[c] * T(s);                       \
    return result;                                                             \
  }                                                                            \
  template <class T, int C, int R>                                             \
  OPENMPS_INLINE matrix<T, C, R> operator*(type s, const matrix<T, C, R>& m) { \
    return m * s;                                                              \
  }
OPENMPS_MATRIX_SCALAR(float)
OPENMPS_MATRIX_SCALAR(half)
OPENMPS_MATRIX_SCALAR(int)
#undef OPENMPS_MATRIX_SCALAR
#define OPENMPS_MATRIX_SUM(op)                                                                      \
  template <class T, int C, int R>                                                                  \
  OPENMPS_INLINE matrix<T, C, R> operator op(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {  \
    matrix<T, C, R> result;                                                                         \
    for (int c = 0; c < C; ++c) result[c] = a[c] op b[c];                                           \
    return result;                                                                                  \
  }                                                                                                 \
  template <class T, int C, int R>                                                                  \
  OPENMPS_INLINE matrix<T, C, R>& operator op## = (matrix<T, C, R> & a, const matrix<T, C, R>& b) { \
    return a = a op b;                                                                              \
  }
OPENMPS_MATRIX_SUM(+)
OPENMPS_MATRIX_SUM(-)
#undef OPENMPS_MATRIX_SUM

#define OPENMPS_MATRICES(type)          \
  using type##2x2 = matrix<type, 2, 2>; \
  using type##2x3 = matrix<type, 2, 3>; \
  using type##2x4 = matrix<type, 2, 4>; \
  using type##3x2 = matrix<type, 3, 2>; \
  using type##3x3 = matrix<type, 3, 3>; \
  using type##3x4 = matrix<type, 3, 4>; \
  using type##4x2 = matrix<type, 4, 2>; \
  using type##4x3 = matrix<type, 4, 3>; \
  using type##4x4 = matrix<type, 4, 4>;
OPENMPS_MATRICES(float)
OPENMPS_MATRICES(half)
#undef OPENMPS_MATRICES

}  // namespace metal
