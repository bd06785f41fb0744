// SPDX-License-Identifier: Apache-2.0
// What the engine does value by value: activations and their ends, copies, the rounding of half precision, buffers.
//
//   test_engine_values [seed offset]      prints "N passed, N failed"
#include <cstdlib>
#include <limits>

#include "engine/shared/rows.hpp"
#include "engine_test.hpp"

namespace {

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
        // Two units in the last place of float; four for functions that are several roundings behind their exponential.
        const bool composed = f.type == NeuronType::gelu || f.type == NeuronType::softplus;
        const bool linear = f.type == NeuronType::linear || f.type == NeuronType::hard_sigmoid;
        // The product is rounded by itself where the processor has no multiply-add.
        const double product = linear ? std::fabs(f.a * v) * 0x1p-24 : 0;
        const double allowed = std::fabs(expected) * (composed ? 0x1p-21 : 0x1p-22) + product +
                               format_error(out.view.format, expected) + 1e-44;
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

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_half, test_buffers, test_copies, test_neuron_ends, test_neurons});
}
