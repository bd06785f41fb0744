// SPDX-License-Identifier: Apache-2.0
// The engine against plain double loops written from the formulas in engine.hpp. Random geometry from fixed seeds:
// strides with remainders, dilation, groups, windows that start inside, outside and far away, slices of larger images
// with NaN in the gaps, guard bands around results, every format and every activation.
//
//   test_engine [seed offset]      prints "N passed, N failed"
#include <atomic>
#include <cstdlib>
#include <limits>
#include <thread>

#include "engine/onednn/convolution.hpp"
#include "engine/shared/rows.hpp"
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

// ------------------------------------------------------------------------------------------------------- convolutions

std::shared_ptr<ConvWeights> random_weights(Random& random, i64 out, i64 kh, i64 kw, i64 per_group, i64 groups,
                                            bool bias) {
  auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = out, weights->kernel_h = kh, weights->kernel_w = kw;
  weights->in_channels_per_group = per_group, weights->groups = groups;
  for (i64 i = 0; i < out * kh * kw * per_group; ++i) weights->values.push_back(random.real(-1, 1));
  if (bias) {
    for (i64 i = 0; i < out; ++i) weights->bias.push_back(random.real(-1, 1));
  }
  return weights;
}

/// Sum before the activation and the sum of its terms' magnitudes. `source(y, x, c)` is 0 outside.
template <class Source>
void correlate(const ConvWeights& weights, const Window& w, i64 y0, i64 x0, i64 o, const Source& source, double& sum,
               double& magnitude) {
  const i64 group = o / (weights.out_channels / weights.groups);
  sum = weights.bias.empty() ? 0 : weights.bias[static_cast<std::size_t>(o)];
  magnitude = std::fabs(sum);
  for (i64 p = 0; p < weights.kernel_h; ++p)
    for (i64 q = 0; q < weights.kernel_w; ++q)
      for (i64 i = 0; i < weights.in_channels_per_group; ++i) {
        const auto index = ((o * weights.kernel_h + p) * weights.kernel_w + q) * weights.in_channels_per_group + i;
        const double term =
            weights.values[static_cast<std::size_t>(index)] *
            source(y0 + p * w.dilation_h, x0 + q * w.dilation_w, group * weights.in_channels_per_group + i);
        sum += term;
        magnitude += std::fabs(term);
      }
}

struct Comparison {
  double worst = 0;  // error / allowed error
  char where[160] = "";
  void add(const Image& dst, i64 n, i64 y, i64 x, i64 c, const Neuron& f, i64 channel, double sum, double magnitude,
           double relative) {
    const double got = dst.value(n, y, x, c);
    const double expected = clamped(dst.view.format, neuron_value(f, sum, channel));
    if (dst.view.format == Format::float16 && std::fabs(expected) > 65000) return;  // may have become infinite
    const double allowed = neuron_error(f, sum, magnitude * relative + 1e-30, channel) + std::fabs(expected) * 4e-7 +
                           1e-7 * (f.type == NeuronType::none ? 0 : 1) + format_error(dst.view.format, expected) +
                           1e-30;
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

void compare_convolution(const ConvProblem& p, const Image& src, const Image& dst, double relative, const char* how) {
  const std::string text = describe("conv", p.src, p.dst, *p.weights, p.window, p.neuron) + " r " +
                           std::to_string(p.subpixel) + " by " + how;
  Comparison comparison;
  const i64 r = p.subpixel;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const i64 o = (r * (y % r) + x % r) * p.dst.c + c;
    double sum, magnitude;
    correlate(
        *p.weights, p.window, p.window.start_h + y / r * p.window.stride_h,
        p.window.start_w + x / r * p.window.stride_w, o,
        [&](i64 sy, i64 sx, i64 i) {
          if (p.window.edge == Edge::clamp) {
            sy = sy < 0 ? 0 : sy >= p.src.h ? p.src.h - 1 : sy;
            sx = sx < 0 ? 0 : sx >= p.src.w ? p.src.w - 1 : sx;
          }
          return sy < 0 || sx < 0 || sy >= p.src.h || sx >= p.src.w ? 0.0 : src.value(n, sy, sx, i);
        },
        sum, magnitude);
    comparison.add(dst, n, y, x, c, p.neuron, o, sum, magnitude, relative);
  });
  report(comparison.worst <= 1, "%s: %s (%.3g times the allowed error)", text.c_str(), comparison.where,
         comparison.worst);
  report(dst.surroundings_unchanged(), "%s: wrote outside of the destination", text.c_str());
  report(src.unchanged(), "%s: wrote to the source", text.c_str());
}

void check_convolution(const ConvProblem& p, Image& src, Image& dst, double relative) {
  const auto errors = failures_of({{p, "conv"}});
  report(errors.empty(), "conv: %s", errors.empty() ? "" : errors[0].c_str());
  compare_convolution(p, src, dst, relative, "the engine");
}

int accepted[8] = {};

/// Every implementation that takes the problem, not only the first.
void check_implementations(const ConvProblem& p, Image& src, Image& dst) {
  using namespace onednn;
  const struct {
    const char* name;
    const char* (*run)(const ConvCall&);
  } list[] = {{"nothing_seen", conv_nothing_seen},
              {"multiplier", conv_multiplier},
              {"inner_product", conv_inner_product},
              {"primitive", conv_primitive},
              {"materialized", conv_materialized},
              {"depthwise_loop", conv_depthwise_loop},
              {"loop", conv_loop}};
  if (p.subpixel != 1) return;
  for (int i = 0; i < 7; ++i) {
    std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
    dst.snapshot();
    const char* why_not =
        list[i].run({tensor_of(p.src), tensor_of(p.dst), p.weights.get(), p.window, &p.neuron, false});
    if (why_not) {
      report(dst.unchanged(), "%s declined (%s) after it had begun", list[i].name, why_not);
      continue;
    }
    ++accepted[i];
    compare_convolution(p, src, dst, 2e-6, list[i].name);
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
    check_convolution(p, src, dst, 2e-6);
    if (seed % 8 == 0) {  // the same again, now that everything is cached
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      check_convolution(p, src, dst, 2e-6);
    }
    check_implementations(p, src, dst);
    if (seed % 16 == 0) {
      p.reduced_precision = true;
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      check_convolution(p, src, dst, 0x1p-7);
    }
  }
}

/// A check that never runs is none.
void test_coverage() {
  for (int i = 0; i < 7; ++i)
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
        check_convolution(p, src, dst, 2e-6);
        if (k.why[0] == 'f') check_implementations(p, src, dst);  // rare in the random problems: fully connected
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
    for (int how = 0; how < 4; ++how) {
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      dst.snapshot();
      if (how == 0) {
        const auto errors = failures_of({{p, "transpose"}});
        report(errors.empty(), "transpose: %s", errors.empty() ? "" : errors[0].c_str());
      } else {
        const onednn::TransposeCall call = {{tensor_of(p.src), tensor_of(p.dst), weights.get(), w, &p.neuron, false}};
        const char* why_not = how == 1   ? onednn::transpose_primitive(call)
                              : how == 2 ? onednn::transpose_stuffed(call)
                                         : onednn::transpose_loop(call);
        if (why_not) {
          report(dst.unchanged(), "%s declined (%s) after it had begun", names[how], why_not);
          continue;
        }
        ++transposes_accepted[how];
      }
      const std::string text = describe("transpose", p.src, p.dst, *weights, w, p.neuron) + " by " + names[how];
      Comparison comparison;
      dst.for_each([&](i64 in, i64 y, i64 x, i64 o) {
        double sum, magnitude;
        correlate(
            *weights, w, w.start_h + y, w.start_w + x, o,
            [&](i64 zy, i64 zx, i64 i) {
              if (zy < 0 || zx < 0 || zy % w.stride_h || zx % w.stride_w) return 0.0;
              if (zy / w.stride_h >= h || zx / w.stride_w >= width) return 0.0;
              return src.value(in, zy / w.stride_h, zx / w.stride_w, i);
            },
            sum, magnitude);
        comparison.add(dst, in, y, x, o, p.neuron, o, sum, magnitude, 2e-6);
      });
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
        if (!execute(cpu(), {{p, "conv"}}).empty()) ++wrong;
        dst.for_each([&](i64 n, i64 y, i64 x, i64 o) {
          double sum, magnitude;
          correlate(
              *weights, w, y - 1, x - 1, o,
              [&](i64 sy, i64 sx, i64 i) {
                return sy < 0 || sx < 0 || sy >= size || sx >= size ? 0.0 : src.value(n, sy, sx, i);
              },
              sum, magnitude);
          if (!(std::fabs(dst.value(n, y, x, o) - sum) <= magnitude * 2e-6)) ++wrong;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  report(wrong == 0, "%d wrong values when four threads share weights", wrong.load());
}

// ------------------------------------------------------------------------------------------------------------- pooling

double pooled(const PoolProblem& p, const Image& src, i64 n, i64 y, i64 x, i64 c, double& magnitude) {
  const Window& w = p.window;
  const bool clamp = w.edge == Edge::clamp, average = p.type == PoolType::average;
  double best = -INFINITY, sum = 0, squares = 0, counted = 0;
  for (i64 j = 0; j < w.kernel_h; ++j) {
    for (i64 i = 0; i < w.kernel_w; ++i) {
      i64 sy = w.start_h + y * w.stride_h + j * w.dilation_h, sx = w.start_w + x * w.stride_w + i * w.dilation_w;
      const bool inside = sy >= 0 && sx >= 0 && sy < p.src.h && sx < p.src.w;
      counted += !clamp || (sy >= -p.zero_pad_h && sx >= -p.zero_pad_w && sy < p.src.h + p.zero_pad_h &&
                            sx < p.src.w + p.zero_pad_w);
      sy = sy < 0 ? 0 : sy >= p.src.h ? p.src.h - 1 : sy;
      sx = sx < 0 ? 0 : sx >= p.src.w ? p.src.w - 1 : sx;
      const double v = inside || (clamp && !average) ? src.value(n, sy, sx, c) : 0.0;
      best = std::fmax(best, v), sum += v, squares += v * v, magnitude += std::fabs(v);
    }
  }
  if (p.type == PoolType::max) magnitude = 0;
  if (average) magnitude /= std::fmax(counted, 1);
  if (p.type == PoolType::l2_norm) magnitude = std::sqrt(squares);
  return p.type == PoolType::max ? best : average ? sum / std::fmax(counted, 1) : std::sqrt(squares);
}

void test_pooling() {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(250000 + seed);
    const Format format = random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8});
    const i64 c = random.pick({1, 3, 4, 31, 32, 33, 64, 77, 200});
    Image src(random, format, random.whole(1, 2), random.whole(1, 18), random.whole(1, 18), c, random.one_in(2));
    const bool global = random.one_in(6);
    const i64 h = global ? 1 : random.whole(1, 12), width = global ? 1 : random.whole(1, 12);
    Image dst(random, random.one_in(4) ? Format::float16 : format, src.view.n, h, width, c, random.one_in(2));
    PoolProblem p;
    p.src = src.view, p.dst = dst.view;
    p.type = random.pick({PoolType::max, PoolType::average, PoolType::l2_norm});
    Window& w = p.window;
    w.kernel_h = global ? src.view.h : random.whole(1, 5), w.kernel_w = global ? src.view.w : random.whole(1, 5);
    w.stride_h = random.whole(1, 4), w.stride_w = random.whole(1, 4);
    if (!global) w.dilation_h = random.whole(1, 3), w.dilation_w = random.whole(1, 3);
    if (!global) w.start_h = random.whole(-14, 8), w.start_w = random.whole(-14, 8);
    if (random.one_in(20)) w.kernel_h = 1000, w.start_h = -500;  // far beyond the source on both sides
    w.edge = random.pick({Edge::zero, Edge::clamp});
    if (random.one_in(2)) p.zero_pad_h = random.whole(0, 3), p.zero_pad_w = random.whole(0, 3);
    src.randomize(random, -3, random.one_in(3) ? -1.0f : 3.0f);
    dst.snapshot();
    const auto errors = failures_of({{p, "pool"}});
    double worst = 0, got_worst = 0, right_worst = 0;
    dst.for_each([&](i64 n, i64 y, i64 x, i64 ch) {
      double magnitude = 0;
      const double right = clamped(dst.view.format, pooled(p, src, n, y, x, ch, magnitude));
      const double got = dst.value(n, y, x, ch);
      const double allowed = magnitude * 3e-6 + format_error(dst.view.format, right) + 1e-30;
      const double ratio = std::isnan(got) ? 1e30 : std::fabs(got - right) / allowed;
      if (ratio > worst) worst = ratio, got_worst = got, right_worst = right;
    });
    report(errors.empty() && worst <= 1,
           "pool type %d src %dx%dx%dx%d f%d dst %dx%d f%d k %dx%d s %d,%d d %d,%d start %d,%d %s pad %d,%d: %.9g, not "
           "%.9g",
           int(p.type), int(p.src.n), int(p.src.h), int(p.src.w), int(c), int(format), int(h), int(width),
           int(dst.view.format), int(w.kernel_h), int(w.kernel_w), int(w.stride_h), int(w.stride_w), int(w.dilation_h),
           int(w.dilation_w), int(w.start_h), int(w.start_w), w.edge == Edge::clamp ? "clamp" : "zero",
           int(p.zero_pad_h), int(p.zero_pad_w), got_worst, right_worst);
    report(dst.surroundings_unchanged() && src.unchanged(), "pool wrote outside");
  }
  // NaN is the result wherever a window sees one; a kernel of any size is no more work than the source.
  Random random(1);
  for (const i64 c : {5, 64}) {
    Image src(random, Format::float32, 1, 3, 3, c, true), dst(random, Format::float32, 1, 1, 1, c, true);
    src.randomize(random);
    const float nan = NAN;
    std::memcpy(src.at(0, 1, 1, 2), &nan, 4);
    PoolProblem p;
    p.src = src.view, p.dst = dst.view;
    p.window.kernel_h = p.window.kernel_w = i64{1} << 31;
    p.window.start_h = p.window.start_w = -(i64{1} << 30);
    const auto errors = failures_of({{p, "pool"}});
    report(errors.empty() && std::isnan(dst.value(0, 0, 0, 2)) && dst.value(0, 0, 0, 1) >= 0, "pool of NaN");
  }
}

// -------------------------------------------------------------------------------------------------- value by value

void test_neurons() {
  for (int type = 0; type < 16; ++type) {
    for (unsigned seed = 0; seed < 16; ++seed) {
      Random random(200000 + seed * 16 + unsigned(type));
      const i64 c = random.pick({1, 3, 4, 16, 37, 1500});
      const Format format =
          seed < 8 ? Format::float32 : random.pick({Format::float16, Format::unorm8, Format::unorm16});
      const Format result = seed < 12 ? format : random.pick({Format::float32, Format::float16});
      Neuron f = random_neuron(random, static_cast<NeuronType>(type), c);
      float low = -6, high = 6;
      if (f.type == NeuronType::logarithm) f.a = 1, f.b = 0.25f, low = 0, f.c = seed % 2 ? -1.0f : 3.0f;
      if (seed == 3) low *= 20, high *= 20;
      if (seed == 3 && f.type == NeuronType::exponential) f.a = 0.5f;
      Image src(random, format, random.whole(1, 2), random.whole(1, 40), random.whole(1, 20), c, random.one_in(2));
      Image dst(random, result, src.view.n, src.view.h, src.view.w, c, random.one_in(2));
      src.randomize(random, low, high);
      dst.snapshot();
      const bool in_place = seed == 5;
      const std::vector<std::byte> kept = src.before;
      const Image& out = in_place ? src : dst;
      Image reference(random, format, 1, 1, 1, 1, true);
      std::vector<double> inputs;
      src.for_each([&](i64 n, i64 y, i64 x, i64 ch) { inputs.push_back(static_cast<float>(src.value(n, y, x, ch))); });
      const auto errors = failures_of({{NeuronProblem{src.view, out.view, f}, "neuron"}});
      double worst = 0, at = 0, value = 0;
      std::size_t i = 0;
      out.for_each([&](i64 n, i64 y, i64 x, i64 ch) {
        const double v = inputs[i++], expected = clamped(out.view.format, neuron_value(f, v, ch));
        const double got = out.value(n, y, x, ch);
        if (std::isnan(expected) && (std::isnan(got) || format_error(out.view.format, 0) > 1e-7)) return;
        if (out.view.format == Format::float16 && std::fabs(expected) > 65000) return;
        // Two units in the last place of float, and of the argument where a * x + b cancels.
        const double allowed = std::fabs(expected) * 0x1p-22 + format_error(out.view.format, expected) + 1e-44;
        const double ratio = std::isnan(got) ? 1e30 : std::fabs(got - expected) / allowed;
        if (ratio > worst) worst = ratio, at = v, value = got;
      });
      report(errors.empty() && worst <= 1, "neuron %s a %g b %g c %g formats %d -> %d c %d: f(%.9g) = %.9g, not %.9g",
             kNeuronNames[type], f.a, f.b, f.c, int(format), int(out.view.format), int(c), at, value,
             neuron_value(f, at, 0));
      report(out.surroundings_unchanged(), "neuron %s wrote outside", kNeuronNames[type]);
    }
  }
}

void test_neuron_ends() {
  const float inf = INFINITY;
  const auto apply = [](NeuronType type, float a, float b, float c, float x) {
    Neuron f;
    f.type = type, f.a = a, f.b = b, f.c = c;
    float values[19], results[19];
    for (float& v : values) v = x;
    row_neuron(f, values, results, 19, 1, nullptr);
    for (const float r : results) {
      if (std::memcmp(&r, results, 4) != 0) return std::numeric_limits<float>::signaling_NaN();  // lanes disagree
    }
    return results[0];
  };
  report(apply(NeuronType::sigmoid, 0, 0, 0, -1000) == 0 && apply(NeuronType::sigmoid, 0, 0, 0, 1000) == 1,
         "sigmoid ends");
  report(apply(NeuronType::softplus, 1, 1, 0, 1e10f) == 1e10f && apply(NeuronType::softplus, 1, 1, 0, -1e10f) == 0,
         "softplus ends");
  report(apply(NeuronType::softplus, 1, 1, 0, -50) == 1.9287498479639178e-22f, "softplus tail");
  report(apply(NeuronType::tanh, 1, 1, 0, inf) == 1 && apply(NeuronType::tanh, 1, 1, 0, -inf) == -1, "tanh ends");
  report(apply(NeuronType::tanh, 1, 1, 0, 1e-30f) == 1e-30f, "tanh near 0");
  report(apply(NeuronType::elu, 2, 0, 0, -inf) == -2 && apply(NeuronType::elu, 1, 0, 0, -1e-30f) == -1e-30f,
         "elu ends");
  report(apply(NeuronType::exponential, 1, 0, -1, inf) == inf && apply(NeuronType::exponential, 1, 0, -1, -inf) == 0,
         "exp ends");
  report(apply(NeuronType::exponential, 1, 0, 0, 2) == 0 && apply(NeuronType::exponential, 1, 0, -2, 3) == -8,
         "exp of odd bases");
  report(apply(NeuronType::logarithm, 1, 0, -1, 0) == -inf && apply(NeuronType::logarithm, 1, 0, -1, inf) == inf,
         "log ends");
  report(std::isnan(apply(NeuronType::logarithm, 1, 0, -1, -1)), "log of a negative number");
  report(apply(NeuronType::logarithm, 1, 0, -1, 1e-42f) == std::log(1e-42f), "log of a subnormal number");
  report(apply(NeuronType::power, 1, 0, 3, -2) == -8 && apply(NeuronType::power, 1, 0, 2, -3) == 9,
         "whole powers of negatives");
  report(std::isnan(apply(NeuronType::power, 1, 0, 0.5f, -2)), "root of a negative number");
  report(apply(NeuronType::power, 1, 0, 2, 0) == 0 && apply(NeuronType::power, 1, 0, -1, 0) == inf, "powers of 0");
  report(apply(NeuronType::power, 1, 0, 0, 0) == 1, "0 to the 0");
  report(apply(NeuronType::gelu, 0, 0, 0, 1e4f) == 1e4f && apply(NeuronType::gelu, 0, 0, 0, -1e4f) == 0, "gelu ends");
  for (int type = 0; type < 16; ++type) {
    if (type == int(NeuronType::hard_sigmoid)) continue;
    report(std::isnan(apply(static_cast<NeuronType>(type), 1, 0.5f, 2, NAN)), "%s of NaN", kNeuronNames[type]);
  }
}

void test_copies() {
  const Format formats[] = {Format::unorm8, Format::unorm16, Format::float16, Format::float32};
  for (unsigned seed = 0; seed < 200; ++seed) {
    Random random(300000 + seed);
    const Format from = formats[seed % 4], to = formats[seed / 4 % 4];
    const i64 c = random.pick({1, 2, 3, 4, 7, 16, 33, 64});
    Image src(random, from, random.whole(1, 3), random.whole(1, 30), random.whole(1, 30), c, random.one_in(2));
    Image dst(random, to, src.view.n, src.view.h, src.view.w, c, random.one_in(2));
    src.randomize(random, -0.5f, 1.5f);
    dst.snapshot();
    const auto errors = failures_of({{CopyProblem{src.view, dst.view}, "copy"}});
    int wrong = 0;
    dst.for_each([&](i64 n, i64 y, i64 x, i64 ch) {
      const double v = clamped(to, src.value(n, y, x, ch)), got = dst.value(n, y, x, ch);
      const double allowed = from == to ? 0 : format_error(to, v) + std::fabs(v) * 0x1p-23;
      wrong += !(std::fabs(got - v) <= allowed || (std::isnan(v) && std::isnan(got)));
    });
    report(errors.empty() && wrong == 0, "copy format %d -> %d c %d: %d wrong values", int(from), int(to), int(c),
           wrong);
    report(dst.surroundings_unchanged(), "copy format %d -> %d wrote outside", int(from), int(to));
  }
}

void test_half() {
  int wrong = 0;
  std::vector<std::uint16_t> halves(65536), back(65536);
  std::vector<float> floats(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) halves[i] = static_cast<std::uint16_t>(i);
  row_to_float(halves.data(), Format::float16, floats.data(), 65536);
  row_from_float(floats.data(), back.data(), Format::float16, 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const double expected = stored_value(reinterpret_cast<std::byte*>(&halves[i]), Format::float16);
    const bool nan = std::isnan(expected);
    wrong += nan ? !std::isnan(floats[i]) || !std::isnan(half_to_float(halves[i]))
                 : floats[i] != expected || half_to_float(halves[i]) != expected;
    wrong += nan ? (back[i] & 0x7fff) <= 0x7c00 : back[i] != i || float_to_half(floats[i]) != i;
  }
  report(wrong == 0, "%d of all halves are converted wrongly", wrong);
  // Middles between neighbours and their float neighbours: ties go to even, by both ways.
  wrong = 0;
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {
    const double a = half_to_float(static_cast<std::uint16_t>(i)),
                 b = i == 0x7bff ? 65536.0 : half_to_float(static_cast<std::uint16_t>(i + 1));
    const float middle = static_cast<float>((a + b) / 2);
    const float three[8] = {
        middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e9f), -middle, middle, middle, middle, middle};
    std::uint16_t by_row[8];
    row_from_float(three, by_row, Format::float16, 8);
    const std::uint32_t even = i % 2 ? i + 1 : i;
    const std::uint32_t expected[4] = {even, i, i + 1, even | 0x8000};
    for (int k = 0; k < 4; ++k) wrong += by_row[k] != expected[k] || float_to_half(three[k]) != expected[k];
  }
  report(wrong == 0, "%d halves are not rounded to nearest even", wrong);
  for (const Format format : {Format::unorm8, Format::unorm16}) {
    wrong = 0;
    const int max = format == Format::unorm8 ? 255 : 65535;
    for (int i = 0; i <= max; ++i) {
      std::uint16_t in = static_cast<std::uint16_t>(i), out = 0;
      float v;
      row_to_float(&in, format, &v, 1);
      wrong += v != static_cast<float>(i) / static_cast<float>(max);
      row_from_float(&v, &out, format, 1);
      wrong += out != i;
    }
    const float ends[4] = {-3.0f, 7.0f, INFINITY, NAN};
    std::uint16_t words[4] = {};
    std::uint8_t bytes[4] = {};
    row_from_float(ends, format == Format::unorm8 ? static_cast<void*>(bytes) : words, format, 4);
    for (int k = 0; k < 4; ++k)
      wrong += (format == Format::unorm8 ? bytes[k] : words[k]) != (k == 1 || k == 2 ? max : 0);
    report(wrong == 0, "unorm with maximum %d: %d wrong", max, wrong);
  }
}

void test_buffers() {
  for (const auto& engine : engines()) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{5000000}}) {
      const auto a = Memory::lazy(engine, bytes + 16), b = Memory::lazy(engine, bytes + 16);
      bool ran = false;
      const std::string error = execute(*engine, {{BufferFillProblem{a, 0, bytes + 16, 7}, "fill"},
                                                  {BufferFillProblem{a, 3, bytes, 9}, "fill"},
                                                  {BufferFillProblem{b, 0, bytes + 16, 5}, "fill"},
                                                  {BufferCopyProblem{a, b, 2, 4, bytes}, "copy"},
                                                  {HostTask{[&] { ran = true; }}, "task"}});
      const auto value = [](const std::shared_ptr<Memory>& m, std::size_t i) {
        return std::to_integer<int>(m->data()[i]);
      };
      bool ok = error.empty() && ran && value(a, 2) == 7 && value(a, 3) == 9 && value(a, bytes + 3) == 7;
      ok = ok && value(b, 3) == 5 && value(b, 4) == 7 && value(b, bytes + 4) == 5;
      if (bytes > 1) ok = ok && value(b, 5) == 9 && value(b, bytes + 3) == 9;
      report(ok, "buffers of engine %s, %zu bytes", engine->name(), bytes);
    }
  }
}

// --------------------------------------------------------------------------------------------------- memory and plans

void test_memory() {
  const auto engine = cpu().shared_from_this();
  const auto before = engine->allocated_bytes();
  {
    const auto lazy = Memory::lazy(engine, 100000);
    const auto part = Memory::part(lazy, 4096, 100);
    report(!lazy->is_allocated() && !part->is_allocated() && engine->allocated_bytes() == before,
           "lazy memory is lazy");
    std::byte* data = part->data();
    report(lazy->is_allocated() && part->is_allocated() && data == lazy->data() + 4096, "a part allocates its parent");
    report(reinterpret_cast<std::uintptr_t>(lazy->data()) % 4096 == 0, "blocks are page-aligned");
    report(engine->allocated_bytes() >= before + 100000, "blocks in use are counted");
  }
  report(engine->allocated_bytes() == before, "blocks are given back");
  int released = 0;
  char mine[64];
  {
    auto wrapped = Memory::wrap(mine, sizeof(mine), [&] { ++released; });
    const auto part = Memory::part(wrapped, 8, 8);
    wrapped.reset();
    report(released == 0 && part->data() == reinterpret_cast<std::byte*>(mine) + 8, "a part keeps its parent alive");
  }
  report(released == 1, "release ran %d times", released);
  std::byte* first = engine->allocate(3000000);
  engine->deallocate(first, 3000000);
  std::byte* second = engine->allocate(2999000);
  report(first == second, "blocks are recycled");
  engine->deallocate(second, 2999000);
  int refused = 0;
  for (const std::uint64_t bytes :
       {engine->working_set_limit() + 1, std::uint64_t{1} << 62, ~std::uint64_t{0}, ~std::uint64_t{0} - 4095}) {
    try {
      engine->allocate(bytes);
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  report(refused == 4, "%d of 4 requests beyond the machine's memory are refused", refused);

  const auto huge = Memory::lazy(engine, engine->working_set_limit() + 1);
  const std::string error = execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, "Fill \"x\""}});
  report(error == "Fill \"x\": the device is out of memory.", "sentence for memory is '%s'", error.c_str());
  bool later = false;
  execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, ""}, {HostTask{[&] { later = true; }}, ""}});
  report(!later, "commands behind a failure are not run");
}

void test_null() {
  const auto null = engines().back();
  report(std::string(null->name()) == "null", "the null engine stands last");
  const auto memory = Memory::lazy(null, 5000);
  bool zero = true;
  for (std::size_t i = 0; i < 5000; ++i) zero = zero && memory->data()[i] == std::byte{0};
  report(zero, "the null engine's memory is zero");
}

void test_plans() {
  Random random(5);
  const auto make = [&](i64 stride, float slope, bool same) {
    const auto engine = cpu().shared_from_this();
    ImageView a;
    a.memory = Memory::lazy(engine, 4096), a.h = a.w = 4, a.c = 4, a.w_stride = 4, a.h_stride = 16, a.n_stride = 64;
    ImageView b = a;
    if (!same) b.memory = Memory::lazy(engine, 4096);
    b.offset = 1024;
    Window w;
    w.stride_h = stride;
    Neuron f;
    f.type = NeuronType::relu, f.a = slope;
    return std::vector<Command>{{ConvProblem{a, b, random_weights(random, 4, 1, 1, 4, 1, false), w, f, 1, false}, "x"}};
  };
  const auto key = structure_key(make(1, 0, false));
  report(key == structure_key(make(1, 0, false)), "equal structures have equal keys");
  report(key != structure_key(make(2, 0, false)), "the stride is part of the key");
  report(key != structure_key(make(1, 0.5f, false)), "the slope is part of the key");
  report(key != structure_key(make(1, 0, true)), "sharing memory is part of the key");
  const auto commands = make(1, 0, false);
  report(plan_for(commands) == plan_for(make(1, 0, false)), "plans are shared");
  const auto first = plan_for(commands);
  for (i64 i = 0; i < 300; ++i) plan_for(make(10 + i, 0, false));
  report(plan_for(commands) != first && plan_for(commands)->steps.size() == 1, "the cache of plans is bounded");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) seed_offset = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
  test_half();
  test_memory();
  test_null();
  test_plans();
  test_buffers();
  test_pooling();
  test_copies();
  test_neuron_ends();
  test_neurons();
  test_convolutions();
  test_special_convolutions();
  test_coverage();
  test_transposes();
  test_threads();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
