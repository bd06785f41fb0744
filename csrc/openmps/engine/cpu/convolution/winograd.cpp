// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution F(4 x 4, 3 x 3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).
// Each tile of 6 x 6 pixels of the source is transformed to 36 values per channel. These are multiplied by 36 matrices
// of transformed weights, and the products are transformed to 4 x 4 pixels of the result.
#include "engine/cpu/convolution/winograd.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

using namespace winograd;

namespace {

constexpr i64 kOwnInputs = 160;                   // max inputs for which each thread transforms its own tiles
constexpr i64 kOwnTiles = 30, kSharedTiles = 60;  // transformed at a time, which the second-level caches hold

/// dst = after(neuron(bias + convolution of src) + addend), of float32.
struct WinogradCall {
  Tensor src, dst;
  Window window;
  const ConvWeights* weights;
  bool is_gradient;             ///< of the source: the taps are reversed, inputs and outputs exchanged
  const float* bias = nullptr;  ///< null: zeros
  Tensor addend = {};           ///< if it has data
  Activation neuron = {}, after = {};
};

/// Transformed weights: [panel of outputs][product][input][output of the panel].
struct Filters {
  i64 inputs, outputs;
  Scratch memory;

  float* panel(i64 index) const {
    return reinterpret_cast<float*>(memory.data()) + index * kPanel * kProducts * inputs;
  }
};

struct Doubles {
  __m512d at[kReach];
};

/// Transform three weights of one row or column.
MPSCNN_AVX512 inline Doubles transform_weights(__m512d w0, __m512d w1, __m512d w2) {
  constexpr double a = kRoot / 2, b = kRoot, a2 = 0.5, b2 = 2;
  const __m512d by_a = _mm512_set1_pd(1 / (2 * a2 * (a2 - b2))), by_b = _mm512_set1_pd(1 / (2 * b2 * (b2 - a2)));
  const __m512d even_a = _mm512_fmadd_pd(_mm512_set1_pd(a2), w2, w0), odd_a = _mm512_mul_pd(_mm512_set1_pd(a), w1);
  const __m512d even_b = _mm512_fmadd_pd(_mm512_set1_pd(b2), w2, w0), odd_b = _mm512_mul_pd(_mm512_set1_pd(b), w1);
  return {{_mm512_mul_pd(_mm512_set1_pd(1 / (a2 * b2)), w0), _mm512_mul_pd(by_a, _mm512_add_pd(even_a, odd_a)),
           _mm512_mul_pd(by_a, _mm512_sub_pd(even_a, odd_a)), _mm512_mul_pd(by_b, _mm512_add_pd(even_b, odd_b)),
           _mm512_mul_pd(by_b, _mm512_sub_pd(even_b, odd_b)), w2}};
}

/// Transform the weights of inputs [first, end) for a panel of `width` lanes, of which `count` are outputs; the others
/// get zeros. Tap t of input 0 and output 0 of the panel is at weights[t]; strides are from one input or output to the
/// next.
struct PackCall {
  std::array<const float*, 9> weights;
  i64 input_stride, output_stride;
  i64 first, end, count, width;
  float* panel;
  i64 product_stride;
};

MPSCNN_AVX512 void pack(const PackCall& call) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i places = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(static_cast<int>(call.output_stride)));
  for (i64 lane = 0; lane < call.width; lane += 8) {
    const i64 left = call.count - lane;
    const auto mask = static_cast<__mmask8>(left >= 8 ? 0xff : left <= 0 ? 0 : (1 << left) - 1);
    for (i64 i = call.first; i < call.end; ++i) {
      const i64 at = i * call.input_stride + lane * call.output_stride;
      __m512d taps[9];
#pragma GCC unroll 9
      for (int t = 0; t < 9; ++t) {
        const float* const from = call.weights[static_cast<std::size_t>(t)] + at;
        taps[t] = _mm512_cvtps_pd(call.output_stride == 1
                                      ? _mm256_maskz_loadu_ps(mask, from)
                                      : _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), mask, places, from, 4));
      }
      Doubles rows[3];
#pragma GCC unroll 3
      for (int p = 0; p < 3; ++p) rows[p] = transform_weights(taps[3 * p], taps[3 * p + 1], taps[3 * p + 2]);
      float* const to = call.panel + i * call.width + lane;
#pragma GCC unroll 6
      for (int j = 0; j < kReach; ++j) {
        const Doubles column = transform_weights(rows[0].at[j], rows[1].at[j], rows[2].at[j]);
#pragma GCC unroll 6
        for (int k = 0; k < kReach; ++k)
          _mm256_storeu_ps(to + (k * kReach + j) * call.product_stride, _mm512_cvtpd_ps(column.at[k]));
      }
    }
  }
}

std::shared_ptr<const Filters> make_filters(const ConvWeights& weights, bool is_gradient) {
  const i64 o = weights.out_channels, i = weights.in_channels_per_group;
  auto filters = std::make_shared<Filters>();
  filters->inputs = is_gradient ? o : i, filters->outputs = is_gradient ? i : o;
  const i64 lanes = round_up(filters->outputs, kLanes);
  const std::uint64_t bytes = static_cast<std::uint64_t>(kProducts * filters->inputs * lanes) * sizeof(float);
  filters->memory = weights.in_place ? Scratch(bytes) : Scratch::to_keep(bytes);
  const float* const values = weights.values.data();
  const i64 panels = panels_of(lanes);
  constexpr i64 kInputs = 32;  // transformed together
  const i64 parts = (filters->inputs + kInputs - 1) / kInputs;
  parallel_ranges(panels * parts, threads_for(o * i, 4096), [&](i64 begin, i64 end) {
    for (i64 task = begin; task < end; ++task) {
      const i64 index = task / parts, first = task % parts * kInputs, width = panel_lanes(filters->outputs, index);
      PackCall call = {.weights = {},
                       .input_stride = is_gradient ? 9 * i : 1,
                       .output_stride = is_gradient ? 1 : 9 * i,
                       .first = first,
                       .end = std::min(first + kInputs, filters->inputs),
                       .count = std::min(width, filters->outputs - index * kPanel),
                       .width = width,
                       .panel = filters->panel(index),
                       .product_stride = filters->inputs * width};
      for (i64 t = 0; t < 9; ++t)
        call.weights[static_cast<std::size_t>(t)] =
            values + index * kPanel * call.output_stride + (is_gradient ? 8 - t : t) * i;
      pack(call);
    }
  });
  return filters;
}

/// Return the transformed weights, which are kept unless the weights are in place.
std::shared_ptr<const Filters> filters_of(const ConvWeights& weights, bool is_gradient) {
  if (weights.in_place) return make_filters(weights, is_gradient);
  const std::lock_guard lock(weights.cache.mutex);
  std::shared_ptr<void>& entry = weights.cache.entries[is_gradient ? "winograd.gradient" : "winograd"];
  if (!entry) entry = std::const_pointer_cast<Filters>(make_filters(weights, is_gradient));
  return std::static_pointer_cast<const Filters>(entry);
}

/// Transform six pixels of a row or column.
MPSCNN_AVX512 inline Six transform_pixels(const Six& d) {
  const __m512 product = constant(kA2 * kB2), sum = constant(kA2 + kB2);
  const __m512 even_a = _mm512_fnmadd_ps(constant(kB2), d.at[2], d.at[4]);
  const __m512 odd_a = _mm512_fnmadd_ps(constant(kB2), d.at[1], d.at[3]);
  const __m512 even_b = _mm512_fnmadd_ps(constant(kA2), d.at[2], d.at[4]);
  const __m512 odd_b = _mm512_fnmadd_ps(constant(kA2), d.at[1], d.at[3]);
  return {{_mm512_fmadd_ps(product, d.at[0], _mm512_fnmadd_ps(sum, d.at[2], d.at[4])),
           _mm512_fmadd_ps(constant(kA), odd_a, even_a), _mm512_fnmadd_ps(constant(kA), odd_a, even_a),
           _mm512_fmadd_ps(constant(kB), odd_b, even_b), _mm512_fnmadd_ps(constant(kB), odd_b, even_b),
           _mm512_fmadd_ps(product, d.at[1], _mm512_fnmadd_ps(sum, d.at[3], d.at[5]))}};
}

/// Transform six products to four results.
MPSCNN_AVX512 inline Four transform_products(const Six& m) {
  const __m512 sum_a = _mm512_add_ps(m.at[1], m.at[2]), difference_a = _mm512_sub_ps(m.at[1], m.at[2]);
  const __m512 sum_b = _mm512_add_ps(m.at[3], m.at[4]), difference_b = _mm512_sub_ps(m.at[3], m.at[4]);
  return {{_mm512_add_ps(m.at[0], _mm512_add_ps(sum_a, sum_b)),
           _mm512_fmadd_ps(constant(kA), difference_a, _mm512_mul_ps(constant(kB), difference_b)),
           _mm512_fmadd_ps(constant(kA2), sum_a, _mm512_mul_ps(constant(kB2), sum_b)),
           _mm512_fmadd_ps(constant(kA3), difference_a, _mm512_fmadd_ps(constant(kB3), difference_b, m.at[5]))}};
}

/// Transform the tile of 6 x 6 pixels at (y, x); `is_inside`: all of them are in the source.
template <bool is_inside>
MPSCNN_AVX512 void transform_source(const Tensor& src, const Tiles::Place& at, float* to, i64 product) {
  const float* const first = src.floats() + at.n * src.n_stride;
  for (i64 c = 0; c < src.c; c += kLanes) {
    const __mmask16 lanes = lanes_from(c, src.c);
    Six rows[kReach];
#pragma GCC unroll 6
    for (int i = 0; i < kReach; ++i) {
      const i64 y = at.y + i;
      const bool row_is_inside = is_inside || (y >= 0 && y < src.h);
      const float* const from = first + (row_is_inside ? y : 0) * src.h_stride + c;
      Six row;
#pragma GCC unroll 6
      for (int j = 0; j < kReach; ++j) {
        const i64 x = at.x + j;
        const bool pixel_is_inside = is_inside || (row_is_inside && x >= 0 && x < src.w);
        row.at[j] = pixel_is_inside ? _mm512_maskz_loadu_ps(lanes, from + x * src.w_stride) : _mm512_setzero_ps();
      }
      rows[i] = transform_pixels(row);
    }
#pragma GCC unroll 6
    for (int j = 0; j < kReach; ++j) {
      const Six column = transform_pixels(
          {{rows[0].at[j], rows[1].at[j], rows[2].at[j], rows[3].at[j], rows[4].at[j], rows[5].at[j]}});
#pragma GCC unroll 6
      for (int i = 0; i < kReach; ++i) _mm512_storeu_ps(to + (i * kReach + j) * product + c, column.at[i]);
    }
  }
}

/// Store the 4 x 4 results of a tile from its products, for `lanes` outputs from `channel` on; `is_inside`: all of the
/// pixels are in the result.
template <bool is_inside>
MPSCNN_AVX512 void transform_result(const WinogradCall& call, const Tiles::Place& at, i64 channel, i64 lanes,
                                    const float* products) {
  const Tensor &dst = call.dst, &addend = call.addend;
  const Activation neuron = call.neuron, after = call.after;
  for (i64 v = 0; v < lanes; v += kLanes) {
    const i64 c = channel + v;
    const __mmask16 mask = lanes_from(c, dst.c);
    const __m512 bias = call.bias ? _mm512_maskz_loadu_ps(mask, call.bias + c) : _mm512_setzero_ps();
    Four columns[kReach];
#pragma GCC unroll 6
    for (int j = 0; j < kReach; ++j) {
      Six column;
#pragma GCC unroll 6
      for (int i = 0; i < kReach; ++i) column.at[i] = _mm512_loadu_ps(products + (i * kReach + j) * lanes + v);
      columns[j] = transform_products(column);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTile; ++i) {
      if (!is_inside && at.y + i >= dst.h) break;
      const Four results = transform_products({{columns[0].at[i], columns[1].at[i], columns[2].at[i], columns[3].at[i],
                                                columns[4].at[i], columns[5].at[i]}});
      float* const to = dst.floats(at.n, at.y + i, at.x) + c;
#pragma GCC unroll 4
      for (int j = 0; j < kTile; ++j) {
        if (!is_inside && at.x + j >= dst.w) break;
        __m512 value = activate(neuron, _mm512_add_ps(results.at[j], bias));
        if (addend.data) {
          const float* const other = addend.floats(at.n, at.y + i, at.x + j) + c;
          value = activate(after, _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, other)));
        }
        _mm512_mask_storeu_ps(to + j * dst.w_stride, mask, value);
      }
    }
  }
}

class Convolution {
 public:
  Convolution(const WinogradCall& call, const Filters& filters)
      : call_(call), filters_(filters), tiles_(call.dst), panels_(panels_of(filters.outputs)) {}

  void run(int threads) {
    if (filters_.inputs <= kOwnInputs || panels_ == 1)
      run_apart(threads);
    else
      run_together(threads);
  }

 private:
  void run_apart(int threads);
  void run_together(int threads);
  static i64 product_floats(i64 tiles) { return tiles * kProducts * kPanel; }
  /// Compute the outputs of a panel for tiles [begin, end), which are in rows from `slot` on.
  void compute(i64 panel, i64 begin, i64 end, const Transformed& source, i64 slot, float* products) const;

  const WinogradCall& call_;
  const Filters& filters_;
  const Tiles tiles_;
  const i64 panels_;
};

void Convolution::compute(i64 panel, i64 begin, i64 end, const Transformed& source, i64 slot, float* products) const {
  const Tensor& dst = call_.dst;
  const i64 lanes = panel_lanes(filters_.outputs, panel), inputs = filters_.inputs;
  for (i64 p = 0; p < kProducts; ++p)
    multiply_rows({.a = source.data + p * source.product + slot * source.row,
                   .a_row = source.row,
                   .a_step = 1,
                   .b = filters_.panel(panel) + p * inputs * lanes,
                   .b_step = lanes,
                   .count = inputs,
                   .sums = products + p * lanes,
                   .sums_row = kProducts * lanes},
                  end - begin, lanes);
  for (i64 t = begin; t < end; ++t, products += kProducts * lanes) {
    const Tiles::Place at = tiles_.at(t);
    if (at.y + kTile <= dst.h && at.x + kTile <= dst.w)
      transform_result<true>(call_, at, panel * kPanel, lanes, products);
    else
      transform_result<false>(call_, at, panel * kPanel, lanes, products);
  }
}

/// Each thread computes all outputs of its tiles.
void Convolution::run_apart(int threads) {
  const i64 blocks = round_up((tiles_.count + kOwnTiles - 1) / kOwnTiles, std::min<i64>(threads, tiles_.count));
  const i64 capacity = (tiles_.count + blocks - 1) / blocks;
  const Transformed layout(capacity, filters_.inputs);
  const i64 floats = layout.floats() + product_floats(capacity);
  const Scratch scratch(static_cast<std::uint64_t>(floats * threads) * sizeof(float));
  parallel_ranges(blocks, threads, [&](i64 begin, i64 end) {
    Transformed source = layout;
    source.data = reinterpret_cast<float*>(scratch.data()) + thread_number() * floats;
    for (i64 block = begin; block < end; ++block) {
      const i64 first = tiles_.count * block / blocks, last = tiles_.count * (block + 1) / blocks;
      transform_sources(call_.src, call_.window, tiles_, first, last, source, 0);
      for (i64 panel = 0; panel < panels_; ++panel)
        compute(panel, first, last, source, 0, source.data + source.floats());
    }
  });
}

/// The threads share transformed tiles, and each computes some of the outputs: it reads these weights once.
void Convolution::run_together(int threads) {
  const i64 blocks = (tiles_.count + kSharedTiles - 1) / kSharedTiles, capacity = (tiles_.count + blocks - 1) / blocks;
  const i64 parts = std::min<i64>(capacity, (threads + panels_ - 1) / panels_);
  Transformed source(capacity, filters_.inputs);
  const Scratch scratch(static_cast<std::uint64_t>(source.floats() + product_floats(capacity) * threads) *
                        sizeof(float));
  source.data = reinterpret_cast<float*>(scratch.data());
  for (i64 block = 0; block < blocks; ++block) {
    const i64 first = tiles_.count * block / blocks, count = tiles_.count * (block + 1) / blocks - first;
    parallel_ranges(count, threads, [&](i64 begin, i64 end) {
      transform_sources(call_.src, call_.window, tiles_, first + begin, first + end, source, begin);
    });
    parallel_ranges(panels_ * parts, threads, [&](i64 begin, i64 end) {
      float* const products = source.data + source.floats() + thread_number() * product_floats(capacity);
      for (i64 task = begin; task < end; ++task) {
        const i64 part = task % parts, from = count * part / parts, to = count * (part + 1) / parts;
        compute(task / parts, first + from, first + to, source, from, products);
      }
    });
  }
}

int threads_of(const Tensor& dst, const ConvWeights& weights) {
  return threads_for(Tiles(dst).count * kProducts * weights.in_channels_per_group * weights.out_channels, kThreadGrain);
}

/// Return whether the transforms cost less than they save, in multiplications, as measured. Those of a tile cost as
/// much as 24 multiplications of each product for an input, and 22 for an output. Weights that exceed the caches of the
/// cores are read once by all threads, which takes each of them as long as 5 tiles.
bool pays(const Tensor& dst, i64 inputs, i64 outputs, int threads) {
  constexpr i64 kCached = 512 * 1024;  // floats
  const i64 lanes = round_up(outputs, kLanes), rows = round_up(inputs, kLanes);
  const i64 weights = std::min(kProducts * inputs * lanes, kCached);
  const i64 direct = dst.n * dst.h * dst.w * 9 * inputs * lanes;
  const i64 own =
      (Tiles(dst).count + 5 * threads * weights / kCached) * kProducts * (inputs * lanes + 24 * rows + 22 * lanes);
  return own + own / 10 < direct;
}

/// Return null, or why another implementation takes the convolution with this result.
const char* declines(const ConvWeights& weights, const Window& window, const Tensor& dst) {
  if (const char* why_not = winograd::declines(window, weights.groups)) return why_not;
  if (!is_forced() && !pays(dst, weights.in_channels_per_group, weights.out_channels, threads_of(dst, weights)))
    return "the transforms cost more than they save";
  return nullptr;
}

void convolve(const WinogradCall& call) {
  const auto filters = filters_of(*call.weights, call.is_gradient);
  Convolution(call, *filters).run(threads_of(call.dst, *call.weights));
}

}  // namespace

const char* winograd::declines(const Window& window, i64 groups) {
  if (!has_avx512()) return "the processor has no AVX-512";
  static const bool is_off = env::value_of(env::Variable::winograd) == "0";
  if (is_off) return "MPSCNN_WINOGRAD is 0";
  if (window.kernel_h != 3 || window.kernel_w != 3) return "the window is not 3 x 3";
  if (window.stride_h != 1 || window.stride_w != 1) return "strides";
  if (window.dilation_h != 1 || window.dilation_w != 1) return "dilation";
  if (window.edge != Edge::zero) return "edges are clamped";
  return groups != 1 ? "groups" : nullptr;
}

bool winograd::is_forced() {
  static const bool result = dispatch().only == "winograd";
  return result;
}

void winograd::transform_sources(const Tensor& src, const Window& window, const Tiles& tiles, i64 begin, i64 end,
                                 const Transformed& to, i64 slot) {
  for (i64 t = begin; t < end; ++t, ++slot) {
    Tiles::Place at = tiles.at(t);
    at.y += window.start_h, at.x += window.start_w;
    float* const row = to.data + slot * to.row;
    if (at.y >= 0 && at.x >= 0 && at.y + kReach <= src.h && at.x + kReach <= src.w)
      transform_source<true>(src, at, row, to.product);
    else
      transform_source<false>(src, at, row, to.product);
  }
}

const char* conv_winograd(const ConvCall& call) {
  if (const char* why_not = declines(*call.weights, call.window, call.dst)) return why_not;
  if (call.reduced_precision) return "products of bfloat16 are faster";
  const std::optional<Activation> neuron = activation_of(*call.neuron);
  const std::optional<Activation> after = call.after ? activation_of(*call.after) : Activation();
  if (call.adds() && (!neuron || !after)) return "a neuron without vectors";
  Scratch src_memory, dst_memory, addend_memory;
  WinogradCall own = {call.src, call.dst, call.window, call.weights, false, bias_of(call)};
  if (call.src.format != Format::float32) own.src = dense(call.src, Format::float32, src_memory);
  if (call.dst.format != Format::float32) {
    ScratchTensor result(call.dst.n, call.dst.h, call.dst.w, call.dst.c);
    own.dst = result.tensor, dst_memory = std::move(result.memory);
  }
  if (call.adds()) {
    own.addend = call.addend;
    if (call.addend.format != Format::float32) own.addend = dense(call.addend, Format::float32, addend_memory);
    own.after = *after;
  }
  if (neuron) own.neuron = *neuron;
  convolve(own);
  if (!neuron)
    activate(own.dst, call.dst, *call.neuron);
  else if (own.dst.data != call.dst.data)
    copy(own.dst, call.dst);
  return nullptr;
}

const char* data_gradient_winograd(const DataGradientCall& call) {
  Window window = call.window;
  // Pixel y of the source is read by results y - start - p. That is a convolution of the gradient with the taps in
  // reverse order.
  window.start_h = -window.start_h - 2, window.start_w = -window.start_w - 2;
  if (const char* why_not = declines(*call.weights, window, call.diff_src)) return why_not;
  convolve({call.diff_dst, call.diff_src, window, call.weights, true});
  return nullptr;
}

#else

const char* conv_winograd(const ConvCall&) { return "not for this processor"; }
const char* data_gradient_winograd(const DataGradientCall&) { return "not for this processor"; }

#endif

}  // namespace openmps::cpu
