// SPDX-License-Identifier: Apache-2.0
// Convolutions and inner products by oneDNN's primitives.
#include "engine/cpu/convolution/onednn/conv_parts.hpp"

#include <string_view>

#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

struct Geometry {
  SourceAxis h, w;
};

Geometry map_window(const ConvCall& call) {
  const Window& w = call.window;
  return {map_source_axis(call.src.h, call.dst.h, w.start_h, w.stride_h, reach_h(w)),
          map_source_axis(call.src.w, call.dst.w, w.start_w, w.stride_w, reach_w(w))};
}

bool sees_edges(const Geometry& g) { return g.h.before > 0 || g.w.before > 0 || g.h.after > 0 || g.w.after > 0; }

WeightsCache::Key key_of(std::int64_t kind, const ConvCall& call, const Geometry& g, int threads) {
  const Window& w = call.window;
  const Neuron& f = *call.neuron;
  return {kind | (threads << 8) | (formats_key(call) << 32),
          call.src.n,
          g.h.count,
          g.w.count,
          call.dst.h,
          call.dst.w,
          g.h.before,
          g.w.before,
          g.h.after,
          g.w.after,
          w.stride_h,
          w.stride_w,
          w.dilation_h,
          w.dilation_w,
          static_cast<std::int64_t>(f.type),
          key_bits(f.a),
          key_bits(f.b),
          key_bits(f.c),
          neuron_is_per_channel(f) |
              (call.adds() ? adds_in_place(call, formats_of(call, call.reduced_precision)) ? 2 : 4 : 0),
          call.adds() ? static_cast<std::int64_t>(call.after->type) : 0,
          call.adds() ? key_bits(call.after->a) : 0,
          call.adds() ? key_bits(call.after->b) : 0,
          call.adds() ? key_bits(call.after->c) : 0};
}

/// oneDNN 3.2's depth-wise convolution of processors without AVX adds memory where it reads whole vectors, and ends the
/// process if a pixel is not aligned to 16 bytes.
bool reads_unaligned(const dnnl::convolution_forward::primitive_desc& pd, const ConvCall& call) {
  return std::string_view(pd.impl_info_str()) == "jit_dw:sse41" && (call.src.c % 4 != 0 || call.dst.c % 4 != 0);
}

std::shared_ptr<Compiled> make_convolution(const ConvCall& call, const Geometry& g, Formats formats, int threads) {
  const Window& w = call.window;
  const ThreadLimit limit(threads);
  Fusion fusion;
  const auto attributes = attributes_of(call, true, formats, fusion);
  if (call.adds() && !fusion.sum) return nullptr;
  const dnnl::convolution_forward::primitive_desc pd(
      onednn_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      image_desc(call.src.n, call.src.c, g.h.count, g.w.count, formats.src), filter_desc(*call.weights, formats.src),
      bias_desc(*call.weights), image_desc(call.dst, formats.dst), {w.stride_h, w.stride_w},
      {w.dilation_h - 1, w.dilation_w - 1}, {g.h.before, g.w.before}, {g.h.after, g.w.after}, attributes, true);
  if (!pd || is_reference(pd) || reads_unaligned(pd, call)) return nullptr;
  return compile<dnnl::convolution_forward>(pd, call, formats, fusion, call.weights->groups > 1, false, threads);
}

std::shared_ptr<Compiled> make_inner_product(const ConvCall& call, Formats formats, int threads) {
  const ConvWeights& weights = *call.weights;
  const ThreadLimit limit(threads);
  Fusion fusion;
  const auto attributes = attributes_of(call, true, formats, fusion);
  if (call.adds() && !fusion.sum) return nullptr;
  const dnnl::memory::desc dst({call.dst.n, call.dst.c}, data_type_of(formats.dst), dnnl::memory::format_tag::nc);
  const dnnl::inner_product_forward::primitive_desc pd(
      onednn_engine(), dnnl::prop_kind::forward_inference, image_desc(call.src, formats.src),
      filter_desc(weights, formats.src), bias_desc(weights), dst, attributes, true);
  if (!pd || is_reference(pd)) return nullptr;
  return compile<dnnl::inner_product_forward>(pd, call, formats, fusion, false, false, threads);
}

}  // namespace

const char* conv_inner_product(const ConvCall& call) {
  if (!is_fully_connected(call)) return "the window is not the whole source, or there is more than one pixel of result";
  const int threads = threads_for(multiplications(call), kThreadGrain);
  const Geometry g = {{0, call.src.h, 0, 0}, {0, call.src.w, 0, 0}};
  const auto compiled = WeightsCache::of(*call.weights).find(key_of(1, call, g, threads), [&] {
    return make_in_best_format(call,
                               [&](const Formats& formats) { return make_inner_product(call, formats, threads); });
  });
  if (!compiled) return "oneDNN has only its reference for this";
  run_compiled(*compiled, call, call.src);
  return nullptr;
}

const char* conv_primitive(const ConvCall& call) {
  const Geometry g = map_window(call);
  const Window& w = call.window;
  if (w.edge == Edge::clamp && sees_edges(g)) return "edges are clamped";
  if (g.h.count <= 0 || g.w.count <= 0) return "no source pixel is used";
  if (g.h.is_far(reach_h(w)) || g.w.is_far(reach_w(w))) return "some windows lie outside of the source";
  const int threads = threads_for(multiplications(call), kThreadGrain);
  const auto compiled = WeightsCache::of(*call.weights).find(key_of(0, call, g, threads), [&] {
    return make_in_best_format(call,
                               [&](const Formats& formats) { return make_convolution(call, g, formats, threads); });
  });
  if (!compiled) return "oneDNN has only its reference for this";
  run_compiled(*compiled, call, call.src.region(g.h.first, g.w.first, g.h.count, g.w.count));
  return nullptr;
}

const char* conv_materialized(const ConvCall& call) {
  const Geometry g = map_window(call);
  const Window& w = call.window;
  if (!sees_edges(g)) return "no pixel outside of the source is used";
  std::int64_t height = 0, width = 0;
  if (__builtin_mul_overflow(call.dst.h - 1, w.stride_h, &height) ||
      __builtin_mul_overflow(call.dst.w - 1, w.stride_w, &width)) {
    return "the padded source is too large";
  }
  height += reach_h(w);
  width += reach_w(w);
  if (static_cast<double>(height) * static_cast<double>(width) >
      4096.0 + 4.0 * static_cast<double>(call.src.h * call.src.w + call.dst.h * call.dst.w)) {
    return "the padded source is much larger than the source";
  }
  const ScratchTensor padded(call.src.n, height, width, call.src.c);
  pad(call.src, w.start_h, w.start_w, w.edge, padded.tensor);
  ConvCall next = call;
  next.src = padded.tensor;
  next.window.start_h = next.window.start_w = 0;
  next.window.edge = Edge::zero;
  return conv_primitive(next);
}

}  // namespace openmps::cpu
