// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients as graphs of cuDNN and products of cuBLASLt.
#include "engine/cuda/conv_staging.hpp"
#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/groups.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/normalization.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

constexpr const char* kNothing = "no library supports it";

void set_neuron(ConvGraph& graph, const Neuron& neuron) {
  graph.neuron = neuron_is_identity(neuron) ? NeuronType::none : neuron.type;
  graph.neuron_a = neuron.a, graph.neuron_b = neuron.b;
}

/// Return whether a convolution only samples pixels of the image, from the first on.
bool samples(const ConvWeights& weights, const Window& window, const ImageView& image, const ImageView& result) {
  return (result.h - 1) * window.stride_h < image.h && (result.w - 1) * window.stride_w < image.w &&
         weights.kernel_h * weights.kernel_w == 1 && weights.groups == 1 && weights.in_channels_per_group % 4 == 0 &&
         window.stride_h * window.stride_w > 1 && window.start_h == 0 && window.start_w == 0;
}

const char* why_not_gradient(const ConvGradientProblem& p, const ImageView& image, Work& work) {
  if (const char* const reason = why_not(work, *p.weights, p.diff_dst.size())) return reason;
  if (p.window.edge != Edge::zero) return "clamped edges";
  if (!is_float(p.diff_dst.format)) return "neither float16 nor float32";
  if (image.format != p.diff_dst.format) return "two formats";
  if (!is_aligned(work.view(p.diff_dst))) return "pixels are not aligned to 16 bytes";
  return nullptr;
}

constexpr i64 kManyValues = 1 << 25;  // of a result: with fewer, less than 20 us are gained (H200)

/// Return why a convolution and the sums of its result are not computed together. The order of cuDNN's additions
/// changes between runs.
const char* why_not_sums(const ConvProblem& conv, const BatchMomentsProblem& moments) {
  if (conv.dst.format != Format::float16 || !conv.reduced_precision) return "not float16, or exact sums";
  if (!conv.weights->bias.empty() || conv.addend.memory || !neuron_is_identity(conv.neuron) ||
      !neuron_is_identity(conv.after) || conv.subpixel > 1)
    return "more than a convolution before the sums";
  if (moments.count > 0) return "moments of more images";  // candidates run several times
  if (!dispatch().only.empty() && dispatch().only != "cuda_conv_moments") return "another implementation is asked for";
  if (!(moments.src == conv.dst) || !conv.dst.is_dense()) return "other images, or gaps between the pixels";
  return nullptr;
}
const char* why_not_sums(const ConvProblem& conv, const BatchMomentsProblem& moments, Work& work) {
  if (const char* const reason = why_not_sums(conv, moments)) return reason;
  const bool is_test = work.gpu().driver().is_host || !dispatch().only.empty();  // whose images are small
  return conv.dst.size() < kManyValues && !is_test ? "few values" : nullptr;
}

/// Compute a convolution and the moments of its result. The candidates are plans of cuDNN that sum the values of each
/// channel before they store them, and the two one after the other.
const char* run_with_sums(Work& work, const Tunable& plain, ConvGraph& graph, const BatchMomentsProblem& moments) {
  graph.alignment = alignment_of(plain);
  const auto apart = Choices::all().of(work, plain);
  if (!apart) return kNothing;
  ConvGraph summed = graph;
  summed.has_sums = true;
  const std::size_t bytes = aligned(static_cast<std::size_t>(graph.y[1]) * sizeof(float));
  Address sums = 0;
  const auto operands = [&](Address scratch) {
    ConvAddresses result = plain.operands(scratch);
    sums = scratch + plain.staged;
    result.sums = sums, result.squares = sums + bytes;
    return result;
  };
  const auto finish = [&] { finish_moments(moments, work, {sums}, {sums + bytes}); };
  const auto run_apart = [&] {
    plain.run(work, *apart, work.scratch(plain.staged + apart->workspace_bytes() + 1));
    solve(moments, work);
  };
  const Tunable tunable{summed, plain.staged + 2 * bytes, operands, plain.prepare, finish, {{"apart", run_apart}}};
  return run_fastest(work, tunable) ? nullptr : kNothing;
}

/// Apply the activation to an image in place.
void activate(Work& work, const ImageView& dst, const Neuron& neuron) { solve(NeuronProblem{dst, dst, neuron}, work); }

/// Run a convolution and, unless null, the moments of its result.
const char* run_forward(const ConvProblem& p, const BatchMomentsProblem* moments, Work& work) {
  if (const char* const reason = why_not(work, *p.weights, p.dst.size())) return reason;
  if (p.window.edge != Edge::zero) return "clamped edges";
  if (p.subpixel > 1) return "sub-pixel";
  if (!is_float(p.dst.format)) return "neither float16 nor float32";
  if (p.addend.memory && p.addend.format != p.dst.format) return "an addend of another format";
  const View dst = work.view(p.dst), addend = work.view(p.addend);
  if (!is_aligned(dst) || (addend && !is_aligned(addend))) return "pixels are not aligned to 16 bytes";
  if (addend.data.address == dst.data.address) return "a sum over its addend";  // candidates run several times
  const ConvWeights& weights = *p.weights;
  ImageView src = p.src;
  Window window = p.window;
  if (const char* const reason = crop(src, window, weights, p.dst)) return reason;
  // 1 x 1 with strides is a product of some of the pixels, once they are together.
  const bool is_sampled = samples(weights, window, src, p.dst);
  if (is_sampled) {
    src.h_stride *= window.stride_h, src.w_stride *= window.stride_w;
    src.h = p.dst.h, src.w = p.dst.w;
    window.stride_h = window.stride_w = 1;
  }

  // Tensor cores take 16 bytes of channels at once; 4 channels of float16 are faster than 8 [measured on an H200].
  const Format format = p.dst.format;
  std::int64_t channels = weights.in_channels_per_group;
  if (weights.groups == 1 && channels < 4) channels = 4;
  const bool is_staged =
      channels != weights.in_channels_per_group || src.format != format || is_sampled || !is_aligned(work.view(src));
  ConvGraph graph;
  graph.format = format;
  graph.reduced_precision = p.reduced_precision;
  set_window(graph, window, weights, src, p.dst, channels);
  if (!pads_after(graph)) return "windows outside of the source";
  if (is_staged && weights.groups > 1) channels *= weights.groups;
  const StagedSource source(graph, src, is_staged, channels);
  graph.y = extents_of(p.dst), graph.y_strides = strides_of(p.dst);
  graph.has_bias = !weights.bias.empty();
  std::vector<OwnKernel> own = own_kernels(Call<ConvProblem>{p, work});
  // On an H200, sums of rows with gaps wrote beside the result. Plans that take the addend's strides for the result's
  // are suspected.
  const bool adds_apart = p.addend.memory && strides_of(p.addend) != graph.y_strides;
  if (adds_apart && !own.empty()) return "an addend with other strides";
  graph.has_addend = p.addend.memory && !adds_apart;
  if (graph.has_addend) graph.addend_strides = strides_of(p.addend);
  // cuDNN compiles its kernels for ReLUN at run time: a second pass is faster, if not one of our kernels.
  const auto is_part = [&](const Neuron& neuron) {
    return neuron_is_identity(neuron) ||
           (cudnn_has(neuron, format) && (own.empty() || neuron.type != NeuronType::relun));
  };
  const bool has_neuron = is_part(p.neuron), has_after = !adds_apart && is_part(p.after);
  if (!has_neuron && graph.has_addend) return "an activation before the sum";
  if (has_neuron) set_neuron(graph, p.neuron);
  if (has_after) graph.after = p.after.type, graph.after_a = p.after.a, graph.after_b = p.after.b;

  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&](Address scratch) {
    ConvAddresses result;
    result.x = source.address(work, scratch);
    result.addend = graph.has_addend ? work.view(p.addend).data.address : 0;
    result.y = work.view(p.dst).data.address;
    if (!scratch) return result;  // a kernel of ours may read other copies of the weights
    result.w = copies.padded(weights, graph.w[1], format);
    result.bias = format == Format::float16 ? copies.half_bias(weights).address : copies.bias(weights).address;
    return result;
  };
  const auto stage = [&](Address scratch) { source.stage(work, scratch); };
  Tunable tunable{graph, source.bytes(), operands, stage, {}, std::move(own)};
  if (!has_neuron || !has_after || adds_apart)
    tunable.finish = [&] {
      if (!has_neuron) activate(work, p.dst, p.neuron);
      if (adds_apart) solve(BinaryProblem{{p.dst}, {p.addend}, p.dst, {}}, work);
      if (!has_after) activate(work, p.dst, p.after);
    };
  if (moments) return run_with_sums(work, tunable, graph, *moments);
  return run_fastest(work, tunable) ? nullptr : kNothing;
}

/// A convolution and the moments of its result.
struct ConvMoments {
  const ConvProblem& conv;
  const BatchMomentsProblem& moments;
};
const char* run_conv_moments(const Call<ConvMoments>& call) {
  const auto& [conv, moments] = call.problem;
  if (const char* const reason = why_not_sums(conv, moments, call.work)) return reason;
  return run_forward(conv, &moments, call.work);
}
constexpr Implementation<Call<ConvMoments>> kConvMoments[] = {{"cuda_conv_moments", run_conv_moments}};
const ImplementationNames kConvMomentsNames(kConvMoments);

}  // namespace

bool may_sum(const ConvProblem& conv, const BatchMomentsProblem& moments) { return !why_not_sums(conv, moments); }
bool solve(const ConvProblem& conv, const BatchMomentsProblem& moments, Work& work) {
  return try_first("convolve, batch_moments", kConvMoments, Call<ConvMoments>{{conv, moments}, work});
}

const char* run_conv_tuned(const Call<ConvProblem>& call) { return run_forward(call.problem, nullptr, call.work); }

const char* run_conv_data_tuned(const DataCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (const char* const reason = why_not_gradient(p, p.diff_src, work)) return reason;
  if (!is_aligned(work.view(p.diff_src))) return "pixels are not aligned to 16 bytes";
  const ConvWeights& weights = *p.weights;
  Window window = p.window;
  window.start_h -= p.first_h, window.start_w -= p.first_w;
  ConvGraph graph;
  graph.kind = ConvGraph::Kind::data;
  graph.format = p.diff_dst.format;
  graph.reduced_precision = p.reduced_precision;
  ImageView diff_src = p.diff_src;
  // 1 x 1 with strides is a product that some of the pixels receive, and zeros between them.
  const bool is_sampled = samples(weights, window, p.diff_src, p.diff_dst);
  if (is_sampled) {
    diff_src.h = p.diff_dst.h, diff_src.w = p.diff_dst.w;
    diff_src.w_stride = diff_src.c, diff_src.h_stride = diff_src.w * diff_src.c;
    diff_src.n_stride = diff_src.h * diff_src.h_stride;
    window.stride_h = window.stride_w = 1;
  }
  set_window(graph, window, weights, diff_src, p.diff_dst, weights.in_channels_per_group);
  if (const char* const reason = why_not_paddings(graph)) return reason;
  graph.x = extents_of(diff_src), graph.x_strides = strides_of(diff_src);
  graph.y = extents_of(p.diff_dst), graph.y_strides = strides_of(p.diff_dst);
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&](Address scratch) {
    ConvAddresses result;
    result.x = is_sampled ? scratch : work.view(p.diff_src).data.address;
    result.w = copies.padded(weights, weights.in_channels_per_group, graph.format);
    result.y = work.view(p.diff_dst).data.address;
    result.turned_w = [&] { return copies.transposed(weights, graph.format); };
    return result;
  };
  const std::size_t staged =
      is_sampled ? aligned(static_cast<std::size_t>(diff_src.size()) * size_of(diff_src.format)) : 0;
  const auto scratch = run_fastest(work, {graph, staged, operands});
  if (!scratch) return kNothing;
  if (!is_sampled) return nullptr;
  ImageView described = diff_src;
  described.memory = nullptr;
  layout::SpreadPixelsArgs args{work.view(described), work.view(p.diff_src), p.window.stride_h, p.window.stride_w};
  args.from.data = {*scratch};
  args.from.format = diff_src.format;
  args.from.n_stride = diff_src.n_stride, args.from.h_stride = diff_src.h_stride,
  args.from.w_stride = diff_src.w_stride;
  if (why_no_vectors({&args.from, &args.to}))
    work.launch(layout::spread_pixels, args, p.diff_src.size(), {&args.from, &args.to});
  else
    work.launch(layout::spread_vectors, args, p.diff_src.size() / lanes_in_vector(args.to), {&args.from, &args.to});
  return nullptr;
}

const char* run_conv_weights_tuned(const WeightsCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  if (const char* const reason = why_not_gradient(p, p.src, work)) return reason;
  const ConvWeights& weights = *p.weights;
  ImageView src = p.src;
  Window window = p.window;
  if (const char* const reason = crop(src, window, weights, p.diff_dst)) return reason;
  const bool is_sampled = samples(weights, window, src, p.diff_dst);
  if (is_sampled) {
    src.h_stride *= window.stride_h, src.w_stride *= window.stride_w;
    src.h = p.diff_dst.h, src.w = p.diff_dst.w;
    window.stride_h = window.stride_w = 1;
  }
  const Format format = p.diff_dst.format;
  const std::int64_t own = weights.in_channels_per_group;
  const std::int64_t channels = weights.groups == 1 && own < 4 ? 4 : own;
  ConvGraph graph;
  graph.kind = ConvGraph::Kind::weights;
  graph.format = format;
  graph.weights_format = Format::float32;  // a float16 would lose digits of the sums
  graph.reduced_precision = p.reduced_precision;
  set_window(graph, window, weights, src, p.diff_dst, channels);
  if (const char* const reason = why_not_paddings(graph)) return reason;
  const bool is_staged = channels != own || is_sampled || !is_aligned(work.view(src));
  const StagedSource source(graph, src, is_staged, is_staged ? channels * weights.groups : channels);
  graph.y = extents_of(p.diff_dst), graph.y_strides = strides_of(p.diff_dst);
  const auto count = static_cast<i64>(weights.values.size());
  const Address at_once = p.accumulates || channels != own ? 0 : whole_address(work.values(p.diff_weights));
  const std::size_t result_bytes =
      at_once ? 0 : aligned(static_cast<std::size_t>(count / own * channels) * sizeof(float));
  const auto operands = [&](Address scratch) {
    ConvAddresses result;
    result.x = source.address(work, scratch);
    result.w = at_once ? at_once : scratch + source.bytes();
    result.writes_w = true;
    result.y = work.view(p.diff_dst).data.address;
    return result;
  };
  const auto stage = [&](Address scratch) { source.stage(work, scratch); };
  const auto scratch = run_fastest(work, {graph, source.bytes() + result_bytes, operands, stage});
  if (!scratch) return kNothing;
  if (!at_once)
    work.launch(layout::add_gradient,
                {.from = {*scratch + source.bytes()},
                 .to = work.values(p.diff_weights),
                 .format = graph.weights_format,
                 .channels = own,
                 .all_channels = channels,
                 .accumulates = p.accumulates},
                count);
  if (!p.diff_bias.memory) return nullptr;
  ConvGradientProblem bias = p;
  bias.diff_weights = {};
  return run_conv_weights_loop({bias, work});
}

}  // namespace openmps::cuda
