// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/random/random.hpp"

#include <cstring>

#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/random.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 8 * 1024;  // min values per thread

/// Store values [first, first + count) of the stream.
void fill(const RandomStream& values, std::uint64_t first, std::int64_t count, std::byte* to) {
  for (std::int64_t done = 0; done < count;) {
    const std::uint64_t number = first + static_cast<std::uint64_t>(done);
    const Philox block = random_block(values, number / kRandomBlock);
    for (auto k = static_cast<std::int64_t>(number % kRandomBlock); k < kRandomBlock && done < count; ++k, ++done) {
      const std::uint32_t word = block.words[k];
      if (values.distribution == RandomDistribution::bits) {
        std::memcpy(to + done * 4, &word, 4);
      } else {
        const float value = random_value(values, word);
        std::memcpy(to + done * 4, &value, 4);
      }
    }
  }
}

const char* random(const RandomProblem& p) {
  std::byte* const first = p.dst.memory->data() + p.dst.offset;
  const std::int64_t rows = p.matrices * p.rows;
  const int threads = threads_for(rows * p.columns, kGrain);
  const std::int64_t parts = rows >= threads ? 1 : threads;  // of a row
  parallel_ranges(rows * parts, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / parts, part = i % parts;
      const std::int64_t column = p.columns * part / parts, stop = p.columns * (part + 1) / parts;
      const std::int64_t place = row / p.rows * p.dst.matrix_stride + row % p.rows * p.dst.row_stride + column;
      fill(p.values, p.values.first + static_cast<std::uint64_t>(row * p.columns + column), stop - column,
           first + place * 4);
    }
  });
  return nullptr;
}

constexpr Implementation<RandomProblem> kRandoms[] = {{"random", random}};
const ImplementationNames kRandomNames(kRandoms);

}  // namespace

void run(const RandomProblem& problem) { run_first("random", kRandoms, problem); }

}  // namespace openmps::cpu
