// SPDX-License-Identifier: Apache-2.0
// Conversions between formats for every value; buffers and loaded weights on every engine.
//
//   test_engine_values [seed offset]      prints "N passed, N failed"
#include <chrono>

#include "engine/shared/fast_math.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/rows.hpp"
#include "engine_test.hpp"

namespace {

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
  // Midpoints between adjacent halves and their float neighbours: ties go to even, in both implementations.
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
  for (const char* const name : {"cpu", "null", "split"}) {
    const auto engine = engine_of(name);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{5000000}}) {
      const auto a = Memory::lazy(engine, bytes + 16), b = Memory::lazy(engine, bytes + 16);
      bool ran = false;
      const std::string error = execute(*engine, {{BufferFillProblem{a, 0, bytes + 16, 7}, "fill"},
                                                  {BufferFillProblem{a, 3, bytes, 9}, "fill"},
                                                  {BufferFillProblem{b, 0, bytes + 16, 5}, "fill"},
                                                  {BufferCopyProblem{a, b, 2, 4, bytes}, "copy"},
                                                  {HostTask{[&] { ran = true; }}, "task"}})
                                    .sentence;
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

struct LoadedWeights {
  i64 outputs, inputs, kernel;
  std::size_t offset;  ///< in bytes, of the values
};
/// A convolution with weights that commands have loaded is that with the same weights of the host, and the host reads
/// what was loaded. Buffers that the host asks for keep their contents.
void test_loaded_weights(const char* name, const LoadedWeights& sizes, bool round_to_half, bool has_bias) {
  const auto engine = engine_of(name);
  constexpr i64 kPixels = 7;
  const auto& [outputs, inputs, kernel, offset] = sizes;
  Random random(17);
  const auto given = random_weights(random, outputs, 1, kernel, inputs, 1, has_bias);
  const auto buffer = [&](const std::vector<float>& values) {
    auto memory = Memory::lazy_buffer(engine, values.size() * sizeof(float) + sizes.offset);
    memory->clear();
    if (!values.empty()) memory->upload(sizes.offset, values.size() * sizeof(float), values.data());
    return memory;
  };
  const auto values = buffer(given->values.own()), bias = buffer(given->bias.own());
  const auto loaded = std::make_shared<ConvWeights>();
  loaded->out_channels = outputs, loaded->kernel_h = 1, loaded->kernel_w = kernel;
  loaded->in_channels_per_group = inputs;
  loaded->values = Floats::await(given->values.size());
  if (has_bias) loaded->bias = Floats::await(given->bias.size());
  if (round_to_half)
    for (float& value : given->values.own()) value = half_to_float(float_to_half(value));
  const auto image = [&](i64 channels) {
    ImageView view;
    view.memory = Memory::lazy_image(engine, static_cast<std::size_t>(kPixels * channels) * sizeof(float));
    view.w = kPixels, view.c = view.w_stride = channels, view.h_stride = view.n_stride = kPixels * channels;
    return view;
  };
  const ImageView src = image(inputs), first = image(outputs), second = image(outputs);
  std::vector<float> pixels(static_cast<std::size_t>(kPixels * inputs)), results[2];
  for (float& value : pixels) value = random.real(-1, 1);
  src.memory->upload(0, pixels.size() * sizeof(float), pixels.data());
  ChannelValues from_bias;
  if (has_bias) from_bias = {bias, offset};
  Window window;
  window.kernel_w = kernel, window.start_w = -(kernel / 2);
  const std::string error =
      execute(*engine, {{LoadWeightsProblem{{values, offset}, from_bias, loaded, round_to_half}, "load"},
                        {BufferFillProblem{values, 0, values->size(), 1}, "values change later"},
                        {ConvProblem{src, first, loaded, window, {}, 1, false, {}, {}}, "loaded"},
                        {ConvProblem{src, second, given, window, {}, 1, false, {}, {}}, "given"}})
          .sentence;
  for (int i = 0; i < 2; ++i) {
    results[i].resize(static_cast<std::size_t>(kPixels * outputs));
    (i ? second : first).memory->download(0, results[i].size() * sizeof(float), results[i].data());
  }
  const auto same = [](const Floats& a, const Floats& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  };
  const bool ok = error.empty() && results[0] == results[1] && results[0][5] != 0;
  report(ok, "loaded weights of engine %s, %d outputs, rounded %d, bias %d: %s", name, static_cast<int>(outputs),
         round_to_half, has_bias, error.c_str());
  report(same(loaded->values, given->values) && same(loaded->bias, given->bias), "%s: weights on the host", name);
  const std::byte* const filled = values->data();
  const bool is_filled = std::all_of(filled, filled + values->size(), [](std::byte b) { return b == std::byte{1}; });
  report(is_filled && values->storage() == Storage::host, "%s: a buffer that the host asks for", name);
  execute(*engine, {{BufferFillProblem{values, 4, 4, 2}, "fill"}});
  report(values->data() == filled && filled[5] == std::byte{2} && filled[8] == std::byte{1}, "%s: and uses", name);
}
void test_all_loaded_weights() {
  std::vector<const char*> names = {"cpu", "split"};
  try {
    engine_of("cuda-host");
    names.push_back("cuda-host");
  } catch (const std::runtime_error&) {  // this build has no kernels for it
  }
  for (const char* const name : names)
    for (const LoadedWeights& sizes : {LoadedWeights{40, 24, 1, 4}, LoadedWeights{136, 72, 3, 16}})
      for (const bool round_to_half : {false, true})
        for (const bool has_bias : {false, true}) test_loaded_weights(name, sizes, round_to_half, has_bias);
}

/// Return the shortest of many times of a call, in seconds.
template <class Call>
double least_seconds(const Call& call) {
  double least = 1;
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

/// The formula, one value after the other.
template <class Formula>
__attribute__((noinline)) void one_by_one(const std::vector<float>& src, std::vector<float>& dst,
                                          const Formula& formula) {
  for (std::size_t i = 0; i < src.size(); ++i) {
    dst[i] = formula(src[i]);
    __asm__ volatile("" ::: "memory");  // no vectors
  }
}

/// Rows are computed by vectors, where the processor has them. Options that differ between a file and its precompiled
/// header once made these loops scalar, 20 times slower, and no value was wrong.
void test_speed_of_rows() {
#if MPSCNN_HAS_CLONES
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
  using F = NeuronFormulas<FastMath>;
  std::vector<float> src(4096), dst(4096);
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i % 200) * 0.1f - 10.0f;
  const auto compare = [&](const char* what, NeuronType type, const auto& formula) {
    Neuron neuron;
    neuron.type = type, neuron.a = neuron.b = 1, neuron.c = -1;
    const double row = least_seconds([&] { row_neuron(neuron, src.data(), dst.data(), 4096, 4096, nullptr); });
    const double single = least_seconds([&] { one_by_one(src, dst, formula); });
    report(single > 2 * row, "%s: a row of 4096 values takes %g us, one value after the other %g", what, row * 1e6,
           single * 1e6);
  };
  compare("sigmoid", NeuronType::sigmoid, [](float x) { return F::sigmoid(x); });
  compare("swish", NeuronType::swish, [](float x) { return F::swish(x); });
  compare("tanh", NeuronType::tanh, [](float x) { return F::tanh(x, 1, 1); });
  compare("softplus", NeuronType::softplus, [](float x) { return F::softplus(x, 1, 1); });
  compare("elu", NeuronType::elu, [](float x) { return F::elu(x, 1); });
  compare("gelu", NeuronType::gelu, [](float x) { return F::gelu(x); });
  compare("exponential", NeuronType::exponential, [](float x) { return F::exponential(x, 1, 1, 1.0); });
  std::vector<std::uint16_t> halves(4096);
  const double row = least_seconds([&] { row_from_float(src.data(), halves.data(), Format::float16, 4096); });
  const double single = least_seconds([&] { one_by_one(src, dst, [](float x) { return float(float_to_half(x)); }); });
  report(single > 2 * row, "halves: a row of 4096 values takes %g us, one value after the other %g", row * 1e6,
         single * 1e6);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_half, test_buffers, test_all_loaded_weights, test_speed_of_rows});
}
