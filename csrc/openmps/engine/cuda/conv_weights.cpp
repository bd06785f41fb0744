// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/conv_weights.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/shared/half.hpp"

namespace openmps::cuda {
namespace {

/// Return a copy on the GPU that has arrived there: cuMemcpyHtoD may return earlier, and other streams do not wait for
/// its stream, the default one [CUDA Driver API, API synchronization behavior]. Waiting for the whole context would
/// fail while a thread records a graph.
template <class T>
std::unique_ptr<GpuBlock> copied(Gpu& gpu, const T* values, std::size_t count) {
  auto block = std::make_unique<GpuBlock>(gpu, count * sizeof(T));
  const Driver& driver = gpu.current();
  driver.check(driver.copy_to_device(block->address(), values, count * sizeof(T)), "cuMemcpyHtoD");
  driver.check(driver.synchronize_stream(nullptr), "cuStreamSynchronize");
  return block;
}

}  // namespace

GpuWeights& GpuWeights::of(Gpu& gpu, const ConvWeights& weights) {
  const std::string key = "cuda " + std::to_string(reinterpret_cast<std::uintptr_t>(&gpu));
  const std::lock_guard lock(weights.cache.mutex);
  std::shared_ptr<void>& entry = weights.cache.entries[key];
  if (!entry) entry = std::make_shared<GpuWeights>(gpu);
  return *static_cast<GpuWeights*>(entry.get());
}

Pointer<const float> GpuWeights::values(const ConvWeights& weights) {
  const std::lock_guard lock(mutex_);
  if (!values_) values_ = copied(gpu_, weights.values.data(), weights.values.size());
  return {values_->address()};
}

Pointer<const std::uint16_t> GpuWeights::halves(const ConvWeights& weights) {
  const std::lock_guard lock(mutex_);
  if (!halves_) {
    std::vector<std::uint16_t> halves(weights.values.size());
    const float* const values = weights.values.data();
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = float_to_half(values[i]);
    halves_ = copied(gpu_, halves.data(), halves.size());
  }
  return {halves_->address()};
}

Pointer<const float> GpuWeights::outputs_last(const ConvWeights& weights) {
  const std::lock_guard lock(mutex_);
  if (!outputs_last_) {
    const auto outputs = static_cast<std::size_t>(weights.out_channels), rest = weights.values.size() / outputs;
    std::vector<float> turned(weights.values.size());
    const float* const values = weights.values.data();
    constexpr std::size_t kTile = 16;  // a line of the cache
    for (std::size_t first = 0; first < rest; first += kTile)
      for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t k = first; k < std::min(first + kTile, rest); ++k)
          turned[k * outputs + o] = values[o * rest + k];
    outputs_last_ = copied(gpu_, turned.data(), turned.size());
  }
  return {outputs_last_->address()};
}

Address GpuWeights::padded(const ConvWeights& weights, std::int64_t channels, Format format) {
  const std::int64_t own = weights.in_channels_per_group;
  if (channels == own) return format == Format::float16 ? halves(weights).address : values(weights).address;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<GpuBlock>& block = padded_[{channels, format}];
  if (!block) {
    const std::size_t count = weights.values.size() / static_cast<std::size_t>(own);
    const auto from = static_cast<std::size_t>(own), to = static_cast<std::size_t>(channels);
    std::vector<float> floats(count * to);
    std::vector<std::uint16_t> halves(format == Format::float16 ? floats.size() : 0);
    for (std::size_t i = 0; i < count; ++i) std::copy_n(weights.values.data() + i * from, from, floats.data() + i * to);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = float_to_half(floats[i]);
    block = format == Format::float16 ? copied(gpu_, halves.data(), halves.size())
                                      : copied(gpu_, floats.data(), floats.size());
  }
  return block->address();
}

Pointer<const std::uint16_t> GpuWeights::half_bias(const ConvWeights& weights) {
  if (weights.bias.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (!half_bias_) {
    std::vector<std::uint16_t> halves(weights.bias.size());
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = float_to_half(weights.bias[i]);
    half_bias_ = copied(gpu_, halves.data(), halves.size());
  }
  return {half_bias_->address()};
}

Pointer<const float> GpuWeights::bias(const ConvWeights& weights) {
  if (weights.bias.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (!bias_) bias_ = copied(gpu_, weights.bias.data(), weights.bias.size());
  return {bias_->address()};
}

Pointer<const std::uint32_t> constant_words(Gpu& gpu, const std::shared_ptr<const std::vector<std::uint32_t>>& words) {
  struct Copy {
    std::weak_ptr<const std::vector<std::uint32_t>> words;
    std::unique_ptr<GpuBlock> block;
  };
  static std::mutex mutex;
  static auto* const all = new std::map<std::pair<const Gpu*, const void*>, Copy>;
  const std::lock_guard lock(mutex);
  std::erase_if(*all, [](const auto& each) { return each.second.words.expired(); });
  Copy& copy = (*all)[{&gpu, words.get()}];
  if (!copy.block) copy = {words, copied(gpu, words->data(), words->size())};
  return {copy.block->address()};
}

}  // namespace openmps::cuda
