// SPDX-License-Identifier: Apache-2.0
// Random matrices.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/shared/random.hpp"

namespace openmps::cuda::random {

inline constexpr const char* kFile = "engine/cuda/kernels/random.hpp";

struct RandomArgs {
  i64 rows, columns, count;  ///< of a matrix; of all values
  Pointer<std::uint32_t> dst;
  i64 matrix_stride, row_stride;
  RandomStream values;
};

// Four values per thread, those of one block of random words; the first block may begin before the first value.
MPSCNN_VALUE_KERNEL(random_words, RandomArgs) {
  const std::uint64_t number = args.values.first / kRandomBlock + static_cast<std::uint64_t>(index);
  const Philox block = random_block(args.values, number);
  for (int k = 0; k < kRandomBlock; ++k) {
    const i64 value = static_cast<i64>(number * kRandomBlock + static_cast<std::uint64_t>(k) - args.values.first);
    if (value < 0 || value >= args.count) continue;
    const Place at = place_of(value, 1, args.rows, args.columns);  // images are matrices
    const std::uint32_t word = block.words[k];
    args.dst[at.n * args.matrix_stride + at.x * args.row_stride + at.k] =
        args.values.distribution == RandomDistribution::bits
            ? word
            : std::bit_cast<std::uint32_t>(random_value(args.values, word));
  }
}

}  // namespace openmps::cuda::random
