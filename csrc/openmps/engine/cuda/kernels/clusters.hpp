// SPDX-License-Identifier: Apache-2.0
// Clusters: blocks of threads that run together and read each other's shared memory. They need compute capability 9.0
// [CUDA C++ Programming Guide, Thread Block Clusters]; a cluster of one block runs anywhere.
#pragma once

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

constexpr int kWarps = kThreads / 32;  ///< of a block

#if MPSCNN_ON_GPU

#define MPSCNN_HAS_CLUSTERS (__CUDA_ARCH__ >= 900)

constexpr int kHeldLanes = 1;  ///< a thread is one lane of a warp
MPSCNN_HOST_DEVICE int lane_of(int) { return static_cast<int>(threadIdx.x % 32); }
/// Return the values of all lanes, combined: in a fixed order, equal in all lanes if `combine` is commutative.
template <class T, class Combine>
MPSCNN_HOST_DEVICE T reduce_lanes(const T (&values)[1], const Combine& combine) {
  T value = values[0];
  for (int distance = 16; distance > 0; distance /= 2) value = combine(value, shuffled(value, distance));
  return value;
}

template <int kBlocks>
class Cluster {
 public:
  /// Call body(block, warp) in each warp of each block. Ends with a barrier of each block.
  template <class Body>
  MPSCNN_HOST_DEVICE void each_warp(const Body& body) const {
    unsigned block = 0;
    if constexpr (kBlocks > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    body(static_cast<int>(block), static_cast<int>(threadIdx.x / 32));
    __syncthreads();
  }
  /// Wait for all blocks. Shared memory that they have written can then be read; a block may end only after the last
  /// read of its memory.
  MPSCNN_HOST_DEVICE void join() const {
    if constexpr (kBlocks > 1)
      asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
};

/// A T in the shared memory of each block.
template <class T, int kBlocks>
class Shared {
 public:
  MPSCNN_HOST_DEVICE explicit Shared(T& own) : own_(own) {}
  MPSCNN_HOST_DEVICE T& own(int) const { return own_; }
  MPSCNN_HOST_DEVICE const T& of(int block) const {
    if constexpr (kBlocks == 1) return own_;
    const T* result;
    asm("mapa.u64 %0, %1, %2;" : "=l"(result) : "l"(&own_), "r"(block));
    return *result;
  }

 private:
  T& own_;
};
/// Define `name`: a Shared<T, kBlocks>.
#define MPSCNN_SHARED(T, name, kBlocks) \
  __shared__ T name##_memory;           \
  const Shared<T, kBlocks> name(name##_memory)

/// Define a kernel whose body computes part `index` from `args` with all blocks of `cluster`. Only within #if
/// MPSCNN_HAS_CLUSTERS.
#define MPSCNN_CLUSTER_KERNEL(name, Args, kBlocks)                                                   \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Cluster<kBlocks>& cluster); \
  extern "C" __global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(256)                  \
      name(const __grid_constant__ Args args, i64 count) {                                           \
    wait_for_kernels_before();                                                                       \
    name##_body(args, blockIdx.x / kBlocks, Cluster<kBlocks>());                                     \
  }                                                                                                  \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Cluster<kBlocks>& cluster)

#else

#define MPSCNN_HAS_CLUSTERS 1

constexpr int kHeldLanes = 32;  ///< a host thread is the whole warp
inline int lane_of(int held) { return held; }
template <class T, class Combine>
T reduce_lanes(const T (&values)[32], const Combine& combine) {
  T value = values[0];
  for (int lane = 1; lane < 32; ++lane) value = combine(value, values[lane]);
  return value;
}

template <int kBlocks>
class Cluster {
 public:
  template <class Body>
  void each_warp(const Body& body) const {
    for (int block = 0; block < kBlocks; ++block)
      for (int warp = 0; warp < kWarps; ++warp) body(block, warp);
  }
  void join() const {}
};

template <class T, int kBlocks>
class Shared {
 public:
  explicit Shared(T (&blocks)[kBlocks]) : blocks_(blocks) {}
  T& own(int block) const { return blocks_[block]; }
  const T& of(int block) const { return blocks_[block]; }

 private:
  T (&blocks_)[kBlocks];
};
#define MPSCNN_SHARED(T, name, kBlocks) \
  T name##_memory[kBlocks];             \
  const Shared<T, kBlocks> name(name##_memory)

#define MPSCNN_CLUSTER_KERNEL(name, Args, kBlocks)                                                       \
  inline constexpr Kernel<Args> name{kFile, #name, kBlocks * kThreads};                                  \
  inline void name##_body(const Args& args, i64 index, const Cluster<kBlocks>& cluster);                 \
  MPSCNN_REGISTER_KERNEL(name, Args, [](const void* args, i64 count) {                                   \
    for (i64 i = 0; i < count; ++i) name##_body(*static_cast<const Args*>(args), i, Cluster<kBlocks>()); \
  })                                                                                                     \
  inline void name##_body([[maybe_unused]] const Args& args, [[maybe_unused]] i64 index,                 \
                          [[maybe_unused]] const Cluster<kBlocks>& cluster)

#endif

}  // namespace openmps::cuda
