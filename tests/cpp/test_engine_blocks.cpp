// SPDX-License-Identifier: Apache-2.0
// Blocks of memory that are kept for reuse.
//
//   test_engine_blocks [seed offset]      prints "N passed, N failed"
#include "engine/shared/block_allocator.hpp"
#include "engine_test.hpp"

namespace {

constexpr std::size_t kMega = 1 << 20;

struct Blocks {
  BlockAllocator all{1024 * kMega, 256 * kMega};

  /// Allocate scratch memory and free it again; return the size of its block.
  std::size_t use(std::size_t bytes) {
    std::size_t block = 0;
    std::byte* const data = all.allocate_scratch(bytes, block);
    std::memset(data, 1, bytes);
    all.deallocate(data, block);
    return block;
  }
};

void test_scratch_of_many_sizes() {
  for (const bool grows : {false, true}) {
    Blocks blocks;
    for (std::size_t i = 1; i <= 16; ++i) blocks.use((grows ? i : 17 - i) * kMega);
    // A block of each of 16, 4 and 1 MB at most, instead of one for each size.
    report(blocks.all.cached_bytes() <= 21 * kMega, "scratch that %s keeps %zu bytes", grows ? "grows" : "shrinks",
           std::size_t(blocks.all.cached_bytes()));
    report(blocks.all.used_bytes() == 0, "all of it is free");
  }
}

void test_scratch_takes_free_blocks() {
  Blocks blocks;
  blocks.use(8 * kMega);
  report(blocks.use(3 * kMega) == 8 * kMega, "a block of up to four times the size serves");
  report(blocks.use(8 * kMega) == 8 * kMega, "one of the size, too");
  report(blocks.use(kMega) == kMega, "a larger one is left for others");
  report(blocks.use(2 * kMega) == 8 * kMega, "the smallest that is large enough serves");
  std::size_t first = 0, second = 0;
  std::byte* const a = blocks.all.allocate_scratch(4 * kMega, first);
  std::byte* const b = blocks.all.allocate_scratch(4 * kMega, second);
  report(a != b && first == 8 * kMega && second == 4 * kMega, "blocks in use are not shared: %zu, %zu", first, second);
  report(blocks.all.used_bytes() == first + second, "used bytes are those of the blocks");
  blocks.all.deallocate(a, first);
  blocks.all.deallocate(b, second);
  std::byte* const exact = blocks.all.allocate(3 * kMega);
  report(blocks.all.used_bytes() == 3 * kMega, "what is kept has a block of its size");
  blocks.all.deallocate(exact, 3 * kMega);
}

void test_limit() {
  BlockAllocator small(8 * kMega, 8 * kMega);
  std::byte* const used = small.allocate(4 * kMega);
  std::size_t block = 0;
  bool refused = false;
  try {
    small.allocate_scratch(5 * kMega, block);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  report(refused, "scratch memory beyond the limit is refused");
  small.deallocate(used, 4 * kMega);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_scratch_of_many_sizes, test_scratch_takes_free_blocks, test_limit});
}
