// SPDX-License-Identifier: Apache-2.0
#include "engine/problem/sums.hpp"

#include "engine/cuda/families.hpp"
#include "engine/cuda/kernels/normalization.hpp"
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/cuda/lanes.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using namespace normalization;
using pointwise::masked_sum, pointwise::masked_sum_lanes, pointwise::MaskedSumArgs;

bool is_like_dense(const Operand& operand, const ImageView& dst) {
  const ImageView& view = operand.view;
  return operand.start_h == 0 && operand.start_w == 0 && view.format == dst.format && view.is_dense() &&
         view.n == dst.n && view.h == dst.h && view.w == dst.w && view.c == dst.c;
}

NormalizeAddArgs arguments_of(const NormalizeAddProblem& p, Work& work) {
  const i64 c = p.dst.c;
  const std::size_t bytes = (static_cast<std::size_t>(c) * sizeof(float) + 15) / 16 * 16;
  const Address scratch = work.scratch(3 * bytes);
  const NormalizeAddArgs args{.src = work.source(p.src),
                              .addend = work.source(p.addend),
                              .dst = work.view(p.dst),
                              .mask = work.view(p.mask),
                              .coefficients = {{scratch}, {scratch + bytes}, {scratch + 2 * bytes}},
                              .min = p.min,
                              .max = p.max,
                              .step = 0};
  const CoefficientsArgs coefficients{
      {work.values(p.mean), work.values(p.variance), {work.values_address(p.exact.memory, p.exact.offset)}},
      {c, 0},
      {work.values_address(p.gamma.memory, p.gamma.offset)},
      {work.values_address(p.beta.memory, p.beta.offset)},
      p.epsilon,
      args.coefficients};
  work.launch(normalization_coefficients, coefficients, c);
  return args;
}

const char* run_normalize_add_rows(const Call<NormalizeAddProblem>& call) {
  const auto& [p, work] = call;
  if (!fuses(p)) return "gaps between the values, or channels that are no multiple of 16 bytes";
  const View src = work.view(p.src.view), addend = work.view(p.addend.view), result = work.view(p.dst);
  if (const char* why_not = why_no_vectors({&src, &addend, &result})) return why_not;
  const View bytes = work.view(p.mask);
  if (bytes && bytes.data.address % 8 != 0) return "the mask is not aligned";
  NormalizeAddArgs args = arguments_of(p, work);
  for (View* const view : {&args.src.view, &args.addend.view, &args.dst}) *view = flattened(*view, true);
  if (args.mask) args.mask = flattened(args.mask, true);
  constexpr i64 kPixels = PixelsOfThread::kCount * PixelsOfThread::kTurns;
  args.step = (args.dst.w + kPixels - 1) / kPixels;
  // The mask's format is known: the kernel is compiled for that of the other images.
  work.launch(normalize_add_rows, args, args.step * (args.dst.c / lanes_in_vector(args.dst)),
              {&args.src.view, &args.addend.view, &args.dst});
  return nullptr;
}
const char* run_normalize_add(const Call<NormalizeAddProblem>& call) {
  const auto& [p, work] = call;
  const NormalizeAddArgs args = arguments_of(p, work);
  work.launch(normalize_add, args, args.dst.size(), {&args.src.view, &args.addend.view, &args.dst, &args.mask});
  return nullptr;
}
constexpr Implementation<Call<NormalizeAddProblem>> kNormalizeAdds[] = {
    {"cuda_normalize_add_rows", run_normalize_add_rows}, {"cuda_normalize_add", run_normalize_add}};
const ImplementationNames kNormalizeAddNames(kNormalizeAdds);

MaskedSumArgs arguments_of(const MaskedSumProblem& p, Work& work) {
  return {work.source(p.src0), work.source(p.src1), work.source(p.mask), work.view(p.dst), p.scale, {}};
}

const char* run_masked_sum_lanes(const Call<MaskedSumProblem>& call) {
  const auto& [p, work] = call;
  MaskedSumArgs args = arguments_of(p, work);
  if (const char* why_not =
          divide(args.dst, {&args.dst}, {&args.src0, &args.src1, &args.mask}, /*by_channel=*/false, args.chunks))
    return why_not;
  work.launch(masked_sum_lanes, args, threads_of(args.chunks),
              {&args.src0.view, &args.src1.view, &args.mask.view, &args.dst});
  return nullptr;
}
const char* run_masked_sum(const Call<MaskedSumProblem>& call) {
  const auto& [p, work] = call;
  const MaskedSumArgs args = arguments_of(p, work);
  work.launch(masked_sum, args, args.dst.size(), {&args.src0.view, &args.src1.view, &args.mask.view, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<MaskedSumProblem>> kMaskedSums[] = {{"cuda_masked_sum_lanes", run_masked_sum_lanes},
                                                                  {"cuda_masked_sum", run_masked_sum}};
const ImplementationNames kMaskedSumNames(kMaskedSums);

}  // namespace

bool fuses(const NormalizeAddProblem& p) {
  if (p.dst.format != Format::float16 && p.dst.format != Format::float32) return false;
  const i64 lanes = p.dst.format == Format::float16 ? 8 : 4;
  if (p.dst.c % lanes != 0 || !p.dst.is_dense() || !is_like_dense(p.src, p.dst) || !is_like_dense(p.addend, p.dst))
    return false;
  return !p.mask.memory || (p.mask.format == Format::unorm8 && p.mask.is_dense());
}

bool solve(const NormalizeAddProblem& problem, Work& work) {
  return try_first("normalize_add", kNormalizeAdds, Call<NormalizeAddProblem>{problem, work});
}
bool solve(const MaskedSumProblem& problem, Work& work) {
  return try_first("masked_sum", kMaskedSums, Call<MaskedSumProblem>{problem, work});
}

}  // namespace openmps::cuda
