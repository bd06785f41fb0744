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
#include "engine/cpu/primitive_cache.hpp"

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

/// Run the primitive on dense images of its formats, through copies if the given ones are not, and the operations it
/// omits.
void run_compiled(Compiled& compiled, const ConvCall& call, const Tensor& src);

/// Formats of a primitive's images, float32 or bfloat16. Those of the source are also those of the weights.
struct Formats {
  Format src = Format::float32, dst = Format::float32, addend = Format::float32;
};
/// Return the formats with which fewest values are converted, all of them float32 unless `narrow`.
Formats formats_of(const ConvCall& call, bool narrow);
/// Return a part of a key: the formats of a call that allows them.
std::int64_t formats_key(const ConvCall& call);

dnnl::memory::data_type data_type_of(Format format);

/// Return the filter of a convolution or its transpose, with any layout that oneDNN prefers.
dnnl::memory::desc filter_desc(const ConvWeights& weights, Format format);
dnnl::memory::desc bias_desc(const ConvWeights& weights);
dnnl::memory::desc image_desc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Format format);
inline dnnl::memory::desc image_desc(const Tensor& image, Format format) {
  return image_desc(image.n, image.c, image.h, image.w, format);
}

/// Operations that the primitive includes: the neuron as post-ops, the bias, the addend and the neuron after it.
struct Fusion {
  bool neuron = false;
  bool bias = true;
  bool sum = false;
  int slopes_argument = 0;
  int addend_argument = 0;  ///< also 0 for an addend in the destination itself
};

/// Return whether the addend is the destination itself.
inline bool adds_in_place(const ConvCall& call, const Formats& formats) {
  return call.addend.data == call.dst.data && call.dst.is_dense() && call.addend.is_dense() &&
         call.dst.format == formats.dst && call.addend.format == formats.addend && formats.dst == formats.addend;
}

/// Return the attributes for what is fused. If the neuron is not, the result becomes float32, so that it is rounded
/// once.
dnnl::primitive_attr attributes_of(const ConvCall& call, bool fuse, Formats& formats, Fusion& fusion);

/// Pack the weights and wrap the primitive.
template <class Primitive, class PrimitiveDesc>
std::shared_ptr<Compiled> compile(const PrimitiveDesc& pd, const ConvCall& call, const Formats& formats,
                                  const Fusion& fusion, bool with_groups, bool rotated, int threads) {
  auto packed = WeightsCache::of(*call.weights).packed(*call.weights, pd.weights_desc(), with_groups, rotated);
  std::vector<Compiled::Fixed> fixed = {{DNNL_ARG_WEIGHTS, pd.weights_desc(), packed.get()}};
  if (const float* bias = bias_of(call); bias && fusion.bias) fixed.push_back({DNNL_ARG_BIAS, pd.bias_desc(), bias});
  const dnnl::memory::desc slopes({call.dst.c}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
  std::vector<Compiled::Borrowed> borrowed;
  if (fusion.slopes_argument) borrowed.push_back({fusion.slopes_argument, slopes, Compiled::Borrowed::slopes});
  if (fusion.addend_argument)
    borrowed.push_back({fusion.addend_argument, image_desc(call.dst, formats.addend), Compiled::Borrowed::addend});
  auto compiled = std::make_shared<Compiled>(Primitive(pd), pd.src_desc(), pd.dst_desc(), pd.scratchpad_desc(),
                                             std::move(fixed), std::move(borrowed), threads, packed);
  compiled->addend_format = formats.addend;
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

/// Return the result of make(formats) for bfloat16 if the call allows it, otherwise, or if oneDNN refuses, for float32.
template <class Make>
std::shared_ptr<Compiled> make_in_best_format(const ConvCall& call, const Make& make) {
  if (call.reduced_precision)
    if (auto made = make_or_decline([&] { return make(formats_of(call, true)); })) return made;
  return make_or_decline([&] { return make(formats_of(call, false)); });
}

inline std::int64_t multiplications(const ConvCall& call) {
  return call.dst.size() * call.window.kernel_h * call.window.kernel_w * call.weights->in_channels_per_group;
}

}  // namespace openmps::cpu
