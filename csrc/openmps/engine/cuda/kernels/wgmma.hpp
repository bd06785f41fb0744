// SPDX-License-Identifier: Apache-2.0
// Products of matrices by warp groups: 4 warps, of which the first one's number is a multiple of 4. Compute capability
// 9.0 has the instructions, no later one [PTX ISA, Asynchronous Warpgroup Level Matrix Instructions].
#pragma once

#include "engine/cuda/kernels/async_copies.hpp"

#if !MPSCNN_ON_GPU
#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>
#endif

namespace openmps::cuda {

constexpr int kProductTerms = 16;  ///< of an instruction, whose warps have 16 rows each

#if MPSCNN_ON_GPU

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MPSCNN_HAS_WGMMA 1
#else
#define MPSCNN_HAS_WGMMA 0
#endif

/// A T of each warp of a block, made by make(warp).
template <class T>
class OfWarps {
 public:
  template <class Make>
  MPSCNN_HOST_DEVICE explicit OfWarps(const Make& make)
      : own_(make(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0))) {}  // known to be that of the warp
  template <class Body>
  MPSCNN_HOST_DEVICE void each(const Body& body) {
    body(own_);
  }

 private:
  T own_;
};

/// Define a kernel whose body computes part `index` from `args` with a `memory` that may be larger than 48 KB: one
/// block of each multiprocessor at a time.
#define MPSCNN_LARGE_KERNEL(name, Args, Memory)                                                             \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, Memory& memory);                         \
  extern "C" __global__ void __launch_bounds__(256, 1) name(const __grid_constant__ Args args, i64 count) { \
    extern __shared__ __align__(1024) unsigned char name##_memory[];                                        \
    wait_for_kernels_before();                                                                              \
    name##_body(args, blockIdx.x, *reinterpret_cast<Memory*>(name##_memory));                               \
  }                                                                                                         \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, Memory& memory)

#if MPSCNN_HAS_WGMMA

/// As wait_for_copies(), for copies that products read.
template <int kOpen>
MPSCNN_HOST_DEVICE void wait_for_copies_of_products() {
  asm volatile("cp.async.wait_group %0;\n\tfence.proxy.async.shared::cta;" ::"n"(kOpen) : "memory");
  __syncthreads();
}
/// Before products: registers that they read or change have been written.
MPSCNN_HOST_DEVICE void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// End a batch of products.
MPSCNN_HOST_DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Wait for all batches of the group but the last `kOpen`.
template <int kOpen>
MPSCNN_HOST_DEVICE void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
/// Products read these registers up to here; the compiler does not know it.
MPSCNN_HOST_DEVICE void keep_until_here(const std::uint32_t (&rows)[1][4]) {
  asm volatile("" ::"r"(rows[0][0]), "r"(rows[0][1]), "r"(rows[0][2]), "r"(rows[0][3]) : "memory");
}
/// Products change these registers up to here.
template <int kSums>
MPSCNN_HOST_DEVICE void change_here(float (&sums)[1][kSums]) {
  MPSCNN_UNROLL
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[0][i])::"memory");
}

/// Return the descriptor of the columns of add_products().
MPSCNN_HOST_DEVICE std::uint64_t operand_of(const Halves8* shared, int first, int eighth) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kRowsOf8 = std::uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kRowsOf8 | static_cast<std::uint64_t>((shared_address(shared) + first * 128 + eighth * 16) >> 4);
}
/// Start to add the products of 16 rows of each warp and 32 or 64 columns with 16 terms to the sums, or to 0. `rows` as
/// in multiply_add(). A row of `shared` has one term of 64 columns, 128 bytes, of which 16 are at (eighth ^ (row % 8)):
/// the first row is `first`, the first columns are those of `eighth`. `shared` is aligned to 1024 bytes.
MPSCNN_HOST_DEVICE void add_products(float (&sums)[1][16], const std::uint32_t (&rows)[1][4], const Halves8* shared,
                                     int first, int eighth, bool adds) {
  float (&d)[16] = sums[0];
  asm volatile(
      "{\n\t.reg .pred adds;\n\tsetp.ne.u32 adds, %21, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, adds, 1, 1, "
      "1;\n\t}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(rows[0][0]), "r"(rows[0][1]), "r"(rows[0][2]), "r"(rows[0][3]), "l"(operand_of(shared, first, eighth)),
        "r"(static_cast<std::uint32_t>(adds))
      : "memory");
}
MPSCNN_HOST_DEVICE void add_products(float (&sums)[1][32], const std::uint32_t (&rows)[1][4], const Halves8* shared,
                                     int first, int eighth, bool adds) {
  float (&d)[32] = sums[0];
  asm volatile(
      "{\n\t.reg .pred adds;\n\tsetp.ne.u32 adds, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n\t}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(rows[0][0]), "r"(rows[0][1]), "r"(rows[0][2]), "r"(rows[0][3]), "l"(operand_of(shared, first, eighth)),
        "r"(static_cast<std::uint32_t>(adds))
      : "memory");
}

#endif

#else

#define MPSCNN_HAS_WGMMA 1

template <class T>
class OfWarps {
 public:
  template <class Make>
  explicit OfWarps(const Make& make) {
    for (int warp = 0; warp < kWarps; ++warp) all_.push_back(make(warp));
  }
  template <class Body>
  void each(const Body& body) {
    for (T& one : all_) body(one);
  }

 private:
  std::vector<T> all_;
};

#define MPSCNN_LARGE_KERNEL(name, Args, Memory)                                               \
  inline constexpr LargeKernel<Args> name{{kFile, #name, kThreads}, sizeof(Memory)};          \
  inline void name##_body(const Args& args, i64 index, Memory& memory);                       \
  MPSCNN_REGISTER_KERNEL(name, Args, [](const void* args, i64 count) {                        \
    const auto memory = std::make_unique<Memory>();                                           \
    for (i64 i = 0; i < count; ++i) name##_body(*static_cast<const Args*>(args), i, *memory); \
  })                                                                                          \
  inline void name##_body([[maybe_unused]] const Args& args, [[maybe_unused]] i64 index, Memory& memory)

// Products of the host have ended at once.
template <int kOpen>
void wait_for_copies_of_products() {
  wait_for_copies<kOpen>();
}
inline void start_products() {}
inline void end_products() {}
template <int kOpen>
void wait_for_products() {}
inline void keep_until_here(const std::uint32_t (&)[32][4]) {}
template <int kSums>
void change_here(float (&)[32][kSums]) {}

template <int kSums>
void add_products(float (&sums)[32][kSums], const std::uint32_t (&rows)[32][4], const Halves8* shared, int first,
                  int eighth, bool adds) {
  if (!adds)
    for (auto& lane : sums) std::fill(std::begin(lane), std::end(lane), 0.0f);
  const auto half = [](std::uint32_t word, int i) { return half_value(static_cast<std::uint16_t>(word >> (16 * i))); };
  for (int term = 0; term < kProductTerms; ++term) {
    float column[2 * kSums];
    for (int i = 0; i < 2 * kSums; ++i) {
      const int row = first + term;
      column[i] = half_of(shared[row * 8 + ((eighth + i / 8) ^ (row & 7))], i % 8);
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < kSums; ++i) {
        const int low_or_high = i / 2 % 2;
        const std::uint32_t word = rows[lane / 4 * 4 + term % 8 / 2][low_or_high + term / 8 * 2];
        sums[lane][i] += half(word, term % 2) * column[i / 4 * 8 + lane % 4 * 2 + i % 2];
      }
  }
}

#endif

}  // namespace openmps::cuda
