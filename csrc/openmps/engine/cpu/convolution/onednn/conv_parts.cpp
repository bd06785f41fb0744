// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/onednn/conv_parts.hpp"

#include "engine/cpu/convolution/onednn/post_ops.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps::cpu {
namespace {

using dnnl::memory;

/// Return whether the neuron costs less in a pass of its own: oneDNN's swish takes several times as long as ours.
bool is_faster_apart([[maybe_unused]] const Neuron& neuron) {
#if defined(__x86_64__)
  return neuron.type == NeuronType::swish && has_avx512();
#else
  return false;
#endif
}

}  // namespace

Formats formats_of(const ConvCall& call, bool narrow) {
  if (!narrow) return {};
  const auto own = [](const Tensor& image) {
    return image.format == Format::bfloat16 ? Format::bfloat16 : Format::float32;
  };
  return {Format::bfloat16, own(call.dst), own(call.addend)};
}

std::int64_t formats_key(const ConvCall& call) {
  if (!call.reduced_precision) return 0;
  const Formats formats = formats_of(call, true);
  return 1 | (formats.dst == Format::bfloat16 ? 2 : 0) | (formats.addend == Format::bfloat16 ? 4 : 0);
}

memory::data_type data_type_of(Format format) {
  switch (format) {
    case Format::bfloat16: return memory::data_type::bf16;
    case Format::unorm8: return memory::data_type::u8;
    default: return memory::data_type::f32;
  }
}

SourceAxis map_source_axis(std::int64_t extent, std::int64_t results, std::int64_t start, std::int64_t stride,
                           std::int64_t reach) {
  SourceAxis axis = {0, extent, 0, 0};
  if (start > 0) {
    axis.first = start;
    axis.count = extent - start;
  } else {
    axis.before = -start;
  }
  axis.after = (results - 1) * stride + reach - (axis.count + axis.before);
  if (axis.after <= -stride) {
    axis.count += axis.after;
    axis.after = 0;
  }
  return axis;
}

void run_compiled(Compiled& compiled, const ConvCall& call, const Tensor& src) {
  Scratch src_memory, dst_memory, addend_memory;
  const Tensor from = dense(src, compiled.src_format(), src_memory);
  const Tensor addend = call.adds() ? dense(call.addend, compiled.addend_format, addend_memory) : Tensor();
  Tensor to = call.dst;
  if (to.format != compiled.dst_format() || !to.is_dense()) {
    ScratchTensor result(to.n, to.h, to.w, to.c, compiled.dst_format());
    to = result.tensor;
    dst_memory = std::move(result.memory);
  }
  const Neuron& neuron = *call.neuron;
  compiled.run(
      {from.data, to.data, neuron_is_per_channel(neuron) ? neuron.a_per_channel->data() : nullptr, addend.data});
  const float* bias = compiled.bias_is_fused ? nullptr : bias_of(call);
  if (bias || (!compiled.neuron_is_fused && !neuron_is_identity(neuron))) {
    activate(to, call.dst, compiled.neuron_is_fused ? Neuron{} : neuron, bias);
  } else if (to.data != call.dst.data) {
    copy(to, call.dst);
  }
}

memory::desc filter_desc(const ConvWeights& k, Format format) {
  const std::int64_t g = k.groups, i = k.in_channels_per_group;
  if (g > 1)
    return memory::desc({g, k.out_channels / g, i, k.kernel_h, k.kernel_w}, data_type_of(format),
                        memory::format_tag::any);
  return memory::desc({k.out_channels, i, k.kernel_h, k.kernel_w}, data_type_of(format), memory::format_tag::any);
}

memory::desc bias_desc(const ConvWeights& k) {
  return k.bias.empty() ? memory::desc()
                        : memory::desc({k.out_channels}, memory::data_type::f32, memory::format_tag::a);
}

memory::desc image_desc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Format format) {
  return memory::desc({n, c, h, w}, data_type_of(format), memory::format_tag::nhwc);
}

dnnl::primitive_attr attributes_of(const ConvCall& call, bool fuse, Formats& formats, Fusion& fusion) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  fusion = {};
  fusion.bias = fuse;
  const bool is_apart = !call.adds() && is_faster_apart(*call.neuron);
  fusion.neuron = fuse && !is_apart && append_neuron(ops, *call.neuron);
  if (!fusion.neuron) formats.dst = Format::float32;
  if (fusion.neuron) {
    if (neuron_is_per_channel(*call.neuron)) {
      fusion.slopes_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_WEIGHTS;
    }
    if (call.adds()) {
      if (adds_in_place(call, formats)) {
        ops.append_sum();
      } else {
        fusion.addend_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1;
        ops.append_binary(dnnl::algorithm::binary_add, image_desc(call.dst, formats.addend));
      }
      fusion.sum = append_neuron(ops, *call.after);
    }
    attributes.set_post_ops(ops);
  }
  return attributes;
}

}  // namespace openmps::cpu
