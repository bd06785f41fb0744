// SPDX-License-Identifier: Apache-2.0
// Convolutions whose weights are single bits. Weights of +-1 on real sources are an ordinary convolution; if the source
// is reduced to bits too, 32 products are one exclusive or and one count of bits:
//   xnor: I * taps - 2 * count(a ^ w)        and: (count(a) + count(w) - count(a ^ w)) / 2
#include "engine/cpu/convolution/binary_conv.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;       // min values per thread
constexpr std::int64_t kWordGrain = 256 * 1024;  // min words of 32 products per thread
constexpr std::int64_t kLanes = BinaryWeights::kLanes;
constexpr std::int64_t kPixels = 4;  // pixels per load of weights
constexpr std::int64_t kFold = 31;   // words whose counts, at most 8 per byte, add up within a byte

typedef std::uint32_t Lanes __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t LanesAnywhere __attribute__((vector_size(kLanes * 4), aligned(4)));

/// Count differing bits: counts[p] += those of words[p][i] and of `weights`, kLanes outputs for each i.
using CountBits = void (*)(const std::uint32_t* const* words, std::int64_t count, const std::uint32_t* weights,
                           std::int64_t weights_step, Lanes* counts);

MPSCNN_CLONES void count_bits(const std::uint32_t* const* words, std::int64_t count, const std::uint32_t* weights,
                              std::int64_t weights_step, Lanes* counts) {
  for (std::int64_t begin = 0; begin < count; begin += kFold) {
    const std::int64_t end = std::min(begin + kFold, count);
    Lanes bytes[kPixels] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const Lanes w = *reinterpret_cast<const LanesAnywhere*>(weights + i * weights_step);
#pragma GCC unroll 4
      for (int p = 0; p < kPixels; ++p) {
        Lanes v = w ^ words[p][i];
        v -= (v >> 1) & 0x55555555u;
        v = (v & 0x33333333u) + ((v >> 2) & 0x33333333u);
        bytes[p] += (v + (v >> 4)) & 0x0f0f0f0fu;
      }
    }
    for (int p = 0; p < kPixels; ++p) {
      const Lanes pairs = (bytes[p] & 0x00ff00ffu) + ((bytes[p] >> 8) & 0x00ff00ffu);
      counts[p] += (pairs & 0xffffu) + (pairs >> 16);
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vpopcntdq"))) void count_bits_at_once(const std::uint32_t* const* words,
                                                                           std::int64_t count,
                                                                           const std::uint32_t* weights,
                                                                           std::int64_t weights_step, Lanes* counts) {
  __m512i sums[kPixels];
  for (int p = 0; p < kPixels; ++p) sums[p] = _mm512_loadu_si512(counts + p);
  for (std::int64_t i = 0; i < count; ++i) {
    const __m512i w = _mm512_loadu_si512(weights + i * weights_step);
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      const __m512i differing = _mm512_xor_si512(w, _mm512_set1_epi32(static_cast<int>(words[p][i])));
      sums[p] = _mm512_add_epi32(sums[p], _mm512_popcnt_epi32(differing));
    }
  }
  for (int p = 0; p < kPixels; ++p) _mm512_storeu_si512(counts + p, sums[p]);
}

CountBits best_count() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vpopcntdq") ? count_bits_at_once : count_bits;
}
#else
CountBits best_count() { return count_bits; }
#endif

/// to = (from + bias) * scale for each channel; null arrays are skipped.
MPSCNN_CLONES void scale_inputs(const float* from, float* to, std::int64_t pixels, std::int64_t channels,
                                const float* bias, const float* scale) {
  for (std::int64_t x = 0; x < pixels; ++x, from += channels, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) to[k] = (from[k] + (bias ? bias[k] : 0.0f)) * (scale ? scale[k] : 1.0f);
  }
}

/// Return the bits of up to 32 values: 1 unless less than 0.
MPSCNN_CLONES std::uint32_t bits_of(const float* values, std::int64_t count) {
  std::uint32_t word = 0;
#pragma omp simd reduction(| : word)
  for (std::int64_t i = 0; i < count; ++i) word |= static_cast<std::uint32_t>(!(values[i] < 0)) << i;
  return word;
}

MPSCNN_CLONES float mean_size(const float* values, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += std::fabs(values[i]);
  return static_cast<float>(sum / static_cast<double>(count));
}

const float* or_null(const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); }

/// The source as it enters the products, u = (x + input_bias) * input_scale: as bits, as the mean of |u| over the
/// channels of a pixel, as floats; members that are not needed are empty.
struct Scaled {
  std::vector<std::uint32_t> bits;  ///< [n][h][w][words]
  std::vector<std::int32_t> ones;   ///< [n][h][w]
  std::vector<float> sizes;         ///< [n][h][w]
  std::optional<ScratchTensor> floats;
};

Scaled scaled(const BinaryConvProblem& problem, bool with_bits, bool with_floats) {
  const BinaryWeights& weights = *problem.weights;
  const ImageView& view = problem.src;
  const std::int64_t c = view.c, words = weights.words_per_pixel(), pixels = view.n * view.h * view.w;
  Scaled result;
  if (with_bits)
    result.bits.resize(static_cast<std::size_t>(pixels * words)), result.ones.resize(static_cast<std::size_t>(pixels));
  if (weights.uses_beta) result.sizes.resize(static_cast<std::size_t>(pixels));
  if (with_floats) result.floats.emplace(view.n, view.h, view.w, c);
  if (pixels == 0 || (!with_bits && !with_floats && !weights.uses_beta)) return result;

  const Tensor src = tensor_of(view);
  const bool adjacent = src.w == 1 || src.w_stride == c;
  const auto element = static_cast<std::int64_t>(size_of(src.format));
  const int threads = threads_for(src.size(), kGrain);
  std::vector<float> rows(static_cast<std::size_t>(threads * src.w * c));
  parallel_ranges(src.n * src.h, threads, [&](std::int64_t begin, std::int64_t end) {
    float* const buffer = rows.data() + thread_number() * src.w * c;
    for (std::int64_t row = begin; row < end; ++row) {
      float* const values = with_floats ? result.floats->tensor.floats(row / src.h, row % src.h) : buffer;
      const std::byte* const from = src.at(row / src.h, row % src.h);
      if (adjacent) {
        row_to_float(from, src.format, values, src.w * c);
      } else {
        for (std::int64_t x = 0; x < src.w; ++x)
          row_to_float(from + x * src.w_stride * element, src.format, values + x * c, c);
      }
      if (weights.scales_inputs())
        scale_inputs(values, values, src.w, c, or_null(weights.input_bias), or_null(weights.input_scale));
      for (std::int64_t x = 0; x < src.w; ++x) {
        const float* const pixel = values + x * c;
        const auto at = static_cast<std::size_t>(row * src.w + x);
        if (with_bits) {
          std::uint32_t* const to = result.bits.data() + at * static_cast<std::size_t>(words);
          std::int32_t ones = 0;
          for (std::int64_t k = 0; k < c; k += 32) {
            to[k / 32] = bits_of(pixel + k, std::min<std::int64_t>(32, c - k));
            ones += std::popcount(to[k / 32]);
          }
          result.ones[at] = ones;
        }
        if (weights.uses_beta) result.sizes[at] = mean_size(pixel, c);
      }
    }
  });
  return result;
}

/// Return the source row or column that a tap reads; -1: none, u is 0 there.
std::int64_t seen(std::int64_t at, std::int64_t size, Edge edge) {
  if (edge == Edge::clamp) return std::clamp<std::int64_t>(at, 0, size - 1);
  return at < 0 || at >= size ? -1 : at;
}

/// sums = the unscaled products of bits; dense floats.
void multiply_bits(const BinaryConvProblem& problem, const Scaled& source, const Tensor& sums) {
  static const CountBits count = best_count();
  const BinaryWeights& weights = *problem.weights;
  const Window& window = problem.window;
  const ImageView& src = problem.src;
  const std::int64_t words = weights.words_per_pixel(), taps = window.kernel_h * window.kernel_w, length = taps * words;
  const std::int64_t blocks = (weights.out_channels + kLanes - 1) / kLanes, step = blocks * kLanes;
  const bool is_and = weights.type == BinaryConvType::logical_and;
  // u is 0 outside of the source, and the bit of 0 is 1.
  std::vector<std::uint32_t> outside(static_cast<std::size_t>(words), ~0u);
  if (src.c % 32 != 0) outside.back() = (1u << (src.c % 32)) - 1;

  const std::int64_t rows = sums.n * sums.h;
  const int threads = threads_for(rows * sums.w * step * length / kLanes, kWordGrain);
  const std::int64_t groups = rows >= threads ? 1 : blocks;  // few rows: threads split the outputs
  std::vector<std::uint32_t> gathered(static_cast<std::size_t>(threads * kPixels * length));
  parallel_ranges(rows * groups, threads, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t* const own = gathered.data() + thread_number() * kPixels * length;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t row = item / groups, n = row / sums.h, y = row % sums.h;
      const std::int64_t first_block = item % groups, last_block = groups == 1 ? blocks : first_block + 1;
      for (std::int64_t x = 0; x < sums.w; x += kPixels) {
        const std::int64_t pixels = std::min(kPixels, sums.w - x);
        const std::uint32_t* windows[kPixels];
        std::int32_t ones[kPixels] = {};
        for (std::int64_t p = 0; p < kPixels; ++p) {
          std::uint32_t* to = own + p * length;
          windows[p] = to;
          if (p >= pixels) continue;  // result unused
          for (std::int64_t j = 0; j < window.kernel_h; ++j) {
            const std::int64_t sy =
                seen(window.start_h + y * window.stride_h + j * window.dilation_h, src.h, window.edge);
            for (std::int64_t i = 0; i < window.kernel_w; ++i, to += words) {
              const std::int64_t sx =
                  seen(window.start_w + (x + p) * window.stride_w + i * window.dilation_w, src.w, window.edge);
              const bool inside = sy >= 0 && sx >= 0;
              const auto at = static_cast<std::size_t>(inside ? (n * src.h + sy) * src.w + sx : 0);
              std::memcpy(to, inside ? source.bits.data() + at * static_cast<std::size_t>(words) : outside.data(),
                          static_cast<std::size_t>(words) * 4);
              ones[p] += inside ? source.ones[at] : static_cast<std::int32_t>(src.c);
            }
          }
        }
        for (std::int64_t block = first_block; block < last_block; ++block) {
          Lanes counts[kPixels] = {};
          count(windows, length, weights.by_word.data() + block * kLanes, step, counts);
          const std::int64_t o = block * kLanes, outputs = std::min(kLanes, weights.out_channels - o);
          for (std::int64_t p = 0; p < pixels; ++p) {
            float* const to = sums.floats(n, y, x + p) + o;
            for (std::int64_t k = 0; k < outputs; ++k) {
              const auto differing = static_cast<std::int32_t>(counts[p][k]);
              const std::int32_t sum = is_and
                                           ? (ones[p] + weights.ones[static_cast<std::size_t>(o + k)] - differing) / 2
                                           : static_cast<std::int32_t>(src.c * taps) - 2 * differing;
              to[k] = static_cast<float>(sum);
            }
          }
        }
      }
    }
  });
}

/// Return beta of a result: the mean of |u| over its taps; out-of-bounds taps count as 0.
float beta_of(const BinaryConvProblem& problem, const Scaled& source, std::int64_t n, std::int64_t y, std::int64_t x) {
  const Window& window = problem.window;
  const ImageView& src = problem.src;
  double sum = 0;
  for (std::int64_t j = 0; j < window.kernel_h; ++j) {
    const std::int64_t sy = seen(window.start_h + y * window.stride_h + j * window.dilation_h, src.h, window.edge);
    if (sy < 0) continue;
    for (std::int64_t i = 0; i < window.kernel_w; ++i) {
      const std::int64_t sx = seen(window.start_w + x * window.stride_w + i * window.dilation_w, src.w, window.edge);
      if (sx >= 0) sum += source.sizes[static_cast<std::size_t>((n * src.h + sy) * src.w + sx)];
    }
  }
  return static_cast<float>(sum / static_cast<double>(window.kernel_h * window.kernel_w));
}

/// values = values * beta * scale + bias for one pixel.
MPSCNN_CLONES void finish_pixel(float* values, std::int64_t count, float beta, const float* scale, const float* bias) {
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k)
    values[k] = values[k] * (scale ? scale[k] * beta : beta) + (bias ? bias[k] : 0.0f);
}

/// dst = neuron(sums * scale * beta + bias); sums may be dst.
void finish(const BinaryConvProblem& problem, const Scaled& source, const Tensor& sums, const Tensor& dst,
            const float* scale, const float* bias) {
  const BinaryWeights& weights = *problem.weights;
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / dst.h, y = row % dst.h;
      float* const values = sums.floats(n, y);
      for (std::int64_t x = 0; x < dst.w; ++x)
        finish_pixel(values + x * dst.c, dst.c, weights.uses_beta ? beta_of(problem, source, n, y, x) : 1.0f, scale,
                     bias);
      if (!neuron_is_identity(problem.neuron))
        row_neuron(problem.neuron, values, values, dst.w * dst.c, dst.c, nullptr);
      if (sums.data != dst.data) store_pixels(values, dst.at(n, y), dst, dst.w);
    }
  });
}

const char* binary_as_convolution(const BinaryConvProblem& problem) {
  const BinaryWeights& weights = *problem.weights;
  if (weights.type != BinaryConvType::binary_weights) return "bits of the source count";
  if (weights.uses_beta) return "results are scaled by beta";
  const Scaled source = scaled(problem, false, weights.scales_inputs());
  const Tensor dst = tensor_of(problem.dst), src = source.floats ? source.floats->tensor : tensor_of(problem.src);
  run_convolution({src, dst, weights.signs.get(), problem.window, &problem.neuron, false});
  return nullptr;
}

/// Compute the products, then apply scales, beta, biases and neuron.
const char* binary_in_steps(const BinaryConvProblem& problem) {
  const BinaryWeights& weights = *problem.weights;
  const bool real = weights.type == BinaryConvType::binary_weights;
  const Scaled source = scaled(problem, !real, real && weights.scales_inputs());
  const Tensor dst = tensor_of(problem.dst), src = source.floats ? source.floats->tensor : tensor_of(problem.src);
  std::optional<ScratchTensor> own;
  if (!dst.is_dense_float()) own.emplace(dst.n, dst.h, dst.w, dst.c);
  const Tensor sums = own ? own->tensor : dst;
  const Neuron none;
  if (real) {
    run_convolution({src, sums, weights.signs.get(), problem.window, &none, false});
  } else {
    multiply_bits(problem, source, sums);
  }
  // The convolution of signs includes the scales, and without beta the biases.
  finish(problem, source, sums, dst, real ? nullptr : or_null(weights.scale),
         real && !weights.uses_beta ? nullptr : or_null(weights.bias));
  return nullptr;
}

constexpr Implementation<BinaryConvProblem> kBinaryConvolutions[] = {
    {"binary_as_convolution", binary_as_convolution},
    {"binary_in_steps", binary_in_steps},
};
const ImplementationNames kBinaryConvolutionNames(kBinaryConvolutions);

}  // namespace

void run(const BinaryConvProblem& problem) { run_first("binary_convolve", kBinaryConvolutions, problem); }

}  // namespace openmps::cpu
