// SPDX-License-Identifier: Apache-2.0
// Convolutions of bfloat16 images by the tiles of AMX. A tile of the source has 32 channels of 16 pixels, one of the
// weights 32 inputs of 16 outputs; four tiles have the sums of 32 pixels and 32 outputs.
#include "engine/cpu/convolution/tiles.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
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

namespace tiles {
namespace {

constexpr i64 kGrain = 1000 * 1000;  // min multiplications per thread

/// Eight tiles of 16 rows of 64 bytes. In static memory: GCC does not know that the instruction reads all of it.
struct Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
};
static_assert(sizeof(Configuration) == 64);
alignas(64) constexpr Configuration kConfiguration;

/// The processor's tiles: 0 to 3 have sums [pixels][outputs], 4 and 5 pixels, 6 weights. On some cores, loads
/// and products wait for each other when all tiles have values, as if registers were few, probably because the other
/// thread of the core computes too: loops with eight tiles ran at 660 GFLOP/s there, with seven that become zeros after
/// their last use at 1000, and both at 2250 to 2290 on other cores (Xeon, model 207).
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
  /// Add the products of kPixels pixels, `stride` bytes apart, and the weights of `halves` times kRows outputs.
  template <int halves>
  MPSCNN_AMX static void multiply(const std::byte* pixels, i64 stride, const bfloat16* weights) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, pixels, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, pixels + kRows * stride, stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_zero(6);
    if constexpr (halves == 2) {
      _tile_loadd(6, weights + kTileValues, 64);
      _tile_dpbf16ps(3, 5, 6);
      _tile_zero(5);
      _tile_dpbf16ps(1, 4, 6);
      _tile_zero(6);
    } else {
      _tile_zero(5);
    }
    _tile_zero(4);
  }
  template <int halves>
  MPSCNN_AMX static void store(float* sums) {
    constexpr i64 row = kOutputs * sizeof(float);
    _tile_stored(0, sums, row);
    _tile_stored(2, sums + kRows * kOutputs, row);
    if constexpr (halves == 2) {
      _tile_stored(1, sums + kRows, row);
      _tile_stored(3, sums + kRows * kOutputs + kRows, row);
    }
    asm volatile("" ::: "memory");
  }
};

/// The same in loops, for tests on processors without tiles.
struct Loops {
  static inline thread_local std::array<float, kPixels * kOutputs> own;

  static void begin() {}
  static void end() {}
  static void clear() { own.fill(0); }
  template <int halves>
  MPSCNN_AVX512_BF16 static void multiply(const std::byte* pixels, i64 stride, const bfloat16* weights) {
    for (i64 p = 0; p < kPixels; ++p)
      for (i64 half = 0; half < halves; ++half) {
        float* const to = own.data() + p * kOutputs + half * kRows;
        __m512 sums = _mm512_loadu_ps(to);
        for (i64 k = 0; k < kRows; ++k) {
          int pair;
          std::memcpy(&pair, pixels + p * stride + k * static_cast<i64>(sizeof pair), sizeof pair);
          const __m512 row = _mm512_loadu_ps(weights + half * kTileValues + k * kInputs);
          sums = _mm512_dpbf16_ps(sums, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)row);
        }
        _mm512_storeu_ps(to, sums);
      }
  }
  template <int halves>
  static void store(float* sums) {
    std::copy(own.begin(), own.end(), sums);
  }
};

/// Weights by blocks of outputs, zeros behind the last input and output:
/// [block][inputs / kInputs][tap][half of the outputs][pair of inputs][output][2]. And biases.
struct Panels {
  i64 inputs, taps, blocks, parts;
  Scratch values;
  std::vector<float> biases;

  /// Of patches, the inputs are all values of a window.
  Panels(const ConvWeights& weights, bool of_patches)
      : inputs(weights.in_channels_per_group * (of_patches ? weights.kernel_h * weights.kernel_w : 1)),
        taps(of_patches ? 1 : weights.kernel_h * weights.kernel_w),
        blocks(ceil_div(weights.out_channels, kOutputs)),
        parts(ceil_div(inputs, kInputs)),
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

  static std::shared_ptr<const Panels> of(const ConvWeights& weights, bool of_patches) {
    return weights.derived<const Panels>(of_patches ? "tiles of patches" : "tiles",
                                         [&] { return std::make_shared<const Panels>(weights, of_patches); });
  }

 private:
  void pack(const ConvWeights& weights, i64 index, i64 part) const {
    const i64 first = part * kInputs;
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

/// Return the address of a pixel by its number in an image.
template <class Value>
Value* pixel_of(const Tensor& image, i64 number, bool is_one) {
  Value* const data = reinterpret_cast<Value*>(image.data);
  if (is_one) return data + number * image.w_stride;
  const i64 row = number / image.w;
  return data + row / image.h * image.n_stride + row % image.h * image.h_stride + number % image.w * image.w_stride;
}

/// Sums of kPixels and kOutputs, and which of them are results.
struct Block {
  alignas(64) std::array<float, kPixels * kOutputs> sums;
  Places places;   ///< if results have gaps
  i64 place = 0;   ///< otherwise that of the first pixel
  i64 next = 0;    ///< pixel to store
  i64 end = 0;     ///< behind the last one
  i64 output = 0;  ///< the first one
  const float* bias = nullptr;
};

MPSCNN_AMX void store_pair(float* to, __m512 a, __m512 b) { _mm512_storeu_ps(to, a), _mm512_storeu_ps(to + kRows, b); }
MPSCNN_AMX void store_pair(bfloat16* to, __m512 a, __m512 b) {
  _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/// How results of kOutputs are computed from sums, if no gate is.
enum class Ending : std::uint8_t {
  low,         ///< max(sum, low)
  clamp,       ///< of the sum
  added_low,   ///< max(sum + addend, low)
  added_clamp  ///< clamp(clamp(sum) + addend)
};

/// Stores the results of a block, a few pixels at a time: while the next block's products are computed.
template <class Result>
struct Finish {
  Finish(const Plan& of, bool with_gaps) : plan(of), has_gaps(with_gaps) {
    const Activation &activation = plan.activation, &after = plan.after;
    const bool is_clamp = activation.gate == Activation::none && after.gate == Activation::none;
    if (!is_clamp || !is_one || !adds_one) return;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const bool has_high = activation.high < kInfinity;
    if (!plan.call.adds())
      whole = has_high ? of_gaps<Ending::clamp>() : of_gaps<Ending::low>();
    else if (has_high || activation.low > -kInfinity || after.high < kInfinity)
      whole = of_gaps<Ending::added_clamp>();
    else
      whole = of_gaps<Ending::added_low>();
  }
  Finish(const Finish&) = delete;

  /// Return the sums and places of the block whose products are computed.
  Block& own() { return blocks[side]; }
  /// Its products have been stored.
  void add() { side = 1 - side; }
  MPSCNN_AMX void run(i64 pixels) {
    Block& block = blocks[1 - side];
    const i64 end = std::min(block.next + pixels, block.end);
    if (block.next >= end) return;
    if (whole && plan.call.dst.c - block.output >= kOutputs)
      whole(*this, block, end);
    else
      activate_until(block, end);
    block.next = end;
  }

  const Plan& plan;
  const bool has_gaps;

 private:
  using Whole = void (*)(const Finish&, const Block&, i64 end);

  template <Ending ending>
  Whole of_gaps() const {
    return has_gaps ? end_whole<ending, true> : end_whole<ending, false>;
  }
  template <Ending ending, bool gaps>
  MPSCNN_AMX static void end_whole(const Finish& self, const Block& block, i64 end) {
    constexpr bool adds = ending == Ending::added_low || ending == Ending::added_clamp;
    const Plan& plan = self.plan;
    const Tensor &dst = plan.call.dst, &addend = plan.call.addend;
    const __m512 low = _mm512_set1_ps(plan.activation.low), high = _mm512_set1_ps(plan.activation.high);
    const __m512 low_after = _mm512_set1_ps(plan.after.low), high_after = _mm512_set1_ps(plan.after.high);
    const __m512 bias_0 = _mm512_loadu_ps(block.bias), bias_1 = _mm512_loadu_ps(block.bias + kRows);
    Result* const data = reinterpret_cast<Result*>(dst.data) + block.output;
    const Result* const added = reinterpret_cast<const Result*>(addend.data) + block.output;
    const float* from = block.sums.data() + block.next * kOutputs;
    for (i64 pixel = block.next; pixel < end; ++pixel, from += kOutputs) {
      const i64 place = gaps ? block.places[static_cast<std::size_t>(pixel)] : block.place + pixel;
      if (gaps && place < 0) continue;
      __m512 a = _mm512_add_ps(_mm512_load_ps(from), bias_0), b = _mm512_add_ps(_mm512_load_ps(from + kRows), bias_1);
      if constexpr (ending == Ending::low) a = _mm512_max_ps(low, a), b = _mm512_max_ps(low, b);
      if constexpr (ending == Ending::clamp || ending == Ending::added_clamp)
        a = clamp(low, high, a), b = clamp(low, high, b);
      if constexpr (adds) {
        const Result* const other = added + place * addend.w_stride;
        a = _mm512_add_ps(a, load(All16(), other)), b = _mm512_add_ps(b, load(All16(), other + kRows));
        a = _mm512_max_ps(low_after, a), b = _mm512_max_ps(low_after, b);
        if constexpr (ending == Ending::added_clamp) a = _mm512_min_ps(high_after, a), b = _mm512_min_ps(high_after, b);
      }
      Result* const to = data + place * dst.w_stride;
      __builtin_prefetch(to + kPixels * dst.w_stride, 1);  // of the next block, which is written, too
      store_pair(to, a, b);
    }
  }
  MPSCNN_AMX void activate_until(const Block& block, i64 end) const {
    const Tensor& dst = plan.call.dst;
    const i64 left = dst.c - block.output;
    for (i64 pixel = block.next; pixel < end; ++pixel) {
      const i64 place = has_gaps ? block.places[static_cast<std::size_t>(pixel)] : block.place + pixel;
      if (place < 0) continue;
      const float* const from = block.sums.data() + pixel * kOutputs;
      Result* const to = pixel_of<Result>(dst, place, is_one) + block.output;
      const Result* addend = nullptr;
      if (plan.call.adds()) addend = pixel_of<const Result>(plan.call.addend, place, adds_one) + block.output;
      for (i64 half = 0; half < kOutputs; half += kRows) {
        if (left <= half) break;
        const __mmask16 lanes = avx512::lanes_of(left - half);
        __m512 result = _mm512_add_ps(_mm512_load_ps(from + half), _mm512_loadu_ps(block.bias + half));
        result = activate_for(Result(), plan.activation, result);
        if (addend) result = activate(plan.after, _mm512_add_ps(result, load(lanes, addend + half)));
        store(lanes, to + half, result);
      }
    }
  }

  const bool is_one = is_one_row(plan.call.dst), adds_one = is_one_row(plan.call.addend);
  Whole whole = nullptr;  ///< for blocks of kOutputs results; null: as the others
  std::size_t side = 0;   ///< of the block whose products are computed
  std::array<Block, 2> blocks = {};
};

/// Compute the blocks of kPixels pixels of a strip for one block of outputs.
template <class Tiles, int halves, class Result>
MPSCNN_AMX void convolve(const Strip& strip, const Source& source, const Panels& weights, i64 output,
                         Finish<Result>& finish) {
  const i64 taps = weights.taps;
  const i64 at_once = ceil_div(kPixels, taps * weights.parts);
  const i64* const distances = strip.plan.taps.data();
  for (i64 first = 0; first < strip.count; first += kPixels) {
    const i64 begin = strip.plan.reading == Reading::in_place ? std::min(first, strip.last_block()) : first;
    Block& block = finish.own();
    if (finish.has_gaps) strip.set_places(first, block.places);
    block.place = strip.first + begin;
    block.next = first - begin, block.end = std::min(kPixels, strip.count - begin);
    block.output = output * kOutputs, block.bias = weights.biases.data() + output * kOutputs;
    const bfloat16* values = weights.block(output);
    Tiles::clear();
    for (i64 part = 0; part < weights.parts; ++part) {
      const bool is_whole = part < source.whole;
      const i64 stride = is_whole ? source.stride : kPixelBytes;
      const std::byte* const pixels = (is_whole ? source.data + part * source.of_plane : source.rest) + begin * stride;
      for (i64 tap = 0; tap < taps; ++tap, values += 2 * kTileValues) {
        Tiles::template multiply<halves>(pixels + distances[tap], stride, values);
        finish.run(at_once);
      }
    }
    Tiles::template store<halves>(block.sums.data());
    finish.add();
  }
}

template <class Tiles, class Result>
void convolve(const Plan& plan, const Panels& weights) {
  const Tensor& dst = plan.call.dst;
  const i64 threads = threads_for(dst.size() * plan.call.src.c * weights.taps, kGrain), strips = plan.strips();
  const i64 slices = plan.by_outputs ? std::min(threads, weights.blocks) : 1;
  const i64 bytes = plan.copied_bytes();
  const Scratch memory(static_cast<std::uint64_t>(bytes * threads));
  parallel_ranges(strips * slices, static_cast<int>(threads), [&](i64 begin, i64 end) {
    std::byte* const own = memory.data() + bytes * thread_number();
    Finish<Result> finish(plan, Strip(plan, 0).has_gaps());
    Tiles::begin();
    for (i64 task = begin; task < end; ++task) {
      const i64 slice = task / strips;
      const Strip strip(plan, task % strips);
      const Source source = source_of(strip, own);
      const i64 last = weights.blocks * (slice + 1) / slices;
      for (i64 output = weights.blocks * slice / slices; output < last; ++output) {
        const bool is_half = dst.c <= output * kOutputs + kRows;
        is_half ? convolve<Tiles, 1>(strip, source, weights, output, finish)
                : convolve<Tiles, 2>(strip, source, weights, output, finish);
      }
    }
    finish.run(kPixels);
    Tiles::end();
  });
}

/// Return whether this is faster than oneDNN, by layers of networks on a Xeon with AMX. Not faster were images beyond
/// the caches with few products per value, results that fill tiles in part, and copies for strides of few channels.
bool pays(const ConvCall& call, Reading reading, const Activation& activation) {
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  if (weights.out_channels < kRows) return false;
  switch (reading) {
    case Reading::patches: {
      constexpr i64 kLargeImage = 20'000;  // pixels
      const bool is_large = weights.out_channels >= 2 * kOutputs || call.dst.n * call.dst.h * call.dst.w >= kLargeImage;
      return is_large && w.kernel_h * w.kernel_w * call.src.c <= kInputs;
    }
    case Reading::in_place:  // oneDNN's sigmoid is slow
      return weights.in_channels_per_group >= 128 || activation.gate == Activation::sigmoid;
    case Reading::planes: return w.stride_h * w.stride_w == 1 || weights.in_channels_per_group >= 128;
  }
  return false;
}

}  // namespace
}  // namespace tiles

const char* conv_tiles(const ConvCall& call) {
  using namespace tiles;
  const ConvWeights& weights = *call.weights;
  const Window& w = call.window;
  const bool is_tested = is_forced("tiles") && has_avx512_bfloat16();
  if (!multiplies_tiles() && !is_tested) return "the processor has no tiles of bfloat16";
  if (!call.reduced_precision) return "products of float32";
  if (call.src.format != Format::bfloat16 && call.src.format != Format::float32) return "a source of another format";
  const bool is_bfloat = call.dst.format == Format::bfloat16;
  if (!is_bfloat && call.dst.format != Format::float32) return "results are of another format";
  if (call.adds() && call.addend.format != call.dst.format) return "an addend of another format";
  if (weights.groups != 1) return "groups";
  if (weights.in_place) return "weights would be packed at each call";
  const bool is_inside = w.start_h >= 0 && w.start_w >= 0 &&
                         w.start_h + (call.dst.h - 1) * w.stride_h + reach_h(w) <= call.src.h &&
                         w.start_w + (call.dst.w - 1) * w.stride_w + reach_w(w) <= call.src.w;
  if (w.edge != Edge::zero && !is_inside) return "edges are clamped";
  if (is_fully_connected(call)) return "a product of matrices";
  const std::optional<Activation> activation = activation_of(*call.neuron);
  const std::optional<Activation> after = call.after ? activation_of(*call.after) : Activation();
  if (!activation || !after) return "a neuron without vectors";
  const std::optional<Reading> reading = reading_of(call);
  if (!reading) return "rows of windows have more than a tile's inputs, or gaps";
  if (!pays(call, *reading, *activation) && !call.wants("tiles")) return "oneDNN is as fast";
  const Plan plan = plan_of(call, *reading, *activation, *after);
  const std::shared_ptr<const Panels> panels = Panels::of(weights, *reading == Reading::patches);
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
