// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling against double loops that scatter, written from the formulas in engine.hpp, and against finite
// differences of the forward entry: every window, edge mode and format, parts of results, ties, NaN, threads.
//
//   test_engine_pooling_gradient [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <functional>

#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

/// A plain tensor of doubles, NHWC.
struct Values {
  i64 h, w, c;
  std::vector<double> at;
  Values(i64 n, i64 h, i64 w, i64 c) : h(h), w(w), c(c), at(static_cast<std::size_t>(n * h * w * c), 0.0) {}
  double& operator()(i64 n, i64 y, i64 x, i64 k) { return at[static_cast<std::size_t>(((n * h + y) * w + x) * c + k)]; }
};

struct Case {
  Image src, diff, dst;
  PoolGradientProblem problem;
};

const char* name_of(PoolType type) {
  return type == PoolType::max ? "max" : type == PoolType::average ? "average" : "norm";
}

/// The gradient of the whole source, and the sums of magnitudes that rounding errors are measured by.
void scatter(const Case& test, Values& gradient, Values& magnitude) {
  const PoolGradientProblem& p = test.problem;
  const Window& w = p.window;
  const bool clamp = w.edge == Edge::clamp;
  test.diff.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const double e = test.diff.value(n, y, x, c);
    struct Tap {
      i64 y, x;
    };
    std::vector<Tap> taps;  // that lie on a pixel, in the order of the window
    double counted = 0, squares = 0;
    bool zeros = false;
    for (i64 j = 0; j < w.kernel_h; ++j) {
      for (i64 i = 0; i < w.kernel_w; ++i) {
        i64 sy = w.start_h + y * w.stride_h + j * w.dilation_h, sx = w.start_w + x * w.stride_w + i * w.dilation_w;
        const bool inside = sy >= 0 && sx >= 0 && sy < p.src.h && sx < p.src.w;
        counted += !clamp || (sy >= -p.zero_pad_h && sx >= -p.zero_pad_w && sy < p.src.h + p.zero_pad_h &&
                              sx < p.src.w + p.zero_pad_w);
        if (!inside && (!clamp || p.type == PoolType::average)) {
          zeros = true;
          continue;
        }
        sy = std::clamp<i64>(sy, 0, p.src.h - 1), sx = std::clamp<i64>(sx, 0, p.src.w - 1);
        taps.push_back({sy, sx});
        const double v = p.type == PoolType::average ? 0 : test.src.value(n, sy, sx, c);
        squares += v * v;
      }
    }
    const auto give = [&](const Tap& tap, double value) {
      gradient(n, tap.y, tap.x, c) += value;
      magnitude(n, tap.y, tap.x, c) += std::fabs(value);
    };
    if (p.type == PoolType::average) {
      for (const Tap& tap : taps) give(tap, e / counted);
    } else if (p.type == PoolType::l2_norm) {
      for (const Tap& tap : taps)
        if (squares > 0) give(tap, e * test.src.value(n, tap.y, tap.x, c) / std::sqrt(squares));
    } else {
      const Tap* best = nullptr;
      const auto value = [&](const Tap& tap) { return test.src.value(n, tap.y, tap.x, c); };
      for (const Tap& tap : taps) {
        if (std::isnan(value(tap))) {
          best = &tap;
          break;
        }
        if (!best || value(tap) > value(*best)) best = &tap;
      }
      if (best && !(zeros && value(*best) < 0)) give(*best, e);
    }
  });
}

std::string wrong(const Case& test) {
  const PoolGradientProblem& p = test.problem;
  Values gradient(p.src.n, p.src.h, p.src.w, p.src.c), magnitude = gradient;
  scatter(test, gradient, magnitude);
  std::string text;
  test.dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const double right = clamped(p.diff_src.format, gradient(n, p.first_h + y, p.first_w + x, c));
    const double got = test.dst.value(n, y, x, c);
    const double allowed =
        magnitude(n, p.first_h + y, p.first_w + x, c) * 3e-6 + format_error(p.diff_src.format, right) + 1e-30;
    if (std::fabs(got - right) <= allowed || !text.empty()) return;
    char line[120];
    std::snprintf(line, sizeof line, "(%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(c), got, right);
    text = line;
  });
  if (text.empty() && !test.dst.surroundings_unchanged()) return "something was written outside";
  if (text.empty() && !(test.src.unchanged() && test.diff.unchanged())) return "a source was written";
  return text;
}

std::string describe(const PoolGradientProblem& p) {
  const Window& w = p.window;
  char text[320];
  std::snprintf(text, sizeof text,
                "%s src %dx%dx%dx%d diff %dx%d dst %dx%d from %d,%d k %dx%d s %d,%d d %d,%d start %d,%d %s pad %d,%d "
                "formats %d %d %d",
                name_of(p.type), int(p.src.n), int(p.src.h), int(p.src.w), int(p.src.c), int(p.diff_dst.h),
                int(p.diff_dst.w), int(p.diff_src.h), int(p.diff_src.w), int(p.first_h), int(p.first_w),
                int(w.kernel_h), int(w.kernel_w), int(w.stride_h), int(w.stride_w), int(w.dilation_h),
                int(w.dilation_w), int(w.start_h), int(w.start_w), w.edge == Edge::clamp ? "clamp" : "zero",
                int(p.zero_pad_h), int(p.zero_pad_w), int(p.src.format), int(p.diff_dst.format),
                int(p.diff_src.format));
  return text;
}

Case make_case(Random& random, PoolType type, bool exact) {
  const auto format = [&] {
    return exact ? Format::float32 : random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8});
  };
  const i64 c = random.pick({1, 3, 4, 15, 16, 17, 31, 64, 77, 200}), n = random.whole(1, 3);
  const i64 h = random.whole(1, 18), w = random.whole(1, 18);
  const bool global = random.one_in(6), whole = random.one_in(2);
  const i64 first_h = whole ? 0 : random.whole(0, h - 1), first_w = whole ? 0 : random.whole(0, w - 1);
  Case test{Image(random, format(), n, h, w, c, random.one_in(2)),
            Image(random, format(), n, global ? 1 : random.whole(1, 12), global ? 1 : random.whole(1, 12), c,
                  random.one_in(2)),
            Image(random, format(), n, whole ? h : random.whole(1, h - first_h),
                  whole ? w : random.whole(1, w - first_w), c, random.one_in(2)),
            {}};
  PoolGradientProblem& p = test.problem;
  p.src = test.src.view, p.diff_dst = test.diff.view, p.diff_src = test.dst.view;
  p.first_h = first_h, p.first_w = first_w;
  p.type = type;
  Window& window = p.window;
  window.kernel_h = global ? h : random.whole(1, 5), window.kernel_w = global ? w : random.whole(1, 5);
  window.stride_h = random.whole(1, 4), window.stride_w = random.whole(1, 4);
  if (!global && random.one_in(2)) window.dilation_h = random.whole(1, 3), window.dilation_w = random.whole(1, 3);
  if (!global) {
    const bool far = random.one_in(5);
    window.start_h = far ? random.whole(-14, 8) : -random.whole(0, window.kernel_h - 1);
    window.start_w = far ? random.whole(-14, 8) : -random.whole(0, window.kernel_w - 1);
  }
  if (random.one_in(25)) window.kernel_h = 500, window.start_h = -250;  // far beyond the source on both sides
  window.edge = random.pick({Edge::zero, Edge::clamp});
  if (random.one_in(2)) p.zero_pad_h = random.whole(0, 3), p.zero_pad_w = random.whole(0, 3);
  test.src.randomize(random, -3, random.one_in(3) ? -1.0f : 3.0f);
  test.diff.randomize(random);
  test.dst.snapshot();
  return test;
}

void test_against_loops() {
  for (const PoolType type : {PoolType::max, PoolType::average, PoolType::l2_norm}) {
    for (unsigned seed = 0; seed < 250; ++seed) {
      Random random(610000 + 1000 * unsigned(type) + seed);
      const Case test = make_case(random, type, seed % 2 == 0);
      const auto errors = failures_of({{test.problem, "pool_gradient"}});
      const std::string what = wrong(test);
      report(errors.empty() && what.empty(), "%s: %s", describe(test.problem).c_str(), what.c_str());
    }
  }
}

/// Greatest pixels of windows that overlap, the second of which begins above the first one: that one's first tap is
/// outside. With NaN; straight into floats, and by rows of sums.
void test_windows_that_overlap() {
  for (const i64 channels : {5, 16, 37}) {
    for (const Format format : {Format::float32, Format::float16}) {
      for (const bool nan : {false, true}) {
        Random random(650000);
        Case test{Image(random, Format::float32, 2, 9, 9, channels, true),
                  Image(random, Format::float32, 2, 12, 12, channels, true),
                  Image(random, format, 2, 9, 9, channels, true),
                  {}};
        PoolGradientProblem& p = test.problem;
        p.src = test.src.view, p.diff_dst = test.diff.view, p.diff_src = test.dst.view;
        p.type = PoolType::max;
        Window& window = p.window;
        window.kernel_h = window.kernel_w = 5, window.dilation_h = window.dilation_w = 3;
        window.start_h = window.start_w = -4;
        test.src.randomize(random), test.diff.randomize(random);
        const float none = NAN;
        if (nan)
          test.src.for_each([&](i64 n, i64 y, i64 x, i64 c) {
            if (random.one_in(20)) std::memcpy(test.src.at(n, y, x, c), &none, 4);
          });
        test.src.snapshot(), test.dst.snapshot();
        const auto errors = failures_of({{p, "pool_gradient"}});
        const std::string what = wrong(test);
        report(errors.empty() && what.empty(), "%s%s: %s", describe(p).c_str(), nan ? " with NaN" : "", what.c_str());
      }
    }
  }
}

/// <e, pool(x + d) - pool(x - d)> / 2 is <gradient, d> for a small d.
void test_finite_differences() {
  for (const PoolType type : {PoolType::max, PoolType::average, PoolType::l2_norm}) {
    for (unsigned seed = 0; seed < 60; ++seed) {
      Random random(620000 + 1000 * unsigned(type) + seed);
      const Case test = make_case(random, type, true);
      const PoolGradientProblem& p = test.problem;
      Image whole(random, Format::float32, p.src.n, p.src.h, p.src.w, p.src.c, true);
      PoolGradientProblem all = p;
      all.diff_src = whole.view, all.first_h = all.first_w = 0;
      failures_of({{all, "pool_gradient"}});
      const double step = 1e-3;
      double forward = 0, backward = 0, scale = 1e-3;
      Image moved(random, Format::float32, p.src.n, p.src.h, p.src.w, p.src.c, true);
      Image result(random, Format::float32, p.src.n, p.diff_dst.h, p.diff_dst.w, p.src.c, true);
      std::vector<double> direction;
      test.src.for_each([&](i64, i64, i64, i64) { direction.push_back(random.real(-1, 1)); });
      for (const int sign : {1, -1}) {
        std::size_t at = 0;
        moved.for_each([&](i64 n, i64 y, i64 x, i64 c) {
          const auto v = static_cast<float>(test.src.value(n, y, x, c) + sign * step * direction[at++]);
          std::memcpy(moved.at(n, y, x, c), &v, 4);
        });
        PoolProblem pool;
        pool.src = moved.view, pool.dst = result.view;
        pool.type = p.type, pool.window = p.window;
        pool.zero_pad_h = p.zero_pad_h, pool.zero_pad_w = p.zero_pad_w;
        failures_of({{pool, "pool"}});
        result.for_each([&](i64 n, i64 y, i64 x, i64 c) {
          const double product = test.diff.value(n, y, x, c) * result.value(n, y, x, c);
          forward += sign * product / (2 * step), scale += std::fabs(product);
        });
      }
      std::size_t at = 0;
      whole.for_each([&](i64 n, i64 y, i64 x, i64 c) {
        const double product = direction[at++] * whole.value(n, y, x, c);
        backward += product, scale += std::fabs(product);
      });
      // A greatest pixel may change within the step; the roundings of the results are divided by it.
      const double allowed = scale * (type == PoolType::max ? 2e-2 : 2e-3);
      report(std::fabs(forward - backward) <= allowed, "difference of %s: %.9g, not %.9g", describe(p).c_str(),
             backward, forward);
    }
  }
}

/// One window over two rows of three pixels, `channels` times the same.
std::vector<float> max_gradient_of(const std::vector<float>& values, Edge edge, i64 start, i64 channels) {
  Random random(1);
  Image src(random, Format::float32, 1, 2, 3, channels, true), diff(random, Format::float32, 1, 1, 1, channels, true);
  Image dst(random, Format::float32, 1, 2, 3, channels, true);
  src.for_each([&](i64, i64 y, i64 x, i64 c) {
    std::memcpy(src.at(0, y, x, c), &values[static_cast<std::size_t>(y * 3 + x)], 4);
  });
  const float one = 1;
  diff.for_each([&](i64, i64, i64, i64 c) { std::memcpy(diff.at(0, 0, 0, c), &one, 4); });
  PoolGradientProblem p;
  p.src = src.view, p.diff_dst = diff.view, p.diff_src = dst.view;
  p.window.kernel_h = p.window.kernel_w = 4;
  p.window.start_h = p.window.start_w = start;
  p.window.edge = edge;
  failures_of({{p, "pool_gradient"}});
  std::vector<float> result;
  for (i64 y = 0; y < 2; ++y)
    for (i64 x = 0; x < 3; ++x)
      for (i64 c = 0; c < channels; ++c) {
        const auto v = static_cast<float>(dst.value(0, y, x, c));
        if (c == 0) result.push_back(v);
        if (v != result.back()) result.back() = NAN;  // every channel is the same
      }
  return result;
}

void test_choice_of_the_maximum() {
  const float inf = INFINITY;
  for (const i64 channels : {1, 16, 37}) {
    const auto all = [&](const std::vector<float>& v, Edge edge, i64 start) {
      return max_gradient_of(v, edge, start, channels);
    };
    using Result = std::vector<float>;
    report(all({1, 5, 5, 5, 2, 5}, Edge::clamp, 0) == Result{0, 1, 0, 0, 0, 0}, "the first of equal pixels");
    report(all({1, 2, 3, 4, 4, 3}, Edge::clamp, -1) == Result{0, 0, 0, 1, 0, 0}, "the first of equal pixels, below");
    report(all({-1, -2, 0, 0, -3, -3}, Edge::zero, -1) == Result{0, 0, 1, 0, 0, 0}, "a pixel goes before the outside");
    report(all({-1, -2, -3, -4, -5, -6}, Edge::zero, -1) == Result{0, 0, 0, 0, 0, 0}, "the outside is greater");
    report(all({-1, -2, -3, -4, -5, -6}, Edge::clamp, -1) == Result{1, 0, 0, 0, 0, 0}, "clamped: once, not twice");
    report(all({3, NAN, inf, NAN, 2, 1}, Edge::zero, -1) == Result{0, 1, 0, 0, 0, 0}, "the first NaN");
    report(all({NAN, 5, 3, 1, 2, 1}, Edge::clamp, 0) == Result{1, 0, 0, 0, 0, 0}, "NaN stands first");
    report(all({-inf, -inf, -inf, -inf, -inf, -inf}, Edge::clamp, 0) == Result{1, 0, 0, 0, 0, 0}, "all infinite");
  }
}

/// The bits are the same for one thread and for several, and for each of several runs.
void test_threads() {
  const int threads = max_threads();
  for (const PoolType type : {PoolType::max, PoolType::average, PoolType::l2_norm}) {
    for (const i64 kernel : {2, 3, 40}) {
      for (const i64 images : {1, 3}) {
        Random random(640000);
        Image src(random, Format::float32, images, 40, 40, 64, true);
        const i64 size = kernel == 40 ? 1 : 20;
        Image diff(random, Format::float32, images, size, size, 64, true);
        Image dst(random, Format::float32, images, 40, 40, 64, true);
        src.randomize(random), diff.randomize(random);
        PoolGradientProblem p;
        p.src = src.view, p.diff_dst = diff.view, p.diff_src = dst.view;
        p.type = type;
        p.window.kernel_h = p.window.kernel_w = kernel;
        p.window.stride_h = p.window.stride_w = 2;
        p.window.start_h = p.window.start_w = kernel == 3 ? -1 : 0;
        std::vector<std::byte> first;
        for (const int count : {1, 2, 3, 2}) {
          set_max_threads(count);
          std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
          failures_of({{p, "pool_gradient"}});
          const std::byte* const data = dst.view.memory->data();
          if (first.empty()) first.assign(data, data + dst.view.memory->size());
          report(std::memcmp(first.data(), data, first.size()) == 0, "%s %dx%d with %d threads", name_of(type),
                 int(kernel), int(kernel), count);
        }
      }
    }
  }
  set_max_threads(threads);
}

/// A kernel of any size is no more work than the source.
void test_immense_kernel() {
  for (const PoolType type : {PoolType::max, PoolType::average, PoolType::l2_norm}) {
    Random random(2);
    Image src(random, Format::float32, 1, 3, 3, 5, true), diff(random, Format::float32, 1, 1, 1, 5, true);
    Image dst(random, Format::float32, 1, 3, 3, 5, true);
    src.randomize(random), diff.randomize(random);
    PoolGradientProblem p;
    p.src = src.view, p.diff_dst = diff.view, p.diff_src = dst.view;
    p.type = type;
    p.window.kernel_h = p.window.kernel_w = i64{1} << 31;
    p.window.start_h = p.window.start_w = -(i64{1} << 30);
    p.window.edge = Edge::clamp;
    report(failures_of({{p, "pool_gradient"}}).empty() && !std::isnan(dst.value(0, 2, 2, 4)), "immense %s",
           name_of(type));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_choice_of_the_maximum, test_immense_kernel, test_threads, test_against_loops,
                    test_windows_that_overlap, test_finite_differences});
}
