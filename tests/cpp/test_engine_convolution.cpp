// SPDX-License-Identifier: Apache-2.0
// Convolution and its transpose against plain double loops written from the formulas in engine.hpp. Random geometry
// from fixed seeds: strides with remainders, dilation, groups, windows that start inside, outside and far away, slices
// of larger images with NaN in the gaps, guard bands around results, every format and every activation.
//
//   test_engine_convolution [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine_test.hpp"

namespace {

/// Largest change of f when x is off by `dx`: tells how an error before the activation shows behind it.
double neuron_error(const Neuron& f, double x, double dx, i64 channel) {
  const double y = neuron_value(f, x, channel);
  return std::fmax(std::fabs(neuron_value(f, x + dx, channel) - y), std::fabs(neuron_value(f, x - dx, channel) - y));
}

/// Without logarithm: its argument would have to be kept positive.
NeuronType random_type(Random& random) {
  const auto type = static_cast<NeuronType>(random.whole(0, 15));
  return type == NeuronType::logarithm ? NeuronType::none : type;
}

/// The pixels of an image in double precision, without gaps.
class Pixels {
 public:
  explicit Pixels(const Image& image) : h_(image.view.h), w_(image.view.w), c_(image.view.c) {
    values_.reserve(static_cast<std::size_t>(image.view.n * h_ * w_ * c_));
    image.for_each([&](i64 n, i64 y, i64 x, i64 c) { values_.push_back(image.value(n, y, x, c)); });
  }
  /// The channels of a pixel; nullptr outside of the image.
  const double* at(i64 n, i64 y, i64 x) const {
    return y < 0 || x < 0 || y >= h_ || x >= w_ ? nullptr : values_.data() + ((n * h_ + y) * w_ + x) * c_;
  }

 private:
  i64 h_, w_, c_;
  std::vector<double> values_;
};

/// A sum before the activation, and that of its terms' magnitudes.
struct Sum {
  double value = 0, magnitude = 0;
};

/// `channels(y, x)` are those of a pixel of the source, nullptr where it is 0.
template <class Channels>
Sum correlate(const ConvWeights& weights, const Window& w, i64 y0, i64 x0, i64 o, const Channels& channels) {
  const i64 group = o / (weights.out_channels / weights.groups), terms = weights.in_channels_per_group;
  Sum sum;
  sum.value = weights.bias.empty() ? 0 : weights.bias[static_cast<std::size_t>(o)];
  sum.magnitude = std::fabs(sum.value);
  for (i64 p = 0; p < weights.kernel_h; ++p)
    for (i64 q = 0; q < weights.kernel_w; ++q) {
      const double* source = channels(y0 + p * w.dilation_h, x0 + q * w.dilation_w);
      if (!source) continue;
      source += group * terms;
      const float* const filter = weights.values.data() + ((o * weights.kernel_h + p) * weights.kernel_w + q) * terms;
      for (i64 i = 0; i < terms; ++i) {
        const double term = filter[i] * source[i];
        sum.value += term;
        sum.magnitude += std::fabs(term);
      }
    }
  return sum;
}

/// Expected sums in the order of dst.for_each(). All implementations of a problem share them.
using Sums = std::vector<Sum>;

Sums reference(const ConvProblem& p, const Image& src, const Image& dst) {
  const Pixels pixels(src);
  const bool clamps = p.window.edge == Edge::clamp;
  const i64 r = p.subpixel;
  Sums sums;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    sums.push_back(correlate(*p.weights, p.window, p.window.start_h + y / r * p.window.stride_h,
                             p.window.start_w + x / r * p.window.stride_w, (r * (y % r) + x % r) * p.dst.c + c,
                             [&](i64 sy, i64 sx) {
                               if (clamps) sy = std::clamp<i64>(sy, 0, p.src.h - 1);
                               if (clamps) sx = std::clamp<i64>(sx, 0, p.src.w - 1);
                               return pixels.at(n, sy, sx);
                             }));
  });
  return sums;
}

Sums reference(const TransposeProblem& p, const Image& src, const Image& dst) {
  const Pixels pixels(src);
  const Window& w = p.window;
  Sums sums;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 o) {
    sums.push_back(correlate(*p.weights, w, w.start_h + y, w.start_w + x, o, [&](i64 zy, i64 zx) {
      const bool between = zy < 0 || zx < 0 || zy % w.stride_h || zx % w.stride_w;
      return between ? nullptr : pixels.at(n, zy / w.stride_h, zx / w.stride_w);
    }));
  });
  return sums;
}

struct Comparison {
  double worst = 0;  // error / allowed error
  char where[160] = "";
  void add(const Image& dst, i64 n, i64 y, i64 x, i64 c, const Neuron& f, i64 channel, const Sum& sum,
           double relative) {
    const double got = dst.value(n, y, x, c);
    const double expected = clamped(dst.view.format, neuron_value(f, sum.value, channel));
    if (dst.view.format == Format::float16 && std::fabs(expected) > 65000) return;  // may have become infinite
    const double allowed = neuron_error(f, sum.value, sum.magnitude * relative + 1e-30, channel) +
                           std::fabs(expected) * 4e-7 + 1e-7 * (f.type == NeuronType::none ? 0 : 1) +
                           format_error(dst.view.format, expected) + 1e-30;
    const double ratio = std::isnan(got) ? 1e30 : std::fabs(got - expected) / allowed;
    if (ratio <= worst) return;
    worst = ratio;
    std::snprintf(where, sizeof(where), "(%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(c), got,
                  expected);
  }
};

std::string describe(const char* kind, const ImageView& s, const ImageView& d, const ConvWeights& k, const Window& w,
                     const Neuron& f) {
  char text[320];
  std::snprintf(text, sizeof(text),
                "%s src %dx%dx%dx%d%s f%d dst %dx%dx%dx%d%s f%d k %dx%d s %d,%d d %d,%d start %d,%d g %d %s %s%s", kind,
                int(s.n), int(s.h), int(s.w), int(s.c), s.is_dense() ? "" : " strided", int(s.format), int(d.n),
                int(d.h), int(d.w), int(d.c), d.is_dense() ? "" : " strided", int(d.format), int(w.kernel_h),
                int(w.kernel_w), int(w.stride_h), int(w.stride_w), int(w.dilation_h), int(w.dilation_w), int(w.start_h),
                int(w.start_w), int(k.groups), w.edge == Edge::clamp ? "clamp" : "zero", kNeuronNames[int(f.type)],
                k.bias.empty() ? "" : " bias");
  return text;
}

void compare_convolution(const ConvProblem& p, const Image& src, const Image& dst, const Sums& sums, double relative,
                         const char* how) {
  const std::string text = describe("conv", p.src, p.dst, *p.weights, p.window, p.neuron) + " r " +
                           std::to_string(p.subpixel) + " by " + how;
  Comparison comparison;
  const i64 r = p.subpixel;
  auto sum = sums.begin();
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    comparison.add(dst, n, y, x, c, p.neuron, (r * (y % r) + x % r) * p.dst.c + c, *sum++, relative);
  });
  report(comparison.worst <= 1, "%s: %s (%.3g times the allowed error)", text.c_str(), comparison.where,
         comparison.worst);
  report(dst.surroundings_unchanged(), "%s: wrote outside of the destination", text.c_str());
  report(src.unchanged(), "%s: wrote to the source", text.c_str());
}

void check_convolution(const ConvProblem& p, Image& src, Image& dst, const Sums& sums, double relative) {
  const auto errors = failures_of({{p, "conv"}});
  report(errors.empty(), "conv: %s", errors.empty() ? "" : errors[0].c_str());
  compare_convolution(p, src, dst, sums, relative, "the engine");
}

int accepted[8] = {};

/// Every implementation that takes the problem, not only the first.
void check_implementations(const ConvProblem& p, Image& src, Image& dst, const Sums& sums) {
  using namespace cpu;
  const struct {
    const char* name;
    const char* (*run)(const ConvCall&);
  } list[] = {{"nothing_seen", conv_nothing_seen},     {"multiplier", conv_multiplier},
              {"inner_product", conv_inner_product},   {"taps", conv_by_taps},
              {"primitive", conv_primitive},           {"materialized", conv_materialized},
              {"depthwise_loop", conv_depthwise_loop}, {"loop", conv_loop}};
  if (p.subpixel != 1) return;
  for (int i = 0; i < 8; ++i) {
    std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
    dst.snapshot();
    const char* why_not =
        list[i].run({tensor_of(p.src), tensor_of(p.dst), p.weights.get(), p.window, &p.neuron, false});
    if (why_not) {
      report(dst.unchanged(), "%s declined (%s) after it had begun", list[i].name, why_not);
      continue;
    }
    ++accepted[i];
    compare_convolution(p, src, dst, sums, 2e-6, list[i].name);
  }
}

i64 random_start(Random& random, i64 extent, i64 reach) {
  switch (random.whole(0, 7)) {
    case 0: return random.whole(1, extent);      // crops, perhaps everything
    case 1: return -reach - random.whole(0, 5);  // whole windows outside
    case 2: return extent + random.whole(0, 3);  // nothing of the source
    case 3: return 0;
    default: return -random.whole(0, reach - 1);  // ordinary padding
  }
}

void test_convolutions() {
  for (unsigned seed = 0; seed < 900; ++seed) {
    Random random(1000 + seed);
    Window w;
    w.kernel_h = random.whole(1, 5), w.kernel_w = random.whole(1, 5);
    w.stride_h = random.whole(1, 3), w.stride_w = random.whole(1, 3);
    w.dilation_h = random.pick({1, 1, 1, 2, 3}), w.dilation_w = random.pick({1, 1, 1, 2, 3});
    const i64 h = random.whole(1, 17), width = random.whole(1, 17);
    w.start_h = random_start(random, h, (w.kernel_h - 1) * w.dilation_h + 1);
    w.start_w = random_start(random, width, (w.kernel_w - 1) * w.dilation_w + 1);
    w.edge = random.one_in(3) ? Edge::clamp : Edge::zero;
    i64 groups = 1, per_group = random.pick({1, 2, 3, 4, 5, 8, 13, 16, 17, 32}), out_per_group = random.whole(1, 20);
    switch (random.whole(0, 4)) {
      case 0: groups = random.whole(1, 4); break;
      case 1: groups = random.pick({2, 3, 7, 8, 16, 20, 33}), per_group = 1, out_per_group = 1; break;
      case 2: groups = random.whole(2, 9), per_group = 1, out_per_group = random.whole(1, 3); break;
      default: break;
    }
    const i64 r = random.one_in(6) ? random.whole(2, 3) : 1;
    if (r > 1) out_per_group *= r * r;
    const i64 out = groups * out_per_group;
    const auto weights = random_weights(random, out, w.kernel_h, w.kernel_w, per_group, groups, random.one_in(2));
    const auto pick_format = [&] {
      return random.pick(
          {Format::float32, Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
    };
    const i64 n = random.pick({1, 1, 2, 3});
    Image src(random, pick_format(), n, h, width, groups * per_group, random.one_in(2));
    Image dst(random, pick_format(), n, random.whole(1, 9) * (random.one_in(2) ? r : 1), random.whole(1, 9),
              out / (r * r), random.one_in(2));
    src.randomize(random);
    dst.snapshot();
    ConvProblem p = {src.view, dst.view, weights, w, random_neuron(random, random_type(random), out), r, false};
    const Sums sums = reference(p, src, dst);
    check_convolution(p, src, dst, sums, 2e-6);
    if (seed % 8 == 0) {  // the same again, now that everything is cached
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      check_convolution(p, src, dst, sums, 2e-6);
    }
    check_implementations(p, src, dst, sums);
    if (seed % 16 == 0) {
      p.reduced_precision = true;
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      check_convolution(p, src, dst, sums, 0x1p-7);
    }
  }
}

/// A check that never runs is none.
void test_coverage() {
  for (int i = 0; i < 8; ++i)
    report(accepted[i] >= 5, "implementation %d of the list took %d problems", i, accepted[i]);
}

/// Shapes that have a path of their own: several threads, large channel counts, whole-source windows.
void test_special_convolutions() {
  struct Case {
    i64 n, h, w, c, dst_h, dst_w, out, kh, kw, stride, start, groups;
    const char* why;
  };
  const Case cases[] = {
      {1, 31, 33, 64, 31, 33, 64, 3, 3, 1, -1, 1, "several threads"},
      {2, 30, 30, 48, 15, 15, 96, 1, 1, 2, 0, 1, "1x1 with stride"},
      {1, 41, 40, 3, 20, 20, 32, 7, 7, 2, -3, 1, "first layer"},
      {1, 48, 48, 3, 48, 48, 64, 5, 5, 1, -2, 1, "super-resolution, first layer"},
      {1, 48, 48, 32, 48, 48, 12, 3, 3, 1, -1, 1, "12 channels of result"},
      {1, 7, 5, 64, 1, 1, 200, 7, 5, 1, 0, 1, "fully connected, height is not width"},
      {5, 7, 7, 32, 1, 1, 77, 7, 7, 1, 0, 1, "fully connected, batch"},
      {3, 1, 1, 515, 1, 1, 33, 1, 1, 1, 0, 1, "fully connected, one pixel"},
      {5, 2, 2, 64, 2, 2, 80, 3, 3, 1, -1, 1, "few pixels"},
      {9, 2, 3, 130, 2, 2, 128, 3, 3, 1, -1, 2, "few pixels, groups"},
      {20, 1, 1, 66, 1, 1, 65, 3, 3, 1, -1, 1, "few pixels: one"},
      {8200, 2, 1, 64, 2, 1, 64, 3, 3, 1, -1, 1, "few pixels, more images than fit at once"},
      {1, 7, 5, 8, 1, 1, 9, 6, 5, 1, 0, 1, "window one row short of the source"},
      {1, 28, 28, 96, 28, 28, 96, 3, 3, 1, -1, 96, "depth-wise, several threads"},
      {1, 28, 28, 24, 28, 28, 48, 3, 3, 1, -1, 24, "depth-wise with multiplier 2"},
      {1, 14, 14, 128, 14, 14, 128, 3, 3, 1, -1, 32, "four channels per group"},
      {1, 14, 14, 60, 14, 14, 60, 3, 3, 1, -1, 3, "twenty channels per group"},
      {1, 3, 3, 16, 40, 40, 8, 3, 3, 1, -20, 1, "source far inside of a large destination"},
      {1, 64, 64, 16, 2, 2, 8, 3, 3, 40, 5, 1, "stride much larger than the window"},
      {1, 1, 200, 16, 1, 198, 16, 1, 3, 1, 0, 1, "one row"},
      {2, 9, 9, 1, 9, 9, 1, 3, 3, 1, -1, 1, "one channel each"},
  };
  unsigned seed = 0;
  for (const Case& k : cases) {
    for (const bool dense : {true, false}) {
      for (const auto type : {NeuronType::none, NeuronType::relu, NeuronType::prelu, NeuronType::softplus}) {
        Random random(50000 + ++seed);
        Image src(random, Format::float32, k.n, k.h, k.w, k.c, dense),
            dst(random, Format::float32, k.n, k.dst_h, k.dst_w, k.out, dense);
        src.randomize(random);
        dst.snapshot();
        Window w;
        w.kernel_h = k.kh, w.kernel_w = k.kw, w.stride_h = w.stride_w = k.stride, w.start_h = w.start_w = k.start;
        const auto weights = random_weights(random, k.out, k.kh, k.kw, k.c / k.groups, k.groups, seed % 3 != 0);
        const ConvProblem p = {src.view, dst.view, weights, w, random_neuron(random, type, k.out), 1, false};
        const int before = failed;
        const Sums sums = reference(p, src, dst);
        check_convolution(p, src, dst, sums, 2e-6);
        if (k.why[0] == 'f')
          check_implementations(p, src, dst, sums);  // rare in the random problems: fully connected, few pixels
        if (failed != before) std::printf("     case: %s\n", k.why);
      }
    }
  }
}

void test_transposes() {
  int transposes_accepted[4] = {};
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(90000 + seed);
    Window w;
    w.kernel_h = random.whole(1, 5), w.kernel_w = random.whole(1, 5);
    w.stride_h = random.whole(1, 4), w.stride_w = random.whole(1, 4);
    w.dilation_h = random.pick({1, 1, 1, 2}), w.dilation_w = random.pick({1, 1, 1, 2});
    const i64 h = random.whole(1, 9), width = random.whole(1, 9);
    const i64 reach_h = (w.kernel_h - 1) * w.dilation_h + 1, reach_w = (w.kernel_w - 1) * w.dilation_w + 1;
    // Mostly what frameworks ask for, sometimes anything.
    const bool usual = !random.one_in(3);
    const i64 pad_h = random.whole(0, reach_h - 1), pad_w = random.whole(0, reach_w - 1);
    w.start_h = usual ? pad_h - reach_h + 1 : random.whole(-reach_h - 3, h * w.stride_h + 2);
    w.start_w = usual ? pad_w - reach_w + 1 : random.whole(-reach_w - 3, width * w.stride_w + 2);
    i64 dst_h =
        usual ? (h - 1) * w.stride_h + reach_h - 2 * pad_h + random.whole(0, w.stride_h - 1) : random.whole(1, 24);
    i64 dst_w =
        usual ? (width - 1) * w.stride_w + reach_w - 2 * pad_w + random.whole(0, w.stride_w - 1) : random.whole(1, 24);
    dst_h = dst_h < 1 ? 1 : dst_h, dst_w = dst_w < 1 ? 1 : dst_w;
    i64 groups = 1, per_group = random.pick({1, 3, 4, 8, 16, 19}), out_per_group = random.whole(1, 18);
    if (random.one_in(3)) groups = random.whole(2, 5);
    if (random.one_in(6)) groups = 16, per_group = out_per_group = 1;
    const i64 out = groups * out_per_group, n = random.pick({1, 1, 2});
    const auto weights = random_weights(random, out, w.kernel_h, w.kernel_w, per_group, groups, random.one_in(2));
    const auto format = random.pick({Format::float32, Format::float32, Format::float16});
    Image src(random, format, n, h, width, groups * per_group, random.one_in(2));
    Image dst(random, format, n, dst_h, dst_w, out, random.one_in(2));
    src.randomize(random);
    dst.snapshot();
    const char* const names[] = {"the engine", "primitive", "stuffed", "loop"};
    const TransposeProblem p = {src.view, dst.view, weights, w, random_neuron(random, random_type(random), out), false};
    const Sums sums = reference(p, src, dst);
    for (int how = 0; how < 4; ++how) {
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      if (how == 0) {
        const auto errors = failures_of({{p, "transpose"}});
        report(errors.empty(), "transpose: %s", errors.empty() ? "" : errors[0].c_str());
      } else {
        const cpu::TransposeCall call = {{tensor_of(p.src), tensor_of(p.dst), weights.get(), w, &p.neuron, false}};
        const char* why_not = how == 1   ? cpu::transpose_primitive(call)
                              : how == 2 ? cpu::transpose_stuffed(call)
                                         : cpu::transpose_loop(call);
        if (why_not) {
          report(dst.unchanged(), "%s declined (%s) after it had begun", names[how], why_not);
          continue;
        }
        ++transposes_accepted[how];
      }
      const std::string text = describe("transpose", p.src, p.dst, *weights, w, p.neuron) + " by " + names[how];
      Comparison comparison;
      auto sum = sums.begin();
      dst.for_each([&](i64 in, i64 y, i64 x, i64 o) { comparison.add(dst, in, y, x, o, p.neuron, o, *sum++, 2e-6); });
      report(comparison.worst <= 1, "%s: %s (%.3g times the allowed error)", text.c_str(), comparison.where,
             comparison.worst);
      report(dst.surroundings_unchanged(), "%s: wrote outside of the destination", text.c_str());
      report(src.unchanged(), "%s: wrote to the source", text.c_str());
    }
  }
  report(transposes_accepted[1] > 100 && transposes_accepted[2] > 100 && transposes_accepted[3] == 400,
         "implementations took %d, %d, %d of 400 transposes", transposes_accepted[1], transposes_accepted[2],
         transposes_accepted[3]);
}

/// Decoders have more channels than the random problems, and oneDNN then takes the kernel in several parts. The
/// weights are 0, so that each result is the activated bias.
void test_large_transposes() {
  struct Case {
    i64 in, out, size, kernel, stride, padding;
  };
  const Case cases[] = {
      {512, 64, 8, 4, 2, 1},   {512, 16, 4, 4, 2, 1},   {1024, 512, 4, 4, 2, 1}, {1024, 3, 8, 4, 2, 1},
      {256, 128, 12, 4, 2, 1}, {256, 128, 16, 4, 2, 1}, {256, 128, 32, 4, 2, 1}, {384, 64, 32, 4, 2, 1},
      {384, 256, 12, 4, 2, 1}, {2048, 256, 8, 4, 2, 1}, {100, 1024, 1, 4, 1, 0}, {512, 256, 14, 2, 2, 0},
      {512, 256, 8, 3, 2, 1},  {512, 128, 8, 5, 2, 2},  {1024, 256, 7, 6, 3, 1}, {512, 128, 16, 8, 4, 2},
  };
  for (const Case& k : cases) {
    const i64 size = (k.size - 1) * k.stride + k.kernel - 2 * k.padding;
    auto weights = std::make_shared<ConvWeights>();
    weights->out_channels = k.out, weights->in_channels_per_group = k.in;
    weights->kernel_h = weights->kernel_w = k.kernel;
    weights->values.own().assign(static_cast<std::size_t>(k.out * k.kernel * k.kernel * k.in), 0.0f);
    for (i64 o = 0; o < k.out; ++o) weights->bias.push_back(static_cast<float>(o % 9 - 4));
    Window w;
    w.kernel_h = w.kernel_w = k.kernel, w.stride_h = w.stride_w = k.stride;
    w.start_h = w.start_w = k.padding - k.kernel + 1;
    Random random(7);
    Image src(random, Format::float32, 1, k.size, k.size, k.in, true),
        dst(random, Format::float32, 1, size, size, k.out, true);
    src.randomize(random);
    for (const auto type : {NeuronType::none, NeuronType::linear, NeuronType::relu}) {
      Neuron f;
      f.type = type, f.a = type == NeuronType::linear ? 2.0f : 0.0f, f.b = type == NeuronType::linear ? 1.0f : 0.0f;
      const auto errors = failures_of({{TransposeProblem{src.view, dst.view, weights, w, f, false}, "transpose"}});
      i64 wrong = 0;
      dst.for_each([&](i64 n, i64 y, i64 x, i64 o) {
        wrong += dst.value(n, y, x, o) != neuron_value(f, weights->bias[static_cast<std::size_t>(o)], o);
      });
      report(errors.empty() && wrong == 0, "transpose %d -> %d, %d x %d, stride %d, %d pixels, %s: %d wrong values",
             int(k.in), int(k.out), int(k.kernel), int(k.kernel), int(k.stride), int(k.size), kNeuronNames[int(type)],
             int(wrong));
    }
  }
  // On every machine: which of oneDNN's deconvolutions add bias and activation themselves.
  for (const char* name : {"brg_conv:avx512_core+brgconv_strided:avx512_core", "brg_conv:avx2+brgconv_strided:avx2",
                           "brg_conv:avx512_core_amx+brgconv_strided:avx512_core_amx", "conv:any+jit:avx2"})
    report(cpu::transpose_fusion_declines(name) != nullptr, "%s would add bias and activation", name);
  for (const char* name : {"brg_conv:avx512_core+brgconv:avx512_core", "brg_conv:avx2+brgconv_1x1:avx2"})
    report(cpu::transpose_fusion_declines(name) == nullptr, "%s would not add bias and activation", name);
}

void test_threads() {
  Random random(7);
  const auto weights = random_weights(random, 24, 3, 3, 16, 1, true);
  Window w;
  w.kernel_h = w.kernel_w = 3, w.start_h = w.start_w = -1;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 30; ++round) {
        Random own(t * 100 + round);
        const i64 size = 5 + round % 7;
        Image src(own, Format::float32, 1, size, size, 16, round % 2),
            dst(own, Format::float32, 1, size, size, 24, round % 3);
        src.randomize(own);
        dst.snapshot();
        const ConvProblem p = {src.view, dst.view, weights, w, {}, 1, false};
        if (!run({{p, "conv"}}).empty()) ++wrong;
        const Sums sums = reference(p, src, dst);
        auto sum = sums.begin();
        dst.for_each([&](i64 n, i64 y, i64 x, i64 o) {
          if (!(std::fabs(dst.value(n, y, x, o) - sum->value) <= sum->magnitude * 2e-6)) ++wrong;
          ++sum;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  report(wrong == 0, "%d wrong values when four threads share weights", wrong.load());
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_convolutions, test_special_convolutions, test_coverage, test_transposes, test_large_transposes,
                    test_threads});
}
