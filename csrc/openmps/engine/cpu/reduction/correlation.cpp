// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/cpu/reduction/reduce.hpp"
#include "engine/shared/float_rows.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;  // min multiplications per thread

MPSCNN_CLONES float dot(const float* a, const float* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Return the pixel that a tap reads, -1 for a zero.
std::int64_t place_of(std::int64_t at, std::int64_t size, Edge edge) {
  if (edge == Edge::clamp) return std::clamp<std::int64_t>(at, 0, size - 1);
  return at < 0 || at >= size ? -1 : at;
}

const char* correlation(const CorrelationProblem& p) {
  const Tensor a = tensor_of(p.a), b = tensor_of(p.b), dst = tensor_of(p.dst);
  const std::int64_t wide = 2 * p.reach_w + 1, high = 2 * p.reach_h + 1, c = a.c;
  const int threads = threads_for(dst.size() * c, kGrain);
  const std::int64_t window = std::min(b.h, 2 * p.reach_h * p.step_h + 1);
  struct Scratch {
    FloatRows a, b;
    std::vector<float> row;
  };
  std::vector<Scratch> scratch(
      static_cast<std::size_t>(threads),
      {FloatRows(a, 1), FloatRows(b, window), std::vector<float>(static_cast<std::size_t>(dst.w * dst.c))});
  parallel_ranges(dst.n * dst.h, threads, [&](std::int64_t begin, std::int64_t end) {
    Scratch& my = scratch[static_cast<std::size_t>(thread_number())];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / dst.h, y = task % dst.h;
      const float* const left = my.a.row(n, y);
      for (std::int64_t j = 0; j < high; ++j) {
        const std::int64_t row = place_of(y + (j - p.reach_h) * p.step_h, b.h, p.edge);
        const float* const right = row < 0 ? nullptr : my.b.row(n, row);
        for (std::int64_t x = 0; x < dst.w; ++x) {
          for (std::int64_t i = 0; i < wide; ++i) {
            const std::int64_t column = place_of(x + (i - p.reach_w) * p.step_w, b.w, p.edge);
            my.row[static_cast<std::size_t>(x * dst.c + j * wide + i)] =
                right && column >= 0 ? dot(left + x * my.a.pixel_stride(), right + column * my.b.pixel_stride(), c)
                                     : 0.0f;
          }
        }
      }
      store_pixels(my.row.data(), dst.at(n, y), dst, dst.w);
    }
  });
  return nullptr;
}

constexpr Implementation<CorrelationProblem> kCorrelations[] = {{"correlation", correlation}};
const ImplementationNames kCorrelationNames(kCorrelations);

}  // namespace

void run(const CorrelationProblem& problem) { run_first("correlation", kCorrelations, problem); }

}  // namespace openmps::cpu
