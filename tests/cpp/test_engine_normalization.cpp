// SPDX-License-Identifier: Apache-2.0
// Normalization of the engine against plain double loops written from the formulas in engine.hpp: every format, slices
// of larger images, windows and rows inside, outside and across the borders, groups, batches in parts.
//
//   test_engine_normalization [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cstdlib>

#include "engine_test.hpp"

namespace {

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
}

/// The value at a place that may lie outside.
double seen(const Image& image, Edge edge, i64 n, i64 y, i64 x, i64 c) {
  if (edge == Edge::clamp) {
    y = std::clamp<i64>(y, 0, image.view.h - 1);
    x = std::clamp<i64>(x, 0, image.view.w - 1);
  } else if (y < 0 || y >= image.view.h || x < 0 || x >= image.view.w) {
    return 0;
  }
  return static_cast<float>(image.value(n, y, x, c));
}

/// What went wrong, empty when all is well. expected(n, y, x, c) gives the value and what it may be off by.
template <class F>
std::string compare(const Image& src, const Image& dst, const F& expected) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    if (!wrong.empty()) return;
    const auto [value, error] = expected(n, y, x, c);
    const double want = clamped(dst.view.format, value), got = dst.value(n, y, x, c);
    if (dst.view.format == Format::float16 && std::fabs(want) > 65000) return;
    if (want == got || std::fabs(got - want) <= error + format_error(dst.view.format, want) + 1e-44) return;
    char text[160];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(c), got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  if (wrong.empty() && !src.unchanged()) return "the source was written";
  return wrong;
}

struct Value {
  double value, error;
};

Value lrn(const LRNProblem& p, const Image& src, i64 n, i64 y, i64 x, i64 c) {
  const Window& w = p.window;
  const i64 top = w.start_h + y, left = w.start_w + x;
  double sum = 0, squares = 0, divisor = double(w.kernel_h * w.kernel_w);
  if (p.type == LRNType::channels) {
    for (i64 k = std::max<i64>(0, c - p.size / 2); k <= std::min(src.view.c - 1, c + (p.size - 1) / 2); ++k)
      squares += std::pow(seen(src, w.edge, n, top, left, k), 2);
    divisor = double(p.size);
  } else {
    for (i64 i = 0; i < w.kernel_h; ++i)
      for (i64 j = 0; j < w.kernel_w; ++j) {
        const double value = seen(src, w.edge, n, top + i, left + j, c);
        sum += value, squares += value * value;
      }
  }
  const bool contrast = p.type == LRNType::contrast;
  const double mean = contrast ? sum / divisor : 0;
  double variance = squares / divisor;
  if (contrast) {
    variance = 0;
    for (i64 i = 0; i < w.kernel_h; ++i)
      for (i64 j = 0; j < w.kernel_w; ++j)
        variance += std::pow(seen(src, w.edge, n, top + i, left + j, c) - mean, 2) / divisor;
  }
  const double centre = seen(src, w.edge, n, top + w.kernel_h / 2, left + w.kernel_w / 2, c);
  const double power = std::pow(double(p.delta) + double(p.alpha) * variance, -double(p.beta));
  const double p0 = contrast ? p.p0 : 0, pm = contrast ? p.pm : 0, ps = contrast ? p.ps : 1;
  const double value = pm + ps * (centre - p0 * mean) * power;
  return {value,
          std::fabs(value) * 0x1p-24 + 1e-8 * std::fabs(ps * (std::fabs(centre) + std::fabs(p0 * mean)) * power)};
}

void test_lrn() {
  const char* const names[] = {"channels", "pixels", "contrast"};
  for (int type = 0; type < 3; ++type) {
    for (unsigned seed = 0; seed < 200; ++seed) {
      Random random(500000 + seed * 3 + unsigned(type));
      LRNProblem p;
      p.type = static_cast<LRNType>(type);
      const bool plain = seed % 4 == 0, large = seed % 40 == 0;
      const i64 n = random.whole(1, 3), c = random.pick({1, 3, 4, 16, 21, 40, 1100});
      const i64 h = random.whole(1, large ? 60 : 9), w = random.whole(1, large ? 40 : 9);
      if (type == 0) {
        p.size = random.pick({1, 2, 3, 4, 5, 6, 7, 8, 11, 64, 2200, 100000});
      } else {
        p.window.kernel_h = random.whole(1, 6);
        p.window.kernel_w = random.one_in(3) ? random.whole(1, 20) : p.window.kernel_h;
      }
      p.window.start_h = -(p.window.kernel_h / 2), p.window.start_w = -(p.window.kernel_w / 2);
      if (!plain) {
        p.window.start_h += random.whole(-4, 4);
        p.window.start_w += random.one_in(6) ? random.pick<i64>({-40, 40}) : random.whole(-4, 4);
        p.window.edge = random.pick({Edge::zero, Edge::clamp});
      }
      p.alpha = random.one_in(8) ? 0 : random.real(0, 3), p.beta = random.pick({0.5f, 0.75f, 1.0f, 5.0f, -0.3f, 0.0f});
      p.delta = random.real(0.1f, 2);
      if (type == 2) p.p0 = random.real(0, 1.5f), p.pm = random.real(-1, 1), p.ps = random.real(0.5f, 2);
      if (seed % 16 == 5) p.delta = -30, p.beta = 1;
      Image src(random, random_format(random), n, plain ? h : random.whole(1, h + 2),
                plain ? w : random.whole(1, w + 2), c, random.one_in(2));
      Image dst(random, random_format(random), n, h, w, c, random.one_in(2));
      src.randomize(random), dst.snapshot();
      p.src = src.view, p.dst = dst.view;
      const auto errors = failures_of({{p, "norm"}});
      const std::string wrong =
          compare(src, dst, [&](i64 in, i64 y, i64 x, i64 k) { return lrn(p, src, in, y, x, k); });
      report(errors.empty() && wrong.empty(), "%s seed %u: %s%s", names[type], seed, wrong.c_str(),
             errors.empty() ? "" : errors[0].c_str());
    }
  }
}

/// Float32 values in a buffer, some way in.
struct Values {
  ChannelValues values;
  explicit Values(i64 count, float fill = NAN) {
    values.memory = Memory::lazy(cpu_engine().shared_from_this(), static_cast<std::size_t>(count) * 4 + 16);
    values.offset = 12;
    for (i64 i = 0; i < count; ++i) at(i) = fill;
  }
  float& at(i64 i) const { return reinterpret_cast<float*>(values.memory->data() + values.offset)[i]; }
  Values& randomize(Random& random, i64 count, float low, float high) {
    for (i64 i = 0; i < count; ++i) at(i) = random.real(low, high);
    return *this;
  }
};

struct Statistics {
  double mean, variance;
};

Statistics statistics_of(const Image& src, i64 first, i64 images, i64 channel, i64 channels) {
  double sum = 0, squares = 0, count = 0;
  const auto each = [&](const auto& f) {
    for (i64 n = first; n < first + images; ++n)
      for (i64 y = 0; y < src.view.h; ++y)
        for (i64 x = 0; x < src.view.w; ++x)
          for (i64 c = channel; c < channel + channels; ++c) f(seen(src, Edge::zero, n, y, x, c));
  };
  each([&](double v) { sum += v, ++count; });
  each([&](double v) { squares += std::pow(v - sum / count, 2); });
  return {sum / count, squares / count};
}

bool near(double got, double want, double error) { return std::fabs(got - want) <= error; }

void test_normalize() {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(600000 + seed);
    const bool plain = seed % 4 == 0, large = seed % 40 == 0;
    const i64 n = random.one_in(5) ? 9 : random.whole(1, 3), c = random.pick({1, 3, 4, 8, 36, 64, 1100});
    const i64 h = random.whole(1, large ? 60 : 9), w = random.whole(1, large ? 40 : 9);
    NormalizeProblem p;
    const i64 divisors[] = {0, c, 1, c % 4 == 0 ? c / 4 : 1};
    p.groups = divisors[seed / 4 % 4];
    p.epsilon = random.pick({1e-5f, 1e-3f, 1.17549435e-38f});
    Image src(random, random_format(random), n, plain ? h : random.whole(1, h + 2), plain ? w : random.whole(1, w + 2),
              c, random.one_in(2));
    Image dst(random, random_format(random), n, h, w, c, random.one_in(2));
    // A mean that is large beside the spread must cost nothing.
    const float centre = src.view.format == Format::float32 && random.one_in(3) ? 1000 : 0;
    src.randomize(random, centre - 2, centre + 2), dst.snapshot();
    p.src.view = src.view, p.dst = dst.view;
    if (!plain) {
      p.src.start_h = random.whole(-4, 4), p.src.start_w = random.whole(-4, 4);
      p.src.edge = random.pick({Edge::zero, Edge::clamp});
    }
    const NeuronType types[] = {NeuronType::none, NeuronType::relu, NeuronType::sigmoid, NeuronType::prelu};
    p.neuron = random_neuron(random, types[seed / 16 % 4], c);
    Values gamma(c), beta(c), mean(n * c), variance(n * c);
    p.gamma = gamma.randomize(random, c, -2, 2).values, p.beta = beta.randomize(random, c, -1, 1).values;
    const bool stored = p.groups == 0 || random.one_in(2);
    if (p.groups == 0) mean.randomize(random, c, centre - 1, centre + 1), variance.randomize(random, c, 0.1f, 2);
    if (stored) p.mean = mean.values, p.variance = variance.values;
    const auto errors = failures_of({{p, "normalize"}});

    const i64 each = p.groups == 0 ? 1 : c / p.groups;
    std::vector<Statistics> known;  // per image and group
    if (p.groups == 0) {
      for (i64 k = 0; k < c; ++k) known.push_back({mean.at(k), variance.at(k)});
    } else {
      for (i64 i = 0; i < n; ++i)
        for (i64 g = 0; g < p.groups; ++g) known.push_back(statistics_of(src, i, 1, g * each, each));
    }
    const std::string wrong = compare(src, dst, [&](i64 i, i64 y, i64 x, i64 k) {
      const auto [m, v] = known[static_cast<std::size_t>((p.groups == 0 ? 0 : i * p.groups) + k / each)];
      const double value = seen(src, p.src.edge, i, y + p.src.start_h, x + p.src.start_w, k) - m;
      const double scale = gamma.at(k) / std::sqrt(v + p.epsilon), raw = value * scale + beta.at(k);
      // Two products and two sums; eight distances that are added as floats cost a rounding of the spread.
      const double error = 4 * 0x1p-24 * (std::fabs(value * scale) + std::fabs(beta.at(k))) +
                           2 * 0x1p-24 * std::fabs(scale) * (std::fabs(m) * 1e-3 + std::sqrt(v)) +
                           1e-12 * std::fabs(scale);
      const double result = neuron_value(p.neuron, raw, k);
      return Value{result, 1.6 * error + std::fabs(result) * 0x1p-23};
    });
    report(errors.empty() && wrong.empty(), "normalize seed %u groups %d of %d: %s%s", seed, int(p.groups), int(c),
           wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
    if (p.groups == 0 || !stored) continue;
    bool good = true;
    for (std::size_t i = 0; i < known.size(); ++i)
      good = good &&
             near(mean.at(i64(i)), known[i].mean,
                  (std::fabs(known[i].mean) + std::sqrt(known[i].variance)) * 0x1p-23 + 1e-9) &&
             near(variance.at(i64(i)), known[i].variance, known[i].variance * 0x1p-21 + 1e-12);
    report(good, "statistics kept by normalize, seed %u", seed);
  }
}

void test_statistics() {
  for (unsigned seed = 0; seed < 120; ++seed) {
    Random random(700000 + seed);
    const bool large = seed % 20 == 0;
    const i64 n = random.whole(1, 7), c = random.pick({1, 3, 4, 16, 33, 64, 1100});
    const i64 h = random.whole(1, large ? 90 : 9), w = random.whole(1, large ? 90 : 9);
    Image src(random, random_format(random), n, h, w, c, random.one_in(2));
    const float centre = src.view.format == Format::float32 && random.one_in(2) ? -300 : 0;
    src.randomize(random, centre - 2, centre + 2);
    Values mean(c), variance(c);
    // The batch in up to three parts.
    const i64 cuts[] = {0, random.whole(0, n), random.whole(0, n), n};
    std::vector<i64> ends(cuts, cuts + 4);
    std::sort(ends.begin(), ends.end());
    std::vector<Command> commands;
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      if (ends[i] == ends[i + 1]) continue;
      commands.push_back({BatchMomentsProblem{src.view.images(ends[i], ends[i + 1] - ends[i]), mean.values,
                                              variance.values, ends[i] * h * w},
                          "statistics"});
    }
    const auto errors = failures_of(commands);
    double worst = 0;
    for (i64 k = 0; k < c; ++k) {
      const auto [m, v] = statistics_of(src, 0, n, k, 1);
      // What a part holds is rounded to float when it is stored.
      const double rounding = 0x1p-22 * (std::fabs(m) + std::sqrt(v)) + 1e-12;
      worst = std::max({worst, std::fabs(mean.at(k) - m) / rounding,
                        std::fabs(variance.at(k) - v) / (v * 0x1p-22 + 2 * std::sqrt(v) * rounding + 1e-12)});
      if (std::isnan(mean.at(k)) || std::isnan(variance.at(k))) worst = INFINITY;
    }
    report(errors.empty() && worst <= 1 && src.unchanged(), "statistics seed %u: %g of what is allowed %s", seed, worst,
           errors.empty() ? "" : errors[0].c_str());
  }
}

void test_keys() {
  const auto engine = cpu_engine().shared_from_this();
  ImageView src;
  src.memory = Memory::lazy(engine, 4096), src.h = src.w = src.c = 4;
  src.w_stride = 4, src.h_stride = 16, src.n_stride = 64;
  ImageView dst = src;
  dst.offset = 1024;
  const auto local = [&](LRNType type, i64 size, float beta) {
    LRNProblem p;
    p.src = src, p.dst = dst, p.type = type, p.size = size, p.beta = beta;
    return structure_key({{p, "x"}});
  };
  report(local(LRNType::channels, 5, 1) == local(LRNType::channels, 5, 1), "equal problems, equal keys");
  report(local(LRNType::channels, 5, 1) != local(LRNType::pixels, 5, 1), "the type is part of the key");
  report(local(LRNType::channels, 5, 1) != local(LRNType::channels, 3, 1), "the size is part of the key");
  report(local(LRNType::channels, 5, 1) != local(LRNType::channels, 5, 2), "the power is part of the key");
  const Values values(8);
  const auto normalize = [&](i64 groups, float epsilon, bool stored) {
    NormalizeProblem p;
    p.src.view = src, p.dst = dst, p.gamma = p.beta = values.values, p.groups = groups, p.epsilon = epsilon;
    if (stored) p.mean = p.variance = values.values;
    return structure_key({{p, "x"}});
  };
  report(normalize(4, 1, true) == normalize(4, 1, true), "equal normalizations, equal keys");
  report(normalize(4, 1, true) != normalize(1, 1, true), "groups are part of the key");
  report(normalize(4, 1, true) != normalize(4, 2, true), "epsilon is part of the key");
  report(normalize(4, 1, true) != normalize(4, 1, false), "what is stored is part of the key");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_keys, test_lrn, test_normalize, test_statistics});
}
