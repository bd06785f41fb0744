// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions by oneDNN's deconvolution.
#include <algorithm>
#include <string_view>

#include "engine/cpu/convolution/onednn/conv_parts.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

/// One axis of oneDNN's deconvolution. There, tap k of source pixel i writes i * stride + k * dilation - before; here,
/// result j reads tap k from start + j + k * dilation = i * stride. So before = start + reach - 1, with the taps in
/// reverse order.
struct Axis {
  std::int64_t first, count;   // source pixels that contribute to dst
  std::int64_t before, after;  // cropped results; negative: results without a contribution
};

Axis map_axis(std::int64_t extent, std::int64_t results, std::int64_t start, std::int64_t stride, std::int64_t reach) {
  const std::int64_t first = start > 0 ? (start + stride - 1) / stride : 0;
  const std::int64_t seen = start + results - 1 + reach - 1;  // last position of Z that is read
  const std::int64_t end = seen < 0 ? 0 : std::min(extent, seen / stride + 1);
  Axis axis = {first, end - first, start - first * stride + reach - 1, 0};
  axis.after = (axis.count - 1) * stride + reach - axis.before - results;
  return axis;
}

WeightsCache::Key key_of(const TransposeCall& call, const Axis& h, const Axis& v, int threads) {
  const Window& w = call.window;
  const Neuron& f = *call.neuron;
  return {2 | (threads << 8) | (formats_key(call) << 32),
          call.src.n,
          h.count,
          v.count,
          call.dst.h,
          call.dst.w,
          h.before,
          v.before,
          h.after,
          v.after,
          w.stride_h,
          w.stride_w,
          w.dilation_h,
          w.dilation_w,
          static_cast<std::int64_t>(f.type),
          key_bits(f.a),
          key_bits(f.b),
          key_bits(f.c),
          neuron_is_per_channel(f),
          0};
}

std::shared_ptr<Compiled> make_deconvolution(const TransposeCall& call, const Axis& h, const Axis& v, bool fuse,
                                             Formats formats, int threads) {
  const Window& w = call.window;
  const ThreadLimit limit(threads);
  Fusion fusion;
  const auto attributes = attributes_of(call, fuse, formats, fusion);
  const dnnl::deconvolution_forward::primitive_desc pd(
      onednn_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct,
      image_desc(call.src.n, call.src.c, h.count, v.count, formats.src), filter_desc(*call.weights, formats.src),
      fuse ? bias_desc(*call.weights) : dnnl::memory::desc(), image_desc(call.dst, formats.dst),
      {w.stride_h, w.stride_w}, {w.dilation_h - 1, w.dilation_w - 1}, {h.before, v.before}, {h.after, v.after},
      attributes, true);
  if (!pd || is_reference(pd)) return nullptr;
  if (const char* why_not = fuse ? transpose_fusion_declines(pd.impl_info_str()) : nullptr) {
    trace_dispatch("convolve_transpose", "primitive with bias and activation", why_not);
    return nullptr;
  }
  return compile<dnnl::deconvolution_forward>(pd, call, formats, fusion, call.weights->groups > 1, true, threads);
}

}  // namespace

const char* transpose_fusion_declines(std::string_view implementation) {
  if (!implementation.starts_with("brg_conv")) return "oneDNN would add them in loops slower than ours";
  // It may process the kernel's rows one by one, and applies post-ops also after rows that the stride skips: a 4 x 4
  // kernel of stride 2 with 512 channels adds its bias up to four times. Fixed in oneDNN 3.4 (commit 56825411fc).
  if (implementation.find("brgconv_strided") != std::string_view::npos) return "oneDNN would apply them several times";
  return nullptr;
}

const char* transpose_primitive(const TransposeCall& call) {
  const Window& w = call.window;
  const Axis h = map_axis(call.src.h, call.dst.h, w.start_h, w.stride_h, reach_h(w));
  const Axis v = map_axis(call.src.w, call.dst.w, w.start_w, w.stride_w, reach_w(w));
  if (h.count <= 0 || v.count <= 0) return "no source pixel is used";
  if (h.before < 0 || v.before < 0) return "the first results see nothing";
  if (h.after <= -w.stride_h || v.after <= -w.stride_w) return "the last results see nothing";
  const std::int64_t work =
      call.src.n * h.count * v.count * w.kernel_h * w.kernel_w * call.dst.c * call.weights->in_channels_per_group;
  const int threads = threads_for(work, kThreadGrain);
  const auto compiled = WeightsCache::of(*call.weights).find(key_of(call, h, v, threads), [&] {
    const auto make = [&](bool fuse) {
      return make_in_best_format(
          call, [&](const Formats& formats) { return make_deconvolution(call, h, v, fuse, formats, threads); });
    };
    auto fused = make(true);
    return fused ? fused : make(false);
  });
  if (!compiled) return "oneDNN has only its reference for this";
  run_compiled(*compiled, call, call.src.region(h.first, v.first, h.count, v.count));
  return nullptr;
}

}  // namespace openmps::cpu
