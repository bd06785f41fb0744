// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/resampling.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"
#include "engine/cuda/lanes.hpp"

namespace openmps::cuda {
namespace {

/// Compute the taps of `count` regions whose results have h x w pixels.
void make_taps(const ResampleProblem::Region* regions, i64 count, i64 h, i64 w, i64 src_h, i64 src_w, ResampleType type,
               ResampleEdge edge, Pointer<SampleTaps> taps, Work& work) {
  resampling::TapsArgs args{.regions = {},
                            .result_h = h,
                            .result_w = w,
                            .src_h = src_h,
                            .src_w = src_w,
                            .type = type,
                            .edge = edge,
                            .taps = taps};
  for (i64 first = 0; first < count; first += resampling::kRegions) {
    const i64 part = std::min<i64>(resampling::kRegions, count - first);
    std::copy_n(regions + first, part, args.regions);
    work.launch(resampling::sample_taps_table, args, part * (h + w));
    args.taps.address += static_cast<std::uint64_t>(part * (h + w)) * sizeof(SampleTaps);
  }
}

resampling::ResampleArgs arguments_of(const Call<ResampleProblem>& call) {
  const auto& [p, work] = call;
  const auto regions = static_cast<i64>(p.regions.size());
  return {.src = work.view(p.src), .dst = work.view(p.dst), .regions = regions, .taps = {}, .chunks = {}};
}

void launch(const Kernel<resampling::ResampleArgs>& kernel, resampling::ResampleArgs args, i64 count,
            const Call<ResampleProblem>& call) {
  const auto& [p, work] = call;
  args.taps = {work.scratch(static_cast<std::size_t>(args.regions * (args.dst.h + args.dst.w)) * sizeof(SampleTaps))};
  make_taps(p.regions.data(), args.regions, args.dst.h, args.dst.w, args.src.h, args.src.w, p.type, p.edge, args.taps,
            work);
  work.launch(kernel, args, count, {&args.src, &args.dst});
}

const char* run_resample_lanes(const Call<ResampleProblem>& call) {
  resampling::ResampleArgs args = arguments_of(call);
  const Source src{.view = args.src};
  if (const char* why_not = divide(args.dst, {&args.dst}, {&src}, /*by_channel=*/true, args.chunks)) return why_not;
  launch(resampling::resample_lanes, args, threads_of(args.chunks), call);
  return nullptr;
}
const char* run_resample(const Call<ResampleProblem>& call) {
  launch(resampling::resample, arguments_of(call), call.problem.dst.size(), call);
  return nullptr;
}
constexpr Implementation<Call<ResampleProblem>> kResamplings[] = {{"cuda_resample_lanes", run_resample_lanes},
                                                                  {"cuda_resample", run_resample}};
const ImplementationNames kResamplingNames(kResamplings);

resampling::ResampleGradientArgs arguments_of(const Call<ResampleGradientProblem>& call) {
  const auto& [p, work] = call;
  return {.diff_dst = work.view(p.diff_dst),
          .diff_src = work.view(p.diff_src),
          .first_h = p.first_h,
          .first_w = p.first_w,
          .taps = {},
          .readers = {},
          .chunks = {}};
}

void launch(const Kernel<resampling::ResampleGradientArgs>& kernel, resampling::ResampleGradientArgs args, i64 count,
            const Call<ResampleGradientProblem>& call) {
  const auto& [p, work] = call;
  const View &diff = args.diff_dst, &dst = args.diff_src;
  const std::size_t taps_bytes = static_cast<std::size_t>(diff.h + diff.w) * sizeof(SampleTaps),
                    readers_bytes = static_cast<std::size_t>(dst.h + dst.w) * sizeof(resampling::Readers);
  args.taps = {work.scratch(taps_bytes + readers_bytes)};
  args.readers = {args.taps.address + taps_bytes};
  make_taps(&p.region, 1, diff.h, diff.w, p.src_h, p.src_w, p.type, p.edge, args.taps, work);
  const resampling::ReadersArgs readers{args.taps, args.readers, diff.h, diff.w, p.first_h, p.first_w, dst.h};
  work.launch(resampling::sample_readers, readers, dst.h + dst.w);
  work.launch(kernel, args, count, {&args.diff_dst, &args.diff_src});
}

const char* run_resample_gradient_blocks(const Call<ResampleGradientProblem>& call) {
  constexpr i64 kManyReaders = 256;
  const auto& [p, work] = call;
  if (p.diff_dst.h * p.diff_dst.w < kManyReaders * p.src_h * p.src_w) return "few results read a pixel";
  launch(resampling::resample_gradient_blocks, arguments_of(call), p.diff_src.size(), call);
  return nullptr;
}
const char* run_resample_gradient_lanes(const Call<ResampleGradientProblem>& call) {
  resampling::ResampleGradientArgs args = arguments_of(call);
  const Source diff{.view = args.diff_dst};
  if (const char* why_not = divide(args.diff_src, {&args.diff_src}, {&diff}, /*by_channel=*/true, args.chunks))
    return why_not;
  launch(resampling::resample_gradient_lanes, args, threads_of(args.chunks), call);
  return nullptr;
}
const char* run_resample_gradient(const Call<ResampleGradientProblem>& call) {
  launch(resampling::resample_gradient, arguments_of(call), call.problem.diff_src.size(), call);
  return nullptr;
}
constexpr Implementation<Call<ResampleGradientProblem>> kResampleGradients[] = {
    {"cuda_resample_gradient_blocks", run_resample_gradient_blocks},
    {"cuda_resample_gradient_lanes", run_resample_gradient_lanes},
    {"cuda_resample_gradient", run_resample_gradient}};
const ImplementationNames kResampleGradientNames(kResampleGradients);

const char* run_lanczos(const Call<LanczosProblem>& call) {
  const auto& [p, work] = call;
  const i64 results = p.dst.h + p.dst.w, most = std::max(lanczos_most_taps(p.h), lanczos_most_taps(p.w));
  const std::size_t range_bytes = static_cast<std::size_t>(results) * sizeof(resampling::LanczosRange),
                    weight_bytes = static_cast<std::size_t>(results * most) * sizeof(float);
  const Address scratch = work.scratch(range_bytes + weight_bytes);
  const resampling::LanczosArgs args{.src = work.view(p.src),
                                     .dst = work.view(p.dst),
                                     .edge = p.edge,
                                     .most = most,
                                     .ranges = {scratch},
                                     .weights = {scratch + range_bytes}};
  const resampling::LanczosTableArgs table{.h = p.h,
                                           .w = p.w,
                                           .result_h = p.dst.h,
                                           .src_h = p.src.h,
                                           .src_w = p.src.w,
                                           .most = most,
                                           .ranges = args.ranges,
                                           .weights = args.weights};
  work.launch(resampling::lanczos_table, table, results);
  work.launch(resampling::lanczos, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<LanczosProblem>> kLanczos[] = {{"cuda_lanczos", run_lanczos}};
const ImplementationNames kLanczosNames(kLanczos);

const char* run_grid_sample(const Call<GridSampleProblem>& call) {
  const auto& [p, work] = call;
  const resampling::GridSampleArgs args{.src = work.view(p.src),
                                        .grid = work.source(p.grid),
                                        .dst = work.view(p.dst),
                                        .edge = p.edge,
                                        .adds_position = p.adds_position,
                                        .start_h = p.start_h,
                                        .start_w = p.start_w};
  work.launch(resampling::grid_sample, args, p.dst.size(), {&args.src, &args.grid.view, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<GridSampleProblem>> kGridSamples[] = {{"cuda_grid_sample", run_grid_sample}};
const ImplementationNames kGridSampleNames(kGridSamples);

}  // namespace

bool solve(const ResampleProblem& problem, Work& work) {
  return try_first("resample", kResamplings, Call<ResampleProblem>{problem, work});
}
bool solve(const ResampleGradientProblem& problem, Work& work) {
  return try_first("resample_gradient", kResampleGradients, Call<ResampleGradientProblem>{problem, work});
}
bool solve(const LanczosProblem& problem, Work& work) {
  return try_first("lanczos", kLanczos, Call<LanczosProblem>{problem, work});
}
bool solve(const GridSampleProblem& problem, Work& work) {
  return try_first("grid_sample", kGridSamples, Call<GridSampleProblem>{problem, work});
}

}  // namespace openmps::cuda
