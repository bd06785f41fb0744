// SPDX-License-Identifier: Apache-2.0
// Choices between the CPU engine's implementations by times: the rules, right results by each of them, the file.
//
//   test_engine_choices              prints "N passed, N failed"
//   test_engine_choices keep A N     keeps N choices for made-up calls A, A + 1, ..., and the second of the
//                                    implementations of a convolution; for another one "pointwise", which no model
//                                    chooses, and for a third one "taps", which declines it.
//                                    Prints these implementations
//   test_engine_choices run A N      prints how many of these choices are in use, and runs the convolutions
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string_view>

#include "engine/cpu/choices.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine_test.hpp"

namespace {

namespace fs = std::filesystem;
using cpu::Digest;
namespace choices = cpu::choices;
using choices::Outcome, choices::Pass;

constexpr const char *kSlow = "loop", *kFast = "primitive", *kOther = "winograd";

Digest digest(i64 number) {
  Digest made;
  made.add(number);
  return made;
}

/// Add a call of kSlow and kFast with these times, in seconds.
void add(i64 number, const std::vector<double>& slow, const std::vector<double>& fast) {
  choices::add(digest(number), "list", "call " + std::to_string(number), {kSlow, kFast});
  choices::begin(Pass::timed);
  for (const double seconds : slow) choices::record(digest(number), kSlow, seconds);
  for (const double seconds : fast) choices::record(digest(number), kFast, seconds);
}

std::string chosen(i64 number) {
  const char* const found = choices::are_asked() ? choices::find(digest(number)) : nullptr;
  return found ? found : "";
}

std::string start() {
  const char* const why_not = choices::start();
  return why_not ? why_not : "";
}

// --------------------------------------------------------------------------------------------------------------- rules

void test_rules() {
  report(!choices::are_asked() && choices::count() == 0, "choices without a file");
  report(start().empty(), "times are not taken");
  report(start() == "another call of tune is under way", "two at once");
  add(1, {1.00, 1.01, 1.02}, {0.90, 0.91, 0.92});
  add(2, {1.00, 1.01, 1.02}, {0.97, 0.98, 0.99});           // no more than noise
  add(3, {1.00, 1.01, 1.02}, {0.999, 0.80, 0.997, 0.998});  // its median
  add(4, {0.80, 1.20, 1.21}, {0.79, 0.80, 0.81});           // of a busy moment: the shortest times are equal
  add(5, {1.00, 1.01, 1.02}, {1.50, 1.51, 1.52});
  report(choices::rounds() == 3, "%d rounds", choices::rounds());
  const std::string text = choices::stop(Outcome::fastest);
  report(text.find("list\tcall 1\tloop\tprimitive\tloop=1.01\tprimitive=0.91\n") != std::string::npos, "%s",
         text.c_str());
  report(text.find("list\tcall 2\tloop\tloop\t") != std::string::npos, "%s", text.c_str());
  report(chosen(1) == kFast, "the faster one is not chosen");
  for (const i64 number : {2, 3, 4, 5})
    report(chosen(number).empty(), "call %d has a choice", static_cast<int>(number));
  report(choices::count() == 1, "%zu choices", choices::count());
  report(choices::stop(Outcome::fastest).empty() && choices::count() == 1, "a second stop()");
}

void test_the_list_wins_again() {
  start();
  add(1, {1, 1, 1}, {1, 1, 1});
  add(6, {1, 1, 1}, {0.5, 0.5, 0.5});
  choices::stop(Outcome::nothing);
  report(chosen(1) == kFast && chosen(6).empty(), "choices change without being kept");
  start();
  add(1, {1, 1, 1}, {1, 1, 1});
  choices::stop(Outcome::fastest);
  report(chosen(1).empty() && choices::count() == 0 && !choices::are_asked(), "an old choice stays");
}

void test_unchanged() {
  start();
  add(1, {1, 1, 1}, {0.5, 0.5, 0.5});
  choices::stop(Outcome::fastest);
  report(chosen(1) == kFast, "no choice");
  start();
  add(1, {1, 1, 1}, {0.5, 0.5, 0.5});
  const std::string text = choices::stop(Outcome::unchanged);
  report(text.find("\tloop\tloop\t") != std::string::npos && chosen(1).empty(), "an old choice stays: %s",
         text.c_str());
}

void test_passes() {
  start();
  choices::add(digest(7), "list", "", {kSlow, kFast, kOther});
  int counts[3] = {};
  const auto run = [&](int passes) {
    for (int i = 0; i < passes; ++i) {
      choices::begin(Pass::mixed);
      const std::string before = choices::current(digest(7));
      choices::record(digest(7), kSlow, 1e-9);  // not timed
      choices::begin(Pass::timed);
      const std::string_view name = choices::current(digest(7));
      report(name == before, "the timed pass has other implementations");
      ++counts[name == kSlow ? 0 : name == kFast ? 1 : 2];
      choices::record(digest(7), name.data(), name == kOther ? 2.5 : name == kFast ? 0.5 : 1);
    }
  };
  run(40);
  report(counts[0] > 10 && counts[0] < 30 && counts[2] == 3 && counts[1] == 40 - counts[0] - 3, "%d, %d, %d passes",
         counts[0], counts[1], counts[2]);
  report(choices::rounds() == std::min(counts[0], counts[1]), "%d rounds", choices::rounds());
  report(choices::begin(Pass::unchanged) == 0 && choices::current(digest(7)) == std::string_view(kSlow), "unchanged");
  report(choices::begin(Pass::fastest) == 1 && choices::current(digest(7)) == std::string_view(kFast), "fastest");
  choices::stop(Outcome::nothing);
  report(!choices::current(digest(7)), "a call that is not timed");
  choices::record(digest(7), kSlow, 1);
}

void test_groups() {
  const auto time = [](double together) {
    start();
    add(8, {1, 1, 1}, {0.5, 0.5, 0.5});
    add(9, {1, 1, 1}, {2, 2, 2});
    const Digest parts[] = {digest(8), digest(9)};
    choices::add_group(digest(10), "group", "", "together", "apart", parts);
    choices::begin(Pass::timed);
    for (int i = 0; i < 3; ++i) choices::record(digest(10), "together", together);
    const std::string text = choices::stop(Outcome::nothing);
    return text.find("group\t\ttogether\tapart\t") != std::string::npos;
  };
  report(time(1.6), "1.6 is not replaced by 0.5 + 1");
  report(!time(1.55), "1.55 is replaced by 0.5 + 1");
  start();
  const Digest parts[] = {digest(11)};  // not timed
  choices::add_group(digest(10), "group", "", "together", "apart", parts);
  choices::begin(Pass::timed);
  choices::record(digest(10), "together", 1e9);
  report(choices::stop(Outcome::nothing).find("together\ttogether") != std::string::npos, "a part without times");
}

// ---------------------------------------------------------------------------------------------------------
// convolutions

struct Case {
  const char* why;
  i64 n, h, w, inputs, outputs, kernel, stride, groups;
  bool adds = false;
};
const Case kCases[] = {
    {"Winograd's and oneDNN's", 2, 14, 13, 16, 32, 3, 1, 1},
    {"the same, a sum in its place", 2, 14, 13, 16, 32, 3, 1, 1, true},
    {"few tiles of many channels, which the model leaves to oneDNN", 1, 4, 4, 64, 64, 3, 1, 1},
    {"one pixel", 2, 9, 10, 40, 48, 1, 1, 1},
    {"one pixel, a waste of sums that the model does not accept", 1, 9, 10, 40, 24, 1, 1, 1},
    {"depth-wise", 2, 9, 11, 24, 24, 3, 2, 24},
    {"few outputs", 1, 12, 9, 32, 3, 3, 1, 1},
    {"fully connected", 2, 1, 1, 70, 33, 1, 1, 1},
    {"strides: only oneDNN's", 1, 11, 11, 16, 16, 3, 2, 1},
};

struct Convolution {
  Random random{7};
  Image src, dst;
  ConvProblem problem;

  explicit Convolution(const Case& c)
      : src(random, Format::float32, c.n, c.h, c.w, c.inputs, true),
        dst(random, Format::float32, c.n, (c.h - 1) / c.stride + 1, (c.w - 1) / c.stride + 1, c.outputs, true) {
    src.randomize(random), dst.randomize(random);
    problem.src = src.view, problem.dst = dst.view;
    problem.weights = random_weights(random, c.outputs, c.kernel, c.kernel, c.inputs / c.groups, c.groups, true);
    Window& w = problem.window;
    w.kernel_h = w.kernel_w = c.kernel, w.stride_h = w.stride_w = c.stride;
    w.start_h = w.start_w = -(c.kernel / 2);
    if (c.adds) problem.addend = dst.view;
  }
  std::string run() {
    std::memcpy(dst.data(), dst.before.data(), dst.before.size());
    return ::run({{problem, ""}});
  }
  /// Return the largest error.
  double error() const {
    const ConvWeights& weights = *problem.weights;
    const Window& w = problem.window;
    const i64 inputs = weights.in_channels_per_group, outputs = weights.out_channels / weights.groups;
    double most = 0;
    dst.for_each([&](i64 n, i64 y, i64 x, i64 o) {
      double sum = weights.bias[static_cast<std::size_t>(o)];
      for (i64 p = 0; p < w.kernel_h; ++p)
        for (i64 q = 0; q < w.kernel_w; ++q) {
          const i64 v = w.start_h + y * w.stride_h + p, u = w.start_w + x * w.stride_w + q;
          if (v < 0 || u < 0 || v >= src.view.h || u >= src.view.w) continue;
          for (i64 i = 0; i < inputs; ++i)
            sum += static_cast<double>(
                       weights.values[static_cast<std::size_t>(((o * w.kernel_h + p) * w.kernel_w + q) * inputs + i)]) *
                   src.value(n, v, u, o / outputs * inputs + i);
        }
      if (problem.addend.memory) {
        float before;
        std::memcpy(&before, dst.before.data() + (dst.at(n, y, x, o) - dst.data()), sizeof before);
        sum += static_cast<double>(before);
      }
      most = std::fmax(most, std::fabs(sum - dst.value(n, y, x, o)));
    });
    return most;
  }
};

/// Return the implementations that accept a convolution, which are the names of the last line of stop()'s text.
std::vector<std::string> names_in(const std::string& text) {
  std::istringstream words(text.substr(text.rfind('\n', text.size() - 2) + 1));
  std::vector<std::string> names;
  for (std::string word; std::getline(words, word, '\t');)
    if (word.find('=') != std::string::npos) names.push_back(word.substr(0, word.find('=')));
  return names;
}

void test_convolutions() {
  constexpr double kTolerance = 1e-4;
  std::size_t several = 0;
  for (const Case& one : kCases) {
    Convolution convolution(one);
    const Digest call = cpu::digest_of(convolution.problem);
    start();
    // Each implementation in its turn.
    for (int i = 0; i < 20; ++i) {
      if (i > 0) choices::begin(i % 2 ? Pass::mixed : Pass::timed);
      report(convolution.run().empty(), "%s: fails", one.why);
      const double error = convolution.error();
      report(error < kTolerance, "%s: error %g while it is timed", one.why, error);
    }
    const std::vector<std::string> names = names_in(choices::stop(Outcome::nothing));
    several += names.size() > 1;
    for (const std::string& name : names) {
      start();
      convolution.run();
      choices::begin(Pass::timed);
      for (const std::string& other : names)
        for (int i = 0; i < 20; ++i) choices::record(call, other.c_str(), other == name ? 1e-12 : 1e3);
      choices::stop(Outcome::fastest);
      const char* const found = choices::are_asked() ? choices::find(call) : nullptr;
      report(name == names.front() ? !found : found && name == found, "%s: %s is not chosen", one.why, name.c_str());
      convolution.run();
      const double error = convolution.error();
      report(error < kTolerance, "%s: error %g by %s", one.why, error, name.c_str());
    }
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && cpu::has_avx512())
    report(several == std::size(kCases) - 1, "%zu cases have several implementations", several);
#endif
}

void test_weights_in_place() {
  Convolution convolution(kCases[0]);
  const auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = 32, weights->kernel_h = weights->kernel_w = 3, weights->in_channels_per_group = 16;
  weights->values = convolution.problem.weights->values, weights->bias = convolution.problem.weights->bias;
  weights->in_place = true;
  convolution.problem.weights = weights;
  start();
  convolution.run();
  report(choices::stop(Outcome::nothing).find("convolve") == std::string::npos, "weights in place are timed");
  const double error = convolution.error();
  report(error < 1e-4, "error %g of weights in place", error);
}

/// Digests differ if the time may.
void test_digests() {
  Convolution convolution(kCases[0]);
  const Digest call = cpu::digest_of(convolution.problem);
  Convolution other(kCases[0]);
  report(cpu::digest_of(other.problem) == call, "the digest depends on addresses");
  const auto differs = [&](const char* what, const std::function<void(ConvProblem&)>& change) {
    ConvProblem changed = convolution.problem;
    change(changed);
    report(cpu::digest_of(changed) != call, "the digest does not depend on %s", what);
  };
  differs("images", [](ConvProblem& p) { p.src.n = p.dst.n = 1; });
  differs("the height", [](ConvProblem& p) { p.src.h = 13; });
  differs("strides in memory", [](ConvProblem& p) { p.dst.w_stride += 8; });
  differs("the format", [](ConvProblem& p) { p.src.format = Format::bfloat16; });
  differs("the window's place", [](ConvProblem& p) { p.window.start_w = 0; });
  differs("the window's strides", [](ConvProblem& p) { p.window.stride_h = 2; });
  differs("the activation", [](ConvProblem& p) { p.neuron.type = NeuronType::tanh; });
  differs("a sum", [](ConvProblem& p) { p.addend = p.dst; });
  ConvProblem in_place = convolution.problem, apart = convolution.problem;
  in_place.addend = in_place.dst, apart.addend = other.problem.dst;
  report(cpu::digest_of(in_place) != cpu::digest_of(apart), "the digest does not depend on the addend's place");
}

// ------------------------------------------------------------------------------------------------------------
// processes

int keep(i64 first, i64 count) {
  const std::string why_not = start();
  if (!why_not.empty()) {
    std::printf("%s\n", why_not.c_str());
    return 0;
  }
  Convolution convolution(kCases[0]), wasteful(kCases[4]), other(kCases[8]);
  convolution.run();
  const std::vector<std::string> names = names_in(choices::stop(Outcome::nothing));
  for (const std::string& name : names) std::printf("%s\n", name.c_str());
  start();
  for (i64 i = 0; i < count; ++i) add(first + i, {1, 1, 1}, {0.5, 0.5, 0.5});
  const auto choose = [](const ConvProblem& problem, const char* own, const char* chosen) {
    const Digest call = cpu::digest_of(problem);
    choices::add(call, "convolve", "", {own, chosen});
    choices::begin(Pass::timed);
    for (int i = 0; i < 3; ++i) choices::record(call, own, 1), choices::record(call, chosen, 0.5);
  };
  if (names.size() > 1) choose(convolution.problem, names[0].c_str(), names[1].c_str());
  choose(wasteful.problem, kFast, "pointwise");
  choose(other.problem, kFast, "taps");
  std::printf("%s", choices::stop(Outcome::fastest).c_str());
  return 0;
}

int run_with_choices(i64 first, i64 count) {
  for (const Case& one : {kCases[0], kCases[4], kCases[8]}) {
    Convolution convolution(one);
    report(convolution.run().empty() && convolution.error() < 1e-4, "wrong results");
  }
  i64 found = 0;
  for (i64 i = 0; i < count; ++i) found += chosen(first + i) == kFast;
  std::printf("%lld of %zu\n", static_cast<long long>(found), choices::count());
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3) {
    const i64 first = std::atoll(argv[2]), count = std::atoll(argv[3]);
    return std::string_view(argv[1]) == "keep" ? keep(first, count) : run_with_choices(first, count);
  }
  char folder[] = "/tmp/choices_XXXXXX";
  if (!mkdtemp(folder)) return 2;
  setenv("XDG_CACHE_HOME", folder, 1);
  unsetenv("MPSCNN_TUNED"), unsetenv("MPSCNN_IMPL");
  test_rules();
  test_the_list_wins_again();
  test_unchanged();
  test_passes();
  test_groups();
  test_convolutions();
  test_weights_in_place();
  test_digests();
  fs::remove_all(folder);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
