// SPDX-License-Identifier: Apache-2.0
// Gradients of softmax, of the arithmetic of two sources and of dropout against plain double loops written from the
// formulas in engine.hpp: random placement, repeated axes, sums over axes, masks, slices, every format, threads.
//
//   test_engine_pointwise_gradient [seed offset]      prints "N passed, N failed"
#include <omp.h>

#include <algorithm>
#include <functional>

#include "engine/shared/dropout.hpp"
#include "engine_test.hpp"

namespace {

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
}

/// What value (y, x, k) of the destination sees.
double seen(const Image& image, const Operand& operand, i64 n, i64 y, i64 x, i64 k) {
  i64 row = operand.start_h + (operand.repeat_h ? 0 : y), column = operand.start_w + (operand.repeat_w ? 0 : x);
  if (operand.edge == Edge::clamp) {
    row = std::clamp<i64>(row, 0, image.view.h - 1);
    column = std::clamp<i64>(column, 0, image.view.w - 1);
  } else if (row < 0 || row >= image.view.h || column < 0 || column >= image.view.w) {
    return 0;
  }
  return static_cast<float>(image.value(n, row, column, operand.repeat_c ? 0 : k));
}

Operand place(Random& random, const Image& image, i64 h, i64 w, bool plain) {
  Operand operand;
  operand.view = image.view;
  if (plain) return operand;
  operand.start_h = random.one_in(3) ? random.whole(-h - 2, image.view.h + 2) : 0;
  operand.start_w = random.one_in(3) ? random.whole(-w - 2, image.view.w + 2) : 0;
  operand.edge = random.pick({Edge::zero, Edge::clamp});
  return operand;
}

/// What went wrong, empty when all is well. expected(n, y, x, k, error) is the value and what it may be off by.
std::string compare(const Image& dst, const std::function<double(i64, i64, i64, i64, double&)>& expected) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 k) {
    double error = 0;
    const double want = clamped(dst.view.format, expected(n, y, x, k, error)), got = dst.value(n, y, x, k);
    if (std::fabs(got - want) <= error + format_error(dst.view.format, want) + 1e-30 || !wrong.empty()) return;
    char text[120];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(k), got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

// ------------------------------------------------------------------------------------------------------- softmax

void test_softmax() {
  for (const bool log : {false, true}) {
    for (unsigned seed = 0; seed < 120; ++seed) {
      Random random(710000 + 1000 * unsigned(log) + seed);
      const bool plain = seed % 2 == 0, large = seed % 20 == 0;
      const i64 c = random.pick({1, 2, 3, 10, 31, 32, 33, 150, 1000, 1500}), n = random.whole(1, 3);
      const i64 h = random.whole(1, large ? 40 : 6), w = random.whole(1, large ? 30 : 9);
      const auto extent = [&](i64 size) { return plain ? size : random.whole(1, size + 3); };
      const auto format = [&] { return seed < 60 ? Format::float32 : random.pick({Format::float32, Format::float16}); };
      Image diff(random, format(), n, extent(h), extent(w), c, random.one_in(2));
      Image result(random, format(), n, extent(h), extent(w), c, random.one_in(2));
      Image dst(random, format(), n, h, w, c, random.one_in(2));
      SoftmaxGradientProblem p{place(random, diff, h, w, plain), place(random, result, h, w, plain), dst.view, log};
      diff.randomize(random), result.randomize(random, log ? -12.0f : 0.0f, log ? 0.0f : 1.0f);
      dst.snapshot();
      const auto errors = failures_of({{p, "softmax_gradient"}});
      const std::string wrong = compare(dst, [&](i64 m, i64 y, i64 x, i64 k, double& error) {
        double sum = 0, magnitude = 0;
        for (i64 q = 0; q < c; ++q) {
          const double term = seen(diff, p.diff_dst, m, y, x, q) * (log ? 1 : seen(result, p.dst, m, y, x, q));
          sum += term, magnitude += std::fabs(term);
        }
        const double e = seen(diff, p.diff_dst, m, y, x, k), s = seen(result, p.dst, m, y, x, k);
        const double factor = log ? std::exp(s) : s;
        error = 3e-6 * (std::fabs(factor) * (magnitude + std::fabs(e)) + std::fabs(e));
        return log ? e - factor * sum : factor * (e - sum);
      });
      report(errors.empty() && wrong.empty() && diff.unchanged() && result.unchanged(), "%s seed %u of %d channels: %s",
             log ? "log softmax" : "softmax", seed, int(c), wrong.c_str());
    }
  }
}

/// <e, softmax(x + d) - softmax(x - d)> / 2 is <gradient, d> for a small d.
void test_softmax_differences() {
  for (const bool log : {false, true}) {
    for (const i64 c : {2, 7, 40}) {
      Random random(720000 + unsigned(c));
      Image src(random, Format::float32, 2, 3, 3, c, true), diff(random, Format::float32, 2, 3, 3, c, true);
      Image result(random, Format::float32, 2, 3, 3, c, true), dst(random, Format::float32, 2, 3, 3, c, true);
      src.randomize(random), diff.randomize(random);
      const auto forward = [&](const Image& x) {
        SoftmaxProblem p;
        p.src.view = x.view, p.dst = result.view, p.log = log;
        failures_of({{p, "softmax"}});
      };
      std::vector<double> direction;
      src.for_each([&](i64, i64, i64, i64) { direction.push_back(random.real(-1, 1)); });
      double by_steps = 0, by_gradient = 0;
      const double step = 2e-3;
      for (const int sign : {1, -1}) {
        Image moved(random, Format::float32, 2, 3, 3, c, true);
        std::size_t at = 0;
        moved.for_each([&](i64 n, i64 y, i64 x, i64 k) {
          const auto v = static_cast<float>(src.value(n, y, x, k) + sign * step * direction[at++]);
          std::memcpy(moved.at(n, y, x, k), &v, 4);
        });
        forward(moved);
        diff.for_each([&](i64 n, i64 y, i64 x, i64 k) {
          by_steps += sign * diff.value(n, y, x, k) * result.value(n, y, x, k) / (2 * step);
        });
      }
      forward(src);
      SoftmaxGradientProblem p;
      p.diff_dst.view = diff.view, p.dst.view = result.view, p.diff_src = dst.view, p.log = log;
      failures_of({{p, "softmax_gradient"}});
      std::size_t at = 0;
      dst.for_each([&](i64 n, i64 y, i64 x, i64 k) { by_gradient += direction[at++] * dst.value(n, y, x, k); });
      report(std::fabs(by_steps - by_gradient) < 2e-3 * std::fmax(1, std::fabs(by_steps)),
             "difference of %s of %d channels: %.9g, not %.9g", log ? "log softmax" : "softmax", int(c), by_gradient,
             by_steps);
    }
  }
}

// ---------------------------------------------------------------------------------------------------- arithmetic

void test_arithmetic() {
  for (unsigned seed = 0; seed < 500; ++seed) {
    Random random(730000 + seed);
    const bool plain = seed % 3 == 0, large = seed % 25 == 0;
    const i64 c = large ? random.pick({1, 3, 4, 16, 37}) : random.pick({1, 3, 4, 16, 37, 150, 1500}),
              n = random.whole(1, 3);
    const i64 h = random.whole(1, large ? 40 : 9), w = random.whole(1, large ? 40 : 9);
    const bool has_other = random.one_in(2), has_mask = random.one_in(3);
    const bool sums_h = seed % 2 && random.one_in(2), sums_w = seed % 2 && random.one_in(2),
               sums_c = seed % 2 && random.one_in(3);
    const auto extent = [&](i64 size) { return plain ? size : random.whole(1, size + 3); };
    const auto format = [&] { return seed < 250 ? Format::float32 : random_format(random); };
    Image diff(random, format(), n, extent(h), extent(w), c, random.one_in(2));
    Image other(random, format(), n, extent(h), extent(w), c, random.one_in(2));
    Image mask(random, Format::unorm8, n, h, w, c, true);
    Image dst(random, format(), n, sums_h ? 1 : h, sums_w ? 1 : w, sums_c ? 1 : c, random.one_in(2));
    diff.randomize(random), other.randomize(random);
    mask.for_each([&](i64 m, i64 y, i64 x, i64 k) { *mask.at(m, y, x, k) = std::byte(random.one_in(2) ? 255 : 0); });
    mask.snapshot(), dst.snapshot();
    BinaryGradientProblem p;
    p.diff_dst = place(random, diff, h, w, plain);
    if (has_other) {
      p.other = place(random, other, h, w, plain);
      p.other.repeat_h = !plain && random.one_in(3), p.other.repeat_w = !plain && random.one_in(3);
      p.other.repeat_c = !plain && random.one_in(3);
    }
    if (has_mask) p.mask.view = mask.view;
    p.diff_src = dst.view;
    p.sum_h = sums_h ? h : 1, p.sum_w = sums_w ? w : 1, p.sum_c = sums_c ? c : 1;
    if (random.one_in(2)) p.scale = random.real(-2, 2);
    const auto errors = failures_of({{p, "binary_gradient"}});
    const std::string wrong = compare(dst, [&](i64 m, i64 y, i64 x, i64 k, double& error) {
      double sum = 0, magnitude = 0;
      for (i64 j = 0; j < p.sum_h; ++j)
        for (i64 i = 0; i < p.sum_w; ++i)
          for (i64 q = 0; q < p.sum_c; ++q) {
            const double e = seen(diff, p.diff_dst, m, y + j, x + i, k + q);
            const double b = has_other ? seen(other, p.other, m, y + j, x + i, k + q) : 1;
            const double value = has_mask && mask.value(m, y + j, x + i, k + q) == 0 ? 0 : e * b;
            sum += value, magnitude += std::fabs(value);
          }
      error = 1e-6 * magnitude * std::fabs(p.scale);
      return p.scale * sum;
    });
    report(errors.empty() && wrong.empty() && diff.unchanged() && other.unchanged() && mask.unchanged(),
           "arithmetic seed %u %dx%dx%dx%d sums %d%d%d other %d mask %d: %s", seed, int(n), int(h), int(w), int(c),
           sums_h, sums_w, sums_c, has_other, has_mask, wrong.c_str());
  }
}

/// A gradient of 0 comes through a mask also where the other source is infinite.
void test_masked_infinity() {
  Random random(1);
  for (const bool sums : {false, true}) {
    Image diff(random, Format::float32, 1, 1, 2, 1, true), other(random, Format::float32, 1, 1, 2, 1, true);
    Image mask(random, Format::unorm8, 1, 1, 2, 1, true), dst(random, Format::float32, 1, 1, sums ? 1 : 2, 1, true);
    const float values[] = {INFINITY, 3}, ones[] = {1, 1};
    std::memcpy(other.at(0, 0, 0, 0), values, 8), std::memcpy(diff.at(0, 0, 0, 0), ones, 8);
    *mask.at(0, 0, 0, 0) = std::byte(0), *mask.at(0, 0, 1, 0) = std::byte(255);
    BinaryGradientProblem p;
    p.diff_dst.view = diff.view, p.other.view = other.view, p.mask.view = mask.view, p.diff_src = dst.view;
    if (sums) p.sum_w = 2;
    failures_of({{p, "binary_gradient"}});
    report(dst.value(0, 0, 0, 0) == (sums ? 3 : 0), "a masked infinity");
  }
}

/// The forward entry writes 1 where the bounds were not met.
void test_forward_mask() {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random random(740000 + seed);
    const i64 c = random.pick({1, 3, 37, 1500}), h = random.whole(1, 6), w = random.whole(1, 6);
    Image a(random, Format::float32, 2, h, w, c, true), b(random, Format::float32, 2, h, w, c, true);
    Image dst(random, seed % 2 ? Format::float16 : Format::float32, 2, h, w, c, random.one_in(2));
    Image mask(random, Format::unorm8, 2, h, w, c, true);
    a.randomize(random), b.randomize(random), dst.snapshot(), mask.snapshot();
    BinaryProblem p;
    p.src0.view = a.view, p.src1.view = b.view, p.dst = dst.view, p.mask = mask.view;
    p.function.operation = BinaryOperation::multiply;
    p.function.least = -0.5f, p.function.greatest = 1;
    // Values that meet a bound exactly are cut off.
    const float one = 1;
    std::memcpy(a.at(0, 0, 0, 0), &one, 4), std::memcpy(b.at(0, 0, 0, 0), &one, 4);
    const auto errors = failures_of({{p, "binary"}});
    const std::string wrong = compare(mask, [&](i64 n, i64 y, i64 x, i64 k, double&) {
      const float r = static_cast<float>(a.value(n, y, x, k)) * static_cast<float>(b.value(n, y, x, k));
      return r > -0.5f && r < 1 ? 1.0 : 0.0;
    });
    report(errors.empty() && wrong.empty() && mask.value(0, 0, 0, 0) == 0 && dst.surroundings_unchanged() &&
               dst.value(0, 0, 0, 0) == 1,
           "mask seed %u: %s", seed, wrong.c_str());
  }
}

// ------------------------------------------------------------------------------------------------------- dropout

void test_dropout() {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random random(750000 + seed);
    const i64 c = random.pick({1, 3, 64, 70, 1100}), n = random.whole(1, 3);
    const i64 h = random.whole(1, 9), w = random.whole(1, 9);
    const bool plain = seed % 3 == 0;
    Image src(random, seed % 2 ? Format::float16 : Format::float32, n, h, w, c, random.one_in(2));
    Image dst(random, Format::float32, n, plain ? h : random.whole(1, 9), plain ? w : random.whole(1, 9), c,
              random.one_in(2));
    src.randomize(random), dst.snapshot();
    DropoutProblem p;
    p.src.view = src.view, p.dst = dst.view;
    p.mask.seed = 5, p.mask.image = 3 + seed, p.mask.keep = 0.75f;
    p.mask.h = random.one_in(4) ? 1 : h, p.mask.w = random.one_in(4) ? 1 : w, p.mask.c = random.one_in(4) ? 1 : c;
    if (!plain) {
      p.src.start_h = random.whole(-4, 4), p.src.start_w = random.whole(-4, 4);
      if (p.mask.h != 1) p.start_h = p.src.start_h;
      if (p.mask.w != 1) p.start_w = p.src.start_w;
    }
    const auto errors = failures_of({{p, "dropout"}});
    std::vector<std::vector<std::uint8_t>> kept(static_cast<std::size_t>(n));
    for (i64 i = 0; i < n; ++i) {
      kept[static_cast<std::size_t>(i)].resize(static_cast<std::size_t>(p.mask.h * p.mask.w * p.mask.c));
      dropout_mask(p.mask, p.mask.image + static_cast<std::uint64_t>(i), kept[static_cast<std::size_t>(i)].data());
    }
    const std::string wrong = compare(dst, [&](i64 m, i64 y, i64 x, i64 k, double& error) {
      const i64 row = p.mask.h == 1 ? 0 : p.start_h + y, column = p.mask.w == 1 ? 0 : p.start_w + x;
      if (row < 0 || row >= p.mask.h || column < 0 || column >= p.mask.w) return 0.0;
      const i64 at = (row * p.mask.w + column) * p.mask.c + (p.mask.c == 1 ? 0 : k);
      if (!kept[static_cast<std::size_t>(m)][static_cast<std::size_t>(at)]) return 0.0;
      const double v = seen(src, p.src, m, y, x, k);
      error = std::fabs(v) * 1e-6;
      return v / 0.75;
    });
    report(errors.empty() && wrong.empty(), "dropout seed %u mask %dx%dx%d: %s", seed, int(p.mask.h), int(p.mask.w),
           int(p.mask.c), wrong.c_str());
  }
}

/// The bits are the same for one thread and for several.
void test_threads() {
  const int threads = omp_get_max_threads();
  for (const int what : {0, 1, 2, 3, 4, 5}) {
    Random random(760000);
    Image diff(random, Format::float32, 2, 60, 50, 40, true), other(random, Format::float32, 2, 60, 50, 40, true);
    const bool h = what == 2 || what >= 4, w = what == 3 || what >= 4, c = what == 5;
    Image dst(random, Format::float32, 2, h ? 1 : 60, w ? 1 : 50, c ? 1 : 40, true);
    diff.randomize(random), other.randomize(random);
    Problem problem;
    if (what == 0) {
      SoftmaxGradientProblem p;
      p.diff_dst.view = diff.view, p.dst.view = other.view, p.diff_src = dst.view;
      problem = p;
    } else {
      BinaryGradientProblem p;
      p.diff_dst.view = diff.view, p.other.view = other.view, p.diff_src = dst.view;
      p.sum_h = h ? 60 : 1, p.sum_w = w ? 50 : 1, p.sum_c = c ? 40 : 1;
      problem = p;
    }
    std::vector<std::byte> first;
    for (const int count : {1, 2, 3, 2}) {
      omp_set_num_threads(count);
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      failures_of({{problem, "gradient"}});
      const std::byte* const data = dst.view.memory->data();
      if (first.empty()) first.assign(data, data + dst.view.memory->size());
      report(std::memcmp(first.data(), data, first.size()) == 0, "case %d with %d threads", what, count);
    }
  }
  omp_set_num_threads(threads);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_softmax, test_softmax_differences, test_arithmetic, test_masked_infinity, test_forward_mask,
                    test_dropout, test_threads});
}
