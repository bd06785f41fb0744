// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/onednn/filter_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "engine/shared/elements.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kTile = 16;                // values: a cache line
constexpr i64 kThreadGrain = 64 * 1024;  // min values per thread

/// Value (o, tap, i) of a packed filter is at o / block_o * o_step + i / block_i * i_step + tap_at(tap) + i % block_i *
/// inner_i + o % block_o * inner_o. Outputs up to `padded_outputs` are 0.
struct Layout {
  i64 outputs, inputs, rows, columns;
  i64 padded_outputs;
  i64 block_o = 1, block_i = 1, inner_o = 1, inner_i = 1;
  i64 o_step, i_step, row_step, column_step;

  i64 taps() const { return rows * columns; }
  i64 tap_at(i64 tap) const { return tap / columns * row_step + tap % columns * column_step; }
};

/// Return nothing if the layout is not one that convolutions use, or has padding that is not of blocks of outputs.
std::optional<Layout> layout_of(const dnnl::memory::desc& desc) {
  const auto dims = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides(),
             blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  if (dims.size() != 4 || desc.get_submemory_offset() != 0) return std::nullopt;
  if (desc.get_data_type() != dnnl::memory::data_type::f32) return std::nullopt;
  Layout layout = {dims[0], dims[1], dims[2],    dims[3],    padded[0],  1,         1,
                   1,       1,       strides[0], strides[1], strides[2], strides[3]};
  if (desc.get_inner_nblks() == 1 && axes[0] == 0 && blocks[0] % kTile == 0 && padded[1] == dims[1]) {
    layout.block_o = blocks[0];
    layout.inner_i = strides[1];
    return layout;
  }
  if (padded != dims) return std::nullopt;
  if (desc.get_inner_nblks() == 1 && axes[0] == 1 && blocks[0] % kTile == 0) {
    layout.block_i = blocks[0];
    return layout;
  }
  if (desc.get_inner_nblks() == 2 && axes[0] == 1 && axes[1] == 0 && blocks[0] == kTile && blocks[1] == kTile) {
    layout.block_o = layout.block_i = layout.inner_i = kTile;
    return layout;
  }
  return std::nullopt;
}

/// to[i][o] = from[o][i] for a tile of kTile x kTile; steps in floats.
MPSCNN_CLONES void transpose_tile(const float* from, i64 from_step, float* to, i64 to_step) {
  float tile[kTile * kTile];
  for (i64 o = 0; o < kTile; ++o) std::memcpy(tile + o * kTile, from + o * from_step, kTile * sizeof(float));
  for (i64 i = 0; i < kTile; ++i) {
    float line[kTile];
    for (i64 o = 0; o < kTile; ++o) line[o] = tile[o * kTile + i];
    std::memcpy(to + i * to_step, line, sizeof line);
  }
}

/// The same for `rows` lines of `columns` values, at most kTile of both. The lines of `to` have `width` values, of
/// which those behind `rows` become 0.
MPSCNN_CLONES void transpose_part(const float* from, i64 from_step, i64 rows, i64 columns, float* to, i64 to_step,
                                  i64 width) {
  float tile[kTile * kTile] = {};
  for (i64 row = 0; row < rows; ++row)
    for (i64 i = 0; i < columns; ++i) tile[i * kTile + row] = from[row * from_step + i];
  for (i64 i = 0; i < columns; ++i)
    std::memcpy(to + i * to_step, tile + i * kTile, static_cast<std::size_t>(width) * sizeof(float));
}

/// Move tiles [begin, end) of the filter in either direction; `values` is OHWI.
template <bool packs, class Values, class Packed>
void move_tiles(const Layout& l, Values* values, Packed* packed, i64 begin, i64 end) {
  const i64 per_output = l.taps() * l.inputs;
  for (i64 k = begin; k < end; ++k) {
    if (l.block_o == 1) {  // one output and tap: runs of block_i
      const i64 o = k / l.taps(), tap = k % l.taps();
      for (i64 i = 0; i < l.inputs; i += l.block_i) {
        auto* const own = values + o * per_output + tap * l.inputs + i;
        auto* const other = packed + o * l.o_step + i / l.block_i * l.i_step + l.tap_at(tap);
        if constexpr (packs)
          std::memcpy(other, own, static_cast<std::size_t>(l.block_i) * sizeof(float));
        else
          std::memcpy(own, other, static_cast<std::size_t>(l.block_i) * sizeof(float));
      }
      continue;
    }
    // kTile outputs and one tap. The last outputs may be padding.
    const i64 o = k / l.taps() * kTile, tap = k % l.taps(), outputs = std::clamp<i64>(l.outputs - o, 0, kTile);
    for (i64 i = 0; i < l.inputs; i += kTile) {
      const i64 inputs = std::min(kTile, l.inputs - i);
      auto* const own = values + std::min(o, l.outputs - 1) * per_output + tap * l.inputs + i;
      auto* const other = packed + o / l.block_o * l.o_step + o % l.block_o + l.tap_at(tap) +
                          (l.block_i == 1 ? i * l.i_step : i / l.block_i * l.i_step);
      const bool is_whole = outputs == kTile && inputs == kTile;
      if constexpr (packs) {
        if (is_whole)
          transpose_tile(own, per_output, other, l.inner_i);
        else
          transpose_part(own, per_output, outputs, inputs, other, l.inner_i, kTile);
      } else {
        if (is_whole)
          transpose_tile(other, l.inner_i, own, per_output);
        else
          transpose_part(other, l.inner_i, inputs, outputs, own, per_output, inputs);
      }
    }
  }
}

template <bool packs, class Values, class Packed>
bool move(Values* values, Packed* packed, const dnnl::memory::desc& desc) {
  const auto layout = layout_of(desc);
  if (!layout) return false;
  const i64 outputs = packs ? layout->padded_outputs : layout->outputs;
  const i64 count = layout->taps() * (layout->block_o == 1 ? outputs : (outputs + kTile - 1) / kTile);
  const i64 size = outputs * layout->inputs * layout->taps();
  parallel_ranges(count, threads_for(size, kThreadGrain),
                  [&](i64 begin, i64 end) { move_tiles<packs>(*layout, values, packed, begin, end); });
  return true;
}

// ------------------------------------------------------------------------------------------------------------ bfloat16

/// Layouts of bfloat16: pairs of adjacent inputs (or outputs) of `block` adjacent outputs (or inputs), `group` pairs in
/// a block, with 0 as padding; or without blocks, outputs innermost.
struct PairedLayout {
  i64 outputs, inputs, rows, columns;
  i64 padded_outputs, padded_inputs;
  enum Kind : std::uint8_t { pairs_of_inputs, pairs_of_outputs, outputs_innermost } kind;
  i64 block, group;
  i64 o_step, i_step, row_step, column_step;  ///< of blocks

  i64 taps() const { return rows * columns; }
  i64 tap_at(i64 tap) const { return tap / columns * row_step + tap % columns * column_step; }
  /// Return the place of a pair in the blocks that are `step` apart.
  i64 pair_at(i64 pair, i64 step) const { return pair / group * step + pair % group * block * 2; }
};

std::optional<PairedLayout> paired_layout_of(const dnnl::memory::desc& desc) {
  const auto dims = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides(),
             blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  if (dims.size() != 4 || desc.get_submemory_offset() != 0) return std::nullopt;
  if (desc.get_data_type() != dnnl::memory::data_type::bf16) return std::nullopt;
  PairedLayout layout = {
      dims[0], dims[1], dims[2],    dims[3],    padded[0],  padded[1], PairedLayout::outputs_innermost,
      1,       1,       strides[0], strides[1], strides[2], strides[3]};
  const auto levels = static_cast<std::size_t>(desc.get_inner_nblks());
  if (levels == 2 || levels == 3) {  // (pairs,) block, 2
    const auto block = levels - 2;
    if (blocks[block] % kTile != 0 || blocks[block + 1] != 2 || axes[block] == axes[block + 1]) return std::nullopt;
    if (levels == 3 && (blocks[0] != kTile || axes[0] != axes[2])) return std::nullopt;
    layout.kind = axes[block + 1] == 1 ? PairedLayout::pairs_of_inputs : PairedLayout::pairs_of_outputs;
    layout.block = blocks[block];
    layout.group = levels == 3 ? kTile : 1;
  } else if (levels != 0 || strides[0] != 1 || padded != dims) {
    return std::nullopt;
  }
  return layout;
}

/// lines[pair][output] of at most kTile outputs and 2 * kTile inputs; behind them, 0.
MPSCNN_CLONES void pair_inputs(const float* from, i64 from_step, i64 outputs, i64 inputs, std::uint32_t* lines) {
  std::uint32_t tile[kTile * kTile] = {};
  for (i64 o = 0; o < outputs; ++o) {
    std::uint16_t line[2 * kTile] = {};
    if (inputs == 2 * kTile) {
#pragma omp simd
      for (i64 i = 0; i < 2 * kTile; ++i) line[i] = float_to_bfloat(from[o * from_step + i]);
    } else {
      for (i64 i = 0; i < inputs; ++i) line[i] = float_to_bfloat(from[o * from_step + i]);
    }
    std::memcpy(tile + o * kTile, line, sizeof line);
  }
  for (i64 pair = 0; pair < kTile; ++pair)
    for (i64 o = 0; o < kTile; ++o) lines[pair * kTile + o] = tile[o * kTile + pair];
}

/// Pairs of the values of two outputs.
MPSCNN_CLONES void pack_pairs_of_outputs(const float* first, const float* second, std::uint32_t* to, i64 count) {
#pragma omp simd
  for (i64 i = 0; i < count; ++i)
    to[i] = float_to_bfloat(first[i]) | static_cast<std::uint32_t>(float_to_bfloat(second[i])) << 16;
}

/// The same where the second output is padding.
MPSCNN_CLONES void pack_pairs_with_zeros(const float* first, std::uint32_t* to, i64 count) {
#pragma omp simd
  for (i64 i = 0; i < count; ++i) to[i] = float_to_bfloat(first[i]);
}

/// to[input][output] of at most kTile outputs and kTile inputs.
MPSCNN_CLONES void pack_outputs_innermost(const float* from, i64 from_step, i64 outputs, i64 inputs, std::uint16_t* to,
                                          i64 to_step) {
  std::uint16_t tile[kTile * kTile];
  for (i64 o = 0; o < outputs; ++o) {
#pragma omp simd
    for (i64 i = 0; i < inputs; ++i) tile[o * kTile + i] = float_to_bfloat(from[o * from_step + i]);
  }
  for (i64 i = 0; i < inputs; ++i)
    for (i64 o = 0; o < outputs; ++o) to[i * to_step + o] = tile[o * kTile + i];
}

/// Pack kTile outputs from `o`, or two of them for pairs of outputs, and one tap.
void pack_bfloats(const PairedLayout& l, const float* values, std::uint16_t* packed, i64 o, i64 tap) {
  const i64 per_output = l.taps() * l.inputs;
  const i64 outputs = std::max<i64>(l.outputs - o, 0);  // from `o` on; the others are padding
  const float* const from = values + std::min(o, l.outputs - 1) * per_output + tap * l.inputs;
  std::uint16_t* const tap_of_packed = packed + l.tap_at(tap);
  switch (l.kind) {
    case PairedLayout::pairs_of_inputs:
      for (i64 i = 0; i < l.padded_inputs; i += 2 * kTile) {
        std::uint32_t lines[kTile * kTile];
        pair_inputs(from + i, per_output, std::min(kTile, outputs), std::clamp<i64>(l.inputs - i, 0, 2 * kTile), lines);
        std::uint16_t* const to = tap_of_packed + o / l.block * l.o_step + o % l.block * 2;
        const i64 pairs = std::min(kTile, (l.padded_inputs - i) / 2);
        for (i64 pair = 0; pair < pairs; ++pair)
          std::memcpy(to + l.pair_at(i / 2 + pair, l.i_step), lines + pair * kTile, kTile * sizeof *lines);
      }
      break;
    case PairedLayout::pairs_of_outputs:
      for (i64 i = 0; i < l.padded_inputs; i += l.block) {
        auto* const to =
            reinterpret_cast<std::uint32_t*>(tap_of_packed + l.pair_at(o / 2, l.o_step) + i / l.block * l.i_step);
        const i64 inputs = std::clamp<i64>(l.inputs - i, 0, l.block), there = outputs == 0 ? 0 : inputs;
        if (outputs > 1)
          pack_pairs_of_outputs(from + i, from + per_output + i, to, there);
        else
          pack_pairs_with_zeros(from + i, to, there);
        std::fill(to + there, to + l.block, 0);
      }
      break;
    case PairedLayout::outputs_innermost:
      for (i64 i = 0; i < l.inputs; i += kTile)
        pack_outputs_innermost(from + i, per_output, std::min(kTile, outputs), std::min(kTile, l.inputs - i),
                               tap_of_packed + o + i * l.i_step, l.i_step);
      break;
  }
}

bool pack_bfloats(const float* values, std::uint16_t* packed, const dnnl::memory::desc& desc) {
  const auto layout = paired_layout_of(desc);
  if (!layout) return false;
  const i64 outputs = layout->kind == PairedLayout::pairs_of_outputs ? 2 : kTile;  // at a time
  const i64 size = layout->padded_outputs * layout->padded_inputs * layout->taps();
  parallel_ranges(layout->taps() * ((layout->padded_outputs + outputs - 1) / outputs), threads_for(size, kThreadGrain),
                  [&](i64 begin, i64 end) {
                    for (i64 k = begin; k < end; ++k)
                      pack_bfloats(*layout, values, packed, k / layout->taps() * outputs, k % layout->taps());
                  });
  return true;
}

}  // namespace

bool pack_filter(const float* values, std::byte* packed, const dnnl::memory::desc& layout) {
  return move<true>(values, reinterpret_cast<float*>(packed), layout) ||
         pack_bfloats(values, reinterpret_cast<std::uint16_t*>(packed), layout);
}

bool pack_depthwise_filter(const float* values, std::byte* packed, const dnnl::memory::desc& layout) {
  const auto dims = layout.get_dims(), strides = layout.get_strides(), blocks = layout.get_inner_blks(),
             axes = layout.get_inner_idxs();
  if (dims.size() != 5 || dims[1] != 1 || dims[2] != 1 || layout.get_submemory_offset() != 0) return false;
  if (layout.get_data_type() != dnnl::memory::data_type::f32) return false;
  if (layout.get_inner_nblks() != 1 || axes[0] != 0) return false;
  auto* const to = reinterpret_cast<float*>(packed);
  std::memset(packed, 0, layout.get_size());  // also channels up to the next block
  for (i64 channel = 0; channel < dims[0]; ++channel) {
    for (i64 row = 0; row < dims[3]; ++row) {
      for (i64 column = 0; column < dims[4]; ++column) {
        to[channel / blocks[0] * strides[0] + row * strides[3] + column * strides[4] + channel % blocks[0]] = *values++;
      }
    }
  }
  return true;
}

bool unpack_filter(const float* packed, float* values, const dnnl::memory::desc& layout) {
  return move<false>(values, packed, layout);
}

}  // namespace openmps::cpu
