// SPDX-License-Identifier: Apache-2.0
// Gradients of convolutions by oneDNN's primitives. These are compiled once per shape, independently of the weights:
// training makes new weights in every step.
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/convolution/onednn/conv_parts.hpp"
#include "engine/cpu/convolution/onednn/filter_layout.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/primitive_cache.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

using dnnl::memory;
constexpr auto kFloat = memory::data_type::f32;

using Key = std::array<std::int64_t, 20>;

struct Primitive {
  dnnl::primitive primitive;
  memory::desc src, weights, dst, scratchpad;
  dnnl::reorder restore;  ///< of weight gradients to OHWI
};

using Cache = PrimitiveCache<Key, Primitive>;

/// The forward convolution in oneDNN's terms, common to both gradients.
struct Forward {
  std::int64_t images, inputs, outputs, groups, height, width;  ///< height and width of diff_dst
  SourceAxis h, w;
  Window window;
  Format format;    ///< of what is multiplied: float32 or bfloat16
  Format diff_src;  ///< of the source's gradient
  int threads;

  memory::desc src(Format of) const { return image_desc(images, inputs, h.count, w.count, of); }
  memory::desc dst() const { return image_desc(images, outputs, height, width, format); }
  /// In any layout.
  memory::desc filter(Format of) const {
    const std::int64_t o = outputs / groups, i = inputs / groups;
    const auto type = data_type_of(of);
    constexpr auto kAny = memory::format_tag::any;
    if (groups > 1) return memory::desc({groups, o, i, window.kernel_h, window.kernel_w}, type, kAny);
    return memory::desc({o, i, window.kernel_h, window.kernel_w}, type, kAny);
  }
  /// OHWI.
  memory::desc own_filter() const {
    const std::int64_t o = outputs / groups, i = inputs / groups, kh = window.kernel_h, kw = window.kernel_w;
    const std::int64_t row = kh * kw * i;
    if (groups > 1) return memory::desc({groups, o, i, kh, kw}, kFloat, memory::dims{o * row, row, 1, kw * i, i});
    return memory::desc({o, i, kh, kw}, kFloat, memory::dims{row, 1, kw * i, i});
  }
  memory::dims strides() const { return {window.stride_h, window.stride_w}; }
  memory::dims dilations() const { return {window.dilation_h - 1, window.dilation_w - 1}; }
  memory::dims before() const { return {h.before, w.before}; }
  memory::dims after() const { return {h.after, w.after}; }

  dnnl::primitive_attr attributes() const {
    dnnl::primitive_attr result;
    result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return result;
  }
  dnnl::convolution_forward::primitive_desc hint() const {
    return {onednn_engine(),
            dnnl::prop_kind::forward_training,
            dnnl::algorithm::convolution_direct,
            src(format),
            filter(format),
            dst(),
            strides(),
            dilations(),
            before(),
            after(),
            attributes()};
  }
  Key key(std::int64_t kind) const {
    const std::int64_t formats = (format == Format::bfloat16 ? 1 : 0) | (diff_src == Format::bfloat16 ? 2 : 0);
    return {kind | (threads << 8) | (formats << 32),
            images,
            inputs,
            outputs,
            groups,
            height,
            width,
            h.count,
            w.count,
            h.before,
            w.before,
            h.after,
            w.after,
            window.kernel_h,
            window.kernel_w,
            window.stride_h,
            window.stride_w,
            window.dilation_h,
            window.dilation_w,
            0};
  }
  std::int64_t multiplications() const {
    return images * height * width * window.kernel_h * window.kernel_w * outputs * (inputs / groups);
  }
};

/// Return null, or why oneDNN does not support the geometry.
const char* map_forward(const Tensor& diff_dst, std::int64_t inputs, std::int64_t groups, std::int64_t source_h,
                        std::int64_t source_w, const Window& w, Format diff_src, Forward& forward) {
  const auto reach_h = (w.kernel_h - 1) * w.dilation_h + 1, reach_w = (w.kernel_w - 1) * w.dilation_w + 1;
  forward = {.images = diff_dst.n,
             .inputs = inputs,
             .outputs = diff_dst.c,
             .groups = groups,
             .height = diff_dst.h,
             .width = diff_dst.w,
             .h = {},
             .w = {},
             .window = w,
             .format = diff_dst.format,
             .diff_src = diff_src,
             .threads = 1};
  forward.h = map_source_axis(source_h, diff_dst.h, w.start_h, w.stride_h, reach_h);
  forward.w = map_source_axis(source_w, diff_dst.w, w.start_w, w.stride_w, reach_w);
  const auto sees_edge = [](const SourceAxis& axis) { return axis.before > 0 || axis.after > 0; };
  if (forward.h.count <= 0 || forward.w.count <= 0) return "no source pixel is used";
  if (w.edge == Edge::clamp && (sees_edge(forward.h) || sees_edge(forward.w))) return "edges are clamped";
  if (forward.h.is_far(reach_h) || forward.w.is_far(reach_w)) return "some windows lie outside of the source";
  forward.threads = threads_for(forward.multiplications(), kThreadGrain);
  return nullptr;
}

struct Argument {
  int argument;
  memory::desc desc;
  const void* data;
};

template <std::size_t N>
void execute(const Primitive& primitive, const Argument (&arguments)[N]) {
  const Scratch scratchpad(primitive.scratchpad.get_size());
  std::unordered_map<int, memory> given;
  for (const Argument& a : arguments)
    given.emplace(a.argument, memory(a.desc, onednn_engine(), const_cast<void*>(a.data)));
  if (scratchpad.data())
    given.emplace(DNNL_ARG_SCRATCHPAD, memory(primitive.scratchpad, onednn_engine(), scratchpad.data()));
  dnnl::stream stream(onednn_engine());
  primitive.primitive.execute(stream, given);
  stream.wait();
}

}  // namespace

const char* data_gradient_primitive(const DataGradientCall& call) {
  const ConvWeights& weights = *call.weights;
  const Tensor& to = call.diff_src;
  Forward f;
  Window window = call.window;
  if (window.edge == Edge::clamp) {
    // If no tap is out of bounds, the edge does not matter.
    const auto seen = [](std::int64_t start, std::int64_t results, std::int64_t stride, std::int64_t reach,
                         std::int64_t first, std::int64_t extent) {
      return start >= first && start + (results - 1) * stride + reach <= first + extent;
    };
    if (!seen(window.start_h, call.diff_dst.h, window.stride_h, (window.kernel_h - 1) * window.dilation_h + 1,
              call.src_first_h, call.src_h) ||
        !seen(window.start_w, call.diff_dst.w, window.stride_w, (window.kernel_w - 1) * window.dilation_w + 1,
              call.src_first_w, call.src_w))
      return "edges are clamped";
    window.edge = Edge::zero;
  }
  if (const char* why_not = map_forward(call.diff_dst, to.c, weights.groups, to.h, to.w, window, to.format, f))
    return why_not;
  const auto primitive = Cache::instance().find(f.key(0), [&]() -> std::shared_ptr<const Primitive> {
    const ThreadLimit limit(f.threads);
    const dnnl::convolution_backward_data::primitive_desc pd(
        onednn_engine(), dnnl::algorithm::convolution_direct, f.src(f.diff_src), f.filter(f.format), f.dst(),
        f.strides(), f.dilations(), f.before(), f.after(), f.hint(), f.attributes(), true);
    if (!pd || is_reference(pd)) return nullptr;
    return std::make_shared<Primitive>(Primitive{dnnl::convolution_backward_data(pd),
                                                 pd.diff_src_desc(),
                                                 pd.weights_desc(),
                                                 pd.diff_dst_desc(),
                                                 pd.scratchpad_desc(),
                                                 {}});
  });
  if (!primitive) return "oneDNN has only its reference for this";
  const auto packed = WeightsCache::of(weights).kept(weights, primitive->weights, weights.groups > 1);
  // Pixels that no window reads are 0.
  const bool is_part = f.h.count != to.h || f.w.count != to.w;
  Scratch part_memory;
  Tensor part = to;
  if (is_part) {
    ScratchTensor made(to.n, f.h.count, f.w.count, to.c, to.format);
    part = made.tensor;
    part_memory = std::move(made.memory);
    fill_bytes(to.data, 0, static_cast<std::size_t>(to.size()) * size_of(to.format));
  }
  const ThreadLimit limit(f.threads);
  execute(*primitive, {{DNNL_ARG_DIFF_DST, primitive->dst, call.diff_dst.data},
                       {DNNL_ARG_WEIGHTS, primitive->weights, packed.get()},
                       {DNNL_ARG_DIFF_SRC, primitive->src, part.data}});
  if (is_part) copy(part, to.region(f.h.first, f.w.first, f.h.count, f.w.count));
  return nullptr;
}

const char* weights_gradient_primitive(const WeightsGradientCall& call) {
  // oneDNN's 1 x 1 kernels gather a strided source pixel by pixel, one vector of channels apart, in scratch memory
  // sized for the actual channels: with fewer channels than a vector they write past its end (3.2, and still 3.8).
  constexpr std::int64_t kVector = 16;
  const Window& w = call.window;
  if (w.kernel_h == 1 && w.kernel_w == 1 && (w.stride_h > 1 || w.stride_w > 1) && call.inputs_per_group() < kVector)
    return "oneDNN would write outside of its scratch memory";
  Forward f;
  if (const char* why_not =
          map_forward(call.diff_dst, call.src.c, call.groups, call.src.h, call.src.w, call.window, Format::float32, f))
    return why_not;
  const auto primitive = Cache::instance().find(f.key(1), [&]() -> std::shared_ptr<const Primitive> {
    const ThreadLimit limit(f.threads);
    const dnnl::convolution_backward_weights::primitive_desc pd(
        onednn_engine(), dnnl::algorithm::convolution_direct, f.src(f.format), f.filter(Format::float32), f.dst(),
        f.strides(), f.dilations(), f.before(), f.after(), f.hint(), f.attributes(), true);
    if (!pd || is_reference(pd)) return nullptr;
    const dnnl::reorder::primitive_desc restore(onednn_engine(), pd.diff_weights_desc(), onednn_engine(),
                                                f.own_filter());
    return std::make_shared<Primitive>(Primitive{dnnl::convolution_backward_weights(pd), pd.src_desc(),
                                                 pd.diff_weights_desc(), pd.diff_dst_desc(), pd.scratchpad_desc(),
                                                 dnnl::reorder(restore)});
  });
  if (!primitive) return "oneDNN has only its reference for this";
  Scratch src_memory;
  const Tensor part = call.src.region(f.h.first, f.w.first, f.h.count, f.w.count);
  const Tensor src = dense(part, part.format, src_memory);
  const std::int64_t count = f.outputs * f.window.kernel_h * f.window.kernel_w * (f.inputs / f.groups);
  const Scratch packed(primitive->weights.get_size());
  const Scratch summand(call.accumulates ? static_cast<std::uint64_t>(count) * sizeof(float) : 0);
  auto* const to = call.accumulates ? reinterpret_cast<float*>(summand.data()) : call.diff_weights;
  const ThreadLimit limit(f.threads);
  execute(*primitive, {{DNNL_ARG_SRC, primitive->src, src.data},
                       {DNNL_ARG_DIFF_DST, primitive->dst, call.diff_dst.data},
                       {DNNL_ARG_DIFF_WEIGHTS, primitive->weights, packed.data()}});
  if (call.groups > 1 || !unpack_filter(reinterpret_cast<const float*>(packed.data()), to, primitive->weights)) {
    dnnl::stream stream(onednn_engine());
    memory from(primitive->weights, onednn_engine(), packed.data()), into(f.own_filter(), onednn_engine(), to);
    primitive->restore.execute(stream, from, into);
    stream.wait();
  }
  if (call.accumulates) {
    for (std::int64_t i = 0; i < count; ++i) call.diff_weights[i] += to[i];
  }
  return nullptr;
}

}  // namespace openmps::cpu
