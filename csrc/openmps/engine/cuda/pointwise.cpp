// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/pointwise.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "engine/cuda/families.hpp"
#include "engine/cuda/lanes.hpp"
#include "engine/cuda/many_copies.hpp"
#include "engine/shared/dropout.hpp"
#include "engine/shared/strided.hpp"

namespace openmps::cuda {
namespace {

const char* run_neuron_lanes(const Call<NeuronProblem>& call) {
  const auto& [p, work] = call;
  pointwise::NeuronLanesArgs args{work.view(p.src), work.view(p.dst), work.activation(p.neuron), {}};
  const bool by_channel = static_cast<bool>(args.neuron.slopes);
  if (const char* why_not = divide(args.dst, {&args.src, &args.dst}, {}, by_channel, args.chunks)) return why_not;
  work.launch(pointwise::neuron_lanes, args, threads_of(args.chunks), {&args.src, &args.dst});
  return nullptr;
}
const char* run_neuron(const Call<NeuronProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::NeuronArgs args{work.view(p.src), work.view(p.dst), work.activation(p.neuron)};
  work.launch(pointwise::neuron, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<NeuronProblem>> kNeurons[] = {{"cuda_neuron_lanes", run_neuron_lanes},
                                                            {"cuda_neuron", run_neuron}};
const ImplementationNames kNeuronNames(kNeurons);

/// Return whether a source pixel may be read by several results or by none.
bool is_clamped(const NeuronGradientProblem& p, Work& work) {
  const View dst = work.view(p.diff_src);
  return p.src.edge == Edge::clamp && !(is_like(work.source(p.src), dst) && is_like(work.source(p.diff_dst), dst));
}

const char* run_neuron_gradient_lanes(const Call<NeuronGradientProblem>& call) {
  const auto& [p, work] = call;
  if (is_clamped(p, work)) return "the source is clamped";
  pointwise::NeuronGradientLanesArgs args{
      work.source(p.diff_dst), work.source(p.src), work.view(p.diff_src), work.activation(p.neuron), {}};
  const bool by_channel = static_cast<bool>(args.neuron.slopes);
  if (const char* why_not =
          divide(args.diff_src, {&args.diff_src}, {&args.diff_dst, &args.src}, by_channel, args.chunks))
    return why_not;
  work.launch(pointwise::neuron_gradient_lanes, args, threads_of(args.chunks),
              {&args.diff_dst.view, &args.src.view, &args.diff_src});
  return nullptr;
}
const char* run_neuron_gradient(const Call<NeuronGradientProblem>& call) {
  const auto& [p, work] = call;
  const Operand &diff = p.diff_dst, &src = p.src;
  const pointwise::NeuronGradientArgs args{
      .diff_dst = work.source(diff),
      .src = work.source(src),
      .diff_src = work.view(p.diff_src),
      .neuron = work.activation(p.neuron),
      .rows = {src.start_h, src.start_h - diff.start_h, src.view.h, diff.view.h},
      .columns = {src.start_w, src.start_w - diff.start_w, src.view.w, diff.view.w}};
  work.launch(is_clamped(p, work) ? pointwise::neuron_gradient_clamped : pointwise::neuron_gradient, args,
              p.diff_src.size(), {&args.diff_dst.view, &args.src.view, &args.diff_src});
  return nullptr;
}
constexpr Implementation<Call<NeuronGradientProblem>> kNeuronGradients[] = {
    {"cuda_neuron_gradient_lanes", run_neuron_gradient_lanes}, {"cuda_neuron_gradient", run_neuron_gradient}};
const ImplementationNames kNeuronGradientNames(kNeuronGradients);

const char* run_binary_lanes(const Call<BinaryProblem>& call) {
  const auto& [p, work] = call;
  pointwise::BinaryLanesArgs args{work.source(p.src0), work.source(p.src1), work.view(p.dst),
                                  work.view(p.mask),   p.function,          {}};
  if (const char* why_not =
          divide(args.dst, {&args.dst, &args.mask}, {&args.src0, &args.src1}, /*by_channel=*/false, args.chunks))
    return why_not;
  work.launch(pointwise::binary_lanes, args, threads_of(args.chunks),
              {&args.src0.view, &args.src1.view, &args.dst, &args.mask});
  return nullptr;
}
const char* run_binary(const Call<BinaryProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::BinaryArgs args{work.source(p.src0), work.source(p.src1), work.view(p.dst), work.view(p.mask),
                                   p.function};
  work.launch(pointwise::binary, args, p.dst.size(), {&args.src0.view, &args.src1.view, &args.dst, &args.mask});
  return nullptr;
}
constexpr Implementation<Call<BinaryProblem>> kBinaries[] = {{"cuda_binary_lanes", run_binary_lanes},
                                                             {"cuda_binary", run_binary}};
const ImplementationNames kBinaryNames(kBinaries);

ResultsAxis rows_of(const ClampedSource& source, const Operand& diff_dst) {
  return {source.start_h, source.start_h - diff_dst.start_h, source.h, diff_dst.view.h};
}
ResultsAxis columns_of(const ClampedSource& source, const Operand& diff_dst) {
  return {source.start_w, source.start_w - diff_dst.start_w, source.w, diff_dst.view.w};
}

pointwise::BinaryGradientArgs arguments_of(const Call<BinaryGradientProblem>& call) {
  const auto& [p, work] = call;
  const ResultsAxis rows = rows_of(p.source, p.diff_dst), columns = columns_of(p.source, p.diff_dst);
  return {.diff_dst = work.source(p.diff_dst),
          .other = work.source(p.other),
          .mask = work.source(p.mask),
          .diff_src = work.view(p.diff_src),
          .scale = p.scale,
          .sum_h = p.sum_h,
          .sum_w = p.sum_w,
          .sum_c = p.sum_c,
          .is_clamped = (p.sum_h == 1 && rows.is_seen_twice()) || (p.sum_w == 1 && columns.is_seen_twice()),
          .rows = rows,
          .columns = columns};
}
bool is_sum(const pointwise::BinaryGradientArgs& args) {
  return args.is_clamped || args.sum_h > 1 || args.sum_w > 1 || args.sum_c > 1;
}

void launch(const Kernel<pointwise::BinaryGradientArgs>& kernel, const pointwise::BinaryGradientArgs& args, i64 count,
            Work& work) {
  work.launch(kernel, args, count, {&args.diff_dst.view, &args.other.view, &args.mask.view, &args.diff_src});
}

const char* run_binary_gradient_lanes(const Call<BinaryGradientProblem>& call) {
  const pointwise::BinaryGradientArgs all = arguments_of(call);
  if (is_sum(all)) return "sums";
  pointwise::BinaryGradientLanesArgs args{all.diff_dst, all.other, all.mask, all.diff_src, all.scale, {}};
  if (const char* why_not = divide(args.diff_src, {&args.diff_src}, {&args.diff_dst, &args.other, &args.mask},
                                   /*by_channel=*/false, args.chunks))
    return why_not;
  call.work.launch(pointwise::binary_gradient_lanes, args, threads_of(args.chunks),
                   {&args.diff_dst.view, &args.other.view, &args.mask.view, &args.diff_src});
  return nullptr;
}
const char* run_binary_gradient(const Call<BinaryGradientProblem>& call) {
  const pointwise::BinaryGradientArgs args = arguments_of(call);
  if (is_sum(args)) return "sums";
  launch(pointwise::binary_gradient, args, args.diff_src.size(), call.work);
  return nullptr;
}
const char* run_binary_gradient_blocks(const Call<BinaryGradientProblem>& call) {
  constexpr i64 kManySums = 1024, kManyProducts = 128;
  const pointwise::BinaryGradientArgs args = arguments_of(call);
  const i64 sums = args.diff_src.size(), products = args.sum_h * args.sum_w * args.sum_c;
  const bool adjacent = args.sum_c > 1 && sums >= kManySums && products >= kManyProducts;
  if (!adjacent && !(args.is_clamped && products > 1)) return "threads can add more quickly";
  launch(pointwise::binary_gradient_blocks, args, sums, call.work);
  return nullptr;
}
/// Each sum is split into parts, if there are few sums.
const char* run_binary_gradient_sums(const Call<BinaryGradientProblem>& call) {
  constexpr i64 kThreadsWanted = 256 * 1024, kLeastProducts = 16;
  pointwise::BinaryGradientArgs args = arguments_of(call);
  const i64 sums = args.diff_src.size(), products = args.sum_h * args.sum_w * args.sum_c;
  args.parts = std::max<i64>(1, std::min(kThreadsWanted / sums, products / kLeastProducts));
  if (args.parts > 1) args.partial = {call.work.scratch(static_cast<std::size_t>(sums * args.parts) * sizeof(double))};
  launch(pointwise::binary_gradient_sums, args, sums * args.parts, call.work);
  if (args.parts > 1) launch(pointwise::binary_gradient_total, args, sums, call.work);
  return nullptr;
}
constexpr Implementation<Call<BinaryGradientProblem>> kBinaryGradients[] = {
    {"cuda_binary_gradient_lanes", run_binary_gradient_lanes},
    {"cuda_binary_gradient", run_binary_gradient},
    {"cuda_binary_gradient_blocks", run_binary_gradient_blocks},
    {"cuda_binary_gradient_sums", run_binary_gradient_sums}};
const ImplementationNames kBinaryGradientNames(kBinaryGradients);

pointwise::MaskedSumArgs arguments_of(const MaskedSumProblem& p, Work& work) {
  return {work.source(p.src0), work.source(p.src1), work.source(p.mask), work.view(p.dst), p.scale, {}};
}

const char* run_masked_sum_lanes(const Call<MaskedSumProblem>& call) {
  const auto& [p, work] = call;
  pointwise::MaskedSumArgs args = arguments_of(p, work);
  if (const char* why_not = divide(args.dst, {&args.dst}, {&args.src0, &args.src1}, /*by_channel=*/false, args.chunks))
    return why_not;
  if (!args.chunks.is_flat) return "gaps between the values";
  const View& mask = args.mask.view;
  if (mask && ((mask.format != Format::unorm8 && mask.format != args.dst.format) || !is_like(args.mask, args.dst) ||
               !is_dense(mask) || mask.data.address % 16 != 0))
    return "a mask of another format, with gaps, or not aligned";
  // The kernel is compiled for the format of the other images.
  work.launch(pointwise::masked_sum_lanes, args, threads_of(args.chunks),
              {&args.src0.view, &args.src1.view, &args.dst});
  return nullptr;
}
const char* run_masked_sum(const Call<MaskedSumProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::MaskedSumArgs args = arguments_of(p, work);
  work.launch(pointwise::masked_sum, args, args.dst.size(),
              {&args.src0.view, &args.src1.view, &args.mask.view, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<MaskedSumProblem>> kMaskedSums[] = {{"cuda_masked_sum_lanes", run_masked_sum_lanes},
                                                                  {"cuda_masked_sum", run_masked_sum}};
const ImplementationNames kMaskedSumNames(kMaskedSums);

const char* run_dropout_dense(const Call<DropoutProblem>& call) {
  const auto& [p, work] = call;
  const Source src = work.source(p.src);
  const View dst = work.view(p.dst);
  if (rows_of(p.source, p.src).is_seen_twice() || columns_of(p.source, p.src).is_seen_twice())
    return "several results saw one pixel";
  if (!is_like(src, dst) || !is_dense(src.view) || !is_dense(dst)) return "gaps between the values";
  if (p.mask.h != dst.h || p.mask.w != dst.w || p.mask.c != dst.c || p.start_h || p.start_w)
    return "the mask has other extents";
  const i64 values = dst.h * dst.w * dst.c;
  const pointwise::DropoutDenseArgs args{src.view,
                                         dst,
                                         p.mask.seed,
                                         p.mask.image,
                                         dropout_threshold(p.mask.keep),
                                         p.mask.keep,
                                         values,
                                         (values + 63) / 64 * 16};
  work.launch_varying(pointwise::dropout_dense, args, dst.n * args.blocks, {&args.src, &args.dst});
  return nullptr;
}
const char* run_dropout(const Call<DropoutProblem>& call) {
  const auto& [p, work] = call;
  const ResultsAxis rows = rows_of(p.source, p.src), columns = columns_of(p.source, p.src);
  const bool is_clamped = rows.is_seen_twice() || columns.is_seen_twice();
  // The mask's position for diff_src(0, 0), or for result (0, 0), at which diff_dst starts.
  const auto start = [&](i64 extent, i64 of_dst, i64 of_src) {
    return extent == 1 ? 0 : is_clamped ? of_dst - of_src : of_dst;
  };
  const pointwise::DropoutArgs args{work.source(p.src),
                                    work.view(p.dst),
                                    p.mask,
                                    dropout_threshold(p.mask.keep),
                                    start(p.mask.h, p.start_h, p.src.start_h),
                                    start(p.mask.w, p.start_w, p.src.start_w),
                                    is_clamped,
                                    rows,
                                    columns};
  work.launch_varying(is_clamped ? pointwise::dropout_clamped : pointwise::dropout, args, p.dst.size(),
                      {&args.src.view, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<DropoutProblem>> kDropouts[] = {{"cuda_dropout_dense", run_dropout_dense},
                                                              {"cuda_dropout", run_dropout}};
const ImplementationNames kDropoutNames(kDropouts);

const char* run_copy_bytes(const Call<CopyProblem>& call) {
  const auto& [p, work] = call;
  if (p.src.format != p.dst.format) return "formats differ";
  if (!p.src.is_dense() || !p.dst.is_dense()) return "gaps between the values";
  work.copy(work.view(p.dst).data.address, work.view(p.src).data.address,
            static_cast<std::size_t>(p.dst.size()) * size_of(p.dst.format));
  return nullptr;
}
const char* run_copy_lanes(const Call<CopyProblem>& call) {
  const auto& [p, work] = call;
  pointwise::CopyLanesArgs args{work.view(p.src), work.view(p.dst), {}};
  if (const char* why_not = divide(args.dst, {&args.src, &args.dst}, {}, /*by_channel=*/false, args.chunks))
    return why_not;
  work.launch(pointwise::copy_lanes, args, threads_of(args.chunks), {&args.src, &args.dst});
  return nullptr;
}
const char* run_copy(const Call<CopyProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::CopyArgs args{work.view(p.src), work.view(p.dst)};
  work.launch(pointwise::copy, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<CopyProblem>> kCopies[] = {
    {"cuda_copy_bytes", run_copy_bytes}, {"cuda_copy_lanes", run_copy_lanes}, {"cuda_copy", run_copy}};
const ImplementationNames kCopyNames(kCopies);

const char* run_buffer_copies(const Call<BufferCopyProblem>& call) {
  constexpr std::size_t kMostBytes = 64 << 10;
  const auto& [p, work] = call;
  if (!work.gathers()) return "no list of commands";
  if (p.bytes == 0 || p.bytes > kMostBytes) return "nothing, or many bytes";
  const Span from{work.address(*p.src) + p.src_offset, p.bytes}, to{work.address(*p.dst) + p.dst_offset, p.bytes};
  if ((from.first | to.first | p.bytes) % 4) return "no whole words";
  if (from.meets(to)) return "the ranges overlap";
  ManyCopies::add(work, from, to,
                  [&](ManyCopies& many) { many.copy({{from.first}, {to.first}, static_cast<i64>(p.bytes / 4), 0}); });
  return nullptr;
}

const char* run_buffer_copy(const Call<BufferCopyProblem>& call) {
  const auto& [p, work] = call;
  work.launch_gathered();
  if (p.bytes) work.copy(work.address(*p.dst) + p.dst_offset, work.address(*p.src) + p.src_offset, p.bytes);
  return nullptr;
}
constexpr Implementation<Call<BufferCopyProblem>> kBufferCopies[] = {{"cuda_buffer_copies", run_buffer_copies},
                                                                     {"cuda_buffer_copy", run_buffer_copy}};
const ImplementationNames kBufferCopyNames(kBufferCopies);

const char* run_buffer_fill(const Call<BufferFillProblem>& call) {
  const auto& [p, work] = call;
  if (p.bytes) work.fill(work.address(*p.dst) + p.offset, p.value, p.bytes);
  return nullptr;
}
constexpr Implementation<Call<BufferFillProblem>> kBufferFills[] = {{"cuda_buffer_fill", run_buffer_fill}};
const ImplementationNames kBufferFillNames(kBufferFills);

const char* run_pixel_copy(const Call<PixelCopyProblem>& call) {
  const auto& [p, work] = call;
  const Address from = work.address(*p.src.memory) + p.src.offset, to = work.address(*p.dst.memory) + p.dst.offset;
  // Strides of extents of 1 are not used.
  const auto stride = [](std::int64_t extent, std::size_t bytes) { return extent > 1 ? bytes : 0; };
  const std::size_t src_pixel = stride(p.w, p.src.pixel_stride), src_row = stride(p.h, p.src.row_stride),
                    dst_pixel = stride(p.w, p.dst.pixel_stride), dst_row = stride(p.h, p.dst.row_stride);
  const std::size_t all = from | to | src_pixel | src_row | dst_pixel | dst_row | p.bytes | p.zeros;
  const std::size_t unit = std::min<std::size_t>(all & (~all + 1), 16);  // the lowest bit set
  const auto signed_of = [](std::size_t value) { return static_cast<i64>(value); };
  const pointwise::PixelCopyArgs args{
      {from}, {to}, signed_of(src_pixel),      signed_of(src_row),        signed_of(dst_pixel),  signed_of(dst_row),
      p.h,    p.w,  signed_of(p.bytes / unit), signed_of(p.zeros / unit), static_cast<int>(unit)};
  work.launch(pointwise::pixel_copy, args, p.h * p.w * (args.units + args.zeros));
  return nullptr;
}
constexpr Implementation<Call<PixelCopyProblem>> kPixelCopies[] = {{"cuda_pixel_copy", run_pixel_copy}};
const ImplementationNames kPixelCopyNames(kPixelCopies);

const char* run_strided_copy(const Call<StridedCopyProblem>& call) {
  const auto& [p, work] = call;
  const std::vector<CopyAxis> axes = merged_axes(p.axes);
  pointwise::StridedCopyArgs args{{work.address(*p.src) + p.src_offset}, {work.address(*p.dst) + p.dst_offset}};
  if (axes.size() > std::size(args.lengths)) return "it has more than 16 axes";
  args.src_type = p.src_type, args.dst_type = p.dst_type;
  args.unit = p.src_type == p.dst_type ? static_cast<int>(size_of(p.src_type)) : 0;
  // Elements of complex numbers are copied by the alignment of the whole number too.
  std::int64_t count = 1, src_places = static_cast<std::int64_t>(args.src.address),
               dst_places = static_cast<std::int64_t>(args.dst.address);
  for (const CopyAxis& axis : axes) {
    args.lengths[args.axes] = axis.length;
    args.src_strides[args.axes] = axis.src_stride;
    args.dst_strides[args.axes++] = axis.dst_stride;
    count *= axis.length;
    src_places |= axis.src_stride;
    dst_places |= axis.dst_stride;
  }
  if (src_places % static_cast<std::int64_t>(size_of(p.src_type)) != 0 ||
      dst_places % static_cast<std::int64_t>(size_of(p.dst_type)) != 0)
    return "an element is not aligned";
  work.launch(pointwise::strided_copy, args, count);
  return nullptr;
}
constexpr Implementation<Call<StridedCopyProblem>> kStridedCopies[] = {{"cuda_strided_copy", run_strided_copy}};
const ImplementationNames kStridedCopyNames(kStridedCopies);

}  // namespace

bool solve(const NeuronProblem& problem, Work& work) {
  return try_first("neuron", kNeurons, Call<NeuronProblem>{problem, work});
}
bool solve(const NeuronGradientProblem& problem, Work& work) {
  return try_first("neuron_gradient", kNeuronGradients, Call<NeuronGradientProblem>{problem, work});
}
bool solve(const BinaryProblem& problem, Work& work) {
  return try_first("binary", kBinaries, Call<BinaryProblem>{problem, work});
}
bool solve(const BinaryGradientProblem& problem, Work& work) {
  return try_first("binary_gradient", kBinaryGradients, Call<BinaryGradientProblem>{problem, work});
}
bool solve(const MaskedSumProblem& problem, Work& work) {
  return try_first("masked_sum", kMaskedSums, Call<MaskedSumProblem>{problem, work});
}
bool solve(const DropoutProblem& problem, Work& work) {
  return try_first("dropout", kDropouts, Call<DropoutProblem>{problem, work});
}
bool solve(const CopyProblem& problem, Work& work) {
  return try_first("copy", kCopies, Call<CopyProblem>{problem, work});
}
bool solve(const BufferCopyProblem& problem, Work& work) {
  return try_first("buffer_copy", kBufferCopies, Call<BufferCopyProblem>{problem, work});
}
bool solve(const BufferFillProblem& problem, Work& work) {
  return try_first("buffer_fill", kBufferFills, Call<BufferFillProblem>{problem, work});
}
bool solve(const PixelCopyProblem& problem, Work& work) {
  return try_first("pixel_copy", kPixelCopies, Call<PixelCopyProblem>{problem, work});
}
bool solve(const StridedCopyProblem& problem, Work& work) {
  return try_first("strided_copy", kStridedCopies, Call<StridedCopyProblem>{problem, work});
}

}  // namespace openmps::cuda
