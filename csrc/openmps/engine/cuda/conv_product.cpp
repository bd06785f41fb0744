// SPDX-License-Identifier: Apache-2.0
// Convolutions of float16 on tensor cores by our own kernels: lists of kernels, of which the fastest is chosen by time
// [conv_choices.hpp], or without cuDNN by the extents.
#include <algorithm>
#include <span>
#include <string>

#include "engine/cuda/conv_choices.hpp"
#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/kernels/conv_few_inputs.hpp"
#include "engine/cuda/kernels/conv_few_outputs.hpp"
#include "engine/cuda/kernels/conv_product.hpp"
#include "engine/cuda/kernels/conv_stem.hpp"
#include "engine/cuda/kernels/conv_windows.hpp"
#include "engine/cuda/vectors.hpp"

namespace openmps::cuda {
namespace {

using product::ProductArgs, product::product_of, product::taps::WindowArgs, product::stem::StemArgs;
using product::few_inputs::FewInputsArgs, product::few_outputs::FewOutputsArgs;
using product::stem::StemTileArgs;

constexpr i64 kMaxIndex = 0x7fffffff;  // rows and tiles have 32 bits

/// A kernel, and the extents of its tiles.
template <class Args>
struct Variant {
  const char* name;  ///< implementation/kernel, for MPSCNN_IMPL and files of choices
  const Kernel<Args>& kernel;
  i64 rows, groups;     ///< of a tile; groups 0: all of them
  int blocks = 0;       ///< of the cluster that computes a tile; 0: a warp does
  bool is_any = false;  ///< for activations other than those of Clip
};

constexpr Variant<ProductArgs> kProducts[] = {
    {"cuda_conv_product/16x32", product::conv_product_16x32, 16, 1},
    {"cuda_conv_product/32x64", product::conv_product_32x64, 32, 2},
    {"cuda_conv_product/wide", product::conv_product_wide, 16, 0},
    {"cuda_conv_product/any", product::conv_product_any, 16, 1, 0, true},
    {"cuda_conv_product/split_16x32", product::conv_product_split_16x32, 16, 1, 1},
    {"cuda_conv_product/split_64x32", product::conv_product_split_64x32, 64, 1, 1},
    {"cuda_conv_product/cluster_2", product::conv_product_cluster_2, 64, 1, 2},
    {"cuda_conv_product/cluster_4", product::conv_product_cluster_4, 64, 1, 4},
    {"cuda_conv_product/cluster_8", product::conv_product_cluster_8, 64, 1, 8},
};
constexpr Variant<WindowArgs> kWindows[] = {
    {"cuda_conv_windows/16x32", product::taps::conv_windows_16x32, 16, 1},
    {"cuda_conv_windows/32x64", product::taps::conv_windows_32x64, 32, 2},
    {"cuda_conv_windows/any", product::taps::conv_windows_any, 16, 1, 0, true},
    {"cuda_conv_windows/split_16x32", product::taps::conv_windows_split_16x32, 16, 1, 1},
    {"cuda_conv_windows/split_64x32", product::taps::conv_windows_split_64x32, 64, 1, 1},
    {"cuda_conv_windows/cluster_2", product::taps::conv_windows_cluster_2, 64, 1, 2},
    {"cuda_conv_windows/cluster_4", product::taps::conv_windows_cluster_4, 64, 1, 4},
    {"cuda_conv_windows/cluster_8", product::taps::conv_windows_cluster_8, 64, 1, 8},
};
constexpr Variant<StemArgs> kStems[] = {
    {"cuda_conv_stem/3x3", product::stem::conv_stem_3x3, 16, 1},
    {"cuda_conv_stem/7x7", product::stem::conv_stem_7x7, 32, 2},
};
constexpr Variant<StemTileArgs> kStemTiles[] = {
    {"cuda_conv_stem/tile_7x7", product::stem::conv_stem_tile_7x7, product::stem::kTile, 2},
};

constexpr Variant<FewInputsArgs> kFewInputs[] = {
    {"cuda_conv_few_inputs/32", product::few_inputs::conv_few_inputs_32, product::few_inputs::kTileW, 1},
    {"cuda_conv_few_inputs/64", product::few_inputs::conv_few_inputs_64, product::few_inputs::kTileW, 2},
};
constexpr Variant<FewOutputsArgs> kFewOutputs[] = {
    {"cuda_conv_few_outputs/32", product::few_outputs::conv_few_outputs, product::few_outputs::kTileW, 0},
};

/// Registers the names of the kernels.
const bool kAreRegistered = [] {
  const auto add = [](const auto& list) {
    for (const auto& variant : list) implementation_names().emplace_back(variant.name);
  };
  add(kProducts), add(kWindows), add(kStems), add(kStemTiles), add(kFewInputs), add(kFewOutputs);
  return true;
}();

i64 divided_up(i64 a, i64 b) { return (a + b - 1) / b; }

enum class Order : std::uint8_t { rows, shifted_rows, columns, squares };  ///< of packed weights

/// A problem as arguments of kernels; weights and bias are set by launch().
template <class Args>
struct Prepared {
  Args args;
  i64 row_terms = 0;  ///< of packed weights
  Order order = Order::rows;
  bool clips = true;  ///< the activations are those of Clip
};

template <class Args>
i64 tiles_of(const Variant<Args>& variant, const Args& args) {
  const ProductArgs& product = product_of(args);
  i64 places = 0;
  if constexpr (requires { args.tiles_w; })
    places = product.dst.n * args.tiles_h * args.tiles_w;
  else
    places = divided_up(product.rows, variant.rows);
  return places * (variant.groups ? divided_up(product.groups, variant.groups) : 1);
}

/// Return whether the kernel computes the problem.
template <class Args>
bool can_run(const Variant<Args>& variant, const Prepared<Args>& prepared, const Gpu& gpu) {
  if constexpr (std::is_same_v<Args, FewOutputsArgs>) return true;
  if (variant.is_any == prepared.clips) return false;
  if (variant.groups == 0 && product_of(prepared.args).chunks != 1) return false;
  return variant.blocks <= 1 || gpu.has_clusters();
}

/// Return whether the kernel may be the fastest: the terms are divided only if there are few tiles, and many terms.
template <class Args>
bool may_win(const Variant<Args>& variant, const Prepared<Args>& prepared, const Gpu& gpu) {
  const ProductArgs& args = product_of(prepared.args);
  if (variant.groups > 1 && args.groups == 1) return false;
  if (variant.blocks == 0) return true;
  return args.chunks > 2 * variant.blocks && tiles_of(variant, prepared.args) * variant.blocks <= 4 * gpu.processors();
}

template <class Args>
Address packed(GpuWeights& copies, const ConvWeights& weights, const Prepared<Args>& prepared) {
  switch (prepared.order) {
    case Order::columns: return copies.packed_columns(weights, prepared.row_terms);
    case Order::squares: return copies.packed_squares(weights);
    default: return copies.packed(weights, prepared.row_terms, prepared.order == Order::shifted_rows);
  }
}

template <class Args>
void launch(Work& work, const Variant<Args>& variant, const ConvWeights& weights, const Prepared<Args>& prepared) {
  Args args = prepared.args;
  ProductArgs* product = nullptr;
  if constexpr (std::is_same_v<Args, ProductArgs>)
    product = &args;
  else
    product = &args.product;
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  product->weights = {packed(copies, weights, prepared)};
  product->bias = copies.bias(weights);
  product->tiles = variant.groups ? divided_up(product->groups, variant.groups) : 1;
  work.launch(variant.kernel, args, tiles_of(variant, args), {&product->src, &product->dst, &product->addend});
}

bool is_clip(const Neuron& neuron) { return cuda::is_clip(neuron.type, neuron.a); }

/// Return why no kernel takes a problem.
const char* why_not(const ConvProblem& p) {
  const ConvWeights& weights = *p.weights;
  if (weights.groups != 1) return "groups";
  if (p.subpixel > 1 && (p.dst.h % p.subpixel || p.dst.w % p.subpixel || p.neuron.a_per_channel ||
                         weights.out_channels != p.subpixel * p.subpixel * p.dst.c))
    return "sub-pixels without a convolution's output, or slopes of them";
  if (p.src.format != Format::float16 || p.dst.format != Format::float16) return "not float16";
  const i64 window = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  if (p.dst.size() <= kFewProducts / window) return "few products";
  if (p.dst.n * p.dst.h * p.dst.w * divided_up(p.dst.c, product::kOutputs) > kMaxIndex) return "very large image";
  return nullptr;
}

/// Let a row of the product be the pixels of a square of r x r.
void set_squares(ProductArgs& args, i64 r) {
  View& dst = args.dst;
  args.subpixel = product::divisor_of(static_cast<std::uint32_t>(r));
  args.channels = product::divisor_of(static_cast<std::uint32_t>(dst.c));
  args.h_stride = dst.h_stride, args.w_stride = dst.w_stride;
  dst.h /= r, dst.w /= r, dst.c *= r * r;
  dst.h_stride *= r, dst.w_stride *= r;
  args.rows = dst.n * dst.h * dst.w;
  args.groups = divided_up(dst.c, product::kOutputs);
}

/// Fill in what does not depend on the source.
void set_result(ProductArgs& args, const ConvProblem& p, Work& work) {
  args.dst = work.view(p.dst);
  args.addend = work.view(p.addend);
  args.rows = p.dst.n * p.dst.h * p.dst.w;
  args.groups = divided_up(p.dst.c, product::kOutputs);
  args.neuron = work.activation(p.neuron);
  args.after = work.activation(p.after);
  if (p.subpixel > 1) set_squares(args, p.subpixel);
}

/// Return the source as the pixels that a 1 x 1 window reads, if all are inside.
bool sample(ImageView& src, const Window& w, const ImageView& dst) {
  if (w.start_h < 0 || w.start_w < 0 || w.start_h + (dst.h - 1) * w.stride_h >= src.h ||
      w.start_w + (dst.w - 1) * w.stride_w >= src.w)
    return false;
  src.offset += static_cast<std::size_t>(w.start_h * src.h_stride + w.start_w * src.w_stride) * size_of(src.format);
  src.h_stride *= w.stride_h, src.w_stride *= w.stride_w;
  src.h = dst.h, src.w = dst.w;
  return true;
}

const char* prepare(const Call<ConvProblem>& call, Prepared<ProductArgs>& to) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  if (const char* const reason = why_not(p)) return reason;
  if (weights.kernel_h != 1 || weights.kernel_w != 1) return "not 1 x 1";
  if (p.subpixel > 1) return "sub-pixel";
  ImageView src = p.src;
  if (!sample(src, p.window, p.dst)) return "padding";
  ProductArgs& args = to.args;
  args.src = work.view(src);
  set_result(args, p, work);
  if (const char* const reason = why_no_vectors({&args.src, &args.dst, &args.addend})) return reason;
  to.row_terms = src.c;
  to.clips = is_clip(p.neuron) && is_clip(p.after);
  args.chunks = divided_up(src.c, product::kTerms);
  const auto is_row = [](const View& view) { return view.n == 1 && view.h == 1; };
  const View flat_src = flattened(args.src, true), flat_dst = flattened(args.dst, true);
  const View flat_addend = args.addend ? flattened(args.addend, true) : View{};
  if (is_row(flat_src) && is_row(flat_dst) && is_row(flat_addend)) {
    args.src = flat_src, args.dst = flat_dst, args.is_flat = true;
    if (args.addend) args.addend = flat_addend;
  }
  return nullptr;
}

constexpr i64 kMaxExtent = 1 << 24;  // coordinates of values have 32 bits
bool is_near(i64 value) { return value > -kMaxExtent && value < kMaxExtent; }
/// Return whether all coordinates of windows and of the source are small.
bool is_near(const ConvProblem& p) {
  const Window& w = p.window;
  return is_near(w.start_h) && is_near(w.start_w) && is_near(p.src.h) && is_near(p.src.w) &&
         is_near(w.start_h + p.dst.h * w.stride_h + p.weights->kernel_h * w.dilation_h) &&
         is_near(w.start_w + p.dst.w * w.stride_w + p.weights->kernel_w * w.dilation_w);
}

const char* prepare(const Call<ConvProblem>& call, Prepared<WindowArgs>& to) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (const char* const reason = why_not(p)) return reason;
  if (!is_near(p)) return "far from the source";
  const i64 terms = weights.kernel_h * weights.kernel_w * p.src.c;
  if ((terms + product::kTerms) * std::max(p.src.c, weights.kernel_w) > kMaxIndex) return "very many terms";
  to.args = {.product = {},
             .start_h = static_cast<int>(w.start_h),
             .start_w = static_cast<int>(w.start_w),
             .stride_h = static_cast<int>(w.stride_h),
             .stride_w = static_cast<int>(w.stride_w),
             .dilation_h = static_cast<int>(w.dilation_h),
             .dilation_w = static_cast<int>(w.dilation_w),
             .kernel_h = static_cast<int>(weights.kernel_h),
             .kernel_w = product::divisor_of(static_cast<std::uint32_t>(weights.kernel_w)),
             .channels = product::divisor_of(static_cast<std::uint32_t>(p.src.c)),
             .clamps = w.edge == Edge::clamp};
  ProductArgs& args = to.args.product;
  args.src = work.view(p.src);
  set_result(args, p, work);
  if (const char* const reason = why_no_vectors({&args.src})) return reason;
  const View dst = work.view(p.dst);
  const char* const why_no_vector = why_no_vectors({&dst, &args.addend});
  if (why_no_vector && (p.subpixel == 1 || p.dst.c % 8 == 0)) return why_no_vector;
  to.row_terms = weights.kernel_w * p.src.c;
  to.clips = is_clip(p.neuron) && is_clip(p.after) && !why_no_vector;
  args.chunks = divided_up(terms, product::kTerms);
  return nullptr;
}

const char* prepare(const Call<ConvProblem>& call, Prepared<StemArgs>& to) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (const char* const reason = why_not(p)) return reason;
  const i64 kernel = weights.kernel_h;
  if (p.src.c != 3 || weights.kernel_w != kernel || (kernel != 3 && kernel != 7))
    return "neither 3 x 3 nor 7 x 7 of 3 channels";
  if (w.stride_w % 2 || w.dilation_h != 1 || w.dilation_w != 1) return "odd stride, or dilation";
  if (w.edge != Edge::zero) return "clamped edges";
  if (p.subpixel > 1) return "sub-pixel";
  if (!is_clip(p.neuron) || !is_clip(p.after)) return "activation";
  if (!is_near(p)) return "far from the source";
  to.args = {.product = {},
             .start_h = static_cast<int>(w.start_h),
             .start_w = static_cast<int>(w.start_w),
             .stride_h = static_cast<int>(w.stride_h),
             .stride_w = static_cast<int>(w.stride_w)};
  ProductArgs& args = to.args.product;
  args.src = work.view(p.src);
  if (p.src.w_stride != 3 || p.src.w % 2 || p.src.h_stride % 2 || p.src.n_stride % 2 || args.src.data.address % 4)
    return "pairs of values are not aligned";
  set_result(args, p, work);
  if (const char* const reason = why_no_vectors({&args.dst, &args.addend})) return reason;
  to.row_terms = (3 * kernel + 1) / 2 * 2;
  if (to.args.start_w & 1) to.order = Order::shifted_rows;
  args.chunks = divided_up(kernel * to.row_terms, product::kTerms);
  return nullptr;
}

const char* prepare(const Call<ConvProblem>& call, Prepared<StemTileArgs>& to) {
  const auto& [p, work] = call;
  using namespace product::stem;
  Prepared<StemArgs> stem;
  if (const char* const reason = prepare(call, stem)) return reason;
  if (p.weights->kernel_h != kTileKernel || p.window.stride_h != kTileStride || p.window.stride_w != kTileStride)
    return "not 7 x 7 with strides of 2";
  to.args = {.product = stem.args.product,
             .start_h = stem.args.start_h,
             .start_w = stem.args.start_w,
             .tiles_h = divided_up(p.dst.h, kTile),
             .tiles_w = divided_up(p.dst.w, kTile)};
  to.row_terms = stem.row_terms, to.order = stem.order;
  return nullptr;
}

/// Return why kernels without strides and dilation do not take a problem.
const char* why_not_adjacent(const Window& w) {
  return w.stride_h == 1 && w.stride_w == 1 && w.dilation_h == 1 && w.dilation_w == 1 ? nullptr : "stride or dilation";
}

const char* prepare(const Call<ConvProblem>& call, Prepared<FewInputsArgs>& to) {
  using namespace product::few_inputs;
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (const char* const reason = why_not(p)) return reason;
  const i64 run = weights.kernel_w * p.src.c;
  if (p.src.c > kMaxChannels || run > kMaxRun || weights.kernel_h > kMaxKernelH)
    return "many channels or a large window";
  if (const char* const reason = why_not_adjacent(w)) return reason;
  if (w.edge != Edge::zero) return "clamped edges";
  if (p.subpixel > 1) return "sub-pixel";
  if (!is_clip(p.neuron) || !is_clip(p.after)) return "activation";
  if (!is_near(p)) return "far from the source";
  if (p.src.w_stride != p.src.c) return "gaps between pixels";
  to.row_terms = divided_up(run, 8) * 8;
  to.args = {.product = {},
             .start_h = static_cast<int>(w.start_h),
             .start_w = static_cast<int>(w.start_w),
             .kernel_h = static_cast<int>(weights.kernel_h),
             .run = static_cast<int>(run),
             .row_terms = static_cast<int>(to.row_terms),
             .tiles_h = divided_up(p.dst.h, kTileH),
             .tiles_w = divided_up(p.dst.w, kTileW)};
  ProductArgs& args = to.args.product;
  args.src = work.view(p.src);
  set_result(args, p, work);
  if (const char* const reason = why_no_vectors({&args.dst, &args.addend})) return reason;
  args.chunks = divided_up(weights.kernel_h * to.row_terms, product::kTerms);
  return nullptr;
}

const char* prepare(const Call<ConvProblem>& call, Prepared<FewOutputsArgs>& to) {
  using namespace product::few_outputs;
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  if (const char* const reason = why_not(p)) return reason;
  if (weights.kernel_w == 1 || weights.kernel_w * weights.out_channels > kMaxProducts)
    return "many outputs, or one column";
  if (const char* const reason = why_not_adjacent(w)) return reason;
  if (!is_near(p)) return "far from the source";
  if (p.subpixel > 1 && p.addend.memory) return "a sum of sub-pixels";
  to.args = {.product = {},
             .start_h = static_cast<int>(w.start_h),
             .start_w = static_cast<int>(w.start_w),
             .kernel_h = static_cast<int>(weights.kernel_h),
             .kernel_w = static_cast<int>(weights.kernel_w),
             .clamps = w.edge == Edge::clamp};
  ProductArgs& args = to.args.product;
  args.src = work.view(p.src);
  set_result(args, p, work);
  if (const char* const reason = why_no_vectors({&args.src})) return reason;
  args.chunks = divided_up(p.src.c, product::kTerms);
  to.row_terms = args.chunks * product::kTerms;
  to.order = Order::columns;
  to.args.tiles_h = divided_up(args.dst.h, kTileH), to.args.tiles_w = divided_up(args.dst.w, to.args.results_of_tile());
  return nullptr;
}

/// A transposed convolution whose windows neither overlap nor leave gaps: each pixel of the source has a square of
/// pixels of the result. Result r reads tap p of pixel j if start + r + p = j * stride [problem/conv.hpp], so the taps
/// of a square are in reverse order.
const char* prepare(const Call<TransposeProblem>& call, Prepared<ProductArgs>& to) {
  const auto& [p, work] = call;
  const ConvWeights& weights = *p.weights;
  const Window& w = p.window;
  const i64 r = weights.kernel_h;
  if (weights.groups != 1) return "groups";
  if (weights.kernel_w != r || w.stride_h != r || w.stride_w != r || w.dilation_h != 1 || w.dilation_w != 1)
    return "windows that overlap or leave gaps";
  if (w.start_h != 1 - r || w.start_w != 1 - r || p.dst.h != r * p.src.h || p.dst.w != r * p.src.w)
    return "a result that does not begin and end with windows";
  if (p.src.format != Format::float16 || p.dst.format != Format::float16) return "not float16";
  if (p.dst.size() <= kFewProducts / p.src.c) return "few products";
  if (!is_clip(p.neuron)) return "activation";
  if (r == 1 || p.dst.c % 8) return "1 x 1, or channels that are no multiple of 8";
  if (p.src.n * p.src.h * p.src.w * divided_up(r * r * p.dst.c, product::kOutputs) > kMaxIndex)
    return "very large image";
  ProductArgs& args = to.args;
  args.src = work.view(p.src), args.dst = work.view(p.dst);
  if (const char* const reason = why_no_vectors({&args.src, &args.dst})) return reason;
  set_squares(args, r);
  args.repeats_bias = true;
  args.neuron = work.activation(p.neuron);
  args.chunks = divided_up(p.src.c, product::kTerms);
  to.order = Order::squares;
  return nullptr;
}

/// Return the kernels that may run a problem.
template <class P>
std::span<const Variant<ProductArgs>> variants_for(const P&, const Prepared<ProductArgs>&) {
  return kProducts;
}
std::span<const Variant<WindowArgs>> variants_for(const ConvProblem&, const Prepared<WindowArgs>&) { return kWindows; }
std::span<const Variant<StemArgs>> variants_for(const ConvProblem& p, const Prepared<StemArgs>&) {
  return std::span(kStems).subspan(p.weights->kernel_h == 3 ? 0 : 1, 1);
}

std::span<const Variant<StemTileArgs>> variants_for(const ConvProblem&, const Prepared<StemTileArgs>&) {
  return kStemTiles;
}
std::span<const Variant<FewInputsArgs>> variants_for(const ConvProblem&, const Prepared<FewInputsArgs>&) {
  return kFewInputs;
}
std::span<const Variant<FewOutputsArgs>> variants_for(const ConvProblem&, const Prepared<FewOutputsArgs>&) {
  return kFewOutputs;
}

/// Return a kernel by the extents, for GPUs without cuDNN: large tiles if there are many, divided terms if few.
template <class Args>
const Variant<Args>* suitable(std::span<const Variant<Args>> variants, const Prepared<Args>& prepared, const Gpu& gpu) {
  const ProductArgs& args = product_of(prepared.args);
  const i64 processors = gpu.processors();
  const Variant<Args>* best = nullptr;
  for (const Variant<Args>& each : variants) {
    if (!can_run(each, prepared, gpu) || !may_win(each, prepared, gpu)) continue;
    const i64 tiles = tiles_of(each, prepared.args);
    const bool is_better = !best || (each.groups == 0   ? args.rows >= 256 * processors
                                     : each.blocks == 0 ? args.chunks > 1 && tiles >= 12 * processors
                                                        : each.rows == 16 || tiles * each.blocks <= processors);
    if (is_better) best = &each;
  }
  return best;
}

/// Run the kernel that MPSCNN_IMPL names, or a suitable one.
template <class Args, class P>
const char* run(const Call<P>& call) {
  const auto& [p, work] = call;
  Prepared<Args> prepared;
  if (const char* const reason = prepare(call, prepared)) return reason;
  const auto variants = variants_for(p, prepared);
  const Variant<Args>* chosen = nullptr;
  for (const Variant<Args>& each : variants)
    if (dispatch().only == each.name && can_run(each, prepared, work.gpu())) chosen = &each;
  if (!chosen && dispatch().only.find('/') != std::string::npos) return "the kernel does not compute it";
  if (!chosen) chosen = suitable(variants, prepared, work.gpu());
  if (!chosen) return "no kernel suits it";
  launch(work, *chosen, *p.weights, prepared);
  return nullptr;
}

template <class Args, class P>
void add_own(const Call<P>& call, std::vector<OwnKernel>& to) {
  Prepared<Args> prepared;
  if (prepare(call, prepared)) return;
  const auto& [p, work] = call;
  for (const Variant<Args>& each : variants_for(p, prepared))
    if (can_run(each, prepared, work.gpu()) && may_win(each, prepared, work.gpu()))
      to.push_back({each.name, [=, &problem = p, &work = work] { launch(work, each, *problem.weights, prepared); }});
}

}  // namespace

const char* run_conv_product(const Call<ConvProblem>& call) { return run<ProductArgs>(call); }
const char* run_conv_windows(const Call<ConvProblem>& call) { return run<WindowArgs>(call); }
const char* run_conv_stem(const Call<ConvProblem>& call) {
  return run<StemTileArgs>(call) ? run<StemArgs>(call) : nullptr;
}
const char* run_conv_few_inputs(const Call<ConvProblem>& call) { return run<FewInputsArgs>(call); }
const char* run_conv_few_outputs(const Call<ConvProblem>& call) { return run<FewOutputsArgs>(call); }

const char* run_transpose_product(const Call<TransposeProblem>& call) { return run<ProductArgs>(call); }

std::vector<OwnKernel> own_kernels(const Call<TransposeProblem>& call) {
  std::vector<OwnKernel> kernels;
  add_own<ProductArgs>(call, kernels);
  return kernels;
}
std::vector<OwnKernel> own_kernels(const Call<ConvProblem>& call) {
  std::vector<OwnKernel> kernels;
  const ConvWeights& weights = *call.problem.weights;
  if (call.problem.src.c <= product::few_inputs::kMaxChannels)
    add_own<StemArgs>(call, kernels), add_own<StemTileArgs>(call, kernels), add_own<FewInputsArgs>(call, kernels);
  else if (weights.kernel_h == 1 && weights.kernel_w == 1)
    add_own<ProductArgs>(call, kernels);
  else
    add_own<WindowArgs>(call, kernels), add_own<FewOutputsArgs>(call, kernels);
  return kernels;
}

}  // namespace openmps::cuda
