// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/pooling.hpp"

#include <algorithm>

#include "engine/cuda/families.hpp"
#include "engine/cuda/pooling.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using pooling::PoolArgs, pooling::PoolGradientArgs;

constexpr i64 kThreadsOfGpu = 128 * 1024;  // as many as keep a large GPU busy
constexpr i64 kTapsPerPart = 8, kManyTaps = 32;
constexpr i64 kMaxExtent = 1 << 28;  // coordinates of 32 bits do not overflow
constexpr i64 kMaxImageBytes = 0x7fffffff;
constexpr i64 kMaxStride = 4;  // a thread computes the pixels between two windows

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }
/// Return a / b, rounded down.
i64 divided_down(i64 a, i64 b) { return a >= 0 ? a / b : -divided_up(-a, b); }
/// Return whether each window along an axis has a tap in the source.
bool meet(i64 start, i64 kernel, i64 stride, i64 windows, i64 size) {
  return start + kernel > 0 && start + (windows - 1) * stride < size;
}

/// `results`: dst, or diff_dst. The source of an average gradient has only extents.
template <class P>
pooling::Shape shape_of(const P& p, const ImageView& results) {
  const Window& w = p.window;
  const bool clamps = w.edge == Edge::clamp && p.type != PoolType::average;
  const bool counts_all = w.edge == Edge::zero;
  return {.type = p.type,
          .rows = {w.start_h, w.kernel_h, w.stride_h, w.dilation_h, p.src.h, results.h, clamps},
          .columns = {w.start_w, w.kernel_w, w.stride_w, w.dilation_w, p.src.w, results.w, clamps},
          .zero_pad_h = counts_all ? -1 : p.zero_pad_h,
          .zero_pad_w = counts_all ? -1 : p.zero_pad_w};
}

PoolArgs args_of(const Call<PoolProblem>& call) {
  const auto& [p, work] = call;
  return {work.view(p.src), work.view(p.dst), shape_of(p, p.dst), 1, {}};
}

const char* run_parts(const Call<PoolProblem>& call) {
  const auto& [p, work] = call;
  const i64 size = p.dst.size(), taps = std::min(p.window.kernel_h, p.src.h) * std::min(p.window.kernel_w, p.src.w);
  if (taps < kManyTaps) return "small windows";
  if (size >= kThreadsOfGpu / 2) return "many results";
  PoolArgs args = args_of(call);
  args.parts = std::clamp<i64>(kThreadsOfGpu / size, 2, taps / kTapsPerPart);
  args.partial = {work.scratch(static_cast<std::size_t>(args.parts * size) * sizeof(float))};
  work.launch(pooling::pool_parts, args, args.parts * size, {&args.src});
  work.launch(pooling::pool_combine, args, size, {&args.dst});
  return nullptr;
}

const char* run_max_halves(const Call<PoolProblem>& call) {
  const auto& [p, work] = call;
  const Window& w = p.window;
  if (p.type != PoolType::max || p.src.format != Format::float16) return "not a max of float16";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (!meet(w.start_h, w.kernel_h, w.stride_h, p.dst.h, p.src.h) ||
      !meet(w.start_w, w.kernel_w, w.stride_w, p.dst.w, p.src.w))
    return "windows outside of the source";
  if (std::max({p.src.h, p.src.w, p.dst.h * w.stride_h, p.dst.w * w.stride_w, w.kernel_h, w.kernel_w}) > kMaxExtent)
    return "very large image";
  const pooling::MaxHalvesArgs args{.src = work.view(p.src),
                                    .dst = work.view(p.dst),
                                    .kernel_h = static_cast<int>(w.kernel_h),
                                    .kernel_w = static_cast<int>(w.kernel_w),
                                    .stride_h = static_cast<int>(w.stride_h),
                                    .stride_w = static_cast<int>(w.stride_w),
                                    .start_h = static_cast<int>(w.start_h),
                                    .start_w = static_cast<int>(w.start_w),
                                    .height = static_cast<int>(p.src.h),
                                    .width = static_cast<int>(p.src.w),
                                    .counts_zeros = w.edge == Edge::zero};
  if (const char* why_not = why_no_vectors({&args.src, &args.dst})) return why_not;
  const auto& kernel = w.kernel_h == 3 && w.kernel_w == 3   ? pooling::pool_max_halves_3x3
                       : w.kernel_h == 2 && w.kernel_w == 2 ? pooling::pool_max_halves_2x2
                                                            : pooling::pool_max_halves;
  work.launch(kernel, args, p.dst.size() / lanes_in_vector(args.dst));
  return nullptr;
}

const char* run_vectors(const Call<PoolProblem>& call) {
  const auto& [p, work] = call;
  const PoolArgs args = args_of(call);
  if (const char* why_not = why_no_vectors({&args.src, &args.dst})) return why_not;
  work.launch(pooling::pool_vectors, args, p.dst.size() / lanes_in_vector(args.dst), {&args.src, &args.dst});
  return nullptr;
}

const char* run_values(const Call<PoolProblem>& call) {
  const auto& [p, work] = call;
  const PoolArgs args = args_of(call);
  work.launch(pooling::pool, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}

constexpr Implementation<Call<PoolProblem>> kPools[] = {
    {"cuda_pool_parts", run_parts},
    {"cuda_pool_max_halves", run_max_halves},
    {"cuda_pool_vectors", run_vectors},
    {"cuda_pool", run_values},
};
const ImplementationNames kPoolNames(kPools);

/// Return false if the windows do not suit the kernel for maxima.
bool set_axis(max_pool_gradient::Axis& axis, i64 start, i64 kernel, i64 stride, i64 size, i64 windows, i64 first,
              i64 pixels) {
  const i64 overlap = divided_up(kernel, stride);
  if (stride > kMaxStride || 2 * overlap > max_pool_gradient::kWindowsOfTile) return false;
  if (!meet(start, kernel, stride, windows, size)) return false;
  if (std::max({size, windows * stride, kernel}) > kMaxExtent) return false;
  const i64 first_cell = divided_down(first - start, stride);
  const i64 cells = divided_down(first + pixels - 1 - start, stride) - first_cell + 1;
  const i64 tiles = divided_up(cells, max_pool_gradient::kWindowsOfTile + 1 - overlap);
  axis = {.kernel = static_cast<int>(kernel),
          .stride = static_cast<int>(stride),
          .start = static_cast<int>(start),
          .overlap = static_cast<int>(overlap),
          .size = static_cast<int>(size),
          .windows = static_cast<int>(windows),
          .first = static_cast<int>(first),
          .pixels = static_cast<int>(pixels),
          .first_cell = static_cast<int>(first_cell),
          .cells = static_cast<int>(cells),
          .tile = static_cast<int>(divided_up(cells, tiles)),
          .tiles = static_cast<int>(tiles)};
  return true;
}

}  // namespace

const char* max_gradient_args(const PoolGradientProblem& p, Work& work, max_pool_gradient::Args& args) {
  const Window& w = p.window;
  if (p.type != PoolType::max) return "not a max";
  if (w.dilation_h != 1 || w.dilation_w != 1) return "dilation";
  if (w.kernel_h > max_pool_gradient::kMaxTaps || w.kernel_w > max_pool_gradient::kMaxTaps ||
      w.kernel_h * w.kernel_w > max_pool_gradient::kMaxTaps)
    return "many taps";
  args = {.diff_dst = work.view(p.diff_dst),
          .src = work.view(p.src),
          .diff_src = work.view(p.diff_src),
          .rows = {},
          .columns = {},
          .chunks = 1,
          .vector_bits = 0,
          .counts_zeros = w.edge == Edge::zero};
  if (const char* why_not = why_no_vectors({&args.diff_dst, &args.src, &args.diff_src})) return why_not;
  max_pool_gradient::Axis &rows = args.rows, &columns = args.columns;
  if (!set_axis(rows, w.start_h, w.kernel_h, w.stride_h, p.src.h, p.diff_dst.h, p.first_h, p.diff_src.h) ||
      !set_axis(columns, w.start_w, w.kernel_w, w.stride_w, p.src.w, p.diff_dst.w, p.first_w, p.diff_src.w))
    return "windows far apart, with large overlaps or outside of the source";
  const i64 lanes = lanes_in_vector(args.src), vectors = p.src.c / lanes;
  if ((p.src.h * p.src.h_stride + p.src.w * p.src.w_stride) * (16 / lanes) > kMaxImageBytes) return "very large image";
  const auto chunks_of = [&](int bits) { return divided_up(vectors, i64{1} << bits); };
  const auto idles = [&](int bits) { return (chunks_of(bits) << bits) - vectors > vectors / 8; };
  for (int bits = 0; 1 << bits <= max_pool_gradient::kVectorsOfTile; ++bits)
    if (!idles(bits)) args.vector_bits = bits;
  args.chunks = static_cast<int>(chunks_of(args.vector_bits));
  // Low tiles find the maxima of more windows twice; high ones leave multiprocessors idle if there are few.
  while (rows.tile > 2 && args.blocks() < 2 * work.gpu().processors())
    rows.tiles = static_cast<int>(divided_up(rows.cells, --rows.tile));
  return nullptr;
}

namespace {

const char* run_max_gradient(const Call<PoolGradientProblem>& call) {
  const auto& [p, work] = call;
  max_pool_gradient::Args args;
  if (const char* const reason = max_gradient_args(p, work, args)) return reason;
  const auto& kernel = args.is_square(3, 2)   ? max_pool_gradient::max_pool_gradient_3x3
                       : args.is_square(2, 2) ? max_pool_gradient::max_pool_gradient_2x2
                                              : max_pool_gradient::max_pool_gradient;
  work.launch(kernel, args, args.blocks(), {&args.diff_dst, &args.src, &args.diff_src});
  return nullptr;
}

/// Make the values per window that the gradient of `type` needs, then gather.
const char* run_gradient(const Call<PoolGradientProblem>& call, bool by_vectors) {
  const auto& [p, work] = call;
  if (p.type == PoolType::max && p.src.h * p.src.w > i64{pooling::kNoPixel}) return "an image of 2^32 pixels";
  PoolGradientArgs args{.diff_dst = work.view(p.diff_dst),
                        .src = work.view(p.src),
                        .diff_src = work.view(p.diff_src),
                        .first_h = p.first_h,
                        .first_w = p.first_w,
                        .shape = shape_of(p, p.diff_dst),
                        .chosen = {},
                        .quotients = {}};
  const View* const no_src = nullptr;
  const View* const src = p.type == PoolType::average ? no_src : &args.src;
  if (by_vectors) {
    const char* const why_not =
        src ? why_no_vectors({&args.diff_dst, src, &args.diff_src}) : why_no_vectors({&args.diff_dst, &args.diff_src});
    if (why_not) return why_not;
  }
  const i64 lanes = by_vectors ? lanes_in_vector(args.diff_src) : 1, windows = p.diff_dst.size();
  if (p.type == PoolType::max) {
    args.chosen = {work.scratch(static_cast<std::size_t>(windows) * sizeof(std::uint32_t))};
    work.launch(by_vectors ? pooling::pool_choose_vectors : pooling::pool_choose, args, windows / lanes, {&args.src});
  } else if (p.type == PoolType::l2_norm) {
    args.quotients = {work.scratch(static_cast<std::size_t>(windows) * sizeof(float))};
    work.launch(pooling::pool_divide_by_norms, args, windows, {&args.src, &args.diff_dst});
  }
  const auto& gather = by_vectors ? pooling::pool_gradient_vectors : pooling::pool_gradient;
  const i64 threads = p.diff_src.size() / lanes;
  if (p.type == PoolType::l2_norm) {
    work.launch(gather, args, threads, {&args.diff_dst, &args.src, &args.diff_src});
  } else {
    work.launch(gather, args, threads, {&args.diff_dst, &args.diff_src});
  }
  return nullptr;
}

constexpr Implementation<Call<PoolGradientProblem>> kPoolGradients[] = {
    {"cuda_pool_gradient_max", run_max_gradient},
    {"cuda_pool_gradient_vectors", [](const Call<PoolGradientProblem>& call) { return run_gradient(call, true); }},
    {"cuda_pool_gradient", [](const Call<PoolGradientProblem>& call) { return run_gradient(call, false); }},
};
const ImplementationNames kPoolGradientNames(kPoolGradients);

}  // namespace

bool solve(const PoolProblem& problem, Work& work) {
  return try_first("pool", kPools, Call<PoolProblem>{problem, work});
}
bool solve(const PoolGradientProblem& problem, Work& work) {
  return try_first("pool_gradient", kPoolGradients, Call<PoolGradientProblem>{problem, work});
}

}  // namespace openmps::cuda
