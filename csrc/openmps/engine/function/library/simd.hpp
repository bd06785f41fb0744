// SPDX-License-Identifier: Apache-2.0
// Functions of SIMD groups, which are 32 threads with consecutive indices in their threadgroup, and of quads, 4
// threads. The translator writes openmps_lanes_of<17, 32>::sum(x) for simd_sum(x), and openmps_call<18>([&] { return
// f(x); }) for f(x), if f calls such functions. The numbers count both in the program: threads that wait at the same
// call, by the same calls of the program's functions, act together.
#pragma once

#include "engine/function/library/atomics.hpp"

namespace metal {

constexpr uint kOpenmpsWidth = openmps::function_abi::kSimdWidth;

/// The threads for which a condition holds, a bit each.
template <uint kThreads>
class openmps_vote {
 public:
  using vote_t = ulong;
  explicit constexpr openmps_vote(vote_t bits = 0) : bits_(bits) {}
  explicit constexpr operator vote_t() const { return bits_; }
  constexpr bool all() const { return bits_ == ((1ul << kThreads) - 1); }
  constexpr bool any() const { return bits_ != 0; }

 private:
  vote_t bits_;
};
using simd_vote = openmps_vote<kOpenmpsWidth>;
using quad_vote = openmps_vote<4>;

/// Call a function of the program.
template <uint kCall, class F>
OPENMPS_INLINE decltype(auto) openmps_call(const F& function) {
#if !OPENMPS_ON_GPU
  struct Scope {
    Scope() { openmps_group.group->enter(kCall); }
    ~Scope() { openmps_group.group->leave(); }
  } const scope;
#endif
  return function();
}

/// The values of the active threads of the caller's group of kThreads threads. `lane` and `active` count within it.
template <class T, uint kThreads>
class openmps_group_values {
 public:
#if OPENMPS_ON_GPU
  OPENMPS_INLINE openmps_group_values(uint, const T& own) : own_(own), mask_(__activemask()) {
    uint index;
    asm("mov.u32 %0, %%laneid;" : "=r"(index));
    first_ = index / kThreads * kThreads;
    lane_ = index - first_;
  }
  /// Every active thread calls it.
  OPENMPS_INLINE T of(uint lane) const {
    constexpr int kWords = (sizeof(T) + 3) / 4;
    uint words[kWords] = {};
    OPENMPS_COPY(words, &own_, sizeof(T));
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(mask_, words[i], static_cast<int>(first_ + lane));
    T result;
    OPENMPS_COPY(&result, words, sizeof(T));
    return result;
  }
  OPENMPS_INLINE uint bits(bool condition) const { return cut(__ballot_sync(mask_, condition)); }
#else
  OPENMPS_INLINE openmps_group_values(uint call, const T& own) : own_(own) {
    static_assert(sizeof(T) <= openmps::function_abi::kMaxLaneBytes, "values of SIMD groups have up to 64 bytes");
    uint lane;
    lanes_ = openmps_group.group->exchange(call, &own, sizeof(T), &lane);
    mask_ = lanes_->mask;
    first_ = lane / kThreads * kThreads;
    lane_ = lane - first_;
  }
  OPENMPS_INLINE T of(uint lane) const {
    T result;
    OPENMPS_COPY(&result, lanes_->values[first_ + lane], sizeof(T));
    return result;
  }
  /// T is bool.
  OPENMPS_INLINE uint bits(bool) const {
    uint all = 0;
    for (uint i = 0; i < kThreads; ++i) all |= static_cast<uint>(is_active(i) && of(i)) << i;
    return all;
  }
#endif

  OPENMPS_INLINE uint lane() const { return lane_; }
  OPENMPS_INLINE uint active() const { return cut(mask_); }
  OPENMPS_INLINE bool is_active(uint lane) const { return active() >> lane & 1; }
  OPENMPS_INLINE uint first_active() const {
    uint lane = 0;
    while (!is_active(lane)) ++lane;
    return lane;
  }
  /// The value of a thread; the caller's own if there is no such thread, or it is not active.
  OPENMPS_INLINE T of_active(uint lane) const { return of(lane < kThreads && is_active(lane) ? lane : lane_); }
  /// Combine the values of all active threads, from the first to the last.
  template <class F>
  OPENMPS_INLINE T combined(const F& combine) const {
#if OPENMPS_ON_GPU
    if (mask_ == 0xffffffffu) {
      T result = own_;
      for (uint step = 1; step < kThreads; step *= 2) {
        openmps_group_values other = *this;
        other.own_ = result;
        result = combine(result, other.of(lane_ ^ step));
      }
      return result;
    }
#endif
    const uint first = first_active();
    T result = of(first);
    for (uint i = 0; i < kThreads; ++i) {
      const T each = of(i);  // in every thread: the first active one is another in each quad
      if (i > first && is_active(i)) result = combine(result, each);
    }
    return result;
  }
  /// Combine the values of the active threads before the caller, and its own if `inclusive`; start with `start`.
  template <class F>
  OPENMPS_INLINE T prefix(T start, bool inclusive, const F& combine) const {
    T result = start;
    for (uint i = 0; i < kThreads; ++i) {
      const T each = of(i);
      if (is_active(i) && (i < lane_ || (inclusive && i == lane_))) result = combine(result, each);
    }
    return result;
  }

 private:
  OPENMPS_INLINE uint cut(uint mask) const {
    return kThreads == 32 ? mask : mask >> first_ & ((1u << (kThreads % 32)) - 1);
  }

  T own_;
#if !OPENMPS_ON_GPU
  const openmps::function_abi::Lanes* lanes_;
#endif
  uint mask_, first_, lane_;
};

/// The functions of groups of kThreads threads.
template <uint kCall, uint kThreads>
class openmps_lanes_of {
  template <class T>
  struct Pair {
    T value, filling;
  };
  template <class T>
  struct SameType {
    using type = T;
  };
  template <class T>
  using Same = typename SameType<T>::type;  // not deduced
  template <class T>
  using Element = typename openmps_shape<T>::Element;

 public:
  template <class T>
  using Values = openmps_group_values<T, kThreads>;
  using Vote = openmps_vote<kThreads>;

  static OPENMPS_INLINE void barrier(mem_flags) {
#if OPENMPS_ON_GPU
    __syncwarp(__activemask());
#else
    uint lane;
    openmps_group.group->exchange(kCall, nullptr, 0, &lane);
#endif
  }

  static OPENMPS_INLINE bool is_first() {
    const Values<bool> values(kCall, true);
    return values.lane() == values.first_active();
  }
  static OPENMPS_INLINE Vote active_threads_mask() { return Vote(Values<bool>(kCall, true).active()); }
  static OPENMPS_INLINE Vote ballot(bool condition) { return Vote(Values<bool>(kCall, condition).bits(condition)); }
  static OPENMPS_INLINE bool any(bool condition) { return Values<bool>(kCall, condition).bits(condition) != 0; }
  static OPENMPS_INLINE bool all(bool condition) {
    const Values<bool> values(kCall, condition);
    return values.bits(condition) == values.active();
  }

  template <class T>
  static OPENMPS_INLINE T broadcast(T value, ushort lane) {
    return Values<T>(kCall, value).of_active(lane);
  }
  template <class T>
  static OPENMPS_INLINE T broadcast_first(T value) {
    const Values<T> values(kCall, value);
    return values.of(values.first_active());
  }
  template <class T>
  static OPENMPS_INLINE T shuffle(T value, ushort lane) {
    return Values<T>(kCall, value).of_active(lane);
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_xor(T value, ushort mask) {
    const Values<T> values(kCall, value);
    return values.of_active(values.lane() ^ mask);
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_up(T value, ushort delta) {
    const Values<T> values(kCall, value);
    return values.of_active(values.lane() - delta);  // no thread if that is below 0
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_down(T value, ushort delta) {
    const Values<T> values(kCall, value);
    return values.of_active(values.lane() + delta);
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_rotate_up(T value, ushort delta) {
    const Values<T> values(kCall, value);
    return values.of_active((values.lane() + kThreads - delta % kThreads) % kThreads);
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_rotate_down(T value, ushort delta) {
    const Values<T> values(kCall, value);
    return values.of_active((values.lane() + delta) % kThreads);
  }
  /// Within vectors of `modulo` threads; those beyond their ends take part of `filling`.
  template <class T>
  static OPENMPS_INLINE T shuffle_and_fill_up(T value, Same<T> filling, ushort delta, ushort modulo = kThreads) {
    const Pair<T> both = {value, filling};
    const Values<Pair<T>> values(kCall, both);
    const uint at = values.lane() % modulo, first = values.lane() - at;
    const Pair<T> other = values.of_active(first + (at + modulo - delta) % modulo);
    return at >= delta ? other.value : other.filling;
  }
  template <class T>
  static OPENMPS_INLINE T shuffle_and_fill_down(T value, Same<T> filling, ushort delta, ushort modulo = kThreads) {
    const Pair<T> both = {value, filling};
    const Values<Pair<T>> values(kCall, both);
    const uint at = values.lane() % modulo, first = values.lane() - at;
    const Pair<T> other = values.of_active(first + (at + delta) % modulo);
    return at + delta < modulo ? other.value : other.filling;
  }

#define OPENMPS_REDUCTION(name, ...)                                                               \
  template <class T>                                                                               \
  static OPENMPS_INLINE T name(T value) {                                                          \
    return Values<T>(kCall, value).combined([](T x, T y) { return static_cast<T>(__VA_ARGS__); }); \
  }
  OPENMPS_REDUCTION(sum, x + y)
  OPENMPS_REDUCTION(product, x* y)
  OPENMPS_REDUCTION(min, metal::min(x, y))
  OPENMPS_REDUCTION(max, metal::max(x, y))
  OPENMPS_REDUCTION(and_, x& y)
  OPENMPS_REDUCTION(or_, x | y)
  OPENMPS_REDUCTION(xor_, x ^ y)
#undef OPENMPS_REDUCTION
#define OPENMPS_PREFIX(name, start, inclusive, op)                                                     \
  template <class T>                                                                                   \
  static OPENMPS_INLINE T name(T value) {                                                              \
    return Values<T>(kCall, value).prefix(T(static_cast<Element<T>>(start)), inclusive, [](T x, T y) { \
      return static_cast<T>(x op y);                                                                   \
    });                                                                                                \
  }
  OPENMPS_PREFIX(prefix_exclusive_sum, 0, false, +)
  OPENMPS_PREFIX(prefix_inclusive_sum, 0, true, +)
  OPENMPS_PREFIX(prefix_exclusive_product, 1, false, *)
  OPENMPS_PREFIX(prefix_inclusive_product, 1, true, *)
#undef OPENMPS_PREFIX
};

}  // namespace metal
