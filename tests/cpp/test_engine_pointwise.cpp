// SPDX-License-Identifier: Apache-2.0
// What the engine does value by value to two sources, against plain double loops written from the formulas in
// engine.hpp: random placement inside, outside and across the borders, repeated axes, slices of larger images, every
// format, every operation and every activation's slope.
//
//   test_engine_pointwise [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>

#include "engine/shared/rows.hpp"
#include "engine_test.hpp"

namespace {

/// f'(x) of the formulas that Apple prints, with the readings that openmps chose.
double neuron_slope(const Neuron& f, double x, i64 channel) {
  const double a = f.a, b = f.b, c = f.c, pi = 3.14159265358979323846;
  switch (f.type) {
    case NeuronType::none: return 1;
    case NeuronType::relu: return x >= 0 ? 1 : a;
    case NeuronType::linear: return a;
    case NeuronType::sigmoid: return 1 / ((1 + std::exp(-std::fabs(x))) * (1 + std::exp(std::fabs(x))));
    case NeuronType::hard_sigmoid: return a * x + b >= 0 && a * x + b <= 1 ? a : 0;
    case NeuronType::tanh: return a * b / (std::cosh(b * x) * std::cosh(b * x));
    case NeuronType::absolute: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case NeuronType::softplus: return a * b / (1 + std::exp(-b * x));
    case NeuronType::softsign: return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
    case NeuronType::elu: return x >= 0 ? 1 : a * std::exp(x);
    case NeuronType::prelu: return x >= 0 ? 1 : (*f.a_per_channel)[static_cast<std::size_t>(channel)];
    case NeuronType::relun: return (x >= 0 ? x : a * x) >= b ? 0 : x >= 0 ? 1 : a;
    case NeuronType::power: return c == 0 ? 0 : a * c * std::pow(a * x + b, c - 1);
    case NeuronType::exponential: return f.c == -1 ? a * std::exp(a * x + b) : a * std::log(c) * std::pow(c, a * x + b);
    case NeuronType::logarithm: return a / ((a * x + b) * (f.c == -1 ? 1 : std::log(c)));
    case NeuronType::gelu: return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
  }
  return NAN;
}

/// A source for a destination of these extents, larger or smaller, somewhere under it.
struct Placed {
  Image image;
  Operand operand;

  Placed(Random& random, Format format, i64 n, i64 h, i64 w, i64 c, bool plain)
      : image(random, format, n, plain ? h : random.whole(1, h + 3), plain ? w : random.whole(1, w + 3), c,
              random.one_in(2)) {
    operand.view = image.view;
    if (plain) return;
    operand.repeat_h = random.one_in(3);
    operand.repeat_w = random.one_in(3);
    operand.repeat_c = random.one_in(4);
    operand.start_h = random.one_in(3) ? random.whole(-h - 2, image.view.h + 2) : 0;
    operand.start_w = random.one_in(3) ? random.whole(-w - 2, image.view.w + 2) : 0;
    operand.edge = random.pick({Edge::zero, Edge::clamp});
  }
  double seen(i64 n, i64 y, i64 x, i64 c) const {
    i64 row = operand.start_h + (operand.repeat_h ? 0 : y), column = operand.start_w + (operand.repeat_w ? 0 : x);
    if (operand.edge == Edge::clamp) {
      row = std::clamp<i64>(row, 0, image.view.h - 1);
      column = std::clamp<i64>(column, 0, image.view.w - 1);
    } else if (row < 0 || row >= image.view.h || column < 0 || column >= image.view.w) {
      return 0;
    }
    return static_cast<float>(image.value(n, row, column, operand.repeat_c ? 0 : c));
  }
};

/// What went wrong, empty when all is well. expected(a, b, channel) is the value, error(...) what it may be off by.
std::string compare(const Placed& a, const Placed& b, const Image& dst,
                    const std::function<double(double, double, i64)>& expected,
                    const std::function<double(double, double, i64)>& error) {
  std::string wrong;
  dst.for_each([&](i64 n, i64 y, i64 x, i64 c) {
    const double va = a.seen(n, y, x, c), vb = b.seen(n, y, x, c);
    const double want = clamped(dst.view.format, expected(va, vb, c)), got = dst.value(n, y, x, c);
    const double allowed = error(va, vb, c) + format_error(dst.view.format, want) + 1e-44;
    if (std::isnan(want) && (std::isnan(got) || format_error(dst.view.format, 0) > 1e-7)) return;
    if (dst.view.format == Format::float16 && std::fabs(want) > 65000) return;
    if (want == got || std::fabs(got - want) <= allowed || !wrong.empty()) return;
    char text[160];
    std::snprintf(text, sizeof text, "(%d, %d, %d, %d): f(%.9g, %.9g) = %.9g, not %.9g", int(n), int(y), int(x), int(c),
                  va, vb, got, want);
    wrong = text;
  });
  if (wrong.empty() && !dst.surroundings_unchanged()) return "something was written outside";
  return wrong;
}

Format random_format(Random& random) {
  return random.pick({Format::float32, Format::float32, Format::float16, Format::unorm8, Format::unorm16});
}

void test_arithmetic() {
  const char* const names[] = {"add", "subtract", "multiply", "divide"};
  for (int operation = 0; operation < 4; ++operation) {
    for (unsigned seed = 0; seed < 120; ++seed) {
      Random random(300000 + seed * 4 + unsigned(operation));
      const bool plain = seed % 4 == 0, large = seed % 30 == 0;
      const i64 c = random.pick({1, 3, 4, 16, 37, 1500}), n = random.whole(1, 3);
      const i64 h = random.whole(1, large ? 60 : 9), w = random.whole(1, large ? 40 : 9);
      const bool halves = seed % 5 == 0;  // a path of their own
      const auto format = [&] { return halves ? Format::float16 : random_format(random); };
      Placed a(random, format(), n, h, w, c, plain), b(random, format(), n, h, w, c, plain);
      Image dst(random, format(), n, h, w, c, random.one_in(2));
      a.image.randomize(random), b.image.randomize(random);
      dst.snapshot();
      Arithmetic f;
      f.operation = static_cast<BinaryOperation>(operation);
      if (!random.one_in(3)) f.scale0 = random.real(-2, 2), f.scale1 = random.real(-2, 2), f.bias = random.real(-1, 1);
      if (random.one_in(2)) f.min = -0.5f;
      if (random.one_in(2)) f.max = 0.75f;
      const auto errors = failures_of({{BinaryProblem{a.operand, b.operand, dst.view, f}, "binary"}});
      const auto exact = [&](double x, double y, i64) {
        const double p = f.scale0 * x, q = f.scale1 * y;
        const double value = (operation == 0   ? p + q
                              : operation == 1 ? p - q
                              : operation == 2 ? p * q
                                               : p / q) +
                             f.bias;
        return value < f.min ? double(f.min) : value > f.max ? double(f.max) : value;
      };
      // Each of five operations rounds once.
      const auto error = [&](double x, double y, i64) {
        const double p = std::fabs(f.scale0 * x), q = std::fabs(f.scale1 * y);
        const double magnitude = (operation < 2 ? p + q : operation == 2 ? p * q : p / q) + std::fabs(f.bias);
        return 5 * 0x1p-24 * magnitude;
      };
      const std::string wrong = compare(a, b, dst, exact, error);
      report(errors.empty() && wrong.empty(), "%s seed %u: %s%s", names[operation], seed, wrong.c_str(),
             errors.empty() ? "" : errors[0].c_str());
      report(a.image.unchanged() && b.image.unchanged(), "%s seed %u: a source was written", names[operation], seed);
    }
  }
}

void test_neuron_gradients() {
  for (int type = 0; type < 16; ++type) {
    for (unsigned seed = 0; seed < 24; ++seed) {
      Random random(400000 + seed * 16 + unsigned(type));
      const i64 c = random.pick({1, 3, 4, 16, 37, 1500}), n = random.whole(1, 2);
      const i64 h = random.whole(1, 20), w = random.whole(1, 12);
      const bool plain = seed % 2 == 0, floats = seed < 12;
      const Format format = floats ? Format::float32 : random_format(random);
      Neuron f = random_neuron(random, static_cast<NeuronType>(type), c);
      float low = -6, high = 6;
      if (f.type == NeuronType::logarithm) f.a = 1, f.b = 0.25f, low = 0, f.c = seed % 2 ? -1.0f : 3.0f;
      if (f.type == NeuronType::power) f.c = random.pick({0.0f, 1.0f, 2.0f, 3.0f, -1.0f});
      if (seed == 4) low *= 20, high *= 20;
      if (seed == 4 && f.type == NeuronType::exponential) f.a = 0.5f;
      Placed diff(random, format, n, h, w, c, plain), src(random, format, n, h, w, c, plain);
      Image dst(random, floats ? Format::float32 : random_format(random), n, h, w, c, random.one_in(2));
      diff.image.randomize(random), src.image.randomize(random, low, high);
      src.operand.edge = Edge::zero;  // a clamped source: test_clamped_sources of test_engine_pointwise_gradient.cpp
      dst.snapshot();
      const auto errors =
          failures_of({{NeuronGradientProblem{diff.operand, src.operand, dst.view, f}, "neuron_gradient"}});
      // Two units in the last place; four for slopes that are several roundings behind their exponential. The two
      // parts of gelu's are good to half a unit of 1 where they cancel, at its minimum.
      const bool composed =
          f.type == NeuronType::gelu || f.type == NeuronType::softplus || f.type == NeuronType::sigmoid;
      const std::string wrong = compare(
          diff, src, dst, [&](double e, double x, i64 k) { return e * neuron_slope(f, x, k); },
          [&](double e, double x, i64 k) {
            return std::fabs(e) * (std::fabs(neuron_slope(f, x, k)) * (composed ? 0x1p-21 : 0x1p-22) +
                                   (f.type == NeuronType::gelu ? 0x1p-24 : 0));
          });
      report(errors.empty() && wrong.empty(), "gradient of %s a %g b %g c %g seed %u: %s%s", kNeuronNames[type], f.a,
             f.b, f.c, seed, wrong.c_str(), errors.empty() ? "" : errors[0].c_str());
    }
  }
}

/// Kinks, infinities and what is far out; every lane of a run gives the same.
void test_ends() {
  const float inf = INFINITY;
  const auto slope = [](NeuronType type, float a, float b, float c, float x) {
    Neuron f;
    f.type = type, f.a = a, f.b = b, f.c = c;
    float ones[19], values[19], results[19];
    std::fill_n(ones, 19, 1.0f), std::fill_n(values, 19, x);
    row_neuron_gradient(f, ones, values, results, 19, 1);
    for (const float r : results)
      if (std::memcmp(&r, results, 4) != 0) return std::numeric_limits<float>::infinity();
    return results[0];
  };
  report(slope(NeuronType::relu, 0, 0, 0, 0) == 1 && slope(NeuronType::relu, 0.5f, 0, 0, -1) == 0.5f, "relu at 0");
  report(slope(NeuronType::elu, 2, 0, 0, 0) == 1 && slope(NeuronType::elu, 2, 0, 0, -inf) == 0, "elu at 0");
  report(slope(NeuronType::absolute, 0, 0, 0, 0) == 0, "absolute at 0");
  report(slope(NeuronType::hard_sigmoid, 0.25f, 0.5f, 0, -2) == 0.25f &&
             slope(NeuronType::hard_sigmoid, 0.25f, 0.5f, 0, 2) == 0.25f &&
             slope(NeuronType::hard_sigmoid, 0.25f, 0.5f, 0, 2.001f) == 0 &&
             slope(NeuronType::hard_sigmoid, 0.25f, 0.5f, 0, inf) == 0,
         "both ends of hard sigmoid belong to its line");
  report(slope(NeuronType::relun, 0, 6, 0, 6) == 0 && slope(NeuronType::relun, 0, 6, 0, 5.999f) == 1 &&
             slope(NeuronType::relun, -1, 2, 0, -3) == 0 && slope(NeuronType::relun, 1, -1, 0, -3) == 1,
         "relun is flat where it is cut off");
  report(slope(NeuronType::sigmoid, 0, 0, 0, 1000) == 0 && slope(NeuronType::sigmoid, 0, 0, 0, -1000) == 0 &&
             slope(NeuronType::tanh, 1, 1, 0, inf) == 0 && slope(NeuronType::tanh, 1, 1, 0, -inf) == 0,
         "sigmoid and tanh are flat far out");
  report(slope(NeuronType::softplus, 1, 1, 0, 1e10f) == 1 && slope(NeuronType::softplus, 1, 1, 0, -1e10f) == 0,
         "soft plus far out");
  report(slope(NeuronType::gelu, 0, 0, 0, inf) == 1 && slope(NeuronType::gelu, 0, 0, 0, -inf) == 0 &&
             slope(NeuronType::gelu, 0, 0, 0, 0) == 0.5f,
         "gelu far out and at 0");
  report(slope(NeuronType::power, 2, 0, 1, 0) == 2 && slope(NeuronType::power, 2, 0, 0, 0) == 0, "power 1 and 0 at 0");
  report(slope(NeuronType::logarithm, 1, 0, -1, 0) == inf, "logarithm at 0");

  Arithmetic f;
  float a[] = {1, 0, NAN, -1, 5}, b[] = {0, 0, 1, 0, 1}, dst[5];
  f.operation = BinaryOperation::divide;
  row_arithmetic(f, a, b, dst, 5);
  report(dst[0] == inf && std::isnan(dst[1]) && std::isnan(dst[2]) && dst[3] == -inf, "quotients by 0");
  f.min = 0, f.max = 4;
  row_arithmetic(f, a, b, dst, 5);
  report(dst[0] == 4 && std::isnan(dst[1]) && std::isnan(dst[2]) && dst[3] == 0 && dst[4] == 4, "bounds leave NaN");
}

void test_keys() {
  const auto engine = cpu_engine().shared_from_this();
  Operand operand;
  ImageView& view = operand.view;
  view.memory = Memory::lazy(engine, 4096), view.h = view.w = view.c = 4;
  view.w_stride = 4, view.h_stride = 16, view.n_stride = 64;
  ImageView dst = view;
  dst.offset = 1024;
  const auto key = [&](float bias, i64 start, bool repeat) {
    BinaryProblem problem = {operand, operand, dst, {}};
    problem.function.bias = bias, problem.src1.start_w = start, problem.src1.repeat_c = repeat;
    return structure_key({{problem, "x"}});
  };
  report(key(0, 0, false) == key(0, 0, false), "equal problems have equal keys");
  report(key(0, 0, false) != key(1, 0, false), "the bias is part of the key");
  report(key(0, 0, false) != key(0, 1, false), "the placement is part of the key");
  report(key(0, 0, false) != key(0, 0, true), "repetition is part of the key");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_ends, test_keys, test_arithmetic, test_neuron_gradients});
}
