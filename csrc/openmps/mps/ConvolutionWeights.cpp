// SPDX-License-Identifier: Apache-2.0
#include "mps/ConvolutionWeights.hpp"

#include <cmath>
#include <cstring>
#include <exception>
#include <new>

#include "engine/shared/half.hpp"

namespace openmps {
namespace {

/// Decode the weights of one output channel to float.
void decode(const WeightSource &source, std::int64_t channel, std::int64_t count, float *out) {
  const std::int64_t first = channel * count;
  switch (source.type) {
    case WeightType::float32: {
      const float *in = static_cast<const float *>(source.weights) + first;
      for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
      break;
    }
    case WeightType::float16: {
      const std::uint16_t *in = static_cast<const std::uint16_t *>(source.weights) + first;
      for (std::int64_t i = 0; i < count; ++i) out[i] = half_to_float(in[i]);
      break;
    }
    case WeightType::uint8_linear: {
      const std::uint8_t *in = static_cast<const std::uint8_t *>(source.weights) + first;
      const float low = source.ranges[2 * channel], high = source.ranges[2 * channel + 1];
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) / 255.0f * (high - low) + low;
      break;
    }
    case WeightType::uint8_table: {
      const std::uint8_t *in = static_cast<const std::uint8_t *>(source.weights) + first;
      for (std::int64_t i = 0; i < count; ++i) out[i] = source.table[in[i]];
      break;
    }
  }
}

float rounded_to_half(float value) { return half_to_float(float_to_half(value)); }

float value_or(const std::vector<float> &values, std::int64_t index, float otherwise) {
  return values.empty() ? otherwise : values[static_cast<std::size_t>(index)];
}

std::shared_ptr<ConvWeights> weights_like(const ConvWeights &like) {
  auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = like.out_channels;
  weights->kernel_h = like.kernel_h;
  weights->kernel_w = like.kernel_w;
  weights->in_channels_per_group = like.in_channels_per_group;
  weights->groups = like.groups;
  return weights;
}

}  // namespace

std::string build_weights(const WeightSource &source, std::shared_ptr<const ConvWeights> &result) noexcept {
  try {
    const WeightShape &shape = source.shape;
    const std::int64_t per_channel = shape.kernel_h * shape.kernel_w * shape.in_channels_per_group;
    auto weights = std::make_shared<ConvWeights>();
    weights->out_channels = shape.out_channels;
    weights->kernel_h = shape.kernel_h;
    weights->kernel_w = shape.kernel_w;
    weights->in_channels_per_group = shape.in_channels_per_group;
    weights->groups = shape.groups;
    const auto count = static_cast<std::size_t>(per_channel * shape.out_channels);
    const auto address = reinterpret_cast<std::uintptr_t>(source.weights);
    const bool as_given = source.type == WeightType::float32 && !source.norm && !source.round_to_half;
    const bool borrowed = as_given && source.owner && address % alignof(float) == 0;
    if (borrowed)
      weights->values =
          Floats::borrow(static_cast<const float *>(source.weights), count, source.owner, source.release_pages);
    else
      weights->values.own().resize(count);
    if (source.bias) weights->bias = std::vector(source.bias, source.bias + shape.out_channels);
    if (source.norm && weights->bias.empty())
      weights->bias = std::vector(static_cast<std::size_t>(shape.out_channels), 0.0f);

    for (std::int64_t o = 0; o < shape.out_channels && !borrowed; ++o) {
      float *row = weights->values.own().data() + o * per_channel;
      decode(source, o, per_channel, row);
      if (source.norm) {
        const BatchNorm &norm = *source.norm;
        const double scale =
            value_or(norm.gamma, o, 1) / std::sqrt(double{value_or(norm.variance, o, 1)} + norm.epsilon);
        for (std::int64_t i = 0; i < per_channel; ++i) row[i] = static_cast<float>(row[i] * scale);
        float &bias = weights->bias.own()[static_cast<std::size_t>(o)];
        bias = static_cast<float>((double{bias} - value_or(norm.mean, o, 0)) * scale + value_or(norm.beta, o, 0));
      }
      if (source.round_to_half)
        for (std::int64_t i = 0; i < per_channel; ++i) row[i] = rounded_to_half(row[i]);
    }
    if (!borrowed && source.release_pages) source.release_pages();
    result = std::move(weights);
    return {};
  } catch (const std::exception &) {
    return "There is not enough memory for the weights.";
  }
}

std::shared_ptr<const ConvWeights> weights_to_fill(const std::shared_ptr<const ConvWeights> &like,
                                                   bool has_bias) noexcept {
  try {
    auto weights = weights_like(*like);
    weights->replaced = like;
    weights->values = Floats::await(like->values.size());
    if (has_bias) weights->bias = Floats::await(static_cast<std::size_t>(like->out_channels));
    return weights;
  } catch (const std::exception &) {
    return nullptr;
  }
}

std::shared_ptr<const ConvWeights> weights_in_place(const ConvWeights &like, const WeightBuffers &buffers) noexcept {
  try {
    const auto borrow = [](const std::shared_ptr<Memory> &memory, std::size_t offset, std::size_t count) {
      return Floats::borrow(reinterpret_cast<const float *>(memory->data() + offset), count, memory);
    };
    auto weights = weights_like(like);
    weights->values = borrow(buffers.weights, buffers.weights_offset, like.values.size());
    if (buffers.biases)
      weights->bias = borrow(buffers.biases, buffers.biases_offset, static_cast<std::size_t>(like.out_channels));
    weights->in_place = true;
    return weights;
  } catch (const std::exception &) {
    return nullptr;
  }
}

void store_weights(const ConvWeights &weights, const WeightBuffers &buffers) {
  const auto store = [](const float *values, std::size_t count, const std::shared_ptr<Memory> &memory,
                        std::size_t offset) {
    const HostAccess access(memory, offset, count * sizeof(float), HostAccess::Mode::write);
    if (!access.data()) throw std::bad_alloc();
    std::memcpy(access.data(), values, count * sizeof(float));
  };
  store(weights.values.data(), weights.values.size(), buffers.weights, buffers.weights_offset);
  if (!weights.bias.empty()) store(weights.bias.data(), weights.bias.size(), buffers.biases, buffers.biases_offset);
}

}  // namespace openmps
