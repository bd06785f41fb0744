// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/normalization.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"
#include "engine/cuda/groups.hpp"
#include "engine/cuda/lanes.hpp"
#include "engine/cuda/normalization.hpp"
#include "engine/cuda/normalize_images.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {

using namespace normalization;

Statistics statistics_of(Work& work, const ChannelValues& mean, const ChannelValues& variance,
                         const ChannelValues& exact) {
  return {work.values(mean), work.values(variance), {work.values_address(exact.memory, exact.offset)}};
}

namespace {
Pointer<const float> constants_of(Work& work, const ChannelValues& values) {
  return {work.values_address(values.memory, values.offset)};
}

}  // namespace

Forward forward_of(Work& work, const Statistics& statistics, const Groups& groups, const ChannelValues& gamma,
                   const ChannelValues& beta, float epsilon) {
  return {statistics, groups, constants_of(work, gamma), constants_of(work, beta), epsilon};
}

namespace {

constexpr const char* kOtherNeuron = "a neuron other than relu";

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }

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
  StoredCoefficients coefficients() const { return {{base + mean}, {base + scale}, {base + shift}}; }
};

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

Division division_of(const View& view, bool by_vectors) {
  const i64 runs = by_vectors ? view.c / lanes_in_vector(view) : view.c;
  const i64 most = by_vectors ? Division::kMostRuns : Division::kMostSingleRuns;
  const i64 blocks = divided_up(runs, most);
  return {static_cast<int>(runs), static_cast<int>(divided_up(runs, blocks)), 1};
}

/// Divide a row among blocks whose threads compute PixelsOfThread; return their number. Blocks of several turns find
/// their coefficients more rarely, if there are enough of them.
i64 divide_row(Work& work, const View& row, Division& division) {
  constexpr i64 kBlocks = 12, kMostTurns = 8;  // blocks per multiprocessor
  division = division_of(row, true);
  const i64 pixels = static_cast<i64>(division.rows()) * PixelsOfThread::kCount;
  const i64 turns = division.blocks() * divided_up(row.w, pixels) / (kBlocks * work.gpu().processors());
  division.turns = static_cast<int>(std::clamp<i64>(turns, 1, kMostTurns));
  return division.blocks() * divided_up(row.w, pixels * division.turns);
}

/// Set how the pixels of each set are divided among blocks, and return the number of blocks. More than run at a time
/// would store more partial sums. `adds_parts`: the kernel that sums the parts also adds them.
i64 divide(Work& work, PartsArgs& args, i64 sets, bool by_vectors, bool adds_parts) {
  const View &pixels = args.pixels, &src = args.src.view;
  args.is_row = pixels.h == 1 && (args.is_per_image || pixels.n == 1);
  if (src)
    args.is_row = args.is_row && src.n == pixels.n && src.h == 1 && src.w == pixels.w && args.src.start_h == 0 &&
                  args.src.start_w == 0;
  args.division = division_of(args.pixels, by_vectors);
  const Gpu& gpu = work.gpu();
  constexpr i64 kHostProcessors = 132;  // of an H100
  const i64 blocks = kSumBlocks * (gpu.driver().is_host ? kHostProcessors : gpu.processors());
  const i64 most = divided_up(args.count(), static_cast<i64>(args.division.rows()) * kTogether);
  args.parts = std::clamp<i64>(blocks / (sets * args.division.blocks()), 1, std::max<i64>(most, 1));
  if (adds_parts) args.counters = {work.counters(sets * args.division.blocks())};
  return sets * args.parts * args.division.blocks();
}

/// Enqueue the kernel that sums the parts; of batches, it also adds them.
void sum_parts(Work& work, const MomentsArgs& args, i64 blocks, bool by_vectors) {
  work.launch(by_vectors ? sum_moments_vectors : sum_moments_values, args, blocks, {&args.parts.pixels});
}
void sum_parts(Work& work, const GradientPartsArgs& args, i64 blocks, bool by_vectors) {
  work.launch(by_vectors ? sum_gradients_vectors : sum_gradients_values, args, blocks,
              {&args.parts.pixels, &args.parts.src.view});
}

void store_coefficients(Work& work, const Forward& forward, i64 sets, const StoredCoefficients& result) {
  work.launch(normalization_coefficients, CoefficientsArgs{forward, result}, sets * forward.groups.channels);
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
                     .forward = {},
                     .coefficients = {},
                     .is_per_image = p.groups > 0,
                     .neuron = activation_of(work, p.neuron),
                     .division = {}};
  if (by_vectors) {
    if (!is_simple(args.neuron)) return kOtherNeuron;
    if (const char* why_not = why_no_vectors({&args.src.view, &args.dst})) return why_not;
  }
  if (kind == Form::three_bytes)
    if (const char* why_not = why_not_three_bytes(p, args)) return why_not;
  const Groups groups{p.dst.c, p.groups};
  const i64 sets = p.groups > 0 ? p.dst.n : 1;
  const bool is_of_channels = p.groups == p.dst.c;  // instance normalization
  PartsArgs sums{};
  bool sums_vectors = false;
  i64 blocks = 0;
  if (p.groups > 0) {
    sums.pixels = flattened(args.src.view, false), sums.is_per_image = true;
    sums_vectors = !why_no_vectors({&sums.pixels});
    blocks = divide(work, sums, sets, sums_vectors, is_of_channels);
  }
  const Memories memories(work, sets, groups.channels, p.groups, sums.parts);
  const Statistics statistics = statistics_of(work, p.mean, p.variance, p.exact);
  args.forward = forward_of(work, statistics, groups, p.gamma, p.beta, p.epsilon);
  args.coefficients = memories.coefficients();
  if (p.groups > 0) {
    sums.partial = {memories.base + memories.partial}, sums.pivots = {memories.base + memories.pivots};
    const MomentsArgs moments{.parts = sums,
                              .result = statistics,
                              .before = 0,
                              .groups = groups,
                              .pairs = {memories.base + memories.pairs},
                              .forward = args.forward,
                              .coefficients = args.coefficients};
    sum_parts(work, moments, blocks, sums_vectors);
    if (!is_of_channels) work.launch(moments_of_groups, moments, sets * p.groups);
    args.forward.statistics = {{}, {}, moments.pairs};
  }
  if (kind != Form::three_bytes) flatten(args.src, args.dst, !args.is_per_image);
  if (by_vectors && !args.is_per_image && are_rows(args.src, args.dst)) {
    blocks = divide_row(work, args.dst, args.division);
    work.launch(normalize_rows, args, blocks, {&args.src.view, &args.dst});
    return nullptr;
  }
  if (!is_of_channels) store_coefficients(work, args.forward, sets, args.coefficients);
  if (kind == Form::three_bytes) {
    work.launch(normalize_three_bytes, args, p.dst.n * p.dst.h * p.dst.w / 4, {&args.src.view, &args.dst});
    return nullptr;
  }
  const i64 lanes = by_vectors ? lanes_in_vector(args.dst) : 1;
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
  const i64 blocks = divide(work, sums, 1, by_vectors, true);
  const Memories memories(work, 1, p.src.c, 0, sums.parts);
  sums.partial = {memories.base + memories.partial}, sums.pivots = {memories.base + memories.pivots};
  const Statistics result = statistics_of(work, p.mean, p.variance, p.exact);
  sum_parts(work, MomentsArgs{.parts = sums, .result = result, .before = p.count}, blocks, by_vectors);
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
GradientSumsArgs sums_of(Work& work, const P& p, const Groups& groups, const Memories& memories) {
  return {
      .forward = forward_of(work, statistics_of(work, p.mean, p.variance, p.exact), groups, p.gamma, p.beta, p.epsilon),
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
  const i64 blocks = divide(work, sums, 1, by_vectors, true);
  const Memories memories(work, 1, groups.channels, 0, sums.parts);
  GradientSumsArgs totals = sums_of(work, p, groups, memories);
  totals.adds = p.adds;
  sums.partial = {memories.base + memories.partial};
  sum_parts(work, GradientPartsArgs{sums, totals}, blocks, by_vectors);
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
                             .sums = {},
                             .forward = {},
                             .neuron = activation_of(work, p.neuron),
                             .division = {},
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
  i64 blocks = 0;
  if (p.groups > 0) {
    Operand src = p.src;  // of the pixels of diff_dst.view
    src.start_h = start_h, src.start_w = start_w;
    sums = gradient_parts(work, g, src, args.neuron, true);
    sums_vectors = !why_no_vectors_for(sums);
    blocks = divide(work, sums, sets, sums_vectors, false);
  }
  const Memories memories(work, sets, c, p.groups, sums.parts);
  args.sums = sums_of(work, p, groups, memories);
  args.sums.images = sets;
  args.sums.count = p.groups > 0 ? x.h * x.w * groups.channels_of_each() : p.count;
  if (p.groups > 0) {
    sums.partial = {memories.base + memories.partial};
    const GradientPartsArgs parts{sums, args.sums};
    sum_parts(work, parts, blocks, sums_vectors);
    work.launch(normalization_gradient_of_images, parts, sets * c);
    work.launch(normalization_gradient_of_groups, args.sums, sets * p.groups);
    work.launch(normalization_gradient_over_images, args.sums, c);
  }
  if (by_vectors && make_rows(args)) {
    blocks = divide_row(work, args.diff_src, args.division);
    work.launch(normalize_gradient_rows, args, blocks, {&args.diff_dst.view, &args.src.view, &args.diff_src});
    return nullptr;
  }
  args.forward = memories.coefficients();
  store_coefficients(work, args.sums.forward, sets, args.forward);
  work.launch(normalization_gradient_coefficients, args.sums, sets * c);
  const i64 lanes = by_vectors ? lanes_in_vector(args.diff_src) : 1;
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

// ------------------------------------------------------------------------------------------- and the sum behind it

/// Return whether value i of the operand, which has no gaps, is value i of the result.
bool has_same_places(const Operand& operand, const ImageView& dst) {
  const ImageView& view = operand.view;
  return operand.start_h == 0 && operand.start_w == 0 && view.is_dense() && view.n == dst.n && view.h == dst.h &&
         view.w == dst.w && view.c == dst.c;
}
bool is_like_dense(const Operand& operand, const ImageView& dst) {
  return operand.view.format == dst.format && has_same_places(operand, dst);
}
/// Return whether a dense float16 or float32 image has whole vectors of channels.
bool has_vectors(const ImageView& dst) {
  if (dst.format != Format::float16 && dst.format != Format::float32) return false;
  return dst.c % (dst.format == Format::float16 ? 8 : 4) == 0 && dst.is_dense();
}

/// Return whether a dense mask has a bit for each value of the result, in bytes.
bool is_packed(const ImageView& mask, const ImageView& dst) {
  return mask.format == Format::unorm8 && mask.is_dense() && mask.n == dst.n && mask.h == dst.h && mask.w == dst.w &&
         mask.c != dst.c && mask.c * (dst.format == Format::float16 ? 8 : 4) == dst.c;
}

NormalizeAddArgs arguments_of(const NormalizeAddProblem& p, Work& work) {
  return {.src = work.source(p.src),
          .addend = work.source(p.addend),
          .dst = work.view(p.dst),
          .mask = work.view(p.mask),
          .forward = forward_of(work, statistics_of(work, p.mean, p.variance, p.exact), {p.dst.c, 0}, p.gamma, p.beta,
                                p.epsilon),
          .min = p.min,
          .max = p.max,
          .division = {}};
}

/// Make each image one row of pixels, and divide the row among `blocks`. Return why a thread cannot have 16 bytes.
const char* divide_rows(Work& work, NormalizeAddArgs& args, const NormalizeAddProblem& p, i64& blocks) {
  View &src = args.src.view, &addend = args.addend.view, &dst = args.dst;
  if (const char* why_not = why_no_vectors({&src, &addend, &dst})) return why_not;
  if (args.mask.data.address % 8 != 0 && !is_packed(p.mask, p.dst)) return "the mask is not aligned";
  for (View* const view : {&src, &addend, &dst, &args.mask}) *view = flattened(*view, true);
  blocks = divide_row(work, dst, args.division);
  return nullptr;
}

const char* run_normalize_add_rows(const Call<NormalizeAddProblem>& call) {
  const auto& [p, work] = call;
  if (!fuses(p)) return "gaps between the values, or channels that are no multiple of 16 bytes";
  NormalizeAddArgs args = arguments_of(p, work);
  i64 blocks = 0;
  if (const char* why_not = divide_rows(work, args, p, blocks)) return why_not;
  // The mask's format is known: the kernel is compiled for that of the other images.
  work.launch(normalize_add_rows, args, blocks, {&args.src.view, &args.addend.view, &args.dst});
  return nullptr;
}

/// A normalization and the sum with its result.
struct BothNormalized {
  const NormalizeProblem& first;
  const NormalizeAddProblem& sum;
};
const char* run_normalize_both_add(const Call<BothNormalized>& call) {
  const auto& [first, sum] = call.problem;
  Work& work = call.work;
  if (!may_add(first, sum)) return "not two dense images of one format";
  NormalizeAddProblem both = sum;
  both.addend = first.src;
  NormalizeBothAddArgs args{arguments_of(both, work),
                            forward_of(work, statistics_of(work, first.mean, first.variance, first.exact),
                                       {first.dst.c, 0}, first.gamma, first.beta, first.epsilon)};
  i64 blocks = 0;
  if (const char* const why_not = divide_rows(work, args.sum, both, blocks)) return why_not;
  work.launch(normalize_both_add_rows, args, blocks, {&args.sum.src.view, &args.sum.addend.view, &args.sum.dst});
  return nullptr;
}
constexpr Implementation<Call<BothNormalized>> kBothNormalized[] = {
    {"cuda_normalize_both_add", run_normalize_both_add}};
const ImplementationNames kBothNormalizedNames(kBothNormalized);

const char* run_normalize_add(const Call<NormalizeAddProblem>& call) {
  const auto& [p, work] = call;
  const NormalizeAddArgs args = arguments_of(p, work);
  const bool has_bits = p.mask.memory && is_packed(p.mask, p.dst);
  work.launch(normalize_add, args, has_bits ? args.mask.size() : args.dst.size(),
              {&args.src.view, &args.addend.view, &args.dst, &args.mask});
  return nullptr;
}
constexpr Implementation<Call<NormalizeAddProblem>> kNormalizeAdds[] = {
    {"cuda_normalize_add_rows", run_normalize_add_rows}, {"cuda_normalize_add", run_normalize_add}};
const ImplementationNames kNormalizeAddNames(kNormalizeAdds);

/// Prepare a sum for `blocks`; src1 may have other extents. Return why a thread cannot have 16 bytes.
const char* divide_sum(Work& work, MaskedSumMomentsArgs& args, const MaskedSumMomentsProblem& p, i64& blocks) {
  args = {.gradients = {},
          .src0 = work.view(p.src0.view),
          .src1 = work.view(p.src1.view),
          .mask = work.view(p.mask.view),
          .scale = p.scale};
  auto& [parts, totals] = args.gradients;
  parts.pixels = work.view(p.dst), parts.src.view = work.view(p.src.view);
  View &dst = parts.pixels, &src = parts.src.view;
  if (const char* why_not = why_no_vectors({&args.src0, &args.src1, &dst, &src})) return why_not;
  if (args.mask.data.address % 16 != 0 && !is_packed(p.mask.view, p.dst)) return "the mask is not aligned";
  for (View* const view : {&args.src0, &args.src1, &args.mask, &dst, &src}) *view = flattened(*view, true);
  blocks = divide(work, parts, 1, true, true);
  const Memories memories(work, 1, dst.c, 0, parts.parts);
  totals = sums_of(work, p, {dst.c, 0}, memories);
  totals.adds = p.adds;
  parts.partial = {memories.base + memories.partial};
  return nullptr;
}

const char* run_masked_sum_moments_rows(const Call<MaskedSumMomentsProblem>& call) {
  const auto& [p, work] = call;
  if (!fuses(p)) return "gaps between the values, or channels that are no multiple of 16 bytes";
  MaskedSumMomentsArgs args;
  i64 blocks = 0;
  if (const char* const why_not = divide_sum(work, args, p, blocks)) return why_not;
  // The kernel is compiled for the format of the images other than the mask.
  work.launch(sum_masked_gradients, args, blocks,
              {&args.src0, &args.src1, &args.gradients.parts.pixels, &args.gradients.parts.src.view});
  return nullptr;
}

/// The gradient of a convolution that samples its source, and the sum with it.
struct SampledSum {
  const ConvGradientProblem& gradient;
  const MaskedSumMomentsProblem& sum;
};
const char* run_sampled_sum(const Call<SampledSum>& call) {
  const auto& [gradient, sum] = call.problem;
  Work& work = call.work;
  if (!may_add(gradient, sum)) return "not the gradient of every stride-th pixel";
  const ImageView& all = gradient.diff_src;
  ImageView sampled = all;  // at the beginning of its memory
  sampled.h = gradient.diff_dst.h, sampled.w = gradient.diff_dst.w;
  sampled.w_stride = sampled.c, sampled.h_stride = sampled.w * sampled.c;
  sampled.n_stride = sampled.h * sampled.h_stride;
  MaskedSumMomentsProblem next = sum;
  if (next.src0.view.memory == all.memory) std::swap(next.src0, next.src1);
  next.src1.view = sampled;
  SampledSumArgs args{};
  i64 blocks = 0;
  if (const char* const why_not = divide_sum(work, args.sum, next, blocks)) return why_not;
  ConvGradientProblem of_weights = gradient, of_pixels = gradient;
  of_weights.diff_src = {};
  if (of_weights.diff_weights.memory || of_weights.diff_bias.memory) solve(of_weights, work);
  of_pixels.src = {}, of_pixels.diff_src = sampled, of_pixels.diff_weights = of_pixels.diff_bias = {};
  of_pixels.first_h = of_pixels.first_w = 0;
  of_pixels.window = {};
  solve(of_pixels, work);
  // Other problems have used the scratch memory of the sums.
  if (const char* const why_not = divide_sum(work, args.sum, next, blocks)) return why_not;
  const auto extent = [](i64 value) { return static_cast<std::uint32_t>(value); };
  args.pixels = {.h = extent(all.h),
                 .w = extent(all.w),
                 .stride_h = extent(gradient.window.stride_h),
                 .stride_w = extent(gradient.window.stride_w),
                 .sampled_h = extent(sampled.h),
                 .sampled_w = extent(sampled.w),
                 .by_w = ExactDivisor(extent(all.w)),
                 .by_h = ExactDivisor(extent(all.h)),
                 .by_stride_h = ExactDivisor(extent(gradient.window.stride_h)),
                 .by_stride_w = ExactDivisor(extent(gradient.window.stride_w))};
  work.launch(sum_sampled_gradients, args, blocks,
              {&args.sum.src0, &args.sum.src1, &args.sum.gradients.parts.pixels, &args.sum.gradients.parts.src.view});
  return nullptr;
}
constexpr Implementation<Call<SampledSum>> kSampledSums[] = {{"cuda_sampled_sum", run_sampled_sum}};
const ImplementationNames kSampledSumNames(kSampledSums);

const char* run_masked_sum_moments(const Call<MaskedSumMomentsProblem>& call) {
  solve(call.problem.sum(), call.work);
  solve(call.problem.moments(), call.work);
  return nullptr;
}
constexpr Implementation<Call<MaskedSumMomentsProblem>> kMaskedSumMoments[] = {
    {"cuda_masked_sum_moments_rows", run_masked_sum_moments_rows}, {"cuda_masked_sum_moments", run_masked_sum_moments}};
const ImplementationNames kMaskedSumMomentsNames(kMaskedSumMoments);

}  // namespace

Pointer<Pair> memory_of_sums(Work& work, i64 channels, i64 parts) {
  return {work.scratch(static_cast<std::size_t>(channels * parts) * sizeof(Pair))};
}

StoredCoefficients stored_coefficients(Work& work, const Forward& forward) {
  const Memories memories(work, 1, forward.groups.channels, 0, 1);
  store_coefficients(work, forward, 1, memories.coefficients());
  return memories.coefficients();
}

namespace {

template <class P>
GradientSumsArgs sums_without_memory(Work& work, const P& p, i64 channels) {
  return {.forward = forward_of(work, statistics_of(work, p.mean, p.variance, p.exact), {channels, 0}, p.gamma, p.beta,
                                p.epsilon),
          .images = 1,
          .count = 0,
          .diff_gamma = work.values(p.diff_gamma),
          .diff_beta = work.values(p.diff_beta),
          .adds = false};
}

}  // namespace

GradientSumsArgs gradient_sums_of(Work& work, const BatchMomentsGradientProblem& p) {
  GradientSumsArgs args = sums_without_memory(work, p, p.diff_dst.c);
  args.adds = p.adds;
  return args;
}
GradientSumsArgs gradient_sums_of(Work& work, const NormalizeGradientProblem& p) {
  GradientSumsArgs args = sums_without_memory(work, p, p.diff_src.c);
  args.count = p.count;
  return args;
}

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

bool fuses(const NormalizeAddProblem& p) {
  if (!has_vectors(p.dst) || !is_like_dense(p.src, p.dst) || !is_like_dense(p.addend, p.dst)) return false;
  return !p.mask.memory || (p.mask.format == Format::unorm8 && p.mask.is_dense());
}
void finish_moments(const BatchMomentsProblem& p, Work& work, Pointer<const float> sums, Pointer<const float> squares) {
  MomentsOfSumsArgs args{.pixels = flattened(work.view(p.src), true),
                         .sums = sums,
                         .squares = squares,
                         .result = statistics_of(work, p.mean, p.variance, p.exact),
                         .before = p.count};
  work.launch(moments_of_sums, args, p.src.c, {&args.pixels});
}

bool may_add(const NormalizeProblem& first, const NormalizeAddProblem& next) {
  if (first.groups > 0 || !neuron_is_identity(first.neuron) || !fuses(next)) return false;
  return next.addend.view == first.dst && next.src.view.memory != first.dst.memory &&
         is_like_dense(first.src, next.dst);
}
bool solve(const NormalizeProblem& first, const NormalizeAddProblem& next, Work& work) {
  return try_first("normalize, normalize_add", kBothNormalized, Call<BothNormalized>{{first, next}, work});
}
bool solve(const NormalizeAddProblem& problem, Work& work) {
  return try_first("normalize_add", kNormalizeAdds, Call<NormalizeAddProblem>{problem, work});
}

bool fuses(const MaskedSumMomentsProblem& p) {
  if (!has_vectors(p.dst)) return false;
  for (const Operand* const each : {&p.src0, &p.src1, &p.src})
    if (!is_like_dense(*each, p.dst)) return false;
  const Format mask = p.mask.view.format;
  return !p.mask.view.memory || is_packed(p.mask.view, p.dst) ||
         ((mask == Format::unorm8 || mask == p.dst.format) && has_same_places(p.mask, p.dst));
}
bool samples(const ConvGradientProblem& p) {
  const Window& window = p.window;
  return p.diff_src.memory && has_vectors(p.diff_src) && p.diff_dst.format == p.diff_src.format &&
         p.weights->kernel_h * p.weights->kernel_w == 1 && p.weights->groups == 1 && window.edge == Edge::zero &&
         window.stride_h > 1 && window.stride_w > 1 && window.start_h == p.first_h && window.start_w == p.first_w &&
         p.diff_src.h > 1 && p.diff_src.w > 1 && (p.diff_dst.h - 1) * window.stride_h < p.diff_src.h &&
         (p.diff_dst.w - 1) * window.stride_w < p.diff_src.w &&
         p.diff_src.n * p.diff_src.h * p.diff_src.w < i64{1} << 31;
}
bool may_add(const ConvGradientProblem& gradient, const MaskedSumMomentsProblem& next) {
  if (!samples(gradient) || !fuses(next)) return false;
  const ImageView &first = next.src0.view, &second = next.src1.view;
  const bool reads_once = (first == gradient.diff_src) != (second == gradient.diff_src);
  return reads_once && first.memory != second.memory && next.src.view.memory != gradient.diff_src.memory;
}
bool solve(const ConvGradientProblem& gradient, const MaskedSumMomentsProblem& next, Work& work) {
  return try_first("convolve_gradient, masked_sum_moments", kSampledSums, Call<SampledSum>{{gradient, next}, work});
}
bool solve(const MaskedSumMomentsProblem& problem, Work& work) {
  return try_first("masked_sum_moments", kMaskedSumMoments, Call<MaskedSumMomentsProblem>{problem, work});
}

}  // namespace openmps::cuda
