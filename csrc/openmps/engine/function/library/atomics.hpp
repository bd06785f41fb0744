// SPDX-License-Identifier: Apache-2.0
// Atomic operations and barriers.
#pragma once

#include "engine/function/library/abi.hpp"
#include "engine/function/library/functions.hpp"

namespace metal {

enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}

#if OPENMPS_ON_GPU
OPENMPS_INLINE void threadgroup_barrier(mem_flags) { __syncthreads(); }
#else
/// Of 16 bytes, so that openmps can tell it from the program's threadgroup variables.
struct alignas(16) openmps_running {
  const openmps::function_abi::Group* group;
};
static thread_local openmps_running openmps_group;
OPENMPS_INLINE void threadgroup_barrier(mem_flags) { openmps_group.group->wait(); }
#endif

template <class T>
struct atomic {
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

/// Replace the value by change(value); return the one before.
template <class T, class F>
OPENMPS_INLINE T openmps_atomic_change(const volatile atomic<T>* object, const F& change) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics have 4 or 8 bytes");
#if OPENMPS_ON_GPU
  using Bits = typename conditional<sizeof(T) == 4, unsigned int, unsigned long long>::type;
  auto* const address = reinterpret_cast<Bits*>(const_cast<atomic<T>*>(object));
  Bits before = *reinterpret_cast<volatile Bits*>(address), seen;
  do {
    seen = before;
    before = atomicCAS(address, seen, as_type<Bits>(static_cast<T>(change(as_type<T>(seen)))));
  } while (before != seen);
  return as_type<T>(before);
#else
  auto* const address = const_cast<T*>(&object->value);
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do {
    after = change(before);
  } while (!__atomic_compare_exchange(address, &before, &after, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return before;
#endif
}

template <class T>
OPENMPS_INLINE T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  return *const_cast<const volatile T*>(&object->value);
}
template <class T>
OPENMPS_INLINE void atomic_store_explicit(volatile atomic<T>* object, typename openmps_shape<T>::Element value,
                                          memory_order) {
  *const_cast<volatile T*>(&object->value) = value;
}
#define OPENMPS_ATOMIC(name, ...)                                                                         \
  template <class T>                                                                                      \
  OPENMPS_INLINE T name(volatile atomic<T>* object, typename openmps_shape<T>::Element y, memory_order) { \
    return openmps_atomic_change(object, [=](T x) { return static_cast<T>(__VA_ARGS__); });               \
  }
OPENMPS_ATOMIC(atomic_exchange_explicit, (static_cast<void>(x), y))
OPENMPS_ATOMIC(atomic_fetch_add_explicit, x + y)
OPENMPS_ATOMIC(atomic_fetch_sub_explicit, x - y)
OPENMPS_ATOMIC(atomic_fetch_and_explicit, x& y)
OPENMPS_ATOMIC(atomic_fetch_or_explicit, x | y)
OPENMPS_ATOMIC(atomic_fetch_xor_explicit, x ^ y)
OPENMPS_ATOMIC(atomic_fetch_max_explicit, x < y ? y : x)
OPENMPS_ATOMIC(atomic_fetch_min_explicit, y < x ? y : x)
#undef OPENMPS_ATOMIC
template <class T>
OPENMPS_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected,
                                                          typename openmps_shape<T>::Element desired, memory_order,
                                                          memory_order) {
  const T wanted = *expected;
  const T before = openmps_atomic_change(object, [=](T x) { return x == wanted ? desired : x; });
  *expected = before;
  return before == wanted;
}

}  // namespace metal
