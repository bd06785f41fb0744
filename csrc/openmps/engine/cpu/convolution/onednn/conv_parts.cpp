// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/onednn/conv_parts.hpp"

#include "engine/cpu/convolution/onednn/post_ops.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps::cpu {
namespace {

using dnnl::memory;
constexpr auto kFloat = memory::data_type::f32;

}  // namespace

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
  Tensor from = src, to = call.dst, addend = call.addend;
  if (!from.is_dense_float()) {
    ScratchTensor dense(src.n, src.h, src.w, src.c);
    copy(src, dense.tensor);
    from = dense.tensor;
    src_memory = std::move(dense.memory);
  }
  if (!to.is_dense_float()) {
    ScratchTensor dense(to.n, to.h, to.w, to.c);
    to = dense.tensor;
    dst_memory = std::move(dense.memory);
  }
  if (call.adds() && !addend.is_dense_float()) {
    ScratchTensor dense(to.n, to.h, to.w, to.c);
    copy(addend, dense.tensor);
    addend = dense.tensor;
    addend_memory = std::move(dense.memory);
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

memory::desc filter_desc(const ConvWeights& k) {
  const std::int64_t g = k.groups, i = k.in_channels_per_group;
  if (g > 1) return memory::desc({g, k.out_channels / g, i, k.kernel_h, k.kernel_w}, kFloat, memory::format_tag::any);
  return memory::desc({k.out_channels, i, k.kernel_h, k.kernel_w}, kFloat, memory::format_tag::any);
}

memory::desc bias_desc(const ConvWeights& k) {
  return k.bias.empty() ? memory::desc() : memory::desc({k.out_channels}, kFloat, memory::format_tag::a);
}

memory::desc image_desc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return memory::desc({n, c, h, w}, kFloat, memory::format_tag::nhwc);
}

dnnl::primitive_attr attributes_of(const ConvCall& call, const memory::desc& dst, bool fuse, Fusion& fusion) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (call.reduced_precision) attributes.set_fpmath_mode(dnnl::fpmath_mode::bf16);
  dnnl::post_ops ops;
  fusion = {};
  fusion.bias = fuse;
  fusion.neuron = fuse && append_neuron(ops, *call.neuron);
  if (fusion.neuron) {
    if (neuron_is_per_channel(*call.neuron)) {
      fusion.slopes_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_WEIGHTS;
    }
    if (call.adds()) {
      if (adds_in_place(call)) {
        ops.append_sum();
      } else {
        fusion.addend_argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1;
        ops.append_binary(dnnl::algorithm::binary_add, dst);
      }
      fusion.sum = append_neuron(ops, *call.after);
    }
    attributes.set_post_ops(ops);
  }
  return attributes;
}

}  // namespace openmps::cpu
