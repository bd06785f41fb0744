// SPDX-License-Identifier: Apache-2.0
// Sums of all pixels of an image, by channel: the average in front of classifiers and gates.
#include <algorithm>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/reduction/reduce.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using i64 = std::int64_t;

constexpr i64 kGrain = 64 * 1024;  // min values per thread
constexpr i64 kBlock = 64;         // channels whose sums are in registers
constexpr i64 kRun = 64;           // pixels per float sum: the error grows with runs, not with pixels

#define MPSCNN_LOOPS "engine/cpu/reduction/pixel_sums.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

}  // namespace

const char* pixel_sums_in_vectors(const ReduceProblem& problem) {
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  if (src.format == Format::float32)
    has_avx512() ? with_avx512::sum_pixels<float>(src, dst, problem.scale)
                 : with_avx2::sum_pixels<float>(src, dst, problem.scale);
  else if (src.format == Format::bfloat16 && has_avx512())
    with_avx512::sum_pixels<std::uint16_t>(src, dst, problem.scale);
  else
    return "neither float32 nor, with AVX-512, bfloat16";
  return nullptr;
}

#else

const char* pixel_sums_in_vectors(const ReduceProblem&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
