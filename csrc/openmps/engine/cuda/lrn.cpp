// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/lrn.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

using lrn::LRNArgs, lrn::LRNGradientArgs;

constexpr i64 kScratchBytes = 64 * 1024 * 1024;  // images whose terms take more are solved one after another

lrn::Axis axis_of(i64 start, i64 kernel, i64 size, i64 windows, Edge edge) {
  const bool clamps = edge == Edge::clamp;
  return {{start, kernel, 1, 1, size, windows, clamps}, {start + kernel / 2, 1, 1, 1, size, windows, clamps}};
}

LRNArgs args_of(Work& work, const LRNProblem& p) {
  const Window& w = p.window;
  const bool by_channels = p.type == LRNType::channels, contrast = p.type == LRNType::contrast;
  const double taps =
      by_channels ? static_cast<double>(p.size) : static_cast<double>(w.kernel_h) * static_cast<double>(w.kernel_w);
  return {.src = work.view(p.src),
          .dst = work.view(p.dst),
          .formula = {.type = p.type,
                      .alpha = p.alpha,
                      .exponent = -static_cast<double>(p.beta),
                      .delta = p.delta,
                      .p0 = contrast ? p.p0 : 0.0,
                      .pm = contrast ? p.pm : 0.0,
                      .ps = contrast ? p.ps : 1.0,
                      .per_tap = 1 / taps,
                      .before = p.size / 2,
                      .after = (p.size - 1) / 2},
          .rows = axis_of(w.start_h, w.kernel_h, p.src.h, p.dst.h, w.edge),
          .columns = axis_of(w.start_w, w.kernel_w, p.src.w, p.dst.w, w.edge)};
}

const char* run_lrn(const Call<LRNProblem>& call) {
  const auto& [p, work] = call;
  const LRNArgs args = args_of(work, p);
  work.launch(p.type == LRNType::channels ? lrn::lrn_channels : lrn::lrn_windows, args, p.dst.size(),
              {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<LRNProblem>> kLRNs[] = {{"cuda_lrn", run_lrn}};
const ImplementationNames kLRNNames(kLRNs);

const char* run_lrn_gradient(const Call<LRNGradientProblem>& call) {
  const auto& [p, work] = call;
  const bool by_channels = p.forward.type == LRNType::channels;
  // Each value of diff_src, or of the gradient of the result, has terms.
  const i64 values = (by_channels ? p.diff_src : p.forward.dst).size() / p.diff_src.n;
  const i64 image_bytes = 3 * values * static_cast<i64>(sizeof(double));
  const i64 together = std::clamp<i64>(kScratchBytes / image_bytes, 1, p.diff_src.n);
  const Address base = work.scratch(static_cast<std::size_t>(together * image_bytes));
  for (i64 first = 0; first < p.diff_src.n; first += together) {
    const i64 images = std::min(together, p.diff_src.n - first), count = images * values;
    LRNProblem forward = p.forward;
    forward.src = forward.src.images(first, images), forward.dst = forward.dst.images(first, images);
    const auto array = [&](i64 i) {
      return Pointer<double>{base + static_cast<std::size_t>(i * count) * sizeof(double)};
    };
    const LRNGradientArgs args{.forward = args_of(work, forward),
                               .diff_src = work.view(p.diff_src.images(first, images)),
                               .start_h = p.start_h,
                               .start_w = p.start_w,
                               .own = array(0),
                               .slope = array(1),
                               .shared = array(2)};
    const View &src = args.forward.src, &diff_dst = args.forward.dst;
    work.launch(by_channels ? lrn::lrn_gradient_channel_terms : lrn::lrn_gradient_window_terms, args, count,
                {&src, &diff_dst});
    work.launch(by_channels ? lrn::lrn_gradient_channels : lrn::lrn_gradient_windows, args,
                images * p.diff_src.size() / p.diff_src.n, {&src, &args.diff_src});
  }
  return nullptr;
}
constexpr Implementation<Call<LRNGradientProblem>> kLRNGradients[] = {{"cuda_lrn_gradient", run_lrn_gradient}};
const ImplementationNames kLRNGradientNames(kLRNGradients);

}  // namespace

bool solve(const LRNProblem& problem, Work& work) { return try_first("lrn", kLRNs, Call<LRNProblem>{problem, work}); }
bool solve(const LRNGradientProblem& problem, Work& work) {
  return try_first("lrn_gradient", kLRNGradients, Call<LRNGradientProblem>{problem, work});
}

}  // namespace openmps::cuda
