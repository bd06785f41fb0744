// SPDX-License-Identifier: Apache-2.0
// Gradients of resampling and padding: the adjoint of the forward entry, seen by what each pixel of the source makes
// of a result; and plain double loops written from the formulas in engine.hpp.
//
//   test_engine_places_gradient [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cmath>

#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

/// Plain values of a gradient and of the magnitudes in it, NHWC.
struct Values {
  i64 h, w, c;
  std::vector<double> at, magnitude;
  Values(i64 n, i64 h, i64 w, i64 c)
      : h(h), w(w), c(c), at(static_cast<std::size_t>(n * h * w * c), 0.0), magnitude(at) {}
  std::size_t place(i64 n, i64 y, i64 x, i64 k) const {
    return static_cast<std::size_t>(((n * h + y) * w + x) * c + k);
  }
  void add(i64 n, i64 y, i64 x, i64 k, double value) {
    at[place(n, y, x, k)] += value, magnitude[place(n, y, x, k)] += std::fabs(value);
  }
};

std::string compare(const Image& dst, const Values& right, i64 first_h, i64 first_w) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 k) {
    const std::size_t at = right.place(n, first_h + y, first_w + x, k);
    const double want = clamped(dst.view.format, right.at[at]), got = dst.value(n, y, x, k);
    const double allowed = 2e-6 * right.magnitude[at] + format_error(dst.view.format, want) + 1e-30;
    if (std::fabs(got - want) <= allowed || !wrong.empty()) return;
    char text[120];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d) is %.9g, not %.9g", int(n), int(y), int(x), int(k), got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

Format random_format(Random& random, unsigned seed) {
  return seed % 2 == 0 ? Format::float32 : random.pick({Format::float32, Format::float16, Format::unorm8});
}

/// Positions as kernels make them: enlarged by whole factors, with aligned corners, reduced, moved.
Positions random_positions(Random& random, i64 source, i64 result) {
  Positions positions;
  positions.start = random.one_in(3) ? static_cast<double>(random.whole(-3, 3)) : 0;
  const bool align = random.one_in(3);
  positions.numerator = static_cast<double>(align ? source - 1 : source);
  positions.denominator = static_cast<double>(align ? std::max<i64>(result - 1, 1) : result);
  return positions;
}

void test_resample() {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(810000 + seed);
    const i64 n = random.whole(1, 2), c = random.pick({1, 3, 4, 16, 21, 64});
    const i64 h = random.whole(1, 9), w = random.whole(1, 9);
    const i64 fh = random.whole(1, 4), fw = random.whole(1, 4);
    const bool whole = random.one_in(2);
    const i64 first_h = whole ? 0 : random.whole(0, h - 1), first_w = whole ? 0 : random.whole(0, w - 1);
    Image diff(random, random_format(random, seed), n, random.one_in(4) ? random.whole(1, 20) : h * fh,
               random.one_in(4) ? random.whole(1, 20) : w * fw, c, random.one_in(2));
    Image dst(random, random_format(random, seed), n, whole ? h : random.whole(1, h - first_h),
              whole ? w : random.whole(1, w - first_w), c, random.one_in(2));
    diff.randomize(random), dst.snapshot();
    ResampleGradientProblem p;
    p.diff_dst = diff.view, p.diff_src = dst.view;
    p.src_h = h, p.src_w = w, p.first_h = first_h, p.first_w = first_w;
    p.type = random.pick({ResampleType::nearest, ResampleType::bilinear});
    p.edge = random.pick({ResampleEdge::zero, ResampleEdge::clamp, ResampleEdge::zero_samples});
    p.region = {random_positions(random, h, diff.view.h), random_positions(random, w, diff.view.w)};
    const auto errors = failures_of({{p, "resample_gradient"}});

    // What a result pixel takes of a source pixel along one axis.
    const auto share = [&](const Positions& positions, i64 i, i64 pixel, i64 size) {
      const double at = positions.start + double(i) * positions.numerator / positions.denominator;
      if (p.edge == ResampleEdge::zero_samples && (at < 0 || at > double(size - 1))) return 0.0;
      const double floor = std::floor(at), fraction = p.type == ResampleType::nearest ? 0 : at - floor;
      double sum = 0;
      for (const int upper : {0, 1}) {
        double seen = floor + upper;
        if (p.edge == ResampleEdge::clamp) seen = std::clamp(seen, 0.0, double(size - 1));
        if (seen == double(pixel)) sum += upper ? fraction : 1 - fraction;
      }
      return sum;
    };
    Values right(n, h, w, c);
    for (i64 y = 0; y < h; ++y)
      for (i64 x = 0; x < w; ++x)
        for (i64 j = 0; j < diff.view.h; ++j)
          for (i64 i = 0; i < diff.view.w; ++i) {
            const double weight = share(p.region.h, j, y, h) * share(p.region.w, i, x, w);
            if (weight == 0) continue;
            for (i64 m = 0; m < n; ++m)
              for (i64 k = 0; k < c; ++k) right.add(m, y, x, k, weight * diff.value(m, j, i, k));
          }
    const std::string wrong = compare(dst, right, first_h, first_w);
    report(errors.empty() && wrong.empty() && diff.unchanged(), "resample seed %u %dx%d of %dx%d type %d edge %d: %s",
           seed, int(h), int(w), int(diff.view.h), int(diff.view.w), int(p.type), int(p.edge), wrong.c_str());

    // <e, forward(x)> is <gradient, x>: the map is linear.
    if (seed % 4 || !whole || diff.view.format != Format::float32 || dst.view.format != Format::float32) continue;
    Image src(random, Format::float32, n, h, w, c, true);
    Image result(random, Format::float32, n, diff.view.h, diff.view.w, c, true);
    src.randomize(random);
    ResampleProblem forward;
    forward.src = src.view, forward.dst = result.view, forward.type = p.type, forward.edge = p.edge;
    forward.regions = {p.region};
    failures_of({{forward, "resample"}});
    double a = 0, b = 0, scale = 1e-3;
    result.for_each([&](i64 m, i64 y, i64 x, i64 k) {
      a += diff.value(m, y, x, k) * result.value(m, y, x, k);
      scale += std::fabs(diff.value(m, y, x, k) * result.value(m, y, x, k));
    });
    src.for_each([&](i64 m, i64 y, i64 x, i64 k) { b += dst.value(m, y, x, k) * src.value(m, y, x, k); });
    report(std::fabs(a - b) <= 1e-5 * scale, "resample seed %u: the adjoint gives %.9g, not %.9g", seed, b, a);
  }
}

void test_pad() {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(820000 + seed);
    const i64 n = random.whole(1, 2), c = random.pick({1, 3, 4, 16, 21, 64});
    const i64 h = random.whole(1, 7), w = random.whole(1, 7);
    const bool whole = random.one_in(2), channels = random.one_in(3);
    const i64 first_h = whole ? 0 : random.whole(0, h - 1), first_w = whole ? 0 : random.whole(0, w - 1);
    PadGradientProblem p;
    p.start_h = -random.whole(-2, 12), p.start_w = -random.whole(-2, 12),
    p.start_c = channels ? -random.whole(0, 9) : 0;
    Image diff(random, random_format(random, seed), n, random.whole(1, 24), random.whole(1, 24),
               channels ? c - p.start_c + random.whole(0, 9) : c, random.one_in(2));
    Image dst(random, random_format(random, seed), n, whole ? h : random.whole(1, h - first_h),
              whole ? w : random.whole(1, w - first_w), c, random.one_in(2));
    diff.randomize(random), dst.snapshot();
    p.diff_dst = diff.view, p.diff_src = dst.view;
    p.src_h = h, p.src_w = w, p.first_h = first_h, p.first_w = first_w;
    p.edge = random.pick({PadEdge::clamp, PadEdge::mirror, PadEdge::mirror_with_edge, PadEdge::constant});
    const auto errors = failures_of({{p, "pad_gradient"}});
    // Step by step back into the source; -1: the constant.
    const auto place = [&](i64 i, i64 size) -> i64 {
      if (p.edge == PadEdge::clamp) return std::clamp<i64>(i, 0, size - 1);
      while (i < 0 || i >= size) {
        if (p.edge == PadEdge::constant) return -1;
        if (p.edge == PadEdge::mirror && size == 1) return 0;
        const i64 twice = p.edge == PadEdge::mirror ? 0 : 1;
        i = i < 0 ? -i - twice : 2 * size - 2 + twice - i;
      }
      return i;
    };
    Values right(n, h, w, c);
    diff.for_each([&](i64 m, i64 y, i64 x, i64 k) {
      const i64 row = place(p.start_h + y, h), column = place(p.start_w + x, w), channel = place(p.start_c + k, c);
      if (row >= 0 && column >= 0 && channel >= 0) right.add(m, row, column, channel, diff.value(m, y, x, k));
    });
    const std::string wrong = compare(dst, right, first_h, first_w);
    report(errors.empty() && wrong.empty() && diff.unchanged(), "pad seed %u of %dx%dx%d edge %d start %d,%d,%d: %s",
           seed, int(h), int(w), int(c), int(p.edge), int(p.start_h), int(p.start_w), int(p.start_c), wrong.c_str());

    if (seed % 4 || !whole || diff.view.format != Format::float32 || dst.view.format != Format::float32) continue;
    Image src(random, Format::float32, n, h, w, c, true);
    Image result(random, Format::float32, n, diff.view.h, diff.view.w, diff.view.c, true);
    src.randomize(random);
    PadProblem forward;
    forward.src = src.view, forward.dst = result.view, forward.edge = p.edge;
    forward.start_h = p.start_h, forward.start_w = p.start_w, forward.start_c = p.start_c;
    failures_of({{forward, "pad"}});
    double a = 0, b = 0, scale = 1e-3;
    result.for_each([&](i64 m, i64 y, i64 x, i64 k) {
      a += diff.value(m, y, x, k) * result.value(m, y, x, k);
      scale += std::fabs(diff.value(m, y, x, k) * result.value(m, y, x, k));
    });
    src.for_each([&](i64 m, i64 y, i64 x, i64 k) { b += dst.value(m, y, x, k) * src.value(m, y, x, k); });
    report(std::fabs(a - b) <= 1e-5 * scale, "pad seed %u: the adjoint gives %.9g, not %.9g", seed, b, a);
  }
}

/// The bits are the same for one thread and for several.
void test_threads() {
  const int threads = max_threads();
  for (const bool pads : {false, true}) {
    Random random(830000);
    Image diff(random, Format::float32, 2, 80, 80, 24, true), dst(random, Format::float32, 2, 40, 40, 24, true);
    diff.randomize(random);
    Problem problem;
    if (pads) {
      PadGradientProblem p;
      p.diff_dst = diff.view, p.diff_src = dst.view, p.src_h = p.src_w = 40, p.start_h = p.start_w = -20;
      p.edge = PadEdge::mirror;
      problem = p;
    } else {
      ResampleGradientProblem p;
      p.diff_dst = diff.view, p.diff_src = dst.view, p.src_h = p.src_w = 40;
      p.type = ResampleType::bilinear, p.region.h.denominator = p.region.w.denominator = 2;
      problem = p;
    }
    std::vector<std::byte> first;
    for (const int count : {1, 2, 3, 2}) {
      set_max_threads(count);
      std::memset(dst.view.memory->data(), 0xff, dst.view.memory->size());
      failures_of({{problem, "gradient"}});
      const std::byte* const data = dst.view.memory->data();
      if (first.empty()) first.assign(data, data + dst.view.memory->size());
      report(std::memcmp(first.data(), data, first.size()) == 0, "%s with %d threads", pads ? "pad" : "resample",
             count);
    }
  }
  set_max_threads(threads);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_resample, test_pad, test_threads}); }
