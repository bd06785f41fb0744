// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/normalization.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"
#include "engine/cuda/lanes.hpp"
#include "engine/cuda/normalize_images.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using namespace normalization;

constexpr i64 kThreadsOfGpu = 64 * 1024;  // each has several loads under way; more would store more partial sums
constexpr i64 kPixelsPerPart = 2 * kTogether;
constexpr const char* kOtherNeuron = "a neuron other than relu";

/// Offsets of parts of the scratch memory, multiples of 16 bytes.
class Layout {
 public:
  std::size_t add(i64 count, std::size_t size) {
    const std::size_t offset = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * size + 15) / 16 * 16;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Scratch memory for coefficients and sums of `sets` sets of channels: one per image, or one.
struct Memories {
  std::size_t mean, scale, shift, own, slope, constant, pivots, partial, pairs, of_channels;
  Address base;

  Memories(Work& work, i64 sets, i64 channels, i64 groups, i64 parts) {
    Layout layout;
    for (std::size_t* each : {&mean, &scale, &shift, &own, &slope, &constant, &pivots})
      *each = layout.add(sets * channels, sizeof(float));
    partial = layout.add(sets * parts * channels, sizeof(Pair));
    pairs = layout.add(sets * std::max<i64>(groups, 1), sizeof(Pair));
    of_channels = layout.add(sets * channels, sizeof(Pair));
    base = work.scratch(layout.bytes());
  }
  Coefficients coefficients() const { return {{base + mean}, {base + scale}, {base + shift}}; }
};

Statistics statistics_of(Work& work, const ChannelValues& mean, const ChannelValues& variance,
                         const ChannelValues& exact) {
  return {work.values(mean), work.values(variance), {work.values_address(exact.memory, exact.offset)}};
}

Pointer<const float> constants_of(Work& work, const ChannelValues& values) {
  return {work.values_address(values.memory, values.offset)};
}

Activation activation_of(Work& work, const Neuron& neuron) {
  return neuron_is_identity(neuron) ? Activation{} : work.activation(neuron);
}
bool is_simple(const Activation& f) { return f.type == NeuronType::none || f.type == NeuronType::relu; }

/// Make rows or images of pixels one row, in both images, if the source's pixels are those of the other image.
void flatten(Source& source, View& other, bool across_images) {
  const View a = source.view, b = other;
  if (source.start_h != 0 || source.start_w != 0 || a.n != b.n || a.h != b.h || a.w != b.w) return;
  const View flat = flattened(a, across_images), flat_other = flattened(b, across_images);
  if (flat.n != flat_other.n || flat.h != flat_other.h) return;
  source.view = flat, other = flat_other;
}

bool is_row(const View& view) { return view.n == 1 && view.h == 1; }
/// Return whether pixel i of the source is pixel i of the other image.
bool are_rows(const Source& source, const View& other) {
  return is_row(source.view) && is_row(other) && source.view.w == other.w && source.start_h == 0 && source.start_w == 0;
}

/// Return the distance of the pixels of a thread of a row, so that each has PixelsOfThread::kCount in each turn.
i64 step_in_row(const View& row) {
  constexpr i64 kPixels = PixelsOfThread::kCount * PixelsOfThread::kTurns;
  return (row.w + kPixels - 1) / kPixels;
}

/// Return how many parts the pixels of each set are summed in.
i64 parts_for(const View& pixels, i64 sets, bool by_vectors) {
  const i64 threads = sets * pixels.c / (by_vectors ? lanes_in_vector(pixels) : 1);
  const i64 count = pixels.n * pixels.h * pixels.w / sets;
  return std::clamp<i64>(kThreadsOfGpu / threads, 1, std::max<i64>(1, count / kPixelsPerPart));
}

/// Enqueue the kernel that sums the parts.
void sum_parts(Work& work, const Kernel<PartsArgs>& values, const Kernel<PartsArgs>& vectors, PartsArgs args, i64 sets,
               bool by_vectors) {
  const i64 lanes = by_vectors ? lanes_in_vector(args.pixels) : 1;
  const View &pixels = args.pixels, &src = args.src.view;
  args.is_row = pixels.h == 1 && (args.is_per_image || pixels.n == 1);
  if (src)
    args.is_row = args.is_row && src.n == pixels.n && src.h == 1 && src.w == pixels.w && args.src.start_h == 0 &&
                  args.src.start_w == 0;
  work.launch(by_vectors ? vectors : values, args, sets * args.parts * (args.pixels.c / lanes),
              {&args.pixels, &args.src.view});
}

void find_coefficients(Work& work, const Statistics& statistics, const Groups& groups, i64 sets,
                       const ChannelValues& gamma, const ChannelValues& beta, float epsilon,
                       const Coefficients& result) {
  const CoefficientsArgs args{statistics, groups, constants_of(work, gamma), constants_of(work, beta), epsilon, result};
  work.launch(normalization_coefficients, args, sets * groups.channels);
}

// ------------------------------------------------------------------------------------------------------ normalization

enum class Form : std::uint8_t { one, vectors, three_bytes };

const char* why_not_three_bytes(const NormalizeProblem& p, const NormalizeArgs& args) {
  const View &src = args.src.view, &dst = args.dst;
  if (src.format != Format::unorm8 || dst.format != Format::float16 || src.c != 3) return "not from 3 unorm8 channels";
  if (p.groups > 0) return "statistics of groups";
  if (!is_simple(args.neuron)) return kOtherNeuron;
  if (!is_like(args.src, dst) || src.n != dst.n || !is_dense(src) || !is_dense(dst)) return "gaps between the values";
  if (src.n * src.h * src.w % 4 || src.data.address % 4 || dst.data.address % 8) return "values are not aligned";
  return nullptr;
}

const char* run_normalize(const Call<NormalizeProblem>& call, Form kind) {
  const auto& [p, work] = call;
  const bool by_vectors = kind == Form::vectors;
  NormalizeArgs args{.src = work.source(p.src),
                     .dst = work.view(p.dst),
                     .coefficients = {},
                     .is_per_image = p.groups > 0,
                     .neuron = activation_of(work, p.neuron),
                     .step = 0};
  if (by_vectors) {
    if (!is_simple(args.neuron)) return kOtherNeuron;
    if (const char* why_not = why_no_vectors({&args.src.view, &args.dst})) return why_not;
  }
  if (kind == Form::three_bytes)
    if (const char* why_not = why_not_three_bytes(p, args)) return why_not;
  const View src = flattened(args.src.view, false);
  const i64 sets = p.groups > 0 ? src.n : 1, c = src.c;
  const bool sums_vectors = !why_no_vectors({&src});
  const i64 parts = p.groups > 0 ? parts_for(src, sets, sums_vectors) : 0;
  const Groups groups{c, p.groups};
  const Memories memories(work, sets, c, p.groups, parts);
  args.coefficients = memories.coefficients();
  Statistics statistics = statistics_of(work, p.mean, p.variance, p.exact);
  if (p.groups > 0) {
    PartsArgs sums{};
    sums.pixels = src, sums.is_per_image = true, sums.parts = parts;
    sums.partial = {memories.base + memories.partial}, sums.pivots = {memories.base + memories.pivots};
    sum_parts(work, moments_parts, moments_parts_vectors, sums, sets, sums_vectors);
    const MomentsArgs moments{.channels = c,
                              .parts = parts,
                              .pixels = src.h * src.w,
                              .partial = {sums.partial.address},
                              .pivots = {sums.pivots.address},
                              .result = statistics,
                              .before = 0,
                              .groups = groups,
                              .pairs = {memories.base + memories.pairs}};
    work.launch(moments_of_groups, moments, sets * p.groups);
    statistics = {{}, {}, moments.pairs};
  }
  find_coefficients(work, statistics, groups, sets, p.gamma, p.beta, p.epsilon, args.coefficients);
  if (kind == Form::three_bytes) {
    work.launch(normalize_three_bytes, args, p.dst.n * p.dst.h * p.dst.w / 4, {&args.src.view, &args.dst});
    return nullptr;
  }
  flatten(args.src, args.dst, !args.is_per_image);
  const i64 lanes = by_vectors ? lanes_in_vector(args.dst) : 1;
  if (by_vectors && !args.is_per_image && are_rows(args.src, args.dst)) {
    args.step = step_in_row(args.dst);
    work.launch(normalize_rows, args, args.step * (args.dst.c / lanes), {&args.src.view, &args.dst});
    return nullptr;
  }
  work.launch(by_vectors ? normalize_vectors : normalize, args, p.dst.size() / lanes, {&args.src.view, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<NormalizeProblem>> kNormalizations[] = {
    {"cuda_normalize_images", run_normalize_images},
    {"cuda_normalize_vectors", [](const Call<NormalizeProblem>& call) { return run_normalize(call, Form::vectors); }},
    {"cuda_normalize_three_bytes",
     [](const Call<NormalizeProblem>& call) { return run_normalize(call, Form::three_bytes); }},
    {"cuda_normalize", [](const Call<NormalizeProblem>& call) { return run_normalize(call, Form::one); }},
};
const ImplementationNames kNormalizationNames(kNormalizations);

const char* run_moments(const Call<BatchMomentsProblem>& call, bool by_vectors) {
  const auto& [p, work] = call;
  PartsArgs sums{};
  sums.pixels = flattened(work.view(p.src), true);
  if (by_vectors)
    if (const char* why_not = why_no_vectors({&sums.pixels})) return why_not;
  sums.parts = parts_for(sums.pixels, 1, by_vectors);
  const Memories memories(work, 1, p.src.c, 0, sums.parts);
  sums.partial = {memories.base + memories.partial}, sums.pivots = {memories.base + memories.pivots};
  sum_parts(work, moments_parts, moments_parts_vectors, sums, 1, by_vectors);
  const MomentsArgs moments{.channels = p.src.c,
                            .parts = sums.parts,
                            .pixels = p.src.n * p.src.h * p.src.w,
                            .partial = {sums.partial.address},
                            .pivots = {sums.pivots.address},
                            .result = statistics_of(work, p.mean, p.variance, p.exact),
                            .before = p.count,
                            .groups = {},
                            .pairs = {}};
  work.launch(moments_of_batch, moments, p.src.c);
  return nullptr;
}

constexpr Implementation<Call<BatchMomentsProblem>> kBatchMoments[] = {
    {"cuda_batch_moments_vectors", [](const Call<BatchMomentsProblem>& call) { return run_moments(call, true); }},
    {"cuda_batch_moments", [](const Call<BatchMomentsProblem>& call) { return run_moments(call, false); }},
};
const ImplementationNames kBatchMomentsNames(kBatchMoments);

// ---------------------------------------------------------------------------------------------------------- gradients

/// Return the arguments of the kernel that sums the gradient of the result, `diff_dst`.
PartsArgs gradient_parts(Work& work, const ImageView& diff_dst, const Operand& src, const Activation& neuron,
                         bool is_per_image) {
  PartsArgs sums{};
  sums.pixels = work.view(diff_dst), sums.src = work.source(src);
  sums.is_per_image = is_per_image;
  sums.neuron = neuron;
  flatten(sums.src, sums.pixels, !is_per_image);
  return sums;
}
const char* why_no_vectors_for(const PartsArgs& sums) {
  return is_simple(sums.neuron) ? why_no_vectors({&sums.pixels, &sums.src.view}) : kOtherNeuron;
}

template <class P>
GradientSumsArgs sums_of(Work& work, const P& p, const Groups& groups, i64 parts, const Memories& memories) {
  return {.parts = parts,
          .partial = {memories.base + memories.partial},
          .statistics = statistics_of(work, p.mean, p.variance, p.exact),
          .groups = groups,
          .gamma = constants_of(work, p.gamma),
          .epsilon = p.epsilon,
          .images = 1,
          .count = 0,
          .diff_gamma = work.values(p.diff_gamma),
          .diff_beta = work.values(p.diff_beta),
          .adds = false,
          .of_channels = {memories.base + memories.of_channels},
          .of_groups = {memories.base + memories.pairs},
          .own = {memories.base + memories.own},
          .slope = {memories.base + memories.slope},
          .constant = {memories.base + memories.constant}};
}

const char* run_moments_gradient(const Call<BatchMomentsGradientProblem>& call, bool by_vectors) {
  const auto& [p, work] = call;
  PartsArgs sums = gradient_parts(work, p.diff_dst, p.src, activation_of(work, p.neuron), false);
  if (by_vectors)
    if (const char* why_not = why_no_vectors_for(sums)) return why_not;
  const Groups groups{p.diff_dst.c, 0};
  sums.parts = parts_for(sums.pixels, 1, by_vectors);
  const Memories memories(work, 1, groups.channels, 0, sums.parts);
  sums.partial = {memories.base + memories.partial}, sums.forward = memories.coefficients();
  GradientSumsArgs totals = sums_of(work, p, groups, sums.parts, memories);
  totals.adds = p.adds;
  find_coefficients(work, totals.statistics, groups, 1, p.gamma, p.beta, p.epsilon, sums.forward);
  sum_parts(work, normalization_gradient_parts, normalization_gradient_parts_vectors, sums, 1, by_vectors);
  work.launch(normalization_gradient_of_batch, totals, groups.channels);
  return nullptr;
}

constexpr Implementation<Call<BatchMomentsGradientProblem>> kBatchMomentsGradients[] = {
    {"cuda_batch_moments_gradient_vectors",
     [](const Call<BatchMomentsGradientProblem>& call) { return run_moments_gradient(call, true); }},
    {"cuda_batch_moments_gradient",
     [](const Call<BatchMomentsGradientProblem>& call) { return run_moments_gradient(call, false); }},
};
const ImplementationNames kBatchMomentsGradientNames(kBatchMomentsGradients);

/// Make all images one row of pixels each; return false, with nothing changed, if they are none.
bool make_rows(NormalizeGradientArgs& args) {
  Source diff_dst = args.diff_dst, src = args.src;
  View diff_src = args.diff_src, same = args.diff_src;
  flatten(diff_dst, diff_src, true);
  flatten(src, same, true);
  if (args.is_per_image || !are_rows(diff_dst, diff_src) || !are_rows(src, same)) return false;
  args.diff_dst = diff_dst, args.src = src, args.diff_src = diff_src;
  return true;
}

const char* run_normalize_gradient(const Call<NormalizeGradientProblem>& call, bool by_vectors) {
  const auto& [p, work] = call;
  const i64 start_h = p.src.start_h - p.diff_dst.start_h, start_w = p.src.start_w - p.diff_dst.start_w;
  const ImageView &g = p.diff_dst.view, &x = p.src.view;
  NormalizeGradientArgs args{.diff_dst = work.source(p.diff_dst),
                             .src = work.source(p.src),
                             .diff_src = work.view(p.diff_src),
                             .is_per_image = p.groups > 0,
                             .forward = {},
                             .own = {},
                             .slope = {},
                             .constant = {},
                             .neuron = activation_of(work, p.neuron),
                             .step = 0,
                             .is_read_twice = p.src.edge == Edge::clamp && (start_h < 0 || start_h + g.h > x.h ||
                                                                            start_w < 0 || start_w + g.w > x.w),
                             .rows = {start_h, 1, 1, 1, x.h, g.h, true},
                             .columns = {start_w, 1, 1, 1, x.w, g.w, true}};
  if (by_vectors) {
    if (!is_simple(args.neuron)) return kOtherNeuron;
    if (args.is_read_twice) return "several results read a pixel";
    if (const char* why_not = why_no_vectors({&args.diff_dst.view, &args.src.view, &args.diff_src})) return why_not;
  }
  const i64 sets = p.groups > 0 ? x.n : 1, c = x.c;
  const Groups groups{c, p.groups};
  PartsArgs sums{};
  bool sums_vectors = false;
  if (p.groups > 0) {
    Operand src = p.src;  // of the pixels of diff_dst.view
    src.start_h = start_h, src.start_w = start_w;
    sums = gradient_parts(work, g, src, args.neuron, true);
    sums_vectors = !why_no_vectors_for(sums);
    sums.parts = parts_for(sums.pixels, sets, sums_vectors);
  }
  const Memories memories(work, sets, c, p.groups, sums.parts);
  args.forward = memories.coefficients();
  GradientSumsArgs totals = sums_of(work, p, groups, sums.parts, memories);
  totals.images = sets;
  totals.count = p.groups > 0 ? x.h * x.w * groups.channels_of_each() : p.count;
  args.own = totals.own, args.slope = totals.slope, args.constant = totals.constant;
  find_coefficients(work, totals.statistics, groups, sets, p.gamma, p.beta, p.epsilon, args.forward);
  if (p.groups > 0) {
    sums.partial = {memories.base + memories.partial}, sums.forward = args.forward;
    sum_parts(work, normalization_gradient_parts, normalization_gradient_parts_vectors, sums, sets, sums_vectors);
    work.launch(normalization_gradient_of_images, totals, sets * c);
    work.launch(normalization_gradient_of_groups, totals, sets * p.groups);
    work.launch(normalization_gradient_over_images, totals, c);
  }
  work.launch(normalization_gradient_coefficients, totals, sets * c);
  const i64 lanes = by_vectors ? lanes_in_vector(args.diff_src) : 1;
  if (by_vectors && make_rows(args)) {
    args.step = step_in_row(args.diff_src);
    work.launch(normalize_gradient_rows, args, args.step * (args.diff_src.c / lanes),
                {&args.diff_dst.view, &args.src.view, &args.diff_src});
    return nullptr;
  }
  work.launch(by_vectors ? normalize_gradient_vectors : normalize_gradient, args, p.diff_src.size() / lanes,
              {&args.diff_dst.view, &args.src.view, &args.diff_src});
  return nullptr;
}

constexpr Implementation<Call<NormalizeGradientProblem>> kNormalizeGradients[] = {
    {"cuda_normalize_gradient_vectors",
     [](const Call<NormalizeGradientProblem>& call) { return run_normalize_gradient(call, true); }},
    {"cuda_normalize_gradient",
     [](const Call<NormalizeGradientProblem>& call) { return run_normalize_gradient(call, false); }},
};
const ImplementationNames kNormalizeGradientNames(kNormalizeGradients);

}  // namespace

bool solve(const NormalizeProblem& problem, Work& work) {
  return try_first("normalize", kNormalizations, Call<NormalizeProblem>{problem, work});
}
bool solve(const BatchMomentsProblem& problem, Work& work) {
  return try_first("batch_moments", kBatchMoments, Call<BatchMomentsProblem>{problem, work});
}
bool solve(const BatchMomentsGradientProblem& problem, Work& work) {
  return try_first("batch_moments_gradient", kBatchMomentsGradients, Call<BatchMomentsGradientProblem>{problem, work});
}
bool solve(const NormalizeGradientProblem& problem, Work& work) {
  return try_first("normalize_gradient", kNormalizeGradients, Call<NormalizeGradientProblem>{problem, work});
}

}  // namespace openmps::cuda
