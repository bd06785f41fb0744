// SPDX-License-Identifier: Apache-2.0
// Pooling against plain double loops written from the formulas in engine.hpp: windows inside, outside and across the
// borders, slices of larger images, every format and edge mode.
//
//   test_engine_pooling [seed offset]      prints "N passed, N failed"
#include "engine_test.hpp"

namespace {

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

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_pooling}); }
