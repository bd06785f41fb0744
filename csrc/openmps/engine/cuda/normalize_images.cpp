// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/normalize_images.hpp"

#include "engine/cuda/kernels/normalize_images.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {

const char* run_normalize_images(const Call<NormalizeProblem>& call) {
  const auto& [p, work] = call;
  if (p.groups == 0 || p.groups != p.dst.c) return "not statistics of each channel of each image";
  normalization::images::NormalizeImagesArgs args{
      .src = work.source(p.src),
      .dst = work.view(p.dst),
      .gamma = {work.values_address(p.gamma.memory, p.gamma.offset)},
      .beta = {work.values_address(p.beta.memory, p.beta.offset)},
      .epsilon = p.epsilon,
      .mean = work.values(p.mean),
      .variance = work.values(p.variance),
      .exact = {work.values_address(p.exact.memory, p.exact.offset)},
      .neuron = neuron_is_identity(p.neuron) ? Activation{} : work.activation(p.neuron)};
  if (args.neuron.type != NeuronType::none && args.neuron.type != NeuronType::relu) return "a neuron other than relu";
  if (const char* const reason = why_no_vectors({&args.src.view, &args.dst})) return reason;
  if (p.src.start_h == 0 && p.src.start_w == 0 && args.src.view.h == args.dst.h && args.src.view.w == args.dst.w) {
    const View src = flattened(args.src.view, false), dst = flattened(args.dst, false);
    if (src.h == dst.h) args.src.view = src, args.dst = dst;  // one row of pixels needs no divisions
  }
  const Gpu& gpu = work.gpu();
  const i64 vectors = args.dst.n * args.dst.c / lanes_in_vector(args.dst), pixels = args.src.view.h * args.src.view.w;
  // A multiprocessor reads some 64 bytes per cycle from the L2 cache: a few of them are slower than two more kernels.
  constexpr i64 kFewPixels = 4 * kThreads, kBlocks = 8;
  const bool in_clusters = gpu.has_clusters() && pixels >= kFewPixels && vectors < 4 * gpu.processors();
  // Clusters of 16 vectors took 40 us for 128 x 128 pixels, where three kernels that fill the GPU take 15 [an H200].
  if (pixels >= kFewPixels && vectors * (in_clusters ? kBlocks : 1) < 2 * gpu.processors())
    return "few channels of a large image";
  if (in_clusters)
    work.launch(normalization::images::normalize_images_cluster, args, vectors, {&args.src.view, &args.dst});
  else
    work.launch(normalization::images::normalize_images, args, vectors, {&args.src.view, &args.dst});
  return nullptr;
}

}  // namespace openmps::cuda
