// SPDX-License-Identifier: Apache-2.0
// Shared by the convolutions that run a oneDNN primitive.
#pragma once

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/onednn/compiled.hpp"

namespace openmps::cpu {

/// Multiplications below which a second thread costs more than it saves.
constexpr std::int64_t kThreadGrain = 200 * 1000;

/// One axis of a convolution in oneDNN's terms: a range of the source, and zeros around it.
struct SourceAxis {
  std::int64_t first, count;   // source pixels that are used
  std::int64_t before, after;  // zeros; `after` may be negative, down to 1 - stride: pixels that no window reads

  /// Return whether some windows are wholly out of bounds and others are not, which oneDNN's kernels do not support.
  bool is_far(std::int64_t reach) const { return before >= reach || after >= reach; }
};
SourceAxis map_source_axis(std::int64_t extent, std::int64_t results, std::int64_t start, std::int64_t stride,
                           std::int64_t reach);

inline std::int64_t key_bits(float value) { return std::bit_cast<std::int32_t>(value); }

/// Run the primitive on dense float images, through copies if the given ones are not, and the operations it omits.
void run_compiled(Compiled& compiled, const ConvCall& call, const Tensor& src);

/// Return the filter of a convolution or its transpose, with any layout that oneDNN prefers.
dnnl::memory::desc filter_desc(const ConvWeights& weights);
dnnl::memory::desc bias_desc(const ConvWeights& weights);
dnnl::memory::desc image_desc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);

/// Operations that the primitive includes: the neuron as post-ops, the bias, the addend and the neuron after it.
struct Fusion {
  bool neuron = false;
  bool bias = true;
  bool sum = false;
  int slopes_argument = 0;
  int addend_argument = 0;  ///< also 0 for an addend in the destination itself
};

/// Return whether the addend is the destination itself.
inline bool adds_in_place(const ConvCall& call) {
  return call.addend.data == call.dst.data && call.dst.is_dense_float() && call.addend.is_dense_float();
}

/// `dst`: the primitive's result.
dnnl::primitive_attr attributes_of(const ConvCall& call, const dnnl::memory::desc& dst, bool fuse, Fusion& fusion);

/// Pack the weights and wrap the primitive.
template <class Primitive, class PrimitiveDesc>
std::shared_ptr<Compiled> compile(const PrimitiveDesc& pd, const ConvCall& call, const Fusion& fusion, bool with_groups,
                                  bool rotated, int threads) {
  auto packed = WeightsCache::of(*call.weights).packed(*call.weights, pd.weights_desc(), with_groups, rotated);
  std::vector<Compiled::Fixed> fixed = {{DNNL_ARG_WEIGHTS, pd.weights_desc(), packed.get()}};
  if (const float* bias = bias_of(call); bias && fusion.bias) fixed.push_back({DNNL_ARG_BIAS, pd.bias_desc(), bias});
  const dnnl::memory::desc slopes({call.dst.c}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
  std::vector<Compiled::Borrowed> borrowed;
  if (fusion.slopes_argument) borrowed.push_back({fusion.slopes_argument, slopes, Compiled::Borrowed::slopes});
  if (fusion.addend_argument) borrowed.push_back({fusion.addend_argument, pd.dst_desc(), Compiled::Borrowed::addend});
  auto compiled = std::make_shared<Compiled>(Primitive(pd), pd.src_desc(), pd.dst_desc(), pd.scratchpad_desc(),
                                             std::move(fixed), std::move(borrowed), threads, packed);
  compiled->neuron_is_fused = fusion.neuron;
  compiled->bias_is_fused = fusion.bias;
  return compiled;
}

/// Return the result of `make`, null if oneDNN refuses.
template <class Make>
std::shared_ptr<Compiled> make_or_decline(const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    return nullptr;
  }
}

/// Return whether oneDNN would use its reference, which is slower than any loop.
template <class PrimitiveDesc>
bool is_reference(const PrimitiveDesc& pd) {
  return std::string(pd.impl_info_str()).find("ref") != std::string::npos;
}

inline std::int64_t multiplications(const ConvCall& call) {
  return call.dst.size() * call.window.kernel_h * call.window.kernel_w * call.weights->in_channels_per_group;
}

}  // namespace openmps::cpu
