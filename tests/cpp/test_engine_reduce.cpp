// SPDX-License-Identifier: Apache-2.0
// Soft max and reductions of the engine against plain double loops written from the formulas in engine.hpp: random
// placement, slices of larger images, every format, few and many channels, ties, infinities and NaN.
//
//   test_engine_reduce [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "engine_test.hpp"

namespace {

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
}

/// Compares all of dst; empty when all is well.
std::string compare(const Image& dst, const std::function<double(i64, i64, i64, i64)>& expected,
                    const std::function<double(double)>& error) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const double want = clamped(dst.view.format, expected(n, y, x, c)), got = dst.value(n, y, x, c);
    if (want == got || (std::isnan(want) && std::isnan(got)) || !wrong.empty()) return;
    if (std::fabs(got - want) <= error(want) + format_error(dst.view.format, want)) return;
    char text[120];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d): %.9g, not %.9g", int(n), int(y), int(x), int(c), got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

/// The value of a source at a place of the destination.
double seen(const Image& image, const Operand& operand, i64 n, i64 y, i64 x, i64 c) {
  i64 row = operand.start_h + y, column = operand.start_w + x;
  if (operand.edge == Edge::clamp) {
    row = std::clamp<i64>(row, 0, image.view.h - 1);
    column = std::clamp<i64>(column, 0, image.view.w - 1);
  } else if (row < 0 || row >= image.view.h || column < 0 || column >= image.view.w) {
    return 0;
  }
  return image.value(n, row, column, c);
}

void test_softmax() {
  for (unsigned seed = 0; seed < 160; ++seed) {
    Random random(500000 + seed);
    const bool plain = seed % 3 == 0, log = seed % 2 == 1, large = seed % 20 == 0;
    const i64 c = random.pick({1, 2, 3, 4, 16, 21, 31, 32, 37, 64, 513, 1500}), n = random.whole(1, 2);
    const i64 h = random.whole(1, large ? 40 : 7), w = random.whole(1, large ? 40 : 80);
    Image src(random, random_format(random), n, plain ? h : random.whole(1, h + 2), plain ? w : random.whole(1, w + 2),
              c, random.one_in(2));
    Image dst(random, random_format(random), n, h, w, c, random.one_in(2));
    const float range = random.pick({1.0f, 10.0f, 80.0f, 1000.0f});
    src.randomize(random, -range, range);
    dst.snapshot();
    SoftmaxProblem p;
    p.src.view = src.view, p.dst = dst.view, p.log = log;
    if (!plain) {
      p.src.start_h = random.whole(-h, h), p.src.start_w = random.whole(-w, w);
      p.src.edge = random.pick({Edge::zero, Edge::clamp});
    }
    const auto errors = failures_of({{p, "softmax"}});
    double most = 0, sum = 0;  // of the pixel, whose channels come one after the other
    const auto exact = [&](i64 i, i64 y, i64 x, i64 k) {
      if (k == 0) {
        most = -INFINITY, sum = 0;
        for (i64 q = 0; q < c; ++q) most = std::fmax(most, seen(src, p.src, i, y, x, q));
        for (i64 q = 0; q < c; ++q) sum += std::exp(seen(src, p.src, i, y, x, q) - most);
      }
      const double d = seen(src, p.src, i, y, x, k) - most;
      return log ? d - std::log(sum) : std::exp(d) / sum;
    };
    // A few units in the last place; of log's, of the logarithm of the sum too.
    const std::string wrong =
        compare(dst, exact, [&](double want) { return 5e-7 * std::fabs(want) + (log ? 3e-7 : 2e-45); });
    report(errors.empty() && wrong.empty() && src.unchanged(), "%ssoftmax c %d range %g seed %u: %s%s",
           log ? "log " : "", int(c), range, seed, wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
  }
}

/// One pixel through the engine.
std::vector<float> softmax_of(const std::vector<float>& values, bool log) {
  Random random(1);
  const i64 c = static_cast<i64>(values.size());
  Image src(random, Format::float32, 1, 1, 1, c, true), dst(random, Format::float32, 1, 1, 1, c, true);
  std::memcpy(src.at(0, 0, 0, 0), values.data(), values.size() * 4);
  SoftmaxProblem p;
  p.src.view = src.view, p.dst = dst.view, p.log = log;
  failures_of({{p, "softmax"}});
  std::vector<float> result(values.size());
  std::memcpy(result.data(), dst.at(0, 0, 0, 0), result.size() * 4);
  return result;
}

void test_softmax_ends() {
  const float inf = INFINITY;
  for (const std::size_t c : {3u, 40u}) {
    std::vector<float> x(c, -inf);
    x[1] = 5;
    std::vector<float> y = softmax_of(x, false), z = softmax_of(x, true);
    report(y[0] == 0 && y[1] == 1 && y[2] == 0 && z[0] == -inf && z[1] == 0, "minus infinity counts nothing, %d",
           int(c));
    x.assign(c, 3e38f), x[2] = -3e38f;
    y = softmax_of(x, false), z = softmax_of(x, true);
    report(std::fabs(y[0] * (double(c) - 1) - 1) < 1e-6 && y[2] == 0 && z[2] == -inf, "the ends of float, %d", int(c));
    x.assign(c, -100.0f), x[0] = 0;
    y = softmax_of(x, false);
    report(y[0] == 1 && std::fabs(y[1] - std::exp(-100.0)) < 2e-45, "what is nearly nothing is not nothing, %d",
           int(c));
    x[1] = NAN;
    y = softmax_of(x, false), z = softmax_of(x, true);
    report(std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(z[0]) && std::isnan(z[2]), "NaN is everywhere, %d",
           int(c));
    x.assign(c, -inf);
    y = softmax_of(x, false);
    report(std::isnan(y[0]), "no value at all, %d", int(c));
  }
}

double reduced(const ReduceProblem& p, const std::vector<double>& values, const std::vector<double>& weights) {
  double sum = 0;
  i64 best = 0, count = 0;
  const bool max = p.type == ReduceType::max || p.type == ReduceType::argument_max;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += weights.empty() ? values[i] : values[i] * weights[i];
    count += !weights.empty() && weights[i] != 0;
    const double b = values[static_cast<std::size_t>(best)];
    if (std::isnan(b)) continue;
    if (std::isnan(values[i]) || (max ? values[i] > b : values[i] < b)) best = static_cast<i64>(i);
  }
  if (p.type == ReduceType::argument_max || p.type == ReduceType::argument_min) return static_cast<double>(best);
  if (p.type != ReduceType::sum) return values[static_cast<std::size_t>(best)];
  return p.scale * sum / (p.by_nonzero_weights ? static_cast<double>(std::max<i64>(count, 1)) : 1.0);
}

void test_reduce() {
  const char* const axes[] = {"row", "column", "channels"};
  for (int axis = 0; axis < 3; ++axis) {
    for (int type = 0; type < (axis == 2 ? 6 : 3); ++type) {
      for (unsigned seed = 0; seed < 40; ++seed) {
        Random random(600000 + seed * 64 + unsigned(axis * 8 + type));
        const bool weighted = type == 5, large = seed % 10 == 0;
        const i64 c = random.pick({1, 2, 3, 4, 16, 31, 32, 37, 130, 300, 1500});
        const i64 n = random.whole(1, 2), h = random.whole(1, large ? 70 : 9), w = random.whole(1, large ? 150 : 9);
        Image src(random, random_format(random), n, h, w, c, random.one_in(2));
        Image weights(random, random_format(random), n, h, w, c, random.one_in(2));
        Image dst(random, random_format(random), n, axis == 1 ? 1 : random.whole(1, h),
                  axis == 0 ? 1 : random.whole(1, w), axis == 2 ? 1 : c, random.one_in(2));
        src.randomize(random), weights.randomize(random);
        if (random.one_in(3) && (src.view.format == Format::float32)) {
          const float nan = NAN;  // in one place
          std::memcpy(src.at(random.whole(0, n - 1), random.whole(0, h - 1), random.whole(0, w - 1), c - 1), &nan, 4);
          src.snapshot();
        }
        if (random.one_in(2)) {  // ties
          std::memcpy(src.at(0, 0, 0, c - 1), src.at(0, 0, 0, 0), size_of(src.view.format));
          std::memset(weights.at(0, 0, 0, c / 2), 0, size_of(weights.view.format));
          src.snapshot(), weights.snapshot();
        }
        dst.snapshot();
        ReduceProblem p;
        p.src = src.view, p.dst = dst.view, p.axis = static_cast<ReduceAxis>(axis);
        p.type = weighted ? ReduceType::sum : static_cast<ReduceType>(type);
        if (p.type == ReduceType::sum && random.one_in(2)) p.scale = random.real(-1, 1);
        if (weighted) p.weights = weights.view, p.by_nonzero_weights = random.one_in(2);
        const auto errors = failures_of({{p, "reduce"}});
        const auto line = [&](const Image& image, i64 i, i64 y, i64 x, i64 k) {
          std::vector<double> values;
          const i64 count = axis == 0 ? w : axis == 1 ? h : c;
          for (i64 j = 0; j < count; ++j) {
            const double value = image.value(i, axis == 1 ? j : y, axis == 0 ? j : x, axis == 2 ? j : k);
            values.push_back(static_cast<float>(value));
          }
          return values;
        };
        double magnitude = 0;
        const auto exact = [&](i64 i, i64 y, i64 x, i64 k) {
          const auto values = line(src, i, y, x, k);
          const auto factors = weighted ? line(weights, i, y, x, k) : std::vector<double>();
          magnitude = 0;
          for (std::size_t j = 0; j < values.size(); ++j)
            magnitude += std::fabs(values[j]) * (weighted ? std::fabs(factors[j]) : 1);
          return reduced(p, values, factors);
        };
        const std::string wrong = compare(dst, exact, [&](double) {
          return p.type == ReduceType::sum ? 4e-6 * std::fabs(p.scale) * magnitude : 0.0;
        });
        report(errors.empty() && wrong.empty() && src.unchanged(),
               "reduce %s type %d c %d %dx%d f%d->f%d seed %u: %s%s", axes[axis], type, int(c), int(h), int(w),
               int(src.view.format), int(dst.view.format), seed, wrong.c_str(),
               errors.empty() ? "" : errors[0].c_str());
      }
    }
  }
}

/// The error of a sum of many equal values that floats cannot hold grows with the square root at most.
void test_long_sums() {
  Random random(3);
  for (const ReduceAxis axis : {ReduceAxis::row, ReduceAxis::column, ReduceAxis::channels}) {
    const i64 many = 20000;
    Image src(random, Format::float32, 1, axis == ReduceAxis::column ? many : 1, axis == ReduceAxis::row ? many : 1,
              axis == ReduceAxis::channels ? many : 1, true);
    Image dst(random, Format::float32, 1, 1, 1, 1, true);
    src.for_each([&](i64 n, i64 y, i64 x, i64 c) {
      const float tenth = 0.1f;
      std::memcpy(src.at(n, y, x, c), &tenth, 4);
    });
    ReduceProblem p;
    p.src = src.view, p.dst = dst.view, p.axis = axis, p.type = ReduceType::sum, p.scale = 1.0 / double(many);
    failures_of({{p, "reduce"}});
    const double got = dst.value(0, 0, 0, 0);
    report(std::fabs(got - double(0.1f)) < 1e-7, "the mean of %d values along axis %d is %.9g", int(many), int(axis),
           got);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_softmax, test_softmax_ends, test_reduce, test_long_sums});
}
