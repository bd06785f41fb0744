// SPDX-License-Identifier: Apache-2.0
// Helpers of engine tests: random numbers from fixed seeds, images inside larger blocks with NaN in the gaps and guard
// bands.
#pragma once

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/plan/execution.hpp"
#include "engine/plan/plan.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/half.hpp"

using namespace openmps;
using i64 = std::int64_t;

inline int passed = 0, failed = 0;
inline unsigned seed_offset = 0;

inline void report(bool ok, const char* format, ...) {
  ok ? ++passed : ++failed;
  if (ok || failed > 40) return;
  va_list arguments;
  va_start(arguments, format);
  std::printf("FAIL ");
  std::vprintf(format, arguments);
  std::printf("\n");
  va_end(arguments);
}

inline Engine& cpu_engine() { return *processor_engine(); }

/// Return the engine under test: the one that MPSCNN_ENGINE names, or the processor's.
inline Engine& engine() {
  static Engine& made = *engine_of(engine_names().front());
  return made;
}

/// Host copies of images in device memory. Tests read and write these; run() transfers them.
class Mirrors {
 public:
  struct Mirror {
    std::shared_ptr<Memory> memory;
    std::vector<std::byte> bytes;
  };
  static std::vector<std::weak_ptr<Mirror>>& all() {
    thread_local std::vector<std::weak_ptr<Mirror>> list;  // images are used by the thread that makes them
    return list;
  }
  static void upload() {
    for_each([](Mirror& mirror) { mirror.memory->upload(0, mirror.bytes.size(), mirror.bytes.data()); });
  }
  static void download() {
    for_each([](Mirror& mirror) { mirror.memory->download(0, mirror.bytes.size(), mirror.bytes.data()); });
  }

 private:
  template <class Move>
  static void for_each(const Move& move) {
    std::erase_if(all(), [](const auto& each) { return each.expired(); });
    for (const auto& each : all())
      if (const auto mirror = each.lock()) move(*mirror);
  }
};

/// Run the list on the engine under test. Return the sentence of the failure, or "".
inline std::string run(const std::vector<Command>& commands, std::shared_ptr<const Plan> plan = nullptr) {
  Mirrors::upload();
  std::string sentence = execute(engine(), commands, std::move(plan)).sentence;
  Mirrors::download();
  return sentence;
}

struct Random {
  std::mt19937 bits;
  explicit Random(unsigned seed) : bits(seed + seed_offset) {}
  i64 whole(i64 low, i64 high) { return low + static_cast<i64>(bits() % static_cast<std::uint32_t>(high - low + 1)); }
  bool one_in(int n) { return bits() % static_cast<unsigned>(n) == 0; }
  float real(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 8) / 16777216.0f; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[bits() % list.size()];
  }
};

// ------------------------------------------------------------------------------------------------------------- images

inline double stored_value(const std::byte* at, Format format) {
  if (format == Format::float32) {
    float v;
    std::memcpy(&v, at, 4);
    return v;
  }
  if (format == Format::unorm8) return std::to_integer<int>(*at) / 255.0;
  std::uint16_t v;
  std::memcpy(&v, at, 2);
  if (format == Format::unorm16) return v / 65535.0;
  const int exponent = (v >> 10) & 31, mantissa = v & 1023;
  const double m = exponent == 31  ? (mantissa ? NAN : INFINITY)
                   : exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(1024 + mantissa, exponent - 25);
  return v & 0x8000 ? -m : m;
}

/// An image inside a larger block: gaps between channels, columns, rows and images, all NaN (0xff bytes).
struct Image {
  ImageView view;
  std::shared_ptr<Mirrors::Mirror> mirror;  // of device memory
  std::vector<std::byte> before;            // the whole block before the run

  Image(Random& random, Format format, i64 n, i64 h, i64 w, i64 c, bool dense) {
    view.format = format;
    view.n = n, view.h = h, view.w = w, view.c = c;
    view.w_stride = dense ? c : c + random.whole(0, 9);
    view.h_stride = dense ? w * c : view.w_stride * w + random.whole(0, 2) * view.w_stride + random.whole(0, 3);
    view.n_stride = dense ? h * view.h_stride : view.h_stride * h + random.whole(0, 1) * view.h_stride;
    const i64 lead = dense ? 64 : random.whole(0, 70), elements = lead + (n + 1) * view.n_stride + 64;
    view.offset = static_cast<std::size_t>(lead) * size_of(format);
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(format);
    view.memory = Memory::lazy(engine().shared_from_this(), bytes, engine().image_storage());
    if (view.memory->storage() == Storage::device) {
      view.memory->address();
      mirror = std::make_shared<Mirrors::Mirror>(Mirrors::Mirror{view.memory, std::vector<std::byte>(bytes)});
      Mirrors::all().push_back(mirror);
    }
    std::memset(data(), 0xff, bytes);
  }
  /// Return the block in the host's address space, between runs.
  std::byte* data() const { return mirror ? mirror->bytes.data() : view.memory->data(); }
  std::byte* at(i64 n, i64 y, i64 x, i64 c) const {
    return data() + view.offset +
           static_cast<std::size_t>(n * view.n_stride + y * view.h_stride + x * view.w_stride + c) *
               size_of(view.format);
  }
  double value(i64 n, i64 y, i64 x, i64 c) const { return stored_value(at(n, y, x, c), view.format); }
  template <class F>
  void for_each(const F& f) const {
    for (i64 n = 0; n < view.n; ++n)
      for (i64 y = 0; y < view.h; ++y)
        for (i64 x = 0; x < view.w; ++x)
          for (i64 c = 0; c < view.c; ++c) f(n, y, x, c);
  }
  void randomize(Random& random, float low = -2, float high = 2) {
    for_each([&](i64 n, i64 y, i64 x, i64 c) {
      const float v = random.real(low, high);
      if (view.format == Format::float32) {
        std::memcpy(at(n, y, x, c), &v, 4);
      } else if (view.format == Format::float16) {
        const std::uint16_t h = float_to_half(v);
        std::memcpy(at(n, y, x, c), &h, 2);
      } else {
        const auto u = static_cast<std::uint16_t>(random.bits());
        std::memcpy(at(n, y, x, c), &u, size_of(view.format));
      }
    });
    snapshot();
  }
  void snapshot() { before.assign(data(), data() + view.memory->size()); }
  /// Return whether all bytes that do not belong to the image are unchanged.
  bool surroundings_unchanged() const {
    std::vector<std::byte> now(data(), data() + view.memory->size());
    for_each([&](i64 n, i64 y, i64 x, i64 c) {
      const auto offset = static_cast<std::size_t>(at(n, y, x, c) - data());
      std::memcpy(now.data() + offset, before.data() + offset, size_of(view.format));
    });
    return std::memcmp(now.data(), before.data(), now.size()) == 0;
  }
  bool unchanged() const { return std::memcmp(data(), before.data(), before.size()) == 0; }
};

/// Return the max error of rounding to the format, in addition to that of the arithmetic.
inline double format_error(Format format, double value) {
  if (format == Format::float16) return std::fabs(value) * 0x1p-11 + 0x1p-25;
  if (format == Format::unorm8) return 0.5 / 255 + 1e-7;
  if (format == Format::unorm16) return 0.5 / 65535 + 1e-7;
  return 0;
}
inline double clamped(Format format, double value) {
  return format == Format::unorm8 || format == Format::unorm16 ? std::fmin(std::fmax(value, 0), 1) : value;
}

inline std::shared_ptr<ConvWeights> random_weights(Random& random, i64 out, i64 kh, i64 kw, i64 per_group, i64 groups,
                                                   bool bias) {
  auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = out, weights->kernel_h = kh, weights->kernel_w = kw;
  weights->in_channels_per_group = per_group, weights->groups = groups;
  for (i64 i = 0; i < out * kh * kw * per_group; ++i) weights->values.own().push_back(random.real(-1, 1));
  if (bias) {
    for (i64 i = 0; i < out; ++i) weights->bias.own().push_back(random.real(-1, 1));
  }
  return weights;
}

inline std::vector<std::string> failures_of(const std::vector<Command>& commands) {
  const std::string error = run(commands);
  return error.empty() ? std::vector<std::string>() : std::vector<std::string>{error};
}

/// main() of a test program.
inline int run_tests(int argc, char** argv, std::initializer_list<void (*)()> tests) {
  if (argc > 1) seed_offset = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
  for (const auto test : tests) test();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
