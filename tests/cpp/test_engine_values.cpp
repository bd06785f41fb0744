// SPDX-License-Identifier: Apache-2.0
// Conversions between formats for every value; buffers on every engine.
//
//   test_engine_values [seed offset]      prints "N passed, N failed"
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

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_half, test_buffers}); }
