// SPDX-License-Identifier: Apache-2.0
// Convolutions of bfloat16 images by the tiles of AMX. A tile of the source has 32 channels of 16 pixels, one of the
// weights 32 inputs of 16 outputs; four tiles have the sums of 32 pixels and 32 outputs. The pixels follow each other
// in a strip: rows of the source with zeros on both sides, copied by planes of 32 channels. So a tile of pixels is 16
// cache lines that follow each other, of all sets of the first-level cache, and each tap of a window is one distance in
// the strip, also for pixels of several rows and images. Results of the pixels between two rows are not stored.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "engine/cpu/convolution/bfloat16.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

#define MPSCNN_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16")))

namespace {

using i64 = std::int64_t;
using bfloat16 = std::uint16_t;

constexpr i64 kRows = 16;            // of a tile: pixels, or pairs of inputs
constexpr i64 kInputs = 32;          // of a tile
constexpr i64 kPixels = 2 * kRows;   // of a block of results
constexpr i64 kOutputs = 2 * kRows;  // of a block of results
constexpr i64 kTileValues = kRows * kInputs;
constexpr i64 kPixelBytes = kInputs * static_cast<i64>(sizeof(bfloat16));  // of a plane
constexpr i64 kGrain = 4 * 1000 * 1000;                                    // min multiplications per thread
constexpr i64 kLeastStrip = 256 * 1024;  // bytes; weights are read again for each strip
constexpr i64 kMostStrip = 1024 * 1024;  // half of a second-level cache

i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

/// Eight tiles of 16 rows of 64 bytes. In static memory: GCC does not know that the instruction reads all of it.
struct Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
static_assert(sizeof(Configuration) == 64);
alignas(64) constexpr Configuration kConfiguration;

/// The processor's tiles: 0 to 3 have sums [pixels][outputs], 4 and 5 pixels, 6 and 7 weights.
struct Hardware {
  MPSCNN_AMX static void begin() { _tile_loadconfig(&kConfiguration); }
  MPSCNN_AMX static void end() { _tile_release(); }
  MPSCNN_AMX static void clear() {
    asm volatile("" ::: "memory");  // loads of tiles see what was stored before: GCC's do not say that they read memory
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  /// Add the products of kPixels pixels and the weights of kOutputs.
  MPSCNN_AMX static void multiply(const std::byte* pixels, const bfloat16* weights) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, pixels, kPixelBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, pixels + kRows * kPixelBytes, kPixelBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, weights + kTileValues, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  MPSCNN_AMX static void store(float* sums) {
    constexpr i64 row = kOutputs * sizeof(float);
    _tile_stored(0, sums, row);
    _tile_stored(1, sums + kRows, row);
    _tile_stored(2, sums + kRows * kOutputs, row);
    _tile_stored(3, sums + kRows * kOutputs + kRows, row);
    asm volatile("" ::: "memory");
  }
};

/// The same in loops, for tests on processors without tiles.
struct Loops {
  static inline thread_local std::array<float, kPixels * kOutputs> own;

  static void begin() {}
  static void end() {}
  static void clear() { own.fill(0); }
  MPSCNN_AVX512_BF16 static void multiply(const std::byte* pixels, const bfloat16* weights) {
    for (i64 p = 0; p < kPixels; ++p)
      for (i64 half = 0; half < 2; ++half) {
        float* const to = own.data() + p * kOutputs + half * kRows;
        __m512 sums = _mm512_loadu_ps(to);
        for (i64 k = 0; k < kRows; ++k) {
          int pair;
          std::memcpy(&pair, pixels + p * kPixelBytes + k * static_cast<i64>(sizeof pair), sizeof pair);
          const __m512 row = _mm512_loadu_ps(weights + half * kTileValues + k * kInputs);
          sums = _mm512_dpbf16_ps(sums, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)row);
        }
        _mm512_storeu_ps(to, sums);
      }
  }
  static void store(float* sums) { std::copy(own.begin(), own.end(), sums); }
};

/// Weights by blocks of outputs, zeros behind the last input and output:
/// [block][inputs / kInputs][tap][half of the outputs][pair of inputs][output][2]. And biases.
struct Panels {
  i64 blocks, parts, taps;
  Scratch values;
  std::vector<float> biases;

  explicit Panels(const ConvWeights& weights)
      : blocks(ceil_div(weights.out_channels, kOutputs)),
        parts(ceil_div(weights.in_channels_per_group, kInputs)),
        taps(weights.kernel_h * weights.kernel_w),
        values(Scratch::to_keep(static_cast<std::uint64_t>(blocks * of_block()) * sizeof(bfloat16))),
        biases(static_cast<std::size_t>(blocks * kOutputs)) {
    constexpr i64 kPackGrain = 16 * 1024;  // min values per thread
    if (!weights.bias.empty()) std::copy_n(weights.bias.data(), weights.out_channels, biases.begin());
    parallel_ranges(blocks * parts, threads_for(blocks * of_block(), kPackGrain), [&](i64 begin, i64 end) {
      for (i64 k = begin; k < end; ++k) pack(weights, k / parts, k % parts);
    });
  }

  i64 of_block() const { return parts * taps * 2 * kTileValues; }
  const bfloat16* block(i64 index) const { return reinterpret_cast<bfloat16*>(values.data()) + index * of_block(); }

  static std::shared_ptr<const Panels> of(const ConvWeights& weights) {
    return weights.derived<const Panels>("tiles", [&] { return std::make_shared<const Panels>(weights); });
  }

 private:
  void pack(const ConvWeights& weights, i64 index, i64 part) const {
    const i64 inputs = weights.in_channels_per_group, first = part * kInputs;
    const i64 count = std::min(kInputs, inputs - first);
    bfloat16* const to =
        reinterpret_cast<bfloat16*>(values.data()) + index * of_block() + part * taps * 2 * kTileValues;
    std::memset(to, 0, static_cast<std::size_t>(taps * 2 * kTileValues) * sizeof(bfloat16));
    for (i64 o = 0; o < std::min(kOutputs, weights.out_channels - index * kOutputs); ++o)
      for (i64 tap = 0; tap < taps; ++tap) {
        const float* const from = weights.values.data() + ((index * kOutputs + o) * taps + tap) * inputs + first;
        bfloat16* const column = to + (tap * 2 + o / kRows) * kTileValues + o % kRows * 2;
        for (i64 i = 0; i < count; ++i) column[i / 2 * kInputs + i % 2] = bfloat16_of(from[i]);
      }
  }
};

/// A convolution, and its division into strips.
struct Plan {
  const ConvCall& call;
  Activation activation, after;
  i64 planes;             ///< of kInputs channels
  i64 pitch;              ///< pixels from one row of a strip to the next
  i64 lost;               ///< rows of the source that a strip has more for each image than rows of results
  i64 rows, images;       ///< of results in a strip
  i64 parts;              ///< strips of an image
  std::vector<i64> taps;  ///< their distances, in bytes

  i64 strips() const { return ceil_div(call.dst.n, images) * parts; }
  /// Return the bytes of a plane; the last block of pixels may read behind the strip.
  i64 plane_bytes() const { return (images * (rows + lost) * pitch + kPixels) * kPixelBytes; }
};

Plan plan_of(const ConvCall& call, const Activation& activation, const Activation& after) {
  const Window& w = call.window;
  const Tensor& dst = call.dst;
  Plan plan = {call, activation, after};
  plan.planes = ceil_div(call.src.c, kInputs);
  plan.pitch = dst.w + reach_w(w) - 1, plan.lost = reach_h(w) - 1;
  const i64 of_weights = call.weights->out_channels * w.kernel_h * w.kernel_w * plan.planes * kPixelBytes;
  const i64 limit = std::clamp(of_weights / 4, kLeastStrip, kMostStrip);
  const i64 of_row = plan.pitch * plan.planes * kPixelBytes;
  plan.rows = std::clamp<i64>(limit / of_row - plan.lost, 1, dst.h);
  plan.parts = ceil_div(dst.h, plan.rows), plan.rows = ceil_div(dst.h, plan.parts);
  plan.parts = ceil_div(dst.h, plan.rows);
  plan.images = 1;
  if (plan.parts == 1) {
    const i64 at_once = std::max<i64>(1, limit / ((plan.rows + plan.lost) * of_row));
    plan.images = std::min(at_once, std::max<i64>(1, dst.n / max_threads()));
  }
  for (i64 p = 0; p < w.kernel_h; ++p)
    for (i64 q = 0; q < w.kernel_w; ++q)
      plan.taps.push_back((p * w.dilation_h * plan.pitch + q * w.dilation_w) * kPixelBytes);
  return plan;
}

/// Where a block's pixels are in the result: their numbers there, -1 for those that are not stored.
using Places = std::array<i64, kPixels>;

/// One strip: `n` and `y` are those of its first result.
struct Strip {
  const Plan& plan;
  i64 n, y, images, rows;

  /// Return the number of results, with those between two rows.
  i64 positions() const { return (images * (rows + plan.lost) - plan.lost - 1) * plan.pitch + plan.call.dst.w; }
  void set_places(i64 first, Places& places) const {
    const Tensor& dst = plan.call.dst;
    const i64 of_image = (rows + plan.lost) * plan.pitch;
    i64 image = first / of_image, row = first % of_image / plan.pitch, column = first % plan.pitch;
    for (i64& place : places) {
      const bool is_stored = image < images && row < rows && column < dst.w;
      place = is_stored ? ((n + image) * dst.h + y + row) * dst.w + column : -1;
      if (++column < plan.pitch) continue;
      column = 0;
      if (++row < rows + plan.lost) continue;
      row = 0, ++image;
    }
  }
};

/// Return the address of a pixel by its number in an image.
template <class Value>
Value* pixel_of(const Tensor& image, i64 number, bool is_one) {
  Value* const data = reinterpret_cast<Value*>(image.data);
  if (is_one) return data + number * image.w_stride;
  const i64 row = number / image.w;
  return data + row / image.h * image.n_stride + row % image.h * image.h_stride + number % image.w * image.w_stride;
}

/// Stores the results of a block, a few pixels at a time: while the next block's products are computed.
template <class Result>
struct Finish {
  const Plan& plan;
  const bool is_one = is_one_row(plan.call.dst), adds_one = is_one_row(plan.call.addend);
  alignas(64) std::array<std::array<float, kPixels * kOutputs>, 2> sums;
  std::array<Places, 2> places;
  int side = 0;        ///< of the block whose products are computed
  i64 next = kPixels;  ///< pixel of the block before
  i64 output = 0;      ///< its first one
  const float* bias = nullptr;

  float* own() { return sums[static_cast<std::size_t>(side)].data(); }
  Places& own_places() { return places[static_cast<std::size_t>(side)]; }
  /// The products of a block have been stored.
  void add(i64 first_output, const float* of_bias) { side = 1 - side, next = 0, output = first_output, bias = of_bias; }
  MPSCNN_AMX void run(i64 pixels) {
    const Tensor& dst = plan.call.dst;
    const auto other = static_cast<std::size_t>(1 - side);
    const i64 end = std::min(next + pixels, kPixels), left = dst.c - output;
    for (; next < end; ++next) {
      const i64 place = places[other][static_cast<std::size_t>(next)];
      if (place < 0) continue;
      const float* const from = sums[other].data() + next * kOutputs;
      Result* const to = pixel_of<Result>(dst, place, is_one) + output;
      const Result* addend = nullptr;
      if (plan.call.adds()) addend = pixel_of<const Result>(plan.call.addend, place, adds_one) + output;
      for (i64 half = 0; half < kOutputs; half += kRows) {
        if (left <= half) break;
        const __mmask16 lanes = avx512::lanes_of(left - half);
        __m512 result = _mm512_add_ps(_mm512_load_ps(from + half), _mm512_loadu_ps(bias + half));
        result = activate_for(Result(), plan.activation, result);
        if (addend) result = activate(plan.after, _mm512_add_ps(result, load(lanes, addend + half)));
        store(lanes, to + half, result);
      }
    }
  }
};

/// Copy a strip of the source by planes, with zeros outside of it and behind its channels.
MPSCNN_AVX512 void copy_strip(const Strip& strip, std::byte* const to) {
  const Plan& plan = strip.plan;
  const Tensor& src = plan.call.src;
  const Window& w = plan.call.window;
  const i64 of_plane = plan.plane_bytes(), width = plan.pitch * kPixelBytes;
  const i64 before = std::clamp<i64>(-w.start_w, 0, plan.pitch);
  const i64 inside = std::clamp<i64>(src.w - w.start_w, before, plan.pitch) - before;
  const i64 whole = src.c / kInputs, rest = src.c % kInputs;
  const __mmask32 lanes = (__mmask32{1} << rest) - 1;
  i64 at = 0;
  for (i64 image = 0; image < strip.images; ++image)
    for (i64 row = 0; row < strip.rows + plan.lost; ++row, at += width) {
      const i64 from_y = strip.y + row + w.start_h;
      const i64 pixels = from_y < 0 || from_y >= src.h ? 0 : inside;
      for (i64 plane = 0; plane < plan.planes; ++plane) {
        std::byte* const line = to + plane * of_plane + at;
        const i64 zeros = pixels ? before * kPixelBytes : width, end = (before + pixels) * kPixelBytes;
        std::memset(line, 0, static_cast<std::size_t>(zeros));
        if (pixels) std::memset(line + end, 0, static_cast<std::size_t>(width - end));
      }
      if (!pixels) continue;
      const std::byte* from = src.at(strip.n + image, from_y, before + w.start_w);
      std::byte* pixel = to + at + before * kPixelBytes;
      for (i64 x = 0; x < pixels;
           ++x, from += src.w_stride * static_cast<i64>(sizeof(bfloat16)), pixel += kPixelBytes) {
        for (i64 plane = 0; plane < whole; ++plane)
          _mm512_storeu_si512(pixel + plane * of_plane, _mm512_loadu_si512(from + plane * kPixelBytes));
        if (rest)
          _mm512_storeu_si512(pixel + whole * of_plane, _mm512_maskz_loadu_epi16(lanes, from + whole * kPixelBytes));
      }
    }
}

/// Compute blocks [begin, end) of the outputs of a strip.
template <class Tiles, class Result>
MPSCNN_AMX void convolve(const Strip& strip, const std::byte* source, const Panels& weights, i64 begin, i64 end,
                         Finish<Result>& finish) {
  const i64 positions = strip.positions(), taps = weights.taps, of_plane = strip.plan.plane_bytes();
  const i64 at_once = ceil_div(kPixels, taps * weights.parts);
  const i64* const distances = strip.plan.taps.data();
  for (i64 output = begin; output < end; ++output)
    for (i64 first = 0; first < positions; first += kPixels) {
      strip.set_places(first, finish.own_places());
      const std::byte* pixels = source + first * kPixelBytes;
      const bfloat16* values = weights.block(output);
      Tiles::clear();
      for (i64 part = 0; part < weights.parts; ++part, pixels += of_plane)
        for (i64 tap = 0; tap < taps; ++tap, values += 2 * kTileValues) {
          Tiles::multiply(pixels + distances[tap], values);
          finish.run(at_once);
        }
      Tiles::store(finish.own());
      finish.add(output * kOutputs, weights.biases.data() + output * kOutputs);
    }
  finish.run(kPixels);
}

template <class Tiles, class Result>
void convolve(const Plan& plan, const Panels& weights) {
  const Tensor& dst = plan.call.dst;
  const i64 threads = threads_for(dst.size() * plan.call.src.c * weights.taps, kGrain), strips = plan.strips();
  // If strips cannot be shared equally, the outputs are.
  const i64 slices = strips % threads == 0 || strips >= 8 * threads ? 1 : std::min(threads, weights.blocks);
  const i64 bytes = plan.planes * plan.plane_bytes();
  const Scratch memory(static_cast<std::uint64_t>(bytes * threads));
  parallel_ranges(strips * slices, static_cast<int>(threads), [&](i64 begin, i64 end) {
    std::byte* const own = memory.data() + bytes * thread_number();
    Finish<Result> finish{plan};
    Tiles::begin();
    for (i64 task = begin; task < end; ++task) {
      const i64 index = task / slices, slice = task % slices;
      Strip strip = {plan, index / plan.parts * plan.images, index % plan.parts * plan.rows};
      strip.images = std::min(plan.images, dst.n - strip.n), strip.rows = std::min(plan.rows, dst.h - strip.y);
      copy_strip(strip, own);
      convolve<Tiles>(strip, own, weights, weights.blocks * slice / slices, weights.blocks * (slice + 1) / slices,
                      finish);
    }
    Tiles::end();
  });
}

/// Return whether this is faster than oneDNN: where sums are long, because the copy of the source, and the results
/// between two rows, cost less then. Measured on a Xeon with AMX: 1.0 to 1.8 times as fast from 512 inputs on.
bool pays(const ConvWeights& weights) {
  return weights.kernel_h * weights.kernel_w >= 9 && weights.in_channels_per_group >= 512 &&
         weights.out_channels >= 256;
}

}  // namespace

const char* conv_tiles(const ConvCall& call) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  const bool is_tested = is_forced("tiles") && has_avx512_bfloat16();
  if (!multiplies_tiles() && !is_tested) return "the processor has no tiles of bfloat16";
  if (!call.reduced_precision || call.src.format != Format::bfloat16) return "the source is not of bfloat16";
  const bool is_bfloat = call.dst.format == Format::bfloat16;
  if (!is_bfloat && call.dst.format != Format::float32) return "results are of another format";
  if (call.adds() && call.addend.format != call.dst.format) return "an addend of another format";
  if (weights.groups != 1) return "groups";
  if (weights.in_place) return "weights would be packed at each call";
  if (w.stride_h != 1 || w.stride_w != 1) return "strides";
  const bool is_inside = w.start_h >= 0 && w.start_w >= 0 && w.start_h + call.dst.h + reach_h(w) - 1 <= call.src.h &&
                         w.start_w + call.dst.w + reach_w(w) - 1 <= call.src.w;
  if (w.edge != Edge::zero && !is_inside) return "edges are clamped";
  if (is_fully_connected(call)) return "a product of matrices";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  const std::optional<Activation> after = call.after ? activation_of(*call.after) : Activation();
  if (!activation || !after) return "a neuron without vectors";
  if (!pays(weights) && !call.wants("tiles")) return "oneDNN is as fast";
  const Plan plan = plan_of(call, *activation, *after);
  const std::shared_ptr<const Panels> panels = Panels::of(weights);
  if (multiplies_tiles())
    is_bfloat ? convolve<Hardware, bfloat16>(plan, *panels) : convolve<Hardware, float>(plan, *panels);
  else
    is_bfloat ? convolve<Loops, bfloat16>(plan, *panels) : convolve<Loops, float>(plan, *panels);
  return nullptr;
}

#else

const char* conv_tiles(const ConvCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
