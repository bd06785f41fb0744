// SPDX-License-Identifier: Apache-2.0
// Gradients of normalization against plain double loops written from the formulas in engine.hpp, and against finite
// differences of the same formulas of the forward problems: every format, slices of larger images, windows inside,
// outside and across the borders, groups, batches in parts, means far from 0.
//
//   test_engine_normalization_gradient [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float32, Format::float16});
}

/// Dense doubles, NHWC.
struct Array {
  i64 n, h, w, c;
  std::vector<double> values;
  Array(i64 n, i64 h, i64 w, i64 c) : n(n), h(h), w(w), c(c), values(static_cast<std::size_t>(n * h * w * c)) {}
  explicit Array(const Image& image) : Array(image.view.n, image.view.h, image.view.w, image.view.c) {
    image.for_each([&](i64 in, i64 y, i64 x, i64 k) { at(in, y, x, k) = image.value(in, y, x, k); });
  }
  double& at(i64 in, i64 y, i64 x, i64 k) { return values[static_cast<std::size_t>(((in * h + y) * w + x) * c + k)]; }
  double at(i64 in, i64 y, i64 x, i64 k) const { return const_cast<Array*>(this)->at(in, y, x, k); }
  /// The place that (y, x) sees, or a null pointer where that is a zero.
  const double* seen(Edge edge, i64 in, i64 y, i64 x, i64 k) const {
    if (edge == Edge::clamp) {
      y = std::clamp<i64>(y, 0, h - 1), x = std::clamp<i64>(x, 0, w - 1);
    } else if (y < 0 || y >= h || x < 0 || x >= w) {
      return nullptr;
    }
    return &values[static_cast<std::size_t>(((in * h + y) * w + x) * c + k)];
  }
  double value(Edge edge, i64 in, i64 y, i64 x, i64 k) const {
    const double* const p = seen(edge, in, y, x, k);
    return p ? *p : 0;
  }
};

/// Whether got is want to within `error`, which may differ from value to value; beyond `src` 0 is wanted. `want` lies
/// on the source, diff_src from (start_h, start_w) on.
std::string compare(const Image& got, const Array& want, const Array& error, i64 start_h, i64 start_w) {
  std::string wrong;
  got.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    if (!wrong.empty()) return;
    const double* const place = want.seen(Edge::zero, n, y + start_h, x + start_w, c);
    const double expected = place ? *place : 0;
    const double allowed = place ? error.values[static_cast<std::size_t>(place - want.values.data())] : 0;
    const double value = got.value(n, y, x, c);
    if (got.view.format == Format::float16 && std::fabs(expected) > 65000) return;
    if (std::fabs(value - expected) <= allowed + format_error(got.view.format, expected) + 1e-44) return;
    char text[200];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d) is %.9g, not %.9g (+- %.3g)", int(n), int(y), int(x), int(c),
                  value, expected, allowed);
    wrong = text;
  });
  if (wrong.empty() && !got.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

// -------------------------------------------------------------------------------------------------- by neighbours

/// One value of the forward problem's dst.
double lrn(const LRNProblem& p, const Array& src, i64 n, i64 y, i64 x, i64 c) {
  const Window& w = p.window;
  const i64 top = w.start_h + y, left = w.start_w + x;
  const bool contrast = p.type == LRNType::contrast;
  double mean = 0, variance = 0;
  if (p.type == LRNType::channels) {
    for (i64 k = std::max<i64>(0, c - p.size / 2); k <= std::min(src.c - 1, c + (p.size - 1) / 2); ++k)
      variance += std::pow(src.value(w.edge, n, top, left, k), 2) / double(p.size);
  } else {
    const double count = double(w.kernel_h * w.kernel_w);
    const auto each = [&](const auto& f) {
      for (i64 i = 0; i < w.kernel_h; ++i)
        for (i64 j = 0; j < w.kernel_w; ++j) f(src.value(w.edge, n, top + i, left + j, c));
    };
    if (contrast) each([&](double v) { mean += v / count; });
    each([&](double v) { variance += (v - mean) * (v - mean) / count; });
  }
  const double centre = src.value(w.edge, n, top + w.kernel_h / 2, left + w.kernel_w / 2, c);
  const double power = std::pow(double(p.delta) + double(p.alpha) * variance, -double(p.beta));
  return contrast ? p.pm + p.ps * (centre - p.p0 * mean) * power : centre * power;
}

/// The derivative, term by term and tap by tap, each added to the place of the source that it belongs to; and the sum
/// of the magnitudes of what was added, of the least distances that the engine's sums go through.
void differentiate(const LRNProblem& p, const Array& g, const Array& src, Array& result, Array& magnitude) {
  const Window& w = p.window;
  const bool contrast = p.type == LRNType::contrast;
  const double alpha = p.alpha, beta = p.beta, p0 = contrast ? p.p0 : 0, ps = contrast ? p.ps : 1;
  const auto add = [&](const double* place, double value, double size) {
    if (!place) return;
    result.values[static_cast<std::size_t>(place - src.values.data())] += value;
    magnitude.values[static_cast<std::size_t>(place - src.values.data())] += size;
  };
  for (i64 n = 0; n < g.n; ++n)
    for (i64 y = 0; y < g.h; ++y)
      for (i64 x = 0; x < g.w; ++x)
        for (i64 c = 0; c < g.c; ++c) {
          const double G = g.at(n, y, x, c);
          const i64 top = w.start_h + y, left = w.start_w + x;
          const double* const centre = src.seen(w.edge, n, top + w.kernel_h / 2, left + w.kernel_w / 2, c);
          const double X = centre ? *centre : 0;
          if (p.type == LRNType::channels) {
            const i64 low = std::max<i64>(0, c - p.size / 2), high = std::min(src.c - 1, c + (p.size - 1) / 2);
            double L = p.delta;
            for (i64 k = low; k <= high; ++k)
              L += alpha / double(p.size) * std::pow(src.value(w.edge, n, top, left, k), 2);
            const double own = G * std::pow(L, -beta);
            add(centre, own, std::fabs(own));
            for (i64 k = low; k <= high; ++k) {
              const double term = -2 * alpha * beta / double(p.size) * own * X / L * src.value(w.edge, n, top, left, k);
              add(src.seen(w.edge, n, top, left, k), term, std::fabs(term));
            }
            continue;
          }
          const double count = double(w.kernel_h * w.kernel_w);
          double mean = 0, variance = 0;
          const auto each = [&](const auto& f) {
            for (i64 i = 0; i < w.kernel_h; ++i)
              for (i64 j = 0; j < w.kernel_w; ++j) f(src.seen(w.edge, n, top + i, left + j, c));
          };
          if (contrast) each([&](const double* v) { mean += (v ? *v : 0) / count; });
          each([&](const double* v) { variance += std::pow((v ? *v : 0) - mean, 2) / count; });
          const double L = p.delta + alpha * variance, own = ps * G * std::pow(L, -beta);
          add(centre, own, std::fabs(own));
          each([&](const double* v) {
            const double slope = -2 * alpha * beta / count * own * (X - p0 * mean) / L;
            const double value = slope * ((v ? *v : 0) - mean) - own * p0 / count;
            add(v, value, std::fabs(slope) * (std::fabs(v ? *v : 0) + std::fabs(mean)) * 1e-6 + std::fabs(value));
          });
        }
}

void test_lrn() {
  const char* const names[] = {"channels", "pixels", "contrast"};
  for (int type = 0; type < 3; ++type) {
    for (unsigned seed = 0; seed < 160; ++seed) {
      Random random(900000 + seed * 3 + unsigned(type));
      LRNGradientProblem p;
      LRNProblem& f = p.forward;
      f.type = static_cast<LRNType>(type);
      const bool plain = seed % 4 == 0, large = seed % 40 == 0;
      const i64 n = random.whole(1, 3), c = random.pick({1, 3, 4, 16, 21, 40});
      const i64 h = random.whole(1, large ? 50 : 9), w = random.whole(1, large ? 40 : 9);
      if (type == 0) {
        f.size = random.pick({1, 2, 3, 4, 5, 6, 7, 8, 11, 64, 100000});
      } else {
        f.window.kernel_h = random.whole(1, 6);
        f.window.kernel_w = random.one_in(3) ? random.whole(1, 20) : f.window.kernel_h;
      }
      f.window.start_h = -(f.window.kernel_h / 2), f.window.start_w = -(f.window.kernel_w / 2);
      if (!plain) {
        f.window.start_h += random.whole(-4, 4);
        f.window.start_w += random.one_in(6) ? random.pick<i64>({-40, 40}) : random.whole(-4, 4);
        f.window.edge = random.pick({Edge::zero, Edge::clamp});
        p.start_h = random.whole(-2, 2), p.start_w = random.whole(-2, 2);
      }
      f.alpha = random.one_in(8) ? 0 : random.real(0.2f, 3),
      f.beta = random.pick({0.5f, 0.75f, 1.0f, 5.0f, -0.3f, 0.0f});
      f.delta = random.real(0.1f, 2);
      if (type == 2) f.p0 = random.real(0, 1.5f), f.pm = random.real(-1, 1), f.ps = random.real(0.5f, 2);
      const auto around = [&](i64 extent) { return plain ? extent : random.whole(1, extent + 2); };
      Image src(random, random_format(random), n, h, w, c, random.one_in(2));
      Image g(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
      Image result(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
      const float centre = seed % 8 == 3 && src.view.format == Format::float32 ? 100 : 0;
      src.randomize(random, centre - 2, centre + 2), g.randomize(random), result.snapshot();
      f.src = src.view, f.dst = g.view, p.diff_src = result.view;
      const auto errors = failures_of({{p, "gradient"}});
      const Array values(src), gradients(g);
      Array want(n, h, w, c), error(n, h, w, c);
      differentiate(f, gradients, values, want, error);
      for (double& e : error.values) e = e * 0x1p-22 + 1e-30;
      std::string wrong = compare(result, want, error, p.start_h, p.start_w);
      if (wrong.empty() && !(src.unchanged() && g.unchanged())) wrong = "a source was written";
      report(errors.empty() && wrong.empty(), "%s seed %u: %s%s", names[type], seed, wrong.c_str(),
             errors.empty() ? "" : errors[0].c_str());
    }
  }
}

/// The loops above against finite differences of the forward formula: sum of G * dst over a change of each value.
void test_lrn_differences() {
  for (int type = 0; type < 3; ++type) {
    for (unsigned seed = 0; seed < 24; ++seed) {
      Random random(910000 + seed * 3 + unsigned(type));
      LRNProblem f;
      f.type = static_cast<LRNType>(type);
      f.alpha = 1.25f, f.beta = random.pick({0.75f, 2.0f}), f.delta = 1;
      f.size = random.whole(1, 6);
      if (type > 0) f.window.kernel_h = random.whole(1, 4), f.window.kernel_w = random.whole(1, 4);
      f.window.start_h = -(f.window.kernel_h / 2) + random.whole(-1, 1);
      f.window.start_w = -(f.window.kernel_w / 2) + random.whole(-1, 1);
      f.window.edge = random.pick({Edge::zero, Edge::clamp});
      if (type == 2) f.p0 = 0.75f, f.pm = 0.5f, f.ps = 1.5f;
      Array src(1, 4, 3, 5), g(1, 4, 4, 5), want(1, 4, 3, 5), unused(1, 4, 3, 5);
      for (double& v : src.values) v = random.real(-2, 2);
      for (double& v : g.values) v = random.real(-2, 2);
      differentiate(f, g, src, want, unused);
      const auto total = [&] {
        double sum = 0;
        for (i64 y = 0; y < g.h; ++y)
          for (i64 x = 0; x < g.w; ++x)
            for (i64 c = 0; c < g.c; ++c) sum += g.at(0, y, x, c) * lrn(f, src, 0, y, x, c);
        return sum;
      };
      double worst = 0;
      for (std::size_t i = 0; i < src.values.size(); ++i) {
        constexpr double kStep = 1e-5;
        const double value = src.values[i];
        src.values[i] = value + kStep;
        const double above = total();
        src.values[i] = value - kStep;
        const double below = total();
        src.values[i] = value;
        worst = std::max(worst, std::fabs((above - below) / (2 * kStep) - want.values[i]));
      }
      report(worst < 1e-7, "differences of type %d seed %u: %g", type, seed, worst);
    }
  }
}

// ------------------------------------------------------------------------------------------------- by statistics

/// Values in a buffer, some way in.
template <class T>
struct Values {
  ChannelValues values;
  explicit Values(i64 count, T fill = T(NAN)) {
    values.memory = Memory::lazy(cpu_engine().shared_from_this(), static_cast<std::size_t>(count) * sizeof(T) + 24);
    values.offset = sizeof(T) == 4 ? 12 : 16;
    for (i64 i = 0; i < count; ++i) at(i) = fill;
  }
  T& at(i64 i) const { return reinterpret_cast<T*>(values.memory->data() + values.offset)[i]; }
  Values& randomize(Random& random, i64 count, float low, float high) {
    for (i64 i = 0; i < count; ++i) at(i) = random.real(low, high);
    return *this;
  }
};

double slope_of(const Neuron& f, double y, i64 channel) {
  switch (f.type) {
    case NeuronType::none: return 1;
    case NeuronType::relu: return y >= 0 ? 1 : f.a;
    case NeuronType::prelu: return y >= 0 ? 1 : (*f.a_per_channel)[static_cast<std::size_t>(channel)];
    case NeuronType::sigmoid: return std::exp(-std::fabs(y)) / std::pow(1 + std::exp(-std::fabs(y)), 2);
    default: return NAN;
  }
}

struct Statistics {
  double mean = 0, variance = 0, count = 0;
};

Statistics statistics_of(const Array& src, i64 first, i64 images, i64 channel, i64 channels) {
  Statistics s;
  const auto each = [&](const auto& f) {
    for (i64 n = first; n < first + images; ++n)
      for (i64 y = 0; y < src.h; ++y)
        for (i64 x = 0; x < src.w; ++x)
          for (i64 c = channel; c < channel + channels; ++c) f(src.at(n, y, x, c));
  };
  each([&](double v) { s.mean += v, ++s.count; });
  s.mean /= s.count;
  each([&](double v) { s.variance += std::pow(v - s.mean, 2) / s.count; });
  return s;
}

/// Normalization and its gradient in double. `groups` as in NormalizeProblem; with 0, one mean and variance for all
/// images, those in `given` (then they are constants) or those of src.
struct Reference {
  const Array& src;
  i64 start_h, start_w;  ///< what pixel (0, 0) of the result sees
  Edge edge;
  i64 groups;
  double epsilon;
  Neuron neuron;
  std::vector<double> gamma, beta;
  std::vector<Statistics> given;

  std::vector<Statistics> known() const {
    if (!given.empty()) return given;
    std::vector<Statistics> all;
    for (i64 n = 0; n < (groups == 0 ? 1 : src.n); ++n)
      for (i64 g = 0; g < (groups == 0 ? src.c : groups); ++g) {
        const i64 each = groups == 0 ? 1 : src.c / groups;
        all.push_back(statistics_of(src, n, groups == 0 ? src.n : 1, g * each, each));
      }
    return all;
  }
  std::size_t index(i64 n, i64 c) const {
    return static_cast<std::size_t>(groups == 0 ? c : n * groups + c / (src.c / groups));
  }
  double total(const Array& g) const {
    const auto all = known();
    double sum = 0;
    for (i64 n = 0; n < g.n; ++n)
      for (i64 y = 0; y < g.h; ++y)
        for (i64 x = 0; x < g.w; ++x)
          for (i64 c = 0; c < g.c; ++c) {
            const Statistics& s = all[index(n, c)];
            const auto k = static_cast<std::size_t>(c);
            const double z =
                (src.value(edge, n, y + start_h, x + start_w, c) - s.mean) / std::sqrt(s.variance + epsilon);
            sum += g.at(n, y, x, c) * neuron_value(neuron, gamma[k] * z + beta[k], c);
          }
    return sum;
  }
  /// The gradients, and the sums of magnitudes that they went through.
  struct Gradients {
    Array src, size;
    std::vector<double> gamma, beta, gamma_size, beta_size;
    bool has_kink = false;  ///< a value so near 0 that either side is right
  };
  Gradients differentiate(const Array& g) const {
    const auto all = known();
    const auto channels = static_cast<std::size_t>(src.c);
    Gradients r{Array(src.n, src.h, src.w, src.c), Array(src.n, src.h, src.w, src.c), {}, {}, {}, {}};
    for (auto* v : {&r.gamma, &r.beta, &r.gamma_size, &r.beta_size}) v->assign(channels, 0);
    std::vector<double> sums(all.size()), products(all.size()), sum_sizes(all.size()), product_sizes(all.size());
    for (i64 n = 0; n < g.n; ++n)
      for (i64 y = 0; y < g.h; ++y)
        for (i64 x = 0; x < g.w; ++x)
          for (i64 c = 0; c < g.c; ++c) {
            const std::size_t i = index(n, c), k = static_cast<std::size_t>(c);
            const Statistics& s = all[i];
            const double inverse = 1 / std::sqrt(s.variance + epsilon);
            const double* const place = src.seen(edge, n, y + start_h, x + start_w, c);
            const double z = ((place ? *place : 0) - s.mean) * inverse, in = gamma[k] * z + beta[k];
            const bool has_kink = neuron.type == NeuronType::relu || neuron.type == NeuronType::prelu;
            if (has_kink && std::fabs(in) < 1e-5 * (std::fabs(s.mean * inverse) + 1)) r.has_kink = true;
            const double G = g.at(n, y, x, c) * slope_of(neuron, in, c);
            r.beta[k] += G, r.gamma[k] += G * z;
            // The slope of a sigmoid is off by as much as its argument, which is a float.
            const double size = std::fabs(G) * (neuron.type == NeuronType::sigmoid ? 1 + std::fabs(in) : 1);
            // The mean is off by a little of the spread, where it is near.
            const double distance = std::fabs(z) + 0.25;
            r.beta_size[k] += size, r.gamma_size[k] += size * distance;
            sums[i] += gamma[k] * G, products[i] += gamma[k] * G * z;
            sum_sizes[i] += gamma[k] * size, product_sizes[i] += gamma[k] * size * distance;
            if (!place) continue;
            const auto at = static_cast<std::size_t>(place - src.values.data());
            r.src.values[at] += gamma[k] * G * inverse, r.size.values[at] += gamma[k] * size * inverse;
          }
    if (!given.empty()) return r;
    for (i64 n = 0; n < src.n; ++n)
      for (i64 y = 0; y < src.h; ++y)
        for (i64 x = 0; x < src.w; ++x)
          for (i64 c = 0; c < src.c; ++c) {
            const std::size_t i = index(n, c);
            const Statistics& s = all[i];
            const double inverse = 1 / std::sqrt(s.variance + epsilon), z = (src.at(n, y, x, c) - s.mean) * inverse;
            r.src.at(n, y, x, c) -= inverse / s.count * (sums[i] + z * products[i]);
            r.size.at(n, y, x, c) += inverse / s.count * (sum_sizes[i] + std::fabs(z) * product_sizes[i]);
          }
    return r;
  }
};

/// What is wrong with the gradients of gamma and beta, empty when nothing is.
std::string compare_sums(const Reference::Gradients& want, const Values<float>& gamma, const Values<float>& beta) {
  std::string wrong;
  const auto compare = [&](const char* name, double got, double value, double size) {
    if (!wrong.empty() || std::fabs(got - value) <= size * 0x1p-20 + 1e-12) return;
    char text[200];
    std::snprintf(text, sizeof text, "%s is %.9g, not %.9g, of %.3g that were added", name, got, value, size);
    wrong = text;
  };
  for (std::size_t k = 0; k < want.gamma.size(); ++k) {
    compare("diff_gamma", gamma.at(i64(k)), want.gamma[k], want.gamma_size[k]);
    compare("diff_beta", beta.at(i64(k)), want.beta[k], want.beta_size[k]);
  }
  return wrong;
}

/// All of the training's problems, statistics first, of a batch in parts.
void test_statistics_gradients() {
  const NeuronType types[] = {NeuronType::none, NeuronType::relu, NeuronType::sigmoid, NeuronType::prelu};
  for (unsigned seed = 0; seed < 240; ++seed) {
    Random random(920000 + seed);
    const bool plain = seed % 3 == 0, large = seed % 20 == 0, frozen = seed % 10 == 7;
    const i64 n = random.whole(1, 7), c = random.pick({1, 3, 4, 8, 16, 33, 64, 72, 300, 1100});
    const i64 h = random.whole(1, large ? 40 : 9), w = random.whole(1, large ? 40 : 9);
    const auto around = [&](i64 extent) { return plain ? extent : random.whole(1, extent + 2); };
    Image src(random, random_format(random), n, h, w, c, random.one_in(2));
    Image g(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
    Image result(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
    const float centre = src.view.format == Format::float32 && random.one_in(2) ? random.pick({-300.0f, 10.0f}) : 0;
    src.randomize(random, centre - 2, centre + 2), g.randomize(random), result.snapshot();
    Values<float> gamma(c), beta(c), mean(c), variance(c), diff_gamma(c), diff_beta(c);
    Values<double> exact(2 * c);
    NormalizeGradientProblem p;
    p.gamma = gamma.randomize(random, c, 0.25f, 2).values, p.beta = beta.randomize(random, c, -1, 1).values;
    p.mean = mean.values, p.variance = variance.values, p.exact = exact.values;
    p.epsilon = random.pick({1e-5f, 1e-3f});
    p.neuron = random_neuron(random, types[seed / 2 % 4], c);
    p.src.view = src.view, p.diff_dst.view = g.view, p.diff_src = result.view;
    p.diff_gamma = diff_gamma.values, p.diff_beta = diff_beta.values;
    i64 start_h = 0, start_w = 0;  // of the forward kernel
    if (!plain) {
      start_h = random.whole(-3, 3), start_w = random.whole(-3, 3);
      p.src.start_h = random.whole(-2, 2), p.src.start_w = random.whole(-2, 2);
      p.src.edge = random.pick({Edge::zero, Edge::clamp});
      p.diff_dst.start_h = p.src.start_h - start_h, p.diff_dst.start_w = p.src.start_w - start_w;
    }
    const Array values(src), gradients(g);
    Reference reference{values, start_h, start_w, p.src.edge, 0, p.epsilon, p.neuron, {}, {}, {}};
    for (i64 k = 0; k < c; ++k) reference.gamma.push_back(gamma.at(k)), reference.beta.push_back(beta.at(k));
    std::vector<Command> commands;
    if (frozen) {
      mean.randomize(random, c, centre - 1, centre + 1), variance.randomize(random, c, 0.1f, 2);
      for (i64 k = 0; k < c; ++k) reference.given.push_back({mean.at(k), variance.at(k), 0});
    }
    const i64 cut = random.whole(0, n - 1);
    for (const auto& [first, count] : {std::pair<i64, i64>{0, cut}, {cut, n - cut}}) {
      if (count == 0 || frozen) continue;
      commands.push_back(
          {BatchMomentsProblem{src.view.images(first, count), p.mean, p.variance, first * h * w, p.exact},
           "statistics"});
    }
    p.count = frozen ? 0 : n * h * w;
    for (const auto& [first, count] : {std::pair<i64, i64>{0, cut}, {cut, n - cut}}) {
      if (count == 0) continue;
      BatchMomentsGradientProblem s;
      s.diff_dst = g.view.images(first, count), s.src = p.src, s.src.view = src.view.images(first, count);
      s.src.start_h = start_h, s.src.start_w = start_w;
      s.gamma = p.gamma, s.beta = p.beta, s.mean = p.mean, s.variance = p.variance, s.exact = p.exact;
      s.epsilon = p.epsilon, s.neuron = p.neuron, s.diff_gamma = p.diff_gamma, s.diff_beta = p.diff_beta;
      s.adds = first > 0;
      commands.push_back({s, "statistics gradient"});
    }
    commands.push_back({p, "gradient"});
    const auto errors = failures_of(commands);

    Reference::Gradients want = reference.differentiate(gradients);
    if (want.has_kink) continue;
    for (double& e : want.size.values) e = e * 0x1p-20 + 1e-12;
    std::string wrong = compare(result, want.src, want.size, p.src.start_h, p.src.start_w);
    if (wrong.empty()) wrong = compare_sums(want, diff_gamma, diff_beta);
    if (wrong.empty() && !(src.unchanged() && g.unchanged())) wrong = "a source was written";
    report(errors.empty() && wrong.empty(), "statistics gradient seed %u, %d channels: %s%s", seed, int(c),
           wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
  }
}

void test_image_gradients() {
  const NeuronType types[] = {NeuronType::none, NeuronType::relu, NeuronType::sigmoid, NeuronType::prelu};
  for (unsigned seed = 0; seed < 240; ++seed) {
    Random random(930000 + seed);
    const bool plain = seed % 3 == 0, large = seed % 20 == 0;
    const i64 n = random.one_in(5) ? 9 : random.whole(1, 3), c = random.pick({1, 3, 4, 8, 36, 64, 300, 1100});
    const i64 h = random.whole(2, large ? 40 : 9), w = random.whole(2, large ? 40 : 9);
    const auto around = [&](i64 extent) { return plain ? extent : random.whole(1, extent + 2); };
    const i64 divisors[] = {c, 1, c % 4 == 0 ? c / 4 : 1};
    Image src(random, random_format(random), n, h, w, c, random.one_in(2));
    Image g(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
    Image result(random, random_format(random), n, around(h), around(w), c, random.one_in(2));
    Image forward(random, Format::float32, n, h, w, c, true);
    const float centre = src.view.format == Format::float32 && random.one_in(2) ? random.pick({-300.0f, 10.0f}) : 0;
    src.randomize(random, centre - 2, centre + 2), g.randomize(random), result.snapshot();
    NormalizeGradientProblem p;
    p.groups = divisors[seed / 3 % 3];
    Values<float> gamma(c), beta(c), mean(n * c), variance(n * c), diff_gamma(c), diff_beta(c);
    Values<double> exact(2 * n * c);
    p.gamma = gamma.randomize(random, c, 0.25f, 2).values, p.beta = beta.randomize(random, c, -1, 1).values;
    p.mean = mean.values, p.variance = variance.values, p.exact = exact.values;
    p.epsilon = random.pick({1e-5f, 1e-3f});
    p.neuron = random_neuron(random, types[seed / 2 % 4], c);
    p.src.view = src.view, p.diff_dst.view = g.view, p.diff_src = result.view;
    p.diff_gamma = diff_gamma.values, p.diff_beta = diff_beta.values;
    i64 start_h = 0, start_w = 0;
    if (!plain) {
      start_h = random.whole(-3, 3), start_w = random.whole(-3, 3);
      p.src.start_h = random.whole(-2, 2), p.src.start_w = random.whole(-2, 2);
      p.src.edge = random.pick({Edge::zero, Edge::clamp});
      p.diff_dst.start_h = p.src.start_h - start_h, p.diff_dst.start_w = p.src.start_w - start_w;
    }
    NormalizeProblem f;
    f.src.view = src.view, f.dst = forward.view, f.gamma = p.gamma, f.beta = p.beta, f.groups = p.groups;
    f.mean = p.mean, f.variance = p.variance, f.exact = p.exact, f.epsilon = p.epsilon;
    const auto errors = failures_of({{f, "normalize"}, {p, "gradient"}});

    const Array values(src), gradients(g);
    Reference reference{values, start_h, start_w, p.src.edge, p.groups, p.epsilon, p.neuron, {}, {}, {}};
    for (i64 k = 0; k < c; ++k) reference.gamma.push_back(gamma.at(k)), reference.beta.push_back(beta.at(k));
    Reference::Gradients want = reference.differentiate(gradients);
    if (want.has_kink) continue;
    for (double& e : want.size.values) e = e * 0x1p-20 + 1e-12;
    std::string wrong = compare(result, want.src, want.size, p.src.start_h, p.src.start_w);
    if (wrong.empty()) wrong = compare_sums(want, diff_gamma, diff_beta);
    if (wrong.empty() && !(src.unchanged() && g.unchanged())) wrong = "a source was written";
    report(errors.empty() && wrong.empty(), "image gradient seed %u, %d channels, %d groups: %s%s", seed, int(c),
           int(p.groups), wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
  }
}

/// The reference against finite differences of its own forward formula, statistics and all.
void test_normalize_differences() {
  const NeuronType types[] = {NeuronType::none, NeuronType::sigmoid};
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random random(940000 + seed);
    const i64 c = 4;
    Array src(2, 3, 4, c), g(2, 4, 3, c);
    for (double& v : src.values) v = random.real(-2, 2) + 1;
    for (double& v : g.values) v = random.real(-2, 2);
    Reference reference{src,
                        random.whole(-1, 1),
                        random.whole(-1, 1),
                        random.pick({Edge::zero, Edge::clamp}),
                        random.pick<i64>({0, 1, 2, 4}),
                        1e-3,
                        {},
                        {},
                        {},
                        {}};
    reference.neuron.type = types[seed % 2];
    for (i64 k = 0; k < c; ++k)
      reference.gamma.push_back(random.real(0.5f, 2)), reference.beta.push_back(random.real(-1, 1));
    if (reference.groups == 0 && seed % 4 == 0)
      for (i64 k = 0; k < c; ++k) reference.given.push_back({0.5, 0.75, 0});
    const Reference::Gradients want = reference.differentiate(g);
    double worst = 0;
    const auto check = [&](double& value, double expected) {
      constexpr double kStep = 1e-5;
      const double before = value;
      value = before + kStep;
      const double above = reference.total(g);
      value = before - kStep;
      const double below = reference.total(g);
      value = before;
      worst = std::max(worst, std::fabs((above - below) / (2 * kStep) - expected));
    };
    for (std::size_t i = 0; i < src.values.size(); ++i) check(src.values[i], want.src.values[i]);
    for (std::size_t k = 0; k < static_cast<std::size_t>(c); ++k) {
      check(reference.gamma[k], want.gamma[k]);
      check(reference.beta[k], want.beta[k]);
    }
    report(worst < 1e-7, "differences of normalization seed %u: %g", seed, worst);
  }
}

/// A mean 30,000 times the spread: gradients as good as those of values around 0.
void test_far_from_zero() {
  for (const bool by_image : {false, true}) {
    Random random(950000);
    const i64 n = 2, h = 9, w = 8, c = 20;
    Image src(random, Format::float32, n, h, w, c, true), g(random, Format::float32, n, h, w, c, true);
    Image result(random, Format::float32, n, h, w, c, true), forward(random, Format::float32, n, h, w, c, true);
    src.randomize(random, 299.99f, 300.01f), g.randomize(random), result.snapshot();
    Values<float> gamma(c, 1.5f), beta(c, 0.25f), mean(n * c), variance(n * c), diff_gamma(c), diff_beta(c);
    Values<double> exact(2 * n * c);
    NormalizeGradientProblem p;
    p.gamma = gamma.values, p.beta = beta.values, p.mean = mean.values, p.variance = variance.values;
    p.exact = exact.values, p.epsilon = 1e-9f, p.diff_gamma = diff_gamma.values, p.diff_beta = diff_beta.values;
    p.src.view = src.view, p.diff_dst.view = g.view, p.diff_src = result.view;
    p.groups = by_image ? c / 5 : 0, p.count = n * h * w;
    NormalizeProblem f;
    f.src.view = src.view, f.dst = forward.view, f.gamma = p.gamma, f.beta = p.beta, f.groups = p.groups;
    f.mean = p.mean, f.variance = p.variance, f.exact = p.exact, f.epsilon = p.epsilon;
    BatchMomentsGradientProblem s;
    s.diff_dst = g.view, s.src = p.src, s.gamma = p.gamma, s.beta = p.beta, s.mean = p.mean, s.variance = p.variance;
    s.exact = p.exact, s.epsilon = p.epsilon, s.diff_gamma = p.diff_gamma, s.diff_beta = p.diff_beta;
    std::vector<Command> commands;
    if (!by_image) commands.push_back({BatchMomentsProblem{src.view, p.mean, p.variance, 0, p.exact}, "statistics"});
    commands.push_back({f, "normalize"});
    if (!by_image) commands.push_back({s, "statistics gradient"});
    commands.push_back({p, "gradient"});
    const auto errors = failures_of(commands);
    const Array values(src), gradients(g);
    Reference reference{values, 0, 0, Edge::zero, p.groups, p.epsilon, {}, {}, {}, {}};
    reference.gamma.assign(c, 1.5), reference.beta.assign(c, 0.25);
    Reference::Gradients want = reference.differentiate(gradients);
    double worst = 0, largest = 0;
    result.for_each([&](i64 in, i64 y, i64 x, i64 k) {
      worst = std::max(worst, std::fabs(result.value(in, y, x, k) - want.src.at(in, y, x, k)));
      largest = std::max(largest, std::fabs(want.src.at(in, y, x, k)));
    });
    report(errors.empty() && worst <= 1e-6 * largest, "far from zero, by image %d: gradient off by %g of %g", by_image,
           worst, largest);
    const auto known = reference.known();
    double off = 0;
    forward.for_each([&](i64 in, i64 y, i64 x, i64 k) {
      const Statistics& m = known[reference.index(in, k)];
      const double z = (values.at(in, y, x, k) - m.mean) / std::sqrt(m.variance + double(p.epsilon));
      off = std::max(off, std::fabs(forward.value(in, y, x, k) - (1.5 * z + 0.25)));
    });
    report(off <= 2e-6, "far from zero, by image %d: normalized off by %g", by_image, off);
    double gamma_off = 0;
    for (i64 k = 0; k < c; ++k)
      gamma_off = std::max(gamma_off,
                           std::fabs(diff_gamma.at(k) - want.gamma[std::size_t(k)]) / want.gamma_size[std::size_t(k)]);
    report(gamma_off <= 1e-6, "far from zero, by image %d: diff_gamma off by %g of what was added", by_image,
           gamma_off);
    // Values that somebody has put there since count, the pairs do not.
    if (by_image) continue;
    for (i64 k = 0; k < c; ++k) mean.at(k) = 299, variance.at(k) = 2;
    p.count = 0;
    const auto more = failures_of({{f, "normalize"}, {p, "gradient"}});
    double changed = 0;
    forward.for_each([&](i64 in, i64 y, i64 x, i64 k) {
      const double z = (values.at(in, y, x, k) - 299) / std::sqrt(2 + double(p.epsilon));
      changed = std::max(changed, std::fabs(forward.value(in, y, x, k) - (1.5 * z + 0.25)));
      changed = std::max(changed, std::fabs(result.value(in, y, x, k) -
                                            1.5 / std::sqrt(2 + double(p.epsilon)) * gradients.at(in, y, x, k)));
    });
    report(more.empty() && changed <= 2e-6, "mean and variance that were written since count: %g", changed);
  }
}

/// The same bits at every run.
void test_determinism() {
  for (const int threads : {1, 2}) {
    set_max_threads(threads);
    Random random(960000);
    const i64 n = 8, h = 32, w = 31, c = 40;
    Image src(random, Format::float32, n, h, w, c, true), g(random, Format::float32, n, h, w, c, true);
    Image result(random, Format::float32, n, h, w, c, true);
    src.randomize(random), g.randomize(random), result.snapshot();
    Values<float> gamma(c, 1), beta(c, 0), mean(c), variance(c), diff_gamma(c), diff_beta(c);
    BatchMomentsGradientProblem s;
    s.diff_dst = g.view, s.src.view = src.view, s.gamma = gamma.values, s.beta = beta.values, s.mean = mean.values;
    s.variance = variance.values, s.epsilon = 1e-5f, s.diff_gamma = diff_gamma.values, s.diff_beta = diff_beta.values;
    std::vector<float> first;
    bool same = true;
    for (int run = 0; run < 5; ++run) {
      const auto errors =
          failures_of({{BatchMomentsProblem{src.view, mean.values, variance.values, 0, {}}, "statistics"},
                       {s, "statistics gradient"}});
      std::vector<float> now;
      for (i64 k = 0; k < c; ++k)
        now.insert(now.end(), {mean.at(k), variance.at(k), diff_gamma.at(k), diff_beta.at(k)});
      if (run == 0) first = now;
      same = same && errors.empty() && first == now;
    }
    report(same, "the same sums at every run, %d threads", threads);
  }
}

void test_keys() {
  const auto engine = cpu_engine().shared_from_this();
  ImageView view;
  view.memory = Memory::lazy(engine, 4096), view.h = view.w = view.c = 4;
  view.w_stride = 4, view.h_stride = 16, view.n_stride = 64;
  const Values<float> values(8);
  LRNGradientProblem local;
  local.forward.src = local.forward.dst = local.diff_src = view;
  const std::string key = structure_key({{local, "x"}});
  report(structure_key({{local, "x"}}) == key, "equal gradients, equal keys");
  local.start_h = 1;
  report(structure_key({{local, "x"}}) != key, "the place is part of the key");
  BatchMomentsGradientProblem s;
  s.diff_dst = s.src.view = view;
  for (ChannelValues* v : {&s.gamma, &s.beta, &s.mean, &s.variance, &s.diff_gamma, &s.diff_beta}) *v = values.values;
  const std::string sums = structure_key({{s, "x"}});
  s.adds = true;
  report(structure_key({{s, "x"}}) != sums, "whether sums are added to is part of the key");
  NormalizeGradientProblem p;
  p.diff_dst.view = p.src.view = p.diff_src = view;
  for (ChannelValues* v : {&p.gamma, &p.beta, &p.mean, &p.variance, &p.diff_gamma, &p.diff_beta}) *v = values.values;
  const std::string gradient = structure_key({{p, "x"}});
  p.count = 3;
  report(structure_key({{p, "x"}}) != gradient, "the count is part of the key");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_keys, test_lrn_differences, test_normalize_differences, test_lrn, test_statistics_gradients,
                    test_image_gradients, test_far_from_zero, test_determinism});
}
