// SPDX-License-Identifier: Apache-2.0
// Gradients of convolution and of its transpose against plain double loops written from the formulas in engine.hpp, and
// against the forward entries: both maps are linear, so a difference quotient of theirs is exact. Random geometry from
// fixed seeds: strides with remainders, dilation, groups, windows that start inside, outside and far away, parts of the
// source, slices of larger images with NaN in the gaps, guard bands around results.
//
//   test_engine_convolution_gradient [seed offset]      prints "N passed, N failed"
#include <algorithm>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

/// Floats in a buffer, NaN around them.
struct Values {
  ChannelValues values;
  i64 count;
  std::vector<float> before;

  Values(Random& random, i64 count) : count(count) {
    values.offset = static_cast<std::size_t>(random.whole(0, 5)) * 4;
    values.memory =
        Memory::lazy(cpu_engine().shared_from_this(), values.offset + static_cast<std::size_t>(count + 7) * 4);
    std::memset(values.memory->data(), 0xff, values.memory->size());
  }
  float* data() const { return reinterpret_cast<float*>(values.memory->data() + values.offset); }
  void randomize(Random& random) {
    for (i64 i = 0; i < count; ++i) data()[i] = random.real(-2, 2);
    before.assign(data(), data() + count);
  }
  bool surroundings_unchanged() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.memory->data());
    const std::size_t end = values.offset + static_cast<std::size_t>(count) * 4;
    for (std::size_t i = 0; i < values.memory->size(); ++i)
      if ((i < values.offset || i >= end) && bytes[i] != 0xff) return false;
    return true;
  }
};

struct Sum {
  double value = 0, magnitude = 0;
  void add(double term) { value += term, magnitude += std::fabs(term); }
};

/// What the gradients should be.
struct Expected {
  std::vector<Sum> diff_src, diff_weights, diff_bias;
};

/// Which source row or column pixel `result` of an axis sees with tap k; -1: none of those in [first, first + extent).
i64 seen(const Window& w, bool vertical, bool transposed, i64 result, i64 k, i64 extent, bool bounded) {
  const i64 start = vertical ? w.start_h : w.start_w, dilation = vertical ? w.dilation_h : w.dilation_w;
  const i64 stride = vertical ? w.stride_h : w.stride_w;
  constexpr i64 kNothing = INT64_MIN;
  i64 at = 0;
  if (transposed) {
    at = start + result + k * dilation;
    if (at % stride != 0) return kNothing;
    at /= stride;
  } else {
    at = start + result * stride + k * dilation;
    if (w.edge == Edge::clamp) at = std::clamp<i64>(at, 0, extent - 1);
  }
  return bounded && (at < 0 || at >= extent) ? kNothing : at;
}

Expected expect(const ConvGradientProblem& p, bool transposed, const Image& diff_dst, const Image& src,
                const ImageView& wanted) {
  const ConvWeights& k = *p.weights;
  const i64 inputs = k.in_channels_per_group, outputs = k.out_channels / k.groups, taps = k.kernel_h * k.kernel_w;
  Expected e;
  e.diff_src.resize(static_cast<std::size_t>(wanted.size()));
  e.diff_weights.resize(k.values.size());
  e.diff_bias.resize(static_cast<std::size_t>(k.out_channels));
  diff_dst.for_each([&](i64 n, i64 v, i64 u, i64 o) {
    const double g = diff_dst.value(n, v, u, o);
    e.diff_bias[static_cast<std::size_t>(o)].add(g);
    for (i64 tap = 0; tap < taps; ++tap) {
      const i64 y = seen(p.window, true, transposed, v, tap / k.kernel_w, p.src.h, false);
      const i64 x = seen(p.window, false, transposed, u, tap % k.kernel_w, p.src.w, false);
      if (y == INT64_MIN || x == INT64_MIN) continue;
      const bool inside = y >= 0 && y < p.src.h && x >= 0 && x < p.src.w;
      const i64 row = y - p.first_h, column = x - p.first_w;
      for (i64 i = 0; i < inputs; ++i) {
        const auto index = static_cast<std::size_t>((o * taps + tap) * inputs + i);
        const i64 c = o / outputs * inputs + i;
        if (inside) e.diff_weights[index].add(g * src.value(n, y, x, c));
        if (row >= 0 && row < wanted.h && column >= 0 && column < wanted.w)
          e.diff_src[static_cast<std::size_t>(((n * wanted.h + row) * wanted.w + column) * wanted.c + c)].add(
              g * k.values[index]);
      }
    }
  });
  return e;
}

std::string describe(const ConvGradientProblem& p, bool transposed, const ImageView& s, const ImageView& wanted) {
  char text[400];
  const ConvWeights& k = *p.weights;
  const Window& w = p.window;
  std::snprintf(
      text, sizeof(text),
      "%s E %dx%dx%dx%d%s f%d src %dx%dx%d%s f%d wanted %dx%d%s f%d first %d,%d k %dx%d s %d,%d d %d,%d start "
      "%d,%d g %d %s%s",
      transposed ? "transpose" : "conv", int(p.diff_dst.n), int(p.diff_dst.h), int(p.diff_dst.w), int(p.diff_dst.c),
      p.diff_dst.is_dense() ? "" : " strided", int(p.diff_dst.format), int(s.h), int(s.w), int(s.c),
      s.is_dense() ? "" : " strided", int(s.format), int(wanted.h), int(wanted.w), wanted.is_dense() ? "" : " strided",
      int(wanted.format), int(p.first_h), int(p.first_w), int(k.kernel_h), int(k.kernel_w), int(w.stride_h),
      int(w.stride_w), int(w.dilation_h), int(w.dilation_w), int(w.start_h), int(w.start_w), int(k.groups),
      w.edge == Edge::clamp ? "clamp" : "zero", p.accumulates ? " accumulates" : "");
  return text;
}

constexpr double kRelative = 2e-6;

void compare_image(const std::string& what, const Image& got, const std::vector<Sum>& expected) {
  double worst = 0;
  std::string where;
  std::size_t index = 0;
  got.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const Sum& sum = expected[index++];
    const double value = got.value(n, y, x, c);
    const double allowed = sum.magnitude * kRelative + format_error(got.view.format, sum.value) + 1e-30;
    const double ratio = std::isnan(value) ? 1e30 : std::fabs(value - sum.value) / allowed;
    if (ratio <= worst) return;
    worst = ratio;
    char text[160];
    std::snprintf(text, sizeof(text), " (%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(c), value,
                  sum.value);
    where = text;
  });
  report(worst <= 1, "%s: diff_src%s", what.c_str(), where.c_str());
}

void compare_values(const std::string& what, const char* name, const Values& got, const std::vector<Sum>& expected,
                    bool accumulates) {
  double worst = 0;
  std::string where;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double before = accumulates ? got.before[i] : 0, value = got.data()[i];
    const double sum = expected[i].value + before;
    const double allowed = (expected[i].magnitude + std::fabs(before)) * kRelative + 1e-30;
    const double ratio = std::isnan(value) ? 1e30 : std::fabs(value - sum) / allowed;
    if (ratio <= worst) continue;
    worst = ratio;
    char text[120];
    std::snprintf(text, sizeof(text), " %d is %.9g, not %.9g", int(i), value, sum);
    where = text;
  }
  report(worst <= 1, "%s: %s%s", what.c_str(), name, where.c_str());
  report(got.surroundings_unchanged(), "%s: wrote around %s", what.c_str(), name);
}

int accepted_data[5] = {}, accepted_weights[5] = {};

/// Every implementation that takes the problem, on dense floats.
void check_implementations(const ConvGradientProblem& p, const std::string& text, const Image& src,
                           const Expected& expected, Random& random, const ImageView& wanted) {
  using namespace cpu;
  const auto dense = [&](const ImageView& like, const Image* from) {
    Image image(random, Format::float32, like.n, like.h, like.w, like.c, true);
    if (from)
      from->for_each([&](i64 n, i64 y, i64 x, i64 c) {
        const auto value = static_cast<float>(from->value(n, y, x, c));
        std::memcpy(image.at(n, y, x, c), &value, 4);
      });
    image.snapshot();
    return image;
  };
  Image given(random, p.diff_dst.format, 1, 1, 1, 1, true);
  given.view = p.diff_dst;
  const Image e = dense(p.diff_dst, &given), x = dense(src.view, &src);
  const struct {
    const char* name;
    const char* (*run)(const DataGradientCall&);
  } data[] = {{"depthwise", data_gradient_depthwise},
              {"taps", data_gradient_by_taps},
              {"narrow", data_gradient_narrow},
              {"primitive", data_gradient_primitive},
              {"patches", data_gradient_by_patches}};
  Window window = p.window;
  window.start_h -= p.first_h, window.start_w -= p.first_w;
  for (int i = 0; i < 5; ++i) {
    Image to = dense(wanted, nullptr);
    const char* why_not = data[i].run({tensor_of(e.view), tensor_of(to.view), p.weights.get(), window, false,
                                       -p.first_h, -p.first_w, src.view.h, src.view.w});
    if (why_not) {
      report(to.unchanged(), "%s: %s declined (%s) after it had begun", text.c_str(), data[i].name, why_not);
      continue;
    }
    ++accepted_data[i];
    compare_image(text + " by " + data[i].name, to, expected.diff_src);
    report(to.surroundings_unchanged(), "%s: %s wrote outside", text.c_str(), data[i].name);
  }
  const struct {
    const char* name;
    const char* (*run)(const WeightsGradientCall&);
  } weights[] = {{"depthwise", weights_gradient_depthwise},
                 {"taps", weights_gradient_by_taps},
                 {"in_place", weights_gradient_in_place},
                 {"primitive", weights_gradient_primitive},
                 {"patches", weights_gradient_by_patches}};
  for (int i = 0; i < 5; ++i) {
    Values to(random, static_cast<i64>(p.weights->values.size()));
    if (p.accumulates) to.randomize(random);
    const std::vector<float> before(to.data(), to.data() + to.count);
    const char* why_not = weights[i].run(
        {tensor_of(e.view), tensor_of(x.view), p.weights->groups, p.window, to.data(), p.accumulates, false});
    if (why_not) {
      report(std::memcmp(before.data(), to.data(), before.size() * 4) == 0, "%s: %s declined (%s) after it had begun",
             text.c_str(), weights[i].name, why_not);
      continue;
    }
    ++accepted_weights[i];
    compare_values(text + " by " + weights[i].name, "diff_weights", to, expected.diff_weights, p.accumulates);
  }
}

struct Shape {
  i64 n, e_h, e_w, h, w, groups, inputs, outputs;  ///< channels of a group
};

void check(Random& random, const Shape& s, const Window& window, bool transposed, bool plain) {
  const bool dense = plain || random.one_in(2);
  const auto format = [&] { return plain || random.one_in(2) ? Format::float32 : Format::float16; };
  Image e(random, format(), s.n, s.e_h, s.e_w, s.groups * s.outputs, dense);
  Image src(random, format(), s.n, s.h, s.w, s.groups * s.inputs, dense || random.one_in(2));
  e.randomize(random), src.randomize(random);
  const bool is_part = !plain && random.one_in(3);
  Image diff_src(random, format(), s.n, is_part ? random.whole(1, s.h + 2) : s.h,
                 is_part ? random.whole(1, s.w + 2) : s.w, s.groups * s.inputs, dense || random.one_in(2));
  diff_src.snapshot();
  TransposeGradientProblem p;
  p.diff_dst = e.view, p.src = src.view, p.diff_src = diff_src.view;
  p.first_h = is_part ? random.whole(-3, 3) : 0, p.first_w = is_part ? random.whole(-3, 3) : 0;
  p.weights = random_weights(random, s.groups * s.outputs, window.kernel_h, window.kernel_w, s.inputs, s.groups, true);
  p.window = window;
  p.accumulates = !plain && random.one_in(3);
  Values diff_weights(random, static_cast<i64>(p.weights->values.size())), diff_bias(random, s.groups * s.outputs);
  if (p.accumulates) diff_weights.randomize(random), diff_bias.randomize(random);
  p.diff_weights = diff_weights.values, p.diff_bias = diff_bias.values;

  const std::string text = describe(p, transposed, src.view, diff_src.view);
  const Expected expected = expect(p, transposed, e, src, diff_src.view);
  const int wants = plain ? 3 : static_cast<int>(random.whole(1, 3));
  if (!(wants & 1)) p.diff_src.memory = nullptr;
  if (!(wants & 2)) p.diff_weights = p.diff_bias = {}, p.src.memory = nullptr;
  const Command command = transposed ? Command{p, "gradient"} : Command{static_cast<const ConvGradientProblem&>(p), ""};
  const auto errors = failures_of({command});
  report(errors.empty(), "%s: %s", text.c_str(), errors.empty() ? "" : errors[0].c_str());
  if (wants & 1)
    compare_image(text, diff_src, expected.diff_src);
  else
    report(diff_src.unchanged(), "%s: diff_src was not wanted", text.c_str());
  report(diff_src.surroundings_unchanged(), "%s: wrote around diff_src", text.c_str());
  if (wants & 2) {
    compare_values(text, "diff_weights", diff_weights, expected.diff_weights, p.accumulates);
    compare_values(text, "diff_bias", diff_bias, expected.diff_bias, p.accumulates);
  }
  report(e.unchanged() && src.unchanged(), "%s: wrote to a source", text.c_str());
  if (!transposed) {
    p.src = src.view;
    check_implementations(p, text, src, expected, random, diff_src.view);
  }
}

Window random_window(Random& random, i64 most_kernel) {
  Window w;
  w.kernel_h = random.whole(1, most_kernel), w.kernel_w = random.whole(1, most_kernel);
  w.stride_h = random.whole(1, 3), w.stride_w = random.whole(1, 3);
  w.dilation_h = random.one_in(2) ? 1 : random.whole(1, 3), w.dilation_w = random.one_in(2) ? 1 : random.whole(1, 3);
  w.start_h = random.one_in(3) ? random.whole(-7, 5) : -random.whole(0, w.kernel_h / 2);
  w.start_w = random.one_in(3) ? random.whole(-7, 5) : -random.whole(0, w.kernel_w / 2);
  if (random.one_in(40)) w.start_h = random.pick<i64>({-50, 50});
  return w;
}

void test_random_geometry() {
  Random random(1);
  for (int round = 0; round < 600; ++round) {
    Window window = random_window(random, 4);
    const bool transposed = random.one_in(3);
    if (!transposed && random.one_in(3)) window.edge = Edge::clamp;
    Shape s = {random.whole(1, 3), random.whole(1, 7), random.whole(1, 7), random.whole(1, 8), random.whole(1, 8), 1,
               random.whole(1, 9), random.whole(1, 9)};
    if (random.one_in(3)) {  // depth-wise
      s.groups = random.pick<i64>({2, 7, 16, 33, 40, 64}), s.inputs = 1, s.outputs = random.one_in(6) ? 2 : 1;
    } else if (random.one_in(3)) {
      s.groups = random.whole(2, 3), s.inputs = random.pick<i64>({1, 3, 4, 8, 16}),
      s.outputs = random.pick<i64>({2, 4, 16});
    } else if (random.one_in(4)) {
      s.inputs = random.pick<i64>({16, 20, 32}), s.outputs = random.pick<i64>({16, 30, 48});
    }
    check(random, s, window, transposed, random.one_in(4));
  }
}

/// Windows as layers of networks have them: results by SizeSame or ValidOnly.
void test_layers() {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    Window w;
    w.kernel_h = w.kernel_w = random.pick<i64>({1, 2, 3, 5, 7});
    w.stride_h = w.stride_w = random.whole(1, 2);
    w.edge = random.one_in(4) ? Edge::clamp : Edge::zero;
    Shape s = {random.whole(1, 4),
               0,
               0,
               random.whole(7, 12),
               random.whole(7, 12),
               1,
               random.pick<i64>({1, 3, 16, 64, 72}),
               random.pick<i64>({10, 64, 80})};
    if (random.one_in(3)) s.h = s.w = random.whole(2, 4);
    if (random.one_in(6)) s.groups = 2;
    if (random.one_in(5)) {  // fully connected
      w.kernel_h = s.h, w.kernel_w = s.w, w.stride_h = w.stride_w = 1, s.groups = 1;
      s.e_h = s.e_w = 1;
    } else {
      s.e_h = (s.h + w.stride_h - 1) / w.stride_h, s.e_w = (s.w + w.stride_w - 1) / w.stride_w;
      w.start_h = -(w.kernel_h / 2), w.start_w = -(w.kernel_w / 2);
    }
    check(random, s, w, false, random.one_in(2));
  }
}

/// Most taps lie outside.
void test_small_images() {
  Random random(7);
  for (int round = 0; round < 24; ++round) {
    Window w;
    w.kernel_h = random.pick<i64>({3, 5}), w.kernel_w = 3, w.stride_h = w.stride_w = random.whole(1, 2);
    w.dilation_w = random.whole(1, 2);
    w.start_h = -(w.kernel_h / 2), w.start_w = -random.whole(1, 3);
    w.edge = random.one_in(4) ? Edge::clamp : Edge::zero;
    const i64 h = random.whole(1, 4), wd = random.whole(1, 4);
    check(random,
          {random.whole(9, 20), (h + w.stride_h - 1) / w.stride_h, (wd + w.stride_w - 1) / w.stride_w, h, wd,
           random.one_in(5) ? 2 : 1, random.pick<i64>({64, 67}), random.pick<i64>({64, 80})},
          w, false, random.one_in(2));
  }
}

/// One image whose patches are made in bands.
void test_bands() {
  Random random(3);
  for (const Edge edge : {Edge::zero, Edge::clamp}) {
    Window w;
    w.kernel_h = w.kernel_w = 9, w.start_h = -4, w.start_w = -3;
    w.edge = edge;
    check(random, {1, 97, 90, 97, 91, 1, 25, 2}, w, false, true);
  }
}

/// <diff_src, D> is what the forward entry gives for D, and so for the weights.
void test_against_the_forward_entries() {
  Random random(4);
  for (int round = 0; round < 60; ++round) {
    const bool transposed = random.one_in(2);
    Window w = random_window(random, 3);
    if (!transposed && random.one_in(2)) w.edge = Edge::clamp;
    const i64 n = random.whole(1, 2), h = random.whole(2, 6), wd = random.whole(2, 6), groups = random.whole(1, 2);
    const i64 inputs = random.whole(1, 6), outputs = random.whole(1, 6);
    Image e(random, Format::float32, n, random.whole(1, 5), random.whole(1, 5), groups * outputs, true);
    Image src(random, Format::float32, n, h, wd, groups * inputs, true);
    Image direction(random, Format::float32, n, h, wd, groups * inputs, true);
    Image diff_src(random, Format::float32, n, h, wd, groups * inputs, true);
    e.randomize(random), src.randomize(random), direction.randomize(random);
    TransposeGradientProblem p;
    p.diff_dst = e.view, p.src = src.view, p.diff_src = diff_src.view, p.window = w;
    p.weights = random_weights(random, groups * outputs, w.kernel_h, w.kernel_w, inputs, groups, false);
    Values diff_weights(random, static_cast<i64>(p.weights->values.size()));
    p.diff_weights = diff_weights.values;
    failures_of({transposed ? Command{p, ""} : Command{static_cast<const ConvGradientProblem&>(p), ""}});

    const auto slope = [&](const Image& x, const std::shared_ptr<const ConvWeights>& weights) {
      Image y(random, Format::float32, n, e.view.h, e.view.w, e.view.c, true);
      if (transposed) {
        TransposeProblem forward;
        forward.src = x.view, forward.dst = y.view, forward.weights = weights, forward.window = w;
        failures_of({{forward, ""}});
      } else {
        ConvProblem forward;
        forward.src = x.view, forward.dst = y.view, forward.weights = weights, forward.window = w;
        failures_of({{forward, ""}});
      }
      Sum sum;
      e.for_each([&](i64 m, i64 v, i64 u, i64 o) { sum.add(e.value(m, v, u, o) * y.value(m, v, u, o)); });
      return sum;
    };
    const Sum by_source = slope(direction, p.weights);
    double got = 0;
    direction.for_each(
        [&](i64 m, i64 y, i64 x, i64 c) { got += direction.value(m, y, x, c) * diff_src.value(m, y, x, c); });
    const std::string text = describe(p, transposed, src.view, diff_src.view);
    report(std::fabs(got - by_source.value) <= 1e-5 * by_source.magnitude + 1e-4, "%s: along the source %.9g, not %.9g",
           text.c_str(), got, by_source.value);
    const auto other = random_weights(random, groups * outputs, w.kernel_h, w.kernel_w, inputs, groups, false);
    const Sum by_weights = slope(src, other);
    got = 0;
    for (std::size_t i = 0; i < other->values.size(); ++i) got += double{other->values[i]} * diff_weights.data()[i];
    report(std::fabs(got - by_weights.value) <= 1e-5 * by_weights.magnitude + 1e-4,
           "%s: along the weights %.9g, not %.9g", text.c_str(), got, by_weights.value);
  }
}

/// Large enough for several threads, whose number does not change what is computed; the same bits every time.
void test_threads() {
  const int before = max_threads();
  const struct {
    Shape shape;
    i64 kernel, stride;
    Edge edge;
  } cases[] = {{{4, 16, 16, 16, 16, 1, 32, 64}, 3, 1, Edge::zero},  {{4, 16, 16, 16, 16, 1, 32, 64}, 3, 1, Edge::clamp},
               {{8, 2, 2, 2, 2, 1, 128, 96}, 3, 1, Edge::zero},     {{4, 16, 16, 32, 32, 1, 3, 32}, 7, 2, Edge::zero},
               {{4, 16, 16, 32, 32, 96, 1, 1}, 3, 2, Edge::zero},   {{4, 16, 16, 32, 32, 96, 1, 1}, 3, 2, Edge::clamp},
               {{2, 24, 24, 24, 24, 3, 12, 20}, 3, 1, Edge::clamp}, {{64, 1, 1, 4, 4, 1, 64, 100}, 4, 1, Edge::zero}};
  for (const auto& one : cases) {
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 2}) {
      set_max_threads(threads);
      Random random(5);
      Window w;
      w.kernel_h = w.kernel_w = one.kernel, w.stride_h = w.stride_w = one.stride;
      w.start_h = w.start_w = one.shape.e_h == 1 ? 0 : -(one.kernel / 2);
      w.edge = one.edge;
      const Shape& s = one.shape;
      Image e(random, Format::float32, s.n, s.e_h, s.e_w, s.groups * s.outputs, true);
      Image src(random, Format::float32, s.n, s.h, s.w, s.groups * s.inputs, true);
      Image diff_src(random, Format::float32, s.n, s.h, s.w, s.groups * s.inputs, true);
      e.randomize(random), src.randomize(random);
      ConvGradientProblem p;
      p.diff_dst = e.view, p.src = src.view, p.diff_src = diff_src.view, p.window = w;
      p.weights = random_weights(random, s.groups * s.outputs, one.kernel, one.kernel, s.inputs, s.groups, false);
      Values diff_weights(random, static_cast<i64>(p.weights->values.size())), diff_bias(random, s.groups * s.outputs);
      p.diff_weights = diff_weights.values, p.diff_bias = diff_bias.values;
      failures_of({{p, ""}});
      const std::string text = describe(p, false, src.view, diff_src.view) + " on " + std::to_string(threads);
      const Expected expected = expect(p, false, e, src, diff_src.view);
      compare_image(text, diff_src, expected.diff_src);
      compare_values(text, "diff_weights", diff_weights, expected.diff_weights, false);
      compare_values(text, "diff_bias", diff_bias, expected.diff_bias, false);
      std::vector<float> all(diff_weights.data(), diff_weights.data() + diff_weights.count);
      all.insert(all.end(), diff_bias.data(), diff_bias.data() + diff_bias.count);
      const Tensor t = tensor_of(diff_src.view);
      all.insert(all.end(), t.floats(), t.floats() + t.size());
      results.push_back(all);
    }
    report(std::memcmp(results[1].data(), results[2].data(), results[1].size() * 4) == 0, "other bits on a second run");
  }
  set_max_threads(before);
}

/// A list of commands: what the first one leaves in a buffer, the second one adds to.
void test_sums_over_commands() {
  Random random(6);
  Window w;
  w.kernel_h = w.kernel_w = 3, w.start_h = w.start_w = -1;
  Image e(random, Format::float32, 5, 6, 6, 8, true), src(random, Format::float32, 5, 6, 6, 4, true);
  e.randomize(random), src.randomize(random);
  const auto weights = random_weights(random, 8, 3, 3, 4, 1, false);
  Values diff_weights(random, 8 * 9 * 4), diff_bias(random, 8);
  ConvGradientProblem whole;
  whole.diff_dst = e.view, whole.src = src.view, whole.weights = weights, whole.window = w;
  whole.diff_weights = diff_weights.values, whole.diff_bias = diff_bias.values;
  ConvGradientProblem first = whole, rest = whole;
  first.diff_dst = e.view.images(0, 2), first.src = src.view.images(0, 2);
  rest.diff_dst = e.view.images(2, 3), rest.src = src.view.images(2, 3), rest.accumulates = true;
  failures_of({{first, ""}, {rest, ""}});
  const Expected expected = expect(whole, false, e, src, src.view);
  compare_values("a batch in two parts", "diff_weights", diff_weights, expected.diff_weights, false);
  compare_values("a batch in two parts", "diff_bias", diff_bias, expected.diff_bias, false);
}

/// oneDNN's kernel for 1 x 1 with a stride writes behind its scratch memory where the channels are fewer than a vector,
/// which no result shows: it must not be asked.
void test_few_channels_with_a_stride() {
  Random random(8);
  for (const i64 inputs : {1, 3, 7, 8, 15, 16, 64}) {
    Image src(random, Format::float32, 1, 32, 32, inputs, true), e(random, Format::float32, 1, 16, 16, 48, true);
    src.randomize(random), e.randomize(random);
    Window w;
    w.kernel_h = w.kernel_w = 1, w.stride_h = w.stride_w = 2;
    std::vector<float> to(static_cast<std::size_t>(48 * inputs));
    const char* why_not =
        cpu::weights_gradient_primitive({tensor_of(e.view), tensor_of(src.view), 1, w, to.data(), false, false});
    report((why_not != nullptr) == (inputs < 16), "1 x 1 with stride 2, %d channels: %s", int(inputs),
           why_not ? why_not : "taken");
  }
}

void test_every_implementation_was_seen() {
  for (int i = 0; i < 5; ++i)
    report(accepted_data[i] > 5 && accepted_weights[i] > 5, "implementation %d took %d and %d problems", i,
           accepted_data[i], accepted_weights[i]);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(
      argc, argv,
      {test_random_geometry, test_layers, test_small_images, test_bands, test_against_the_forward_entries, test_threads,
       test_sums_over_commands, test_few_channels_with_a_stride, test_every_implementation_was_seen});
}
