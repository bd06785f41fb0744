// SPDX-License-Identifier: Apache-2.0
// Convolutions whose weights several threads share, and which of oneDNN's deconvolutions add bias and activation.
// Values are tested by tests/test_engine_rows.py.
//
//   test_engine_convolution [seed offset]      prints "N passed, N failed"
#include <atomic>
#include <thread>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine_test.hpp"

namespace {

/// Threads that share weights and caches get the results of a single thread.
void test_threads() {
  Random random(7);
  const auto weights = random_weights(random, 24, 3, 3, 16, 1, true);
  Window w;
  w.kernel_h = w.kernel_w = 3, w.start_h = w.start_w = -1;
  const auto compute = [&](unsigned seed, const std::shared_ptr<ConvWeights>& used, bool& failed) {
    Random own(seed);
    const i64 size = 5 + seed % 7;
    Image src(own, Format::float32, 1, size, size, 16, seed % 2), dst(own, Format::float32, 1, size, size, 24, true);
    src.randomize(own);
    failed = !failures_of({{ConvProblem{src.view, dst.view, used, w, {}, 1, false, {}, {}}, "conv"}}).empty();
    std::vector<double> values;
    dst.for_each([&](i64 n, i64 y, i64 x, i64 o) { values.push_back(dst.value(n, y, x, o)); });
    return values;
  };
  std::vector<std::vector<double>> expected;
  bool failed = false;
  for (unsigned seed = 0; seed < 30; ++seed) {
    Random again(7);
    expected.push_back(compute(seed, random_weights(again, 24, 3, 3, 16, 1, true), failed));
    report(!failed && !std::isnan(expected.back()[0]), "one thread, %u", seed);
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 30; ++round) {
        const unsigned seed = (round + 7 * t) % 30;
        bool fails = false;
        if (compute(seed, weights, fails) != expected[seed] || fails) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  report(wrong == 0, "%d wrong results when four threads share weights", wrong.load());
}

/// On every machine: which of oneDNN's deconvolutions add bias and activation.
void test_fusion_of_deconvolutions() {
  for (const char* name : {"brg_conv:avx512_core+brgconv_strided:avx512_core", "brg_conv:avx2+brgconv_strided:avx2",
                           "brg_conv:avx512_core_amx+brgconv_strided:avx512_core_amx", "conv:any+jit:avx2"})
    report(cpu::transpose_fusion_declines(name) != nullptr, "%s would add bias and activation", name);
  for (const char* name : {"brg_conv:avx512_core+brgconv:avx512_core", "brg_conv:avx2+brgconv_1x1:avx2"})
    report(cpu::transpose_fusion_declines(name) == nullptr, "%s would not add bias and activation", name);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_threads, test_fusion_of_deconvolutions}); }
