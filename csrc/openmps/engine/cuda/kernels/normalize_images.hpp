// SPDX-License-Identifier: Apache-2.0
// Normalization of each channel of each image (instance normalization) in one kernel: a block or a cluster has 16 bytes
// of channels of an image. It reads them twice, the second time from the caches.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/vectors.hpp"
#include "engine/problem/normalize.hpp"

namespace openmps::cuda::normalization::images {

inline constexpr const char* kFile = "engine/cuda/kernels/normalize_images.hpp";

constexpr int kTogether = 8;  ///< summed in float, which loses no more than rounding a distance does

struct NormalizeImagesArgs {
  Source src;
  View dst;
  Pointer<const float> gamma, beta;
  double epsilon;
  Pointer<float> mean, variance;  ///< of each image and channel; null: not stored
  Pointer<double> exact;          ///< pairs of both; null: not stored
  Activation neuron;              ///< none or relu
};

/// Sums of the distances from a pivot, and of their squares.
struct Moments {
  double sum, squares;
};
struct MomentsOfBlock {
  Moments of_warps[kWarps][kMostLanes], total[kMostLanes];
  float pivot[kMostLanes], mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
};

/// Pixels of a thread: first, first + kStep, ...
template <int kBlocks>
struct Share {
  static constexpr i64 kStep = kBlocks * kThreads;
  static MPSCNN_HOST_DEVICE i64 first(int block, int warp, int lane) {
    return (static_cast<i64>(block) * kWarps + warp) * 32 + lane;
  }
};

MPSCNN_HOST_DEVICE Place pixel_of(const View& view, i64 n, i64 pixel, i64 k) {
  if (view.h == 1) return {n, 0, pixel, k};
  Place at = place_of(pixel, view.h, view.w, 1);
  at.n = n, at.k = k;
  return at;
}

/// Return the sums of a thread's pixels. Several loads are under way at a time; those beyond the last pixel repeat one.
template <int kBlocks>
MPSCNN_HOST_DEVICE void sum_pixels(const View& src, i64 n, i64 k, i64 first, const float (&pivot)[kMostLanes],
                                   Moments (&to)[kMostLanes]) {
  constexpr i64 kStep = Share<kBlocks>::kStep;
  const int lanes = lanes_of<true>(src);
  const i64 pixels = src.h * src.w;
  for (int i = 0; i < lanes; ++i) to[i] = {0, 0};
  for (i64 pixel = first; pixel < pixels; pixel += kTogether * kStep) {
    float x[kTogether][kMostLanes], a[kMostLanes], b[kMostLanes];
    MPSCNN_UNROLL
    for (int j = 0; j < kTogether; ++j)
      load_lanes<true>(src, pixel_of(src, n, pixel + j * kStep < pixels ? pixel + j * kStep : pixel, k), x[j]);
    for (int i = 0; i < lanes; ++i) a[i] = b[i] = 0;
    MPSCNN_UNROLL
    for (int j = 0; j < kTogether; ++j) {
      const bool counts = pixel + j * kStep < pixels;
      for (int i = 0; i < lanes; ++i) {
        const float distance = counts ? x[j][i] - pivot[i] : 0.0f;
        a[i] += distance;
        b[i] += distance * distance;
      }
    }
    for (int i = 0; i < lanes; ++i) to[i].sum += double{a[i]}, to[i].squares += double{b[i]};
  }
}

/// Normalize a thread's pixels, several at a time.
template <int kBlocks>
MPSCNN_HOST_DEVICE void normalize_pixels(const NormalizeImagesArgs& args, i64 n, i64 k, i64 first,
                                         const MomentsOfBlock& known) {
  constexpr int kBatch = 4;
  constexpr i64 kStep = Share<kBlocks>::kStep;
  const View& dst = args.dst;
  const int lanes = lanes_of<true>(dst);
  const i64 pixels = dst.h * dst.w;
  for (i64 pixel = first; pixel < pixels; pixel += kBatch * kStep) {
    float x[kBatch][kMostLanes];
    MPSCNN_UNROLL
    for (int j = 0; j < kBatch; ++j)
      load_lanes<true>(args.src, pixel_of(dst, n, pixel + j * kStep < pixels ? pixel + j * kStep : pixel, k), x[j]);
    MPSCNN_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      if (pixel + j * kStep >= pixels) continue;
      for (int i = 0; i < lanes; ++i) {
        const float y = (x[j][i] - known.mean[i]) * known.scale[i] + known.shift[i];
        x[j][i] = args.neuron.type == NeuronType::relu ? NeuronFormulas<DeviceMath>::relu(y, args.neuron.a) : y;
      }
      store_lanes<true>(dst, pixel_of(dst, n, pixel + j * kStep, k), x[j]);
    }
  }
}

/// Return the mean of the first pixels: the closer it is to the mean, the less is lost when the square of their
/// distance is subtracted.
MPSCNN_HOST_DEVICE void find_pivot(const View& src, i64 n, i64 k, float (&pivot)[kMostLanes]) {
  const int lanes = lanes_of<true>(src);
  const i64 pixels = src.h * src.w, count = pixels < kTogether ? pixels : kTogether;
  for (int i = 0; i < lanes; ++i) pivot[i] = 0;
  for (i64 pixel = 0; pixel < count; ++pixel) {
    float x[kMostLanes];
    load_lanes<true>(src, pixel_of(src, n, pixel, k), x);
    for (int i = 0; i < lanes; ++i) pivot[i] += x[i] / static_cast<float>(count);
  }
}

/// Turn the sums of a channel into coefficients: y = (x - mean) * scale + shift; the shift includes the rounding of the
/// mean.
MPSCNN_HOST_DEVICE void find_coefficients(const NormalizeImagesArgs& args, i64 n, i64 k, int lane,
                                          const Moments& moments, bool stores, MomentsOfBlock& to) {
  const View& src = args.src.view;
  const auto pixels = static_cast<double>(src.h * src.w);
  const double mean = to.pivot[lane] + moments.sum / pixels;
  double variance = (moments.squares - moments.sum * (moments.sum / pixels)) / pixels;
  if (variance < 0) variance = 0;  // by rounding
  const double factor = args.gamma[k] / ::sqrt(variance + args.epsilon);
  to.mean[lane] = static_cast<float>(mean);
  to.scale[lane] = static_cast<float>(factor);
  to.shift[lane] = static_cast<float>(args.beta[k] + (to.mean[lane] - mean) * factor);
  if (!stores) return;
  const i64 index = n * src.c + k;
  if (args.mean) args.mean[index] = static_cast<float>(mean);
  if (args.variance) args.variance[index] = static_cast<float>(variance);
  if (args.exact) args.exact[2 * index] = mean, args.exact[2 * index + 1] = variance;
}

template <int kBlocks>
MPSCNN_HOST_DEVICE void normalize_image(const NormalizeImagesArgs& args, i64 index, const Cluster<kBlocks>& cluster) {
  const View& src = args.src.view;
  const int lanes = lanes_of<true>(src);
  const i64 vectors = src.c / lanes, n = index / vectors, k = (index - n * vectors) * lanes;
  float pivot[kMostLanes];
  find_pivot(src, n, k, pivot);
  MPSCNN_SHARED(MomentsOfBlock, shared, kBlocks);
  cluster.each_warp([&](int block, int warp) {
    Moments own[kHeldLanes][kMostLanes];
    for (int l = 0; l < kHeldLanes; ++l)
      sum_pixels<kBlocks>(src, n, k, Share<kBlocks>::first(block, warp, lane_of(l)), pivot, own[l]);
    for (int i = 0; i < lanes; ++i) {
      shared.own(block).pivot[i] = pivot[i];  // the same in all threads
      Moments of_lanes[kHeldLanes];
      for (int l = 0; l < kHeldLanes; ++l) of_lanes[l] = own[l][i];
      shared.own(block).of_warps[warp][i] = reduce_lanes(
          of_lanes, [](const Moments& a, const Moments& b) { return Moments{a.sum + b.sum, a.squares + b.squares}; });
    }
  });
  // Each thread below has a channel.
  cluster.each_warp([&](int block, int warp) {
    MomentsOfBlock& own = shared.own(block);
    for (int l = 0; l < kHeldLanes; ++l) {
      const int i = lane_of(l);
      if (warp > 0 || i >= lanes) continue;
      own.total[i] = {0, 0};
      for (int w = 0; w < kWarps; ++w)
        own.total[i].sum += own.of_warps[w][i].sum, own.total[i].squares += own.of_warps[w][i].squares;
    }
  });
  cluster.join();
  cluster.each_warp([&](int block, int warp) {
    for (int l = 0; l < kHeldLanes; ++l) {
      const int i = lane_of(l);
      if (warp > 0 || i >= lanes) continue;
      Moments moments{0, 0};
      for (int b = 0; b < kBlocks; ++b)
        moments.sum += shared.of(b).total[i].sum, moments.squares += shared.of(b).total[i].squares;
      find_coefficients(args, n, k + i, i, moments, block == 0, shared.own(block));
    }
  });
  cluster.each_warp([&](int block, int warp) {
    for (int l = 0; l < kHeldLanes; ++l)
      normalize_pixels<kBlocks>(args, n, k, Share<kBlocks>::first(block, warp, lane_of(l)), shared.own(block));
  });
  cluster.join();  // the other blocks read this one's sums
}

MPSCNN_BLOCK_KERNEL(normalize_images, NormalizeImagesArgs) { normalize_image(args, index, Cluster<1>()); }
#if MPSCNN_HAS_CLUSTERS
MPSCNN_CLUSTER_KERNEL(normalize_images_cluster, NormalizeImagesArgs, 8) { normalize_image(args, index, cluster); }
#endif

}  // namespace openmps::cuda::normalization::images
