// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/reshape.hpp"

#include "engine/cuda/families.hpp"
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/cuda/lanes.hpp"

namespace openmps::cuda {
namespace {

const char* run_reshape_bytes(const Call<ReshapeProblem>& call) {
  const auto& [p, work] = call;
  if (p.src.format != p.dst.format) return "formats differ";
  if (!p.src.is_dense() || !p.dst.is_dense()) return "gaps between the values";
  work.copy(work.view(p.dst).data.address, work.view(p.src).data.address,
            static_cast<std::size_t>(p.dst.size()) * size_of(p.dst.format));
  return nullptr;
}
const char* run_reshape_lanes(const Call<ReshapeProblem>& call) {
  const auto& [p, work] = call;
  if (!p.src.is_dense() || !p.dst.is_dense()) return "gaps between the values";
  pointwise::CopyLanesArgs args{work.view(p.src), work.view(p.dst), {}};
  for (View* const view : {&args.src, &args.dst}) view->c = view->size(), view->n = view->h = view->w = 1;
  if (const char* why_not = divide(args.dst, {&args.src, &args.dst}, {}, /*by_channel=*/false, args.chunks))
    return why_not;
  work.launch(pointwise::copy_lanes, args, threads_of(args.chunks), {&args.src, &args.dst});
  return nullptr;
}
const char* run_reshape(const Call<ReshapeProblem>& call) {
  const auto& [p, work] = call;
  const reshaping::ReshapeArgs args{work.view(p.src), work.view(p.dst)};
  work.launch(reshaping::reshape, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<ReshapeProblem>> kReshapes[] = {{"cuda_reshape_bytes", run_reshape_bytes},
                                                              {"cuda_reshape_lanes", run_reshape_lanes},
                                                              {"cuda_reshape", run_reshape}};
const ImplementationNames kReshapeNames(kReshapes);

reshaping::PadArgs arguments_of(const Call<PadProblem>& call) {
  const auto& [p, work] = call;
  return {.src = work.view(p.src),
          .dst = work.view(p.dst),
          .start_h = p.start_h,
          .start_w = p.start_w,
          .start_c = p.start_c,
          .edge = p.edge,
          .fill = p.fill,
          .fills = work.constants(p.fill_per_channel),
          .chunks = {}};
}

const char* run_pad_lanes(const Call<PadProblem>& call) {
  const auto& [p, work] = call;
  if (p.start_c || p.src.c != p.dst.c) return "channels are padded";
  reshaping::PadArgs args = arguments_of(call);
  const Source src{.view = args.src};
  if (const char* why_not = divide(args.dst, {&args.dst}, {&src}, /*by_channel=*/true, args.chunks)) return why_not;
  work.launch(reshaping::pad_lanes, args, threads_of(args.chunks), {&args.src, &args.dst});
  return nullptr;
}
const char* run_pad(const Call<PadProblem>& call) {
  const reshaping::PadArgs args = arguments_of(call);
  call.work.launch(reshaping::pad, args, args.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<PadProblem>> kPads[] = {{"cuda_pad_lanes", run_pad_lanes}, {"cuda_pad", run_pad}};
const ImplementationNames kPadNames(kPads);

reshaping::PadGradientArgs arguments_of(const Call<PadGradientProblem>& call) {
  const auto& [p, work] = call;
  return {.diff_dst = work.view(p.diff_dst),
          .diff_src = work.view(p.diff_src),
          .src_h = p.src_h,
          .src_w = p.src_w,
          .first_h = p.first_h,
          .first_w = p.first_w,
          .start_h = p.start_h,
          .start_w = p.start_w,
          .start_c = p.start_c,
          .edge = p.edge,
          .chunks = {}};
}

const char* run_pad_gradient_blocks(const Call<PadGradientProblem>& call) {
  constexpr i64 kManyCopies = 64;
  const reshaping::PadGradientArgs args = arguments_of(call);
  const i64 source = args.src_h * args.src_w * args.diff_src.c;
  if (args.diff_dst.h * args.diff_dst.w * args.diff_dst.c < kManyCopies * source) return "few copies";
  call.work.launch(reshaping::pad_gradient_blocks, args, args.diff_src.size(), {&args.diff_dst, &args.diff_src});
  return nullptr;
}
const char* run_pad_gradient_lanes(const Call<PadGradientProblem>& call) {
  const auto& [p, work] = call;
  if (p.start_c || p.diff_dst.c != p.diff_src.c) return "channels are padded";
  reshaping::PadGradientArgs args = arguments_of(call);
  const Source diff{.view = args.diff_dst};
  if (const char* why_not = divide(args.diff_src, {&args.diff_src}, {&diff}, /*by_channel=*/true, args.chunks))
    return why_not;
  work.launch(reshaping::pad_gradient_lanes, args, threads_of(args.chunks), {&args.diff_dst, &args.diff_src});
  return nullptr;
}
const char* run_pad_gradient(const Call<PadGradientProblem>& call) {
  const reshaping::PadGradientArgs args = arguments_of(call);
  call.work.launch(reshaping::pad_gradient, args, args.diff_src.size(), {&args.diff_dst, &args.diff_src});
  return nullptr;
}
constexpr Implementation<Call<PadGradientProblem>> kPadGradients[] = {
    {"cuda_pad_gradient_blocks", run_pad_gradient_blocks},
    {"cuda_pad_gradient_lanes", run_pad_gradient_lanes},
    {"cuda_pad_gradient", run_pad_gradient}};
const ImplementationNames kPadGradientNames(kPadGradients);

}  // namespace

bool solve(const ReshapeProblem& problem, Work& work) {
  return try_first("reshape", kReshapes, Call<ReshapeProblem>{problem, work});
}
bool solve(const PadProblem& problem, Work& work) { return try_first("pad", kPads, Call<PadProblem>{problem, work}); }
bool solve(const PadGradientProblem& problem, Work& work) {
  return try_first("pad_gradient", kPadGradients, Call<PadGradientProblem>{problem, work});
}

}  // namespace openmps::cuda
