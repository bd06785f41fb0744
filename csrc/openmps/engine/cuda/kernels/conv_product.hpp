// SPDX-License-Identifier: Apache-2.0
// Convolutions of 1 x 1 on tensor cores, and the packed weights of all such kernels.
#pragma once

#include "engine/cuda/kernels/tensor_cores.hpp"

namespace openmps::cuda::product {

inline constexpr const char* kFile = "engine/cuda/kernels/conv_product.hpp";

struct PackWeightsArgs {
  Pointer<const float> from;  ///< [outputs][rows][columns][own]
  Pointer<Halves8> to;        ///< [group][chunk][column tile][lane]
  i64 outputs, rows, own;
  i64 columns;    ///< packed as outputs: those of column 0, of column 1, ...; 1: the columns are part of `own`
  bool reversed;  ///< the last column is the first one packed
  i64 row_terms;  ///< of a row of the kernel: `before` zeros, its own values, zeros
  i64 before;
  i64 chunks;
};
/// Put weights in the order of tensor cores. One thread for 8 terms.
MPSCNN_VALUE_KERNEL(pack_weights, PackWeightsArgs) {
  const int lane = static_cast<int>(index % 32), tile = static_cast<int>(index / 32 % kColumnTiles);
  const i64 rest = index / (32 * kColumnTiles), group = rest / args.chunks, chunk = rest - group * args.chunks;
  const i64 packed = group * kOutputs + output_of(lane, tile), column = packed / args.outputs,
            output = packed - column * args.outputs, from_column = args.reversed ? args.columns - 1 - column : column;
  float values[8];
  for (int i = 0; i < 8; ++i) {
    const i64 term = chunk * kTerms + term_of(lane, i), row = term / args.row_terms,
              at = term - row * args.row_terms - args.before;
    values[i] = column < args.columns && row < args.rows && at >= 0 && at < args.own
                    ? args.from[((output * args.rows + row) * args.columns + from_column) * args.own + at]
                    : 0.0f;
  }
  Halves8 halves;
  for (int i = 0; i < 4; ++i) halves.words[i] = half_pair(values[2 * i], values[2 * i + 1]);
  args.to[index] = halves;
}

/// Rows of a 1 x 1 convolution: the channels of a pixel.
class Pixels {
 public:
  using Args = ProductArgs;
  struct Row {
    const unsigned char* from;
  };
  struct Terms {
    int offset;
    bool are_inside;
  };

  MPSCNN_HOST_DEVICE explicit Pixels(const ProductArgs& args)
      : src_(args.src), channels_(static_cast<int>(args.src.c)) {}
  MPSCNN_HOST_DEVICE Row row(const Place& at, int lane) const {
    return {src_.data.get() + 2 * (offset_of(src_, at) + term_of(lane, 0))};
  }
  MPSCNN_HOST_DEVICE Terms terms(int chunk, int lane) const {
    return {2 * kTerms * chunk, kTerms * chunk + term_of(lane, 0) < channels_};
  }
  MPSCNN_HOST_DEVICE Halves8 load(const Row& row, const Terms& terms) const {
    return load_constant<4>(row.from + terms.offset, terms.are_inside);
  }

 private:
  const View& src_;
  const int channels_;
};

/// A warp per tile, for all outputs. The rows have one chunk, which is loaded once.
template <int kRowTiles>
MPSCNN_HOST_DEVICE void compute_wide(const ProductArgs& args, i64 index) {
  const i64 first = index * (kRowTiles * kTileRows);
  Chunk<kRowTiles> chunk;
  Rows<Pixels, kRowTiles>(args, first).load(0, chunk);
#pragma unroll 1
  for (i64 group = 0; group < args.groups; ++group) {
    Sums<kRowTiles, 1> sums;
    start(args, group, sums);
    add_chunk(args, group, 0, chunk, sums);
    finish<false>(args, first, group, sums);
  }
}

// Rows x outputs of a tile. Blocks per multiprocessor: as many as leave the compiler enough registers.
MPSCNN_WARP_KERNEL(conv_product_16x32, ProductArgs, 4) { compute<Pixels, 1, 1>(args, index); }
MPSCNN_WARP_KERNEL(conv_product_32x64, ProductArgs, 2) { compute<Pixels, 2, 2>(args, index); }
MPSCNN_WARP_KERNEL(conv_product_any, ProductArgs) { compute<Pixels, 1, 1, true>(args, index); }
MPSCNN_WARP_KERNEL(conv_product_wide, ProductArgs, 4) { compute_wide<1>(args, index); }

// The terms are divided among warps, and among the blocks of a cluster.
MPSCNN_BLOCK_KERNEL(conv_product_split_16x32, ProductArgs) {
  compute_split<Pixels, 1, 1, 4>(args, index, Cluster<1>());
}
MPSCNN_BLOCK_KERNEL(conv_product_split_64x32, ProductArgs) {
  compute_split<Pixels, 2, 2, 3>(args, index, Cluster<1>());
}
#if MPSCNN_HAS_CLUSTERS
MPSCNN_CLUSTER_KERNEL(conv_product_cluster_2, ProductArgs, 2) { compute_split<Pixels, 2, 2, 3>(args, index, cluster); }
MPSCNN_CLUSTER_KERNEL(conv_product_cluster_4, ProductArgs, 4) { compute_split<Pixels, 2, 2, 3>(args, index, cluster); }
MPSCNN_CLUSTER_KERNEL(conv_product_cluster_8, ProductArgs, 8) { compute_split<Pixels, 2, 2, 3>(args, index, cluster); }
#endif

}  // namespace openmps::cuda::product
