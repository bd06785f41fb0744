// SPDX-License-Identifier: Apache-2.0
// Random numbers of dropout. Results are tested by tests/test_engine_rows.py.
//
//   test_engine_dropout [seed offset]      prints "N passed, N failed"
#include <algorithm>

#include "engine/shared/dropout.hpp"
#include "engine_test.hpp"

namespace {

/// Test vectors published by the authors of the generator.
void test_philox() {
  struct {
    std::uint64_t key, low, high;
    std::uint32_t words[4];
  } const known[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const auto& k : known) {
    const Philox got(k.key, k.low, k.high);
    report(std::memcmp(got.words, k.words, 16) == 0, "Philox of key %llx: %08x %08x %08x %08x",
           static_cast<unsigned long long>(k.key), got.words[0], got.words[1], got.words[2], got.words[3]);
  }
  std::uint32_t bits[192];
  dropout_bits(7, 1ull << 40 | 3, 64 * 5, 130, bits);
  bool same = true;
  for (int i = 0; i < 192; ++i)
    same = same && bits[i] == Philox(7, std::uint64_t(16 * (5 + i / 64) + i % 16), 1ull << 40 | 3).words[i % 64 / 16];
  report(same, "bits are words of blocks in the order that the header tells");
}

/// The share of kept values is within five standard deviations, in all parts; masks differ by seed and image.
void test_dropout_statistics() {
  DropoutMask mask;
  mask.h = 100, mask.w = 100, mask.c = 64;
  const auto count = static_cast<std::size_t>(mask.h * mask.w * mask.c);
  std::vector<std::uint8_t> kept(count), other(count);
  for (const float keep : {0.1f, 0.5f, 0.9f}) {
    mask.keep = keep, mask.seed = 11;
    dropout_mask(mask, 0, kept.data());
    const double deviation = std::sqrt(double(count) * keep * (1 - keep));
    const double sum = double(std::count(kept.begin(), kept.end(), 1));
    report(std::fabs(sum - double(keep) * double(count)) < 5 * deviation, "keep %g keeps %g of %g", keep, sum,
           double(count));
    for (std::size_t lane = 0; lane < 64; ++lane) {
      double part = 0;
      for (std::size_t i = lane; i < count; i += 64) part += kept[i];
      report(std::fabs(part * 64 - double(keep) * double(count)) < 5 * 8 * deviation, "keep %g, lane %d", keep,
             int(lane));
    }
    for (const int what : {0, 1}) {
      mask.seed = 11 + unsigned(what);
      dropout_mask(mask, what ? 0 : 1, other.data());
      double equal = 0;
      for (std::size_t i = 0; i < count; ++i) equal += kept[i] == other[i];
      const double p = double(keep) * keep + (1.0 - keep) * (1.0 - keep);
      report(std::fabs(equal - p * double(count)) < 5 * std::sqrt(double(count) * p * (1 - p)),
             "masks of different %s are independent", what ? "seeds" : "images");
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_philox, test_dropout_statistics}); }
