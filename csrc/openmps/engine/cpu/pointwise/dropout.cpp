// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/dropout.hpp"

#include <algorithm>

#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // min values per thread
constexpr std::int64_t kPart = 1024;        // values per batch of random bits

MPSCNN_CLONES void drop(const float* src, const std::uint32_t* bits, std::uint32_t threshold, float keep, float* dst,
                        std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = bits[i] < threshold ? src[i] / keep : 0.0f;
}

/// Images of h x w pixels, whose first pixel is at (start_h, start_w) in the mask.
struct Dropper {
  const DropoutMask& mask;
  std::int64_t h, w, c, start_h, start_w;

  void operator()(const std::array<const float*, 1>& src, float* dst, std::int64_t first, std::int64_t pixels) const {
    const std::uint32_t threshold = dropout_threshold(mask.keep);
    // Adjacent values of a row are adjacent in the mask.
    const bool rows = mask.c == c && mask.w == w && start_w == 0;
    const auto is_within = [](std::int64_t i, std::int64_t extent) { return extent == 1 || (i >= 0 && i < extent); };
    std::uint32_t bits[kPart];
    const float* from = src[0];
    for (std::int64_t pixel = first; pixel < first + pixels;) {
      const std::int64_t column = pixel % w, x = start_w + column, y = start_h + pixel / w % h;
      const std::uint64_t image = mask.image + static_cast<std::uint64_t>(pixel / (w * h));
      const std::int64_t run = rows ? std::min(w - column, first + pixels - pixel) : 1;
      const std::int64_t at = ((mask.h == 1 ? 0 : y) * mask.w + (mask.w == 1 ? 0 : x)) * mask.c;
      if (!is_within(y, mask.h) || !is_within(x, mask.w)) {
        std::fill_n(dst, run * c, 0.0f);
      } else if (mask.c == c) {
        for (std::int64_t done = 0; done < run * c;) {
          const std::int64_t lead = (at + done) % 64, count = std::min(kPart - lead, run * c - done);
          dropout_bits(mask.seed, image, at + done - lead, lead + count, bits);
          drop(from + done, bits + lead, threshold, mask.keep, dst + done, count);
          done += count;
        }
      } else {
        // All channels share one decision.
        dropout_bits(mask.seed, image, at / 64 * 64, 64, bits);
        const bool kept = bits[at % 64] < threshold;
        for (std::int64_t k = 0; k < c; ++k) dst[k] = kept ? from[k] / mask.keep : 0.0f;
      }
      from += run * c, dst += run * c, pixel += run;
    }
  }
};

const char* dropout(const DropoutProblem& problem) {
  const DropoutMask& mask = problem.mask;
  const Operand& src = problem.src;
  const std::int64_t c = problem.dst.c;
  const ResultsAxis rows = result_rows(problem.source, src), columns = result_columns(problem.source, src);
  if (rows.is_seen_twice() || columns.is_seen_twice()) {
    for_results<1>({moved(src, -src.start_h, -src.start_w)}, rows, columns, c, problem.dst, kGrain,
                   Dropper{mask, rows.count, columns.count, c, mask.h == 1 ? 0 : problem.start_h - src.start_h,
                           mask.w == 1 ? 0 : problem.start_w - src.start_w});
  } else {
    for_operands<1>({&src}, problem.dst, kGrain, /*across_images=*/true,
                    Dropper{mask, problem.dst.h, problem.dst.w, c, problem.start_h, problem.start_w});
  }
  return nullptr;
}

constexpr Implementation<DropoutProblem> kDropouts[] = {{"dropout", dropout}};
const ImplementationNames kDropoutNames(kDropouts);

}  // namespace

void run(const DropoutProblem& problem) { run_first("dropout", kDropouts, problem); }

}  // namespace openmps::cpu
