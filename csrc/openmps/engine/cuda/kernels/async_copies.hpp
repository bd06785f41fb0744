// SPDX-License-Identifier: Apache-2.0
// Copies to shared memory that run while a block computes, and blocks that wait for them.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/constants.hpp"

#if !MPSCNN_ON_GPU
#include <deque>
#include <utility>
#include <vector>
#endif

namespace openmps::cuda {

/// 16 bytes of global memory, or zeros.
struct Copied {
  const void* from;
  bool is_inside;
};

#if MPSCNN_ON_GPU

/// Call body(thread) in each thread of a block. Without a barrier.
template <class Body>
MPSCNN_HOST_DEVICE void each_thread(const Body& body) {
  body(static_cast<int>(threadIdx.x));
}
/// Call body(warp) in each warp of a block. Without a barrier.
template <class Body>
MPSCNN_HOST_DEVICE void each_warp(const Body& body) {
  body(static_cast<int>(threadIdx.x / 32));
}
MPSCNN_HOST_DEVICE std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
/// Start to copy 16 bytes to shared memory; from compute capability 8.0 on, without waiting for them.
MPSCNN_HOST_DEVICE void copy_async(Halves8& to, const Copied& source) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(&to)), "l"(source.from),
               "r"(source.is_inside ? 16 : 0)
               : "memory");
#else
  to = load_constant<4>(source.from, source.is_inside);
#endif
}
/// End a group of copies of this thread.
MPSCNN_HOST_DEVICE void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Wait until all groups of all threads but the last `kOpen` are in shared memory.
template <int kOpen>
MPSCNN_HOST_DEVICE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
  __syncthreads();
}
/// End a kernel that does not wait for its last copies.
MPSCNN_HOST_DEVICE void leave_copies() {}

#else

template <class Body>
void each_thread(const Body& body) {
  for (int thread = 0; thread < kThreads; ++thread) body(thread);
}
template <class Body>
void each_warp(const Body& body) {
  for (int warp = 0; warp < kWarps; ++warp) body(warp);
}
/// The host makes copies when they are waited for: a kernel that reads them earlier gets old values, as on a GPU.
class Copies {
 public:
  static Copies& of_thread() {
    thread_local Copies copies;
    return copies;
  }
  void add(Halves8& to, const Halves8& value) { open_.emplace_back(&to, value); }
  void end_group() { groups_.push_back(std::exchange(open_, {})); }
  void wait(std::size_t open_groups) {
    for (; groups_.size() > open_groups; groups_.pop_front())
      for (const auto& [to, value] : groups_.front()) *to = value;
  }
  void leave() { open_.clear(), groups_.clear(); }

 private:
  using Group = std::vector<std::pair<Halves8*, Halves8>>;
  Group open_;
  std::deque<Group> groups_;
};

inline void copy_async(Halves8& to, const Copied& source) {
  Copies::of_thread().add(to, load_constant<4>(source.from, source.is_inside));
}
inline void end_copies() { Copies::of_thread().end_group(); }
template <int kOpen>
void wait_for_copies() {
  Copies::of_thread().wait(kOpen);
}
inline void leave_copies() { Copies::of_thread().leave(); }

#endif

/// Load four matrices of 8 x 8 values of float16 from shared memory and transpose them: row i of matrix j is
/// *row_of(8 j + i), and lane 4 g + t gets values g of rows 2 t and 2 t + 1 of matrix j as word j.
template <class RowOf>
MPSCNN_HOST_DEVICE void load_transposed(std::uint32_t (&to)[kHeldLanes][4], const RowOf& row_of) {
#if MPSCNN_ON_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0][0]), "=r"(to[0][1]), "=r"(to[0][2]), "=r"(to[0][3])
               : "r"(shared_address(row_of(lane_of(0)))));
#else
  for (int lane = 0; lane < 32; ++lane)
    for (int j = 0; j < 4; ++j) {
      const auto half = [&](int row) {
        const Halves8& values = *row_of(8 * j + row);
        return values.words[lane / 8] >> (lane / 4 % 2 * 16) & 0xffffu;
      };
      to[lane][j] = half(lane % 4 * 2) | half(lane % 4 * 2 + 1) << 16;
    }
#endif
}

}  // namespace openmps::cuda
