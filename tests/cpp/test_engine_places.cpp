// SPDX-License-Identifier: Apache-2.0
// What the engine does to the places of values: resampling, reshaping, padding, dropping out; against plain loops
// written from the formulas in engine.hpp. Random geometry, slices of larger images, every format.
//
//   test_engine_places [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "engine/shared/dropout.hpp"
#include "engine_test.hpp"

namespace {

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
}

/// Compares all of dst; empty when all is well.
std::string compare(const Image& dst, const std::function<double(i64, i64, i64, i64)>& expected, double relative = 0) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const double want = clamped(dst.view.format, expected(n, y, x, c)), got = dst.value(n, y, x, c);
    if (want == got || (std::isnan(want) && std::isnan(got)) || !wrong.empty()) return;
    if (std::fabs(got - want) <= relative + format_error(dst.view.format, want)) return;
    char text[120];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d): %.9g, not %.9g", int(n), int(y), int(x), int(c), got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

// --------------------------------------------------------------------------------------------------------- resampling

/// One axis of a sample: pixels and what they count.
std::vector<std::pair<i64, double>> weights_of(const ResampleProblem& p, const Positions& positions, i64 i, i64 size) {
  const double at = positions.start + double(i) * positions.numerator / positions.denominator;
  if (p.edge == ResampleEdge::zero_samples && (at < 0 || at > double(size - 1))) return {};
  const double floor = std::floor(at), weight = p.type == ResampleType::nearest ? 0 : at - floor;
  std::vector<std::pair<i64, double>> result;
  for (const auto& [offset, share] : {std::pair<i64, double>{0, 1 - weight}, {1, weight}}) {
    i64 pixel = static_cast<i64>(floor) + offset;
    if (p.edge == ResampleEdge::clamp) pixel = std::clamp<i64>(pixel, 0, size - 1);
    if (share > 0 && pixel >= 0 && pixel < size) result.push_back({pixel, share});
  }
  return result;
}

void test_resample() {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Random random(700000 + seed);
    const bool large = seed % 25 == 0;
    const i64 c = random.pick({1, 2, 3, 4, 15, 16, 20, 37, 64, 300}), n = random.whole(1, 2);
    const i64 sh = random.whole(1, 9), sw = random.whole(1, 9);
    const int regions = random.one_in(4) ? 3 : 1;
    Image src(random, random_format(random), n, sh, sw, c, random.one_in(2));
    Image dst(random, random_format(random), n * regions, random.whole(1, large ? 60 : 12),
              random.whole(1, large ? 60 : 12), c, random.one_in(2));
    src.randomize(random), dst.snapshot();
    ResampleProblem p;
    p.src = src.view, p.dst = dst.view;
    p.type = random.pick({ResampleType::nearest, ResampleType::bilinear, ResampleType::bilinear});
    p.edge = random.pick({ResampleEdge::zero, ResampleEdge::clamp, ResampleEdge::zero_samples});
    for (int r = 0; r < regions; ++r) {
      ResampleProblem::Region region;
      for (Positions* const axis : {&region.h, &region.w}) {
        const double size = double(axis == &region.h ? sh : sw),
                     count = double(axis == &region.h ? dst.view.h : dst.view.w);
        switch (random.whole(0, 3)) {
          case 0: axis->denominator = double(random.whole(1, 4)); break;                            // a whole factor
          case 1: axis->numerator = size, axis->denominator = count; break;                         // the whole source
          case 2: axis->numerator = size - 1, axis->denominator = std::max(count - 1, 1.0); break;  // with its corners
          default: axis->numerator = random.real(-2, 2), axis->denominator = random.real(0.5f, 3); break;
        }
        if (random.one_in(3)) axis->start = random.one_in(2) ? double(random.whole(-4, 12)) : random.real(-4, 12);
      }
      p.regions.push_back(region);
    }
    const auto errors = failures_of({{p, "resample"}});
    const auto exact = [&](i64 i, i64 y, i64 x, i64 k) {
      const auto& region = p.regions[static_cast<std::size_t>(i % regions)];
      double sum = 0;
      for (const auto& [row, a] : weights_of(p, region.h, y, sh))
        for (const auto& [column, b] : weights_of(p, region.w, x, sw))
          sum += a * b * src.value(i / regions, row, column, k);
      return sum;
    };
    const std::string wrong = compare(dst, exact, p.type == ResampleType::nearest ? 1e-7 : 2e-6);
    report(errors.empty() && wrong.empty() && src.unchanged(), "resample %s edge %d %dx%dx%d -> %dx%d seed %u: %s%s",
           p.type == ResampleType::nearest ? "nearest" : "bilinear", int(p.edge), int(sh), int(sw), int(c),
           int(dst.view.h), int(dst.view.w), seed, wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
  }
}

/// What counts nothing does not show: neighbours of samples that hit a pixel, and pixels beyond the borders.
void test_resample_exactness() {
  Random random(5);
  for (const i64 c : {1, 20}) {
    Image src(random, Format::float32, 1, 3, 49, c, true), dst(random, Format::float32, 1, 3, 49 * 49, c, true);
    src.randomize(random);
    src.for_each([&](i64 n, i64 y, i64 x, i64 k) {
      const float v = x % 2 ? INFINITY : static_cast<float>(x);
      if (y == 1) std::memcpy(src.at(n, y, x, k), &v, 4);
    });
    src.snapshot();
    ResampleProblem p;
    p.src = src.view, p.dst = dst.view, p.type = ResampleType::bilinear, p.edge = ResampleEdge::clamp;
    p.regions.resize(1);
    p.regions[0].w.denominator = 49;  // 49 * (1 / 49.0) is less than 1
    const auto errors = failures_of({{p, "resample"}});
    bool exact = errors.empty();
    for (i64 x = 0; x < 49; ++x)
      for (i64 y = 0; y < 3; ++y) exact = exact && dst.value(0, y, 49 * x, c - 1) == src.value(0, y, x, c - 1);
    report(exact, "samples at pixels are the pixels, %d channels", int(c));
  }
}

// ---------------------------------------------------------------------------------------------------- other places

void test_reshape() {
  for (unsigned seed = 0; seed < 120; ++seed) {
    Random random(800000 + seed);
    const i64 factors[] = {random.whole(1, 4), random.whole(1, 5), random.pick({1, 3, 7}), random.pick({1, 2, 40})};
    i64 from[3] = {1, 1, 1}, to[3] = {1, 1, 1};
    for (const i64 factor : factors) from[random.whole(0, 2)] *= factor, to[random.whole(0, 2)] *= factor;
    const i64 n = random.whole(1, 3);
    Image src(random, random_format(random), n, from[0], from[1], from[2], random.one_in(2));
    Image dst(random, random.one_in(2) ? src.view.format : random_format(random), n, to[0], to[1], to[2],
              random.one_in(2));
    src.randomize(random), dst.snapshot();
    const auto errors = failures_of({{ReshapeProblem{src.view, dst.view}, "reshape"}});
    const std::string wrong = compare(
        dst,
        [&](i64 i, i64 y, i64 x, i64 k) {
          const i64 value = (y * to[1] + x) * to[2] + k;
          return src.value(i, value / (from[1] * from[2]), value / from[2] % from[1], value % from[2]);
        },
        1e-7);
    report(errors.empty() && wrong.empty() && src.unchanged(), "reshape %dx%dx%d -> %dx%dx%d seed %u: %s", int(from[0]),
           int(from[1]), int(from[2]), int(to[0]), int(to[1]), int(to[2]), seed, wrong.c_str());
  }
}

/// Walks to the place instead of computing it.
i64 walked(i64 i, i64 size, PadEdge edge) {
  while (i < 0 || i >= size) {
    switch (edge) {
      case PadEdge::constant: return -1;
      case PadEdge::clamp: i += i < 0 ? 1 : -1; break;
      case PadEdge::mirror: i = size == 1 ? 0 : i < 0 ? -i : 2 * (size - 1) - i; break;
      case PadEdge::mirror_with_edge: i = i < 0 ? -i - 1 : 2 * size - 1 - i; break;
    }
  }
  return i;
}

void test_pad() {
  for (unsigned seed = 0; seed < 240; ++seed) {
    Random random(900000 + seed);
    const i64 c = random.pick({1, 2, 3, 5, 16, 40}), n = random.whole(1, 2);
    const bool same_channels = random.one_in(2);
    Image src(random, random_format(random), n, random.whole(1, 6), random.whole(1, 6), c, random.one_in(2));
    Image dst(random, random.one_in(2) ? src.view.format : random_format(random), n, random.whole(1, 14),
              random.whole(1, 14), same_channels ? c : random.whole(1, 3 * c + 2), random.one_in(2));
    src.randomize(random), dst.snapshot();
    PadProblem p;
    p.src = src.view, p.dst = dst.view, p.edge = static_cast<PadEdge>(seed % 4);
    p.start_h = random.whole(-10, 6), p.start_w = random.whole(-10, 6);
    p.start_c = same_channels ? 0 : random.whole(-2 * c, c - 1);
    p.fill = random.real(0, 1);
    std::vector<float> fills(static_cast<std::size_t>(dst.view.c), p.fill);
    if (random.one_in(2)) {
      for (float& value : fills) value = random.real(0, 1);
      p.fill_per_channel = std::make_shared<std::vector<float>>(fills);
    }
    const auto errors = failures_of({{p, "pad"}});
    const std::string wrong = compare(
        dst,
        [&](i64 i, i64 y, i64 x, i64 k) {
          const i64 row = walked(p.start_h + y, src.view.h, p.edge), column = walked(p.start_w + x, src.view.w, p.edge);
          const i64 channel = walked(p.start_c + k, c, p.edge);
          if (row < 0 || column < 0 || channel < 0) return double(fills[static_cast<std::size_t>(k)]);
          return src.value(i, row, column, channel);
        },
        1e-7);
    report(errors.empty() && wrong.empty() && src.unchanged(), "pad edge %d start %d,%d,%d seed %u: %s", int(p.edge),
           int(p.start_h), int(p.start_w), int(p.start_c), seed, wrong.c_str());
  }
}

// ---------------------------------------------------------------------------------------------------------- dropout

/// The vectors that the authors of the generator publish with it.
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

bool kept(const DropoutMask& mask, i64 n, i64 y, i64 x, i64 c) {
  const i64 value = ((mask.h == 1 ? 0 : y) * mask.w + (mask.w == 1 ? 0 : x)) * mask.c + (mask.c == 1 ? 0 : c);
  const Philox bits(mask.seed, std::uint64_t(value / 64 * 16 + value % 16), mask.image + std::uint64_t(n));
  return double(bits.words[value % 64 / 16]) < std::round(double(mask.keep) * 4294967296.0);
}

void test_dropout() {
  for (unsigned seed = 0; seed < 120; ++seed) {
    Random random(950000 + seed);
    const bool plain = seed % 3 == 0, large = seed % 15 == 0;
    const i64 c = random.pick({1, 3, 4, 37, 64, 1500}), n = random.whole(1, 3);
    const i64 h = random.whole(1, large ? 50 : 7), w = random.whole(1, large ? 30 : 9);
    Image src(random, random_format(random), n, plain ? h : random.whole(1, h + 2), plain ? w : random.whole(1, w + 2),
              c, random.one_in(2));
    Image dst(random, random_format(random), n, h, w, c, random.one_in(2));
    src.randomize(random), dst.snapshot();
    DropoutProblem p;
    p.src.view = src.view, p.dst = dst.view;
    if (!plain) {
      p.src.start_h = random.whole(-h, h), p.src.start_w = random.whole(-w, w);
      p.src.edge = random.pick({Edge::zero, Edge::clamp});
    }
    p.mask.seed = random.bits(), p.mask.image = random.bits();
    p.mask.h = random.one_in(3) ? 1 : h, p.mask.w = random.one_in(3) ? 1 : w, p.mask.c = random.one_in(3) ? 1 : c;
    p.mask.keep = random.real(0.1f, 0.9f);
    const auto errors = failures_of({{p, "dropout"}});
    const std::string wrong = compare(
        dst,
        [&](i64 i, i64 y, i64 x, i64 k) {
          i64 row = p.src.start_h + y, column = p.src.start_w + x;
          if (p.src.edge == Edge::clamp) {
            row = std::clamp<i64>(row, 0, src.view.h - 1), column = std::clamp<i64>(column, 0, src.view.w - 1);
          } else if (row < 0 || row >= src.view.h || column < 0 || column >= src.view.w) {
            return 0.0;
          }
          return kept(p.mask, i, y, x, k) ? src.value(i, row, column, k) / double(p.mask.keep) : 0.0;
        },
        2e-6);
    bool same = true;
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(p.mask.h * p.mask.w * p.mask.c));
    dropout_mask(p.mask, p.mask.image + 1, mask.data());
    for (i64 y = 0; y < p.mask.h; ++y)
      for (i64 x = 0; x < p.mask.w; ++x)
        for (i64 k = 0; k < p.mask.c; ++k)
          same = same && mask[static_cast<std::size_t>((y * p.mask.w + x) * p.mask.c + k)] == kept(p.mask, 1, y, x, k);
    report(errors.empty() && wrong.empty() && same && src.unchanged(),
           "dropout %dx%dx%dx%d mask %dx%dx%d seed %u: %s%s", int(n), int(h), int(w), int(c), int(p.mask.h),
           int(p.mask.w), int(p.mask.c), seed, wrong.c_str(), same ? "" : " dropout_mask differs");
  }
}

/// As many as the probability says, within five standard deviations, in all parts; masks of seeds and images differ.
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

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_resample, test_resample_exactness, test_reshape, test_pad, test_philox, test_dropout,
                    test_dropout_statistics});
}
