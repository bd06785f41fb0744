// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions whose windows do not overlap, as in decoders.
#include <algorithm>
#include <memory>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps::cpu {
namespace {

/// Bytes of results before they are moved to their places, for the second-level caches of two processors.
constexpr std::int64_t kPartBytes = 1 << 20;

/// Return the weights of a convolution of one pixel with r * r * out_channels results: those of result pixel (y, x) of
/// r x r begin at output (r * y + x) * out_channels.
std::shared_ptr<const ConvWeights> subpixel_weights(const ConvWeights& weights) {
  return weights.derived<const ConvWeights>("subpixel", [&] {
    const std::int64_t outputs = weights.out_channels, inputs = weights.in_channels_per_group;
    const std::int64_t taps = weights.kernel_h * weights.kernel_w;
    auto made = std::make_shared<ConvWeights>();
    made->out_channels = taps * outputs;
    made->kernel_h = made->kernel_w = 1;
    made->in_channels_per_group = inputs;
    made->values.own().resize(static_cast<std::size_t>(taps * outputs * inputs));
    float* to = made->values.own().data();
    for (std::int64_t pixel = 0; pixel < taps; ++pixel) {
      for (std::int64_t o = 0; o < outputs; ++o, to += inputs)
        std::copy_n(weights.values.data() + (o * taps + taps - 1 - pixel) * inputs, inputs, to);
      const float* const bias = weights.bias.data();
      made->bias.own().insert(made->bias.own().end(), bias, bias + weights.bias.size());
    }
    return made;
  });
}

}  // namespace

const char* transpose_subpixel(const TransposeCall& call) {
  const Window& w = call.window;
  const std::int64_t r = w.stride_h;
  if (w.stride_w != r || w.kernel_h != r || w.kernel_w != r || w.dilation_h != 1 || w.dilation_w != 1)
    return "windows overlap, or leave pixels out";
  if (w.start_h != 1 - r || w.start_w != 1 - r || call.dst.h != r * call.src.h || call.dst.w != r * call.src.w)
    return "results are cropped or added";
  if (call.weights->groups > 1) return "groups";
  if (neuron_is_per_channel(*call.neuron)) return "slopes per channel";
  if (call.weights->in_place) return "weights in place are used once";
  const bool is_narrow = call.reduced_precision && call.dst.format == Format::bfloat16;
  const Format format = is_narrow ? Format::bfloat16 : Format::float32;
  const std::int64_t channels = r * r * call.dst.c;
  const std::int64_t row_bytes = call.src.w * channels * static_cast<std::int64_t>(size_of(format));
  // Some rows of one image, or some images.
  const std::int64_t most_rows = std::max<std::int64_t>(1, kPartBytes / row_bytes);
  const std::int64_t parts = (call.src.h + most_rows - 1) / most_rows, rows = (call.src.h + parts - 1) / parts;
  const std::int64_t images = parts > 1 ? 1 : std::min(call.src.n, most_rows / call.src.h);
  const auto weights = subpixel_weights(*call.weights);
  const auto part_of = [](Tensor image, std::int64_t n, std::int64_t y, std::int64_t count, std::int64_t height) {
    image.data = image.at(n, y);
    image.n = count, image.h = height;
    return image;
  };
  for (std::int64_t n = 0; n < call.src.n; n += images) {
    const std::int64_t count = std::min(images, call.src.n - n);
    for (std::int64_t y = 0; y < call.src.h; y += rows) {
      const std::int64_t height = std::min(rows, call.src.h - y);
      const ScratchTensor result(count, height, call.src.w, channels, format);
      run_convolution({part_of(call.src, n, y, count, height), result.tensor, weights.get(), Window{}, call.neuron,
                       call.reduced_precision});
      depth_to_space(result.tensor, part_of(call.dst, n, r * y, count, r * height), r);
    }
  }
  return nullptr;
}

}  // namespace openmps::cpu
