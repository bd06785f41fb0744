// SPDX-License-Identifier: Apache-2.0
// Gradients of softmax, of the arithmetic of two sources and of dropout against plain double loops written from the
// formulas in engine.hpp: random placement, repeated axes, sums over axes, masks, slices, every format, threads. And
// the same and neurons where results saw the nearest pixel of a source from beyond it.
//
//   test_engine_pointwise_gradient [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <functional>

#include "engine/shared/dropout.hpp"
#include "engine/shared/team.hpp"
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
      double sum = 0, magnitude = 0;  // of the pixel; its channels follow each other
      const std::string wrong = compare(dst, [&](i64 m, i64 y, i64 x, i64 k, double& error) {
        if (k == 0) sum = magnitude = 0;
        for (i64 q = 0; q < (k == 0 ? c : 0); ++q) {
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
    p.function.min = -0.5f, p.function.max = 1;
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

// ------------------------------------------------------------------------------------------------ clamped sources

/// Extents and places of a forward kernel along one axis: result v saw the source's pixel nearest to v + offset, and
/// pixel 0 of the gradient is the source's pixel `start`.
struct Axis {
  i64 size, results, offset, start, written;
  bool repeats = false;  ///< all results saw one pixel

  Axis(Random& random, bool may_repeat)
      : size(random.whole(1, 7)),
        results(random.whole(1, 9)),
        offset(random.one_in(5) ? 0 : random.whole(-12, 12)),
        start(random.one_in(2) ? 0 : random.whole(-3, 3)),
        written(random.one_in(2) ? size : random.whole(1, 9)) {
    if (may_repeat && random.one_in(4)) repeats = true, size = written = 1, start = 0, results += 1;
  }
  i64 shift() const { return repeats ? 0 : start - offset; }  ///< from the gradient's pixels to the results
  bool saw(i64 result, i64 position) const {
    return repeats || std::clamp<i64>(result + offset, 0, size - 1) == start + position;
  }
};

/// An operand as the problem has it, of one that stands on the results.
Operand on_gradient(Operand operand, const Axis& rows, const Axis& columns) {
  if (!operand.repeat_h) operand.start_h += rows.shift();
  if (!operand.repeat_w) operand.start_w += columns.shift();
  return operand;
}

void test_clamped_sources() {
  const int threads = max_threads();
  enum { neuron, softmax, log_softmax, arithmetic, dropped };
  const char* const names[] = {"neuron", "softmax", "log softmax", "arithmetic", "dropout"};
  for (const int what : {neuron, softmax, log_softmax, arithmetic, dropped}) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      Random random(770000 + 1000 * unsigned(what) + seed);
      set_max_threads(seed % 3 == 0 ? 2 : 1);
      const Axis rows(random, what == arithmetic), columns(random, what == arithmetic);
      const bool sums_in_pixels = what == softmax || what == log_softmax;
      const i64 n = random.whole(1, 2);
      const i64 c = sums_in_pixels ? random.pick({1, 3, 16, 37}) : seed % 10 == 0 ? 1500 : random.pick({1, 3, 37, 150});
      const bool sums_c = what == arithmetic && random.one_in(4);
      const auto format = [&] { return seed < 150 ? Format::float32 : random_format(random); };
      Image diff(random, format(), n, rows.results, columns.results, c, random.one_in(2));
      Image dst(random, format(), n, rows.written, columns.written, sums_c ? 1 : c, random.one_in(2));
      diff.randomize(random), dst.snapshot();
      // The second source: a neuron's own, of soft max the result, of a product the other one wherever it was read.
      const i64 h = what == neuron ? rows.size : rows.results, w = what == neuron ? columns.size : columns.results;
      Image second(random, format(), n, h, w, c, random.one_in(2));
      second.randomize(random, what == log_softmax ? -5 : what == softmax ? 0 : -2, what == log_softmax ? 0 : 1);
      Image mask(random, Format::unorm8, n, rows.results, columns.results, c, true);
      mask.for_each([&](i64 m, i64 y, i64 x, i64 k) { *mask.at(m, y, x, k) = std::byte(random.one_in(2) ? 255 : 0); });

      Operand results, other;
      results.view = diff.view, other.view = second.view;
      ClampedSource source{rows.size, columns.size, rows.start, columns.start};
      std::function<double(i64, i64, i64, i64, double&)> value;  // what result (v, u) gives back, and its magnitude
      Problem problem;
      std::vector<std::vector<std::uint8_t>> kept(static_cast<std::size_t>(n));
      if (what == neuron) {
        NeuronGradientProblem p;
        p.diff_dst = on_gradient(results, rows, columns);
        p.src = other, p.src.start_h = rows.start, p.src.start_w = columns.start, p.src.edge = Edge::clamp;
        p.diff_src = dst.view, p.neuron.type = NeuronType::relu, p.neuron.a = 0.25f;
        other.start_h = rows.offset, other.start_w = columns.offset, other.edge = Edge::clamp;
        problem = p;
        value = [&](i64 m, i64 v, i64 u, i64 k, double& magnitude) {
          const double e = seen(diff, results, m, v, u, k) * (seen(second, other, m, v, u, k) >= 0 ? 1 : 0.25);
          magnitude = std::fabs(e);
          return e;
        };
      } else if (sums_in_pixels) {
        const bool log = what == log_softmax;
        problem = SoftmaxGradientProblem{on_gradient(results, rows, columns), on_gradient(other, rows, columns),
                                         dst.view, log, source};
        value = [&, log](i64 m, i64 v, i64 u, i64 k, double& magnitude) {
          const double e = seen(diff, results, m, v, u, k), s = seen(second, other, m, v, u, k);
          const double factor = log ? std::exp(s) : s;
          double sum = 0, terms = 0;
          for (i64 q = 0; q < c; ++q) {
            const double term = seen(diff, results, m, v, u, q) * (log ? 1 : seen(second, other, m, v, u, q));
            sum += term, terms += std::fabs(term);
          }
          magnitude = std::fabs(factor) * (terms + std::fabs(e)) + std::fabs(e);
          return log ? e - factor * sum : factor * (e - sum);
        };
      } else if (what == arithmetic) {
        const bool has_other = random.one_in(2), has_mask = random.one_in(3);
        other.start_h = random.whole(-2, 2), other.start_w = random.whole(-2, 2);
        other.edge = random.pick({Edge::zero, Edge::clamp});
        other.repeat_h = random.one_in(4), other.repeat_w = random.one_in(4), other.repeat_c = random.one_in(4);
        BinaryGradientProblem p;
        p.diff_dst = on_gradient(results, rows, columns), p.diff_src = dst.view, p.source = source;
        if (has_other) p.other = on_gradient(other, rows, columns);
        if (has_mask) p.mask = p.diff_dst, p.mask.view = mask.view;
        if (rows.repeats) p.sum_h = rows.results;
        if (columns.repeats) p.sum_w = columns.results;
        if (sums_c) p.sum_c = c;
        p.scale = -1.5f;
        problem = p;
        value = [&, has_other, has_mask](i64 m, i64 v, i64 u, i64 k, double& magnitude) {
          if (has_mask && mask.value(m, v, u, k) == 0) return 0.0;
          const double e = -1.5 * seen(diff, results, m, v, u, k) * (has_other ? seen(second, other, m, v, u, k) : 1);
          magnitude = std::fabs(e);
          return e;
        };
      } else {
        DropoutProblem p;
        p.src = on_gradient(results, rows, columns), p.dst = dst.view, p.source = source;
        p.mask.seed = 9, p.mask.image = seed, p.mask.keep = 0.75f;
        p.mask.h = random.one_in(4) ? 1 : rows.results, p.mask.w = random.one_in(4) ? 1 : columns.results;
        p.mask.c = random.one_in(4) ? 1 : c;
        if (p.mask.h != 1) p.start_h = p.src.start_h;
        if (p.mask.w != 1) p.start_w = p.src.start_w;
        for (i64 i = 0; i < n; ++i) {
          auto& one = kept[static_cast<std::size_t>(i)];
          one.resize(static_cast<std::size_t>(p.mask.h * p.mask.w * p.mask.c));
          dropout_mask(p.mask, p.mask.image + static_cast<std::uint64_t>(i), one.data());
        }
        problem = p;
        value = [&, drop = p.mask](i64 m, i64 v, i64 u, i64 k, double& magnitude) {
          const i64 at = ((drop.h == 1 ? 0 : v) * drop.w + (drop.w == 1 ? 0 : u)) * drop.c + (drop.c == 1 ? 0 : k);
          const double e = seen(diff, results, m, v, u, k) / 0.75;
          magnitude = std::fabs(e);
          return kept[static_cast<std::size_t>(m)][static_cast<std::size_t>(at)] ? e : 0;
        };
      }

      const auto errors = failures_of({{problem, "gradient"}});
      std::vector<double> sums(static_cast<std::size_t>(n * dst.view.h * dst.view.w * dst.view.c), 0), sizes = sums;
      for (i64 m = 0; m < n; ++m)
        for (i64 y = 0; y < dst.view.h; ++y)
          for (i64 x = 0; x < dst.view.w; ++x)
            for (i64 v = 0; v < rows.results; ++v)
              for (i64 u = 0; u < columns.results; ++u) {
                if (!rows.saw(v, y) || !columns.saw(u, x)) continue;
                for (i64 k = 0; k < c; ++k) {
                  double magnitude = 0;
                  const i64 to = ((m * dst.view.h + y) * dst.view.w + x) * dst.view.c + (sums_c ? 0 : k);
                  sums[static_cast<std::size_t>(to)] += value(m, v, u, k, magnitude);
                  sizes[static_cast<std::size_t>(to)] += magnitude;
                }
              }
      const std::string wrong = compare(dst, [&](i64 m, i64 y, i64 x, i64 k, double& error) {
        const auto at = static_cast<std::size_t>(((m * dst.view.h + y) * dst.view.w + x) * dst.view.c + k);
        error = 3e-6 * sizes[at];
        return sums[at];
      });
      report(errors.empty() && wrong.empty() && diff.unchanged() && second.unchanged(),
             "clamped %s seed %u: %d, %d of %d, %d from (%d, %d), %d channels, sums %d%d%d: %s", names[what], seed,
             int(rows.results), int(columns.results), int(rows.size), int(columns.size), int(rows.offset),
             int(columns.offset), int(c), rows.repeats, columns.repeats, sums_c, wrong.c_str());
    }
  }
  set_max_threads(threads);
}

/// The bits are the same for one thread and for several.
void test_threads() {
  const int threads = max_threads();
  for (const int what : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    Random random(760000);
    Image diff(random, Format::float32, 2, 60, 50, 40, true), other(random, Format::float32, 2, 60, 50, 40, true);
    const bool h = what == 2 || what == 4 || what == 5, w = what == 3 || what == 4 || what == 5, c = what == 5;
    Image dst(random, Format::float32, 2, h ? 1 : 60, w ? 1 : 50, c ? 1 : 40, true);
    diff.randomize(random), other.randomize(random);
    Problem problem;
    const ClampedSource clamped{60, 50, what < 6 ? 0 : 7, what < 6 ? 0 : -9};
    if (what == 0 || what == 6) {
      SoftmaxGradientProblem p;
      p.diff_dst.view = diff.view, p.dst.view = other.view, p.diff_src = dst.view, p.source = clamped;
      problem = p;
    } else if (what == 7) {
      NeuronGradientProblem p;
      p.diff_dst.view = diff.view, p.src.view = other.view, p.diff_src = dst.view, p.neuron.type = NeuronType::tanh;
      p.src.start_h = clamped.start_h, p.src.start_w = clamped.start_w, p.src.edge = Edge::clamp;
      p.neuron.a = p.neuron.b = 1;
      problem = p;
    } else if (what == 8) {
      DropoutProblem p;
      p.src.view = diff.view, p.dst = dst.view, p.mask.h = 60, p.mask.w = 50, p.mask.c = 40, p.source = clamped;
      problem = p;
    } else {
      BinaryGradientProblem p;
      p.diff_dst.view = diff.view, p.other.view = other.view, p.diff_src = dst.view;
      p.sum_h = h ? 60 : 1, p.sum_w = w ? 50 : 1, p.sum_c = c ? 40 : 1;
      if (what == 9) p.source = clamped;
      problem = p;
    }
    std::vector<std::byte> first;
    for (const int count : {1, 2, 3, 2}) {
      set_max_threads(count);
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      failures_of({{problem, "gradient"}});
      const std::byte* const data = dst.view.memory->data();
      if (first.empty()) first.assign(data, data + dst.view.memory->size());
      report(std::memcmp(first.data(), data, first.size()) == 0, "case %d with %d threads", what, count);
    }
  }
  set_max_threads(threads);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_softmax, test_softmax_differences, test_arithmetic, test_masked_infinity, test_forward_mask,
                    test_dropout, test_clamped_sources, test_threads});
}
