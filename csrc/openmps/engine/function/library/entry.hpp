// SPDX-License-Identifier: Apache-2.0
// Calls of a program's function. The translator writes one entry for a function, with a Slot per argument:
//   using Entry = openmps_entry<function, Slots...>;
#pragma once

#include "engine/function/library/simd.hpp"
#include "engine/function/library/textures.hpp"

namespace metal {

namespace abi = openmps::function_abi;

/// How an argument is bound: kind and index; inactive ones get a zero value.
template <int kKind, unsigned kIndex, bool kActive>
struct openmps_slot {};

/// The thread that calls a function.
struct openmps_thread {
  const abi::Grid* grid;
  uint position[3], group[3], in_group[3], group_size[3];
  unsigned char* memory;

  OPENMPS_INLINE uint id(int kind, int axis) const {
    switch (kind) {
      case abi::kThreadPositionInGrid: return position[axis];
      case abi::kThreadPositionInThreadgroup: return in_group[axis];
      case abi::kThreadgroupPositionInGrid: return group[axis];
      case abi::kThreadsPerThreadgroup: return group_size[axis];
      case abi::kDispatchThreadsPerThreadgroup: return grid->group[axis];
      case abi::kThreadsPerGrid: return grid->threads[axis];
      case abi::kThreadgroupsPerGrid: return grid->groups[axis];
      case abi::kThreadIndexInSimdgroup: return index() % abi::kSimdWidth;
      case abi::kSimdgroupIndexInThreadgroup: return index() / abi::kSimdWidth;
      case abi::kThreadsPerSimdgroup: return abi::kSimdWidth;
      case abi::kSimdgroupsPerThreadgroup: return (count(group_size) + abi::kSimdWidth - 1) / abi::kSimdWidth;
      case abi::kDispatchSimdgroupsPerThreadgroup: return (count(grid->group) + abi::kSimdWidth - 1) / abi::kSimdWidth;
      case abi::kThreadIndexInQuadgroup: return index() % 4;
      case abi::kQuadgroupIndexInThreadgroup: return index() / 4;
      case abi::kQuadgroupsPerThreadgroup: return (count(group_size) + 3) / 4;
      case abi::kDispatchQuadgroupsPerThreadgroup: return (count(grid->group) + 3) / 4;
      default: return index();
    }
  }
  /// In its threadgroup.
  OPENMPS_INLINE uint index() const {
    return (in_group[2] * group_size[1] + in_group[1]) * group_size[0] + in_group[0];
  }
  static OPENMPS_INLINE uint count(const uint (&size)[3]) { return size[0] * size[1] * size[2]; }
};

template <class P>
struct openmps_parameter {  // scalar or vector of an id
  static constexpr abi::Binding binding() { return {}; }
};
template <class T>
struct openmps_zero {
  alignas(16) unsigned char bytes[sizeof(T)];
};

/// The values of MTLDataType.
template <class T>
constexpr int openmps_data_type = 0;
template <>
constexpr int openmps_data_type<float> = 3;
template <>
constexpr int openmps_data_type<half> = 16;
template <>
constexpr int openmps_data_type<int> = 29;
template <>
constexpr int openmps_data_type<uint> = 33;
template <>
constexpr int openmps_data_type<short> = 37;
template <>
constexpr int openmps_data_type<ushort> = 41;
template <>
constexpr int openmps_data_type<char> = 45;
template <>
constexpr int openmps_data_type<uchar> = 49;
template <>
constexpr int openmps_data_type<bool> = 53;
template <>
constexpr int openmps_data_type<long> = 81;
template <>
constexpr int openmps_data_type<ulong> = 85;

/// Values of arguments that are the same for all threads: textures, pointers, and for ids nothing.
template <class P>
struct openmps_argument {
  using Held = char;
  static OPENMPS_INLINE Held hold(const abi::Argument&, int) { return 0; }
  template <int kKind>
  static OPENMPS_INLINE P pass(const Held&, const openmps_thread& thread) {
    if constexpr (openmps_is_vec<P>) {
      P result;
      for (int i = 0; i < openmps_shape<P>::kCount; ++i)
        result[i] = static_cast<typename openmps_shape<P>::Element>(thread.id(kKind, i));
      return result;
    } else {
      return static_cast<P>(thread.id(kKind, 0));
    }
  }
  static constexpr void describe(abi::Binding&) {}
  static OPENMPS_INLINE bool has_inside(const Held&, const uint (&)[3]) { return true; }
};
template <class T>
struct openmps_argument<T*> {
  struct Held {
    T* pointer;
    unsigned long long offset;
  };
  static OPENMPS_INLINE Held hold(const abi::Argument& argument, int) {
    return {reinterpret_cast<T*>(argument.pointer), argument.offset};
  }
  template <int kKind>
  static OPENMPS_INLINE T* pass(const Held& held, const openmps_thread& thread) {
    if constexpr (kKind == abi::kThreadgroupMemory) return reinterpret_cast<T*>(thread.memory + held.offset);
    return held.pointer;
  }
  static OPENMPS_INLINE bool has_inside(const Held&, const uint (&)[3]) { return true; }
  static constexpr void describe(abi::Binding& binding) {
    binding.is_read_only = is_same_v<T, const T>;
    if constexpr (!is_same_v<typename remove_const<T>::type, void>) binding.bytes = sizeof(T);
    binding.data_type = openmps_data_type<typename remove_const<T>::type>;
  }
};
template <class T>
struct openmps_argument<T&> : openmps_argument<T*> {
  using Base = openmps_argument<T*>;
  template <int kKind>
  static OPENMPS_INLINE T& pass(const typename Base::Held& held, const openmps_thread& thread) {
    return *Base::template pass<kKind>(held, thread);
  }
  static constexpr void describe(abi::Binding& binding) {
    Base::describe(binding);
    binding.is_reference = 1;
  }
};
template <class Texture, class T, access kAccess, bool kArray>
struct openmps_texture_argument {
  using Held = Texture;
  /// With a known format the branches on it disappear.
  static OPENMPS_INLINE Held hold(const abi::Argument& argument, int format) {
    Texture texture;
    static_cast<abi::Texture&>(texture) = argument.texture;
    if (format != abi::kAnyFormat) texture.format = format, texture.lanes = 4, texture.is_full = true;
    if (!kArray) texture.slices = texture.slices_per_image = 1;
    return texture;
  }
  template <int kKind>
  static OPENMPS_INLINE const Texture& pass(const Held& held, const openmps_thread&) {
    return held;
  }
  static OPENMPS_INLINE bool has_inside(const Held& held, const uint (&end)[3]) {
    return end[0] <= held.width && end[1] <= held.height && end[2] <= held.slices;
  }
  static constexpr void describe(abi::Binding& binding) {
    binding.access = static_cast<int>(kAccess);
    binding.is_array = kArray;
    binding.has_integers = openmps_is_integer<T>;
    binding.data_type = openmps_data_type<T>;
  }
};
template <class T, access kAccess>
struct openmps_argument<texture2d<T, kAccess>> : openmps_texture_argument<texture2d<T, kAccess>, T, kAccess, false> {};
template <class T, access kAccess>
struct openmps_argument<texture2d_array<T, kAccess>>
    : openmps_texture_argument<texture2d_array<T, kAccess>, T, kAccess, true> {};
template <>
struct openmps_argument<sampler> {
  using Held = sampler;
  static OPENMPS_INLINE Held hold(const abi::Argument& argument, int) { return sampler(argument.sampler); }
  template <int kKind>
  static OPENMPS_INLINE const sampler& pass(const Held& held, const openmps_thread&) {
    return held;
  }
  static OPENMPS_INLINE bool has_inside(const Held&, const uint (&)[3]) { return true; }
  static constexpr void describe(abi::Binding&) {}
};
template <class T>
struct openmps_argument<const T> : openmps_argument<T> {};

/// A list of values held by base classes: an element per argument, without the standard library's tuple.
template <int kAt, class Held>
struct openmps_held {
  Held value;
};

template <auto kFunction, class Slots, class Signature, class Indices>
struct openmps_caller;
template <int... kAt>
struct openmps_indices {};
template <int N, int... kAt>
struct openmps_make_indices : openmps_make_indices<N - 1, N - 1, kAt...> {};
template <int... kAt>
struct openmps_make_indices<0, kAt...> {
  using type = openmps_indices<kAt...>;
};
template <class... S>
struct openmps_slots {
  static constexpr int kCount = sizeof...(S);
};

template <auto kFunction, int... kKinds, unsigned... kIndices, bool... kActive, class... P, int... kAt>
struct openmps_caller<kFunction, openmps_slots<openmps_slot<kKinds, kIndices, kActive>...>, void (*)(P...),
                      openmps_indices<kAt...>> {
  struct Held : openmps_held<kAt, typename openmps_argument<P>::Held>... {};
  static constexpr int kCount = sizeof...(P);

  static OPENMPS_INLINE Held hold(const abi::Call& call, int format) {
    return Held{{openmps_argument<P>::hold(call.arguments[kAt], format)}...};
  }
  /// Whether threads up to `end` are inside of all textures. The compiler then drops checks of their own positions.
  static OPENMPS_INLINE bool has_inside(const Held& held, const uint (&end)[3]) {
    return (openmps_argument<P>::has_inside(
                static_cast<const openmps_held<kAt, typename openmps_argument<P>::Held>&>(held).value, end) &&
            ...) &&
           end[0] <= 0x8000 && end[1] <= 0x8000 && end[2] <= 0x8000;  // so that a ushort holds a position
  }
  static OPENMPS_INLINE void run(const Held& held, const openmps_thread& thread) {
    kFunction(openmps_argument<P>::template pass<kKinds>(
        static_cast<const openmps_held<kAt, typename openmps_argument<P>::Held>&>(held).value, thread)...);
  }
  template <class B>
  static constexpr abi::Binding binding(int kind, unsigned index, bool is_active) {
    abi::Binding result = {kind, index, is_active, 0, 0, 0, 0, 0, 0, 0};
    openmps_argument<B>::describe(result);
    return result;
  }
  struct Table {
    abi::Binding bindings[kCount == 0 ? 1 : kCount];
  };
  static constexpr Table table() { return {{binding<P>(kKinds, kIndices, kActive)...}}; }
};

template <auto kFunction, class Slots>
struct openmps_entry
    : openmps_caller<kFunction, Slots, decltype(kFunction), typename openmps_make_indices<Slots::kCount>::type> {
  using Caller =
      openmps_caller<kFunction, Slots, decltype(kFunction), typename openmps_make_indices<Slots::kCount>::type>;

  static OPENMPS_INLINE openmps_thread thread_of(const abi::Grid& grid, uint x, uint y, uint z) {
    openmps_thread thread = {&grid, {x, y, z}, {}, {}, {}, nullptr};
    for (int i = 0; i < 3; ++i) {
      const uint group = grid.group[i], first = thread.position[i] / group * group;
      thread.group[i] = thread.position[i] / group;
      thread.in_group[i] = thread.position[i] - first;
      thread.group_size[i] = grid.threads[i] - first < group ? grid.threads[i] - first : group;
    }
    return thread;
  }

#if OPENMPS_ON_GPU
  /// Run the thread of the GPU; blocks are threadgroups. In those at the end of the grid, which have fewer threads, the
  /// first ones of the block run: lanes of a warp are then threads of one SIMD group.
  static OPENMPS_INLINE void run_thread(const abi::Call& call, unsigned char* memory) {
    const uint group[3] = {blockIdx.x, blockIdx.y, blockIdx.z};
    uint in_group[3] = {threadIdx.x, threadIdx.y, threadIdx.z}, size[3];
    bool is_full = true;
    for (int i = 0; i < 3; ++i) {
      const uint rest = call.grid.threads[i] - group[i] * call.grid.group[i];
      size[i] = rest < call.grid.group[i] ? rest : call.grid.group[i];
      is_full = is_full && size[i] == call.grid.group[i];
    }
    if (!is_full) {
      uint index = (in_group[2] * call.grid.group[1] + in_group[1]) * call.grid.group[0] + in_group[0];
      // Barriers wait for the threads that have not ended [CUDA C++ Programming Guide, __syncthreads].
      if (index >= openmps_thread::count(size)) return;
      for (int i = 0; i < 3; ++i) in_group[i] = index % size[i], index /= size[i];
    }
    openmps_thread thread =
        thread_of(call.grid, group[0] * call.grid.group[0] + in_group[0], group[1] * call.grid.group[1] + in_group[1],
                  group[2] * call.grid.group[2] + in_group[2]);
    thread.memory = memory;
    Caller::run(Caller::hold(call, call.format), thread);
  }
#else
  /// Threads whose positions are inside of all textures. The slices of a pixel are neighbours in memory.
  template <int kFormat>
  static void run_inside(const abi::Call& call, const abi::Box& box) {
    const auto held = Caller::hold(call, kFormat);
    const abi::Grid grid = call.grid;
    const uint end[3] = {box.end[0], box.end[1], box.end[2]};
    if (!Caller::has_inside(held, end)) return;  // never
    for (uint y = box.begin[1]; y < end[1]; ++y)
      for (uint x = box.begin[0]; x < end[0]; ++x)
        for (uint z = box.begin[2]; z < end[2]; ++z) Caller::run(held, thread_of(grid, x, y, z));
  }
  static void run_any(const abi::Call& call, const abi::Box& box) {
    const auto held = Caller::hold(call, abi::kAnyFormat);
    const abi::Grid grid = call.grid;
    for (uint y = box.begin[1]; y < box.end[1]; ++y)
      for (uint z = box.begin[2]; z < box.end[2]; ++z)
        for (uint x = box.begin[0]; x < box.end[0]; ++x) Caller::run(held, thread_of(grid, x, y, z));
  }
  static OPENMPS_INLINE void run_box(const abi::Call& call, abi::Box box) {
    if (call.format != abi::kFloat16 && call.format != abi::kFloat32) return run_any(call, box);
    for (int axis = 0; axis < 3; ++axis) {  // the threads beyond the textures, one axis after the other
      const uint end = box.end[axis];
      if (end <= call.inside[axis]) continue;
      abi::Box beyond = box;
      if (beyond.begin[axis] < call.inside[axis]) beyond.begin[axis] = call.inside[axis];
      run_any(call, beyond);
      box.end[axis] = call.inside[axis];
    }
    if (call.format == abi::kFloat16)
      run_inside<abi::kFloat16>(call, box);
    else
      run_inside<abi::kFloat32>(call, box);
  }
  static OPENMPS_INLINE void thread(const abi::Group& group, unsigned index) {
    openmps_group.group = &group;
    const abi::Call& call = *group.call;
    openmps_thread thread = {&call.grid, {}, {}, {}, {}, group.memory};
    uint rest = index;
    for (int i = 0; i < 3; ++i) {
      thread.group[i] = group.position[i];
      thread.group_size[i] = group.size[i];
      thread.in_group[i] = rest % group.size[i];
      rest /= group.size[i];
      thread.position[i] = group.position[i] * call.grid.group[i] + thread.in_group[i];
    }
    Caller::run(Caller::hold(call, abi::kAnyFormat), thread);
  }
#endif
};

}  // namespace metal
