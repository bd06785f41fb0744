// SPDX-License-Identifier: Apache-2.0
#include "guarded_source.hpp"

#include <utility>

#include <mpscnn/error.hpp>

#include "convolution_params.hpp"

namespace mpscnn {
namespace {

/// Weights of one bit stand in words of 32 channels.
Extents ohwi_shape(const ConvolutionDescriptor& d, DType dtype) {
  const auto inputs = d.depthwise ? 1 : d.in_channels / d.groups;
  return {d.out_channels, d.kernel_size.h, d.kernel_size.w, dtype == DType::uint32 ? (inputs + 31) / 32 : inputs};
}

void check_floats(const std::optional<ArrayView>& array, const Extents& shape, const char* what) {
  if (!array) return;
  check<TypeError>(array->dtype == DType::float32, "data source: ", what, ".dtype (", name_of(array->dtype),
                   ") is not float32.");
  check(array->shape == shape && array->is_contiguous(), "data source: ", what, ".shape ", to_string(array->shape),
        " is not a contiguous ", to_string(shape), ".");
}

}  // namespace

bool GuardedSource::load() noexcept {
  const std::scoped_lock lock(mutex_);
  bool loaded = false;
  try {
    loaded = source_->load();
    if (!loaded) throw std::runtime_error("data source: load() returned False.");
    read();
    ++loads_;
    return true;
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
  if (loaded) {
    // MPS does not purge after a load that it was told has failed.
    try {
      source_->purge();
    } catch (...) {
    }
  }
  return false;
}

void GuardedSource::purge() noexcept {
  const std::scoped_lock lock(mutex_);
  try {
    if (loads_ > 0 && --loads_ == 0) {
      weights_.data = nullptr;
      weights_.owner.reset();
      bias_.reset();
      ranges_.reset();
      table_.reset();
    }
    source_->purge();
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

void GuardedSource::read() {
  descriptor_ = source_->descriptor();
  check_descriptor("data source", descriptor_);
  weights_ = source_->weights();
  check(weights_.data != nullptr, "data source: weights() returned nothing.");
  if (takes_ == Takes::bits) {
    check<TypeError>(weights_.dtype == DType::uint32, "data source: weights.dtype (", name_of(weights_.dtype),
                     ") is not uint32, words of 32 weights of one bit.");
  } else {
    check<TypeError>(
        weights_.dtype == DType::float32 || weights_.dtype == DType::float16 || weights_.dtype == DType::uint8,
        "data source: weights.dtype (", name_of(weights_.dtype), ") is not float32, float16 or uint8.");
  }
  const auto shape = ohwi_shape(descriptor_, weights_.dtype);
  const auto element = static_cast<std::int64_t>(size_of(weights_.dtype));
  std::int64_t bytes = element;
  for (auto extent : shape)
    check(extent >= 1 && !__builtin_mul_overflow(bytes, extent, &bytes),
          "data source: descriptor asks for weights of shape ", to_string(shape), ".");
  check(weights_.size() * element == bytes, "data source: weights of shape ", to_string(weights_.shape), " have ",
        weights_.size(), " elements; the descriptor asks for ", bytes / element, " (OHWI ", to_string(shape), ").");
  check(weights_.is_contiguous(), "data source: weights are not C-contiguous (strides ", to_string(weights_.strides),
        ").");
  bias_ = source_->bias();
  ranges_ = source_->ranges();
  table_ = source_->lookup_table();
  check_floats(bias_, {descriptor_.out_channels}, "bias");
  check_floats(ranges_, {descriptor_.out_channels, 2}, "ranges");
  check_floats(table_, {256}, "lookup_table");
  check(weights_.dtype != DType::uint8 || ranges_.has_value() != table_.has_value(),
        "data source: uint8 weights need either ranges or lookup_table.");
  kernel_dtype_ = source_->kernel_dtype();
  check(kernel_dtype_ == DType::float16 || kernel_dtype_ == DType::float32, "data source: kernel_dtype (",
        name_of(kernel_dtype_), ") is not float32 or float16.");
  check(kernel_dtype_ == DType::float16 || weights_.dtype == DType::float32,
        "data source: kernel_dtype (float32) needs float32 weights; weights.dtype is ", name_of(weights_.dtype), ".");
  label_ = source_->label();
}

void GuardedSource::rethrow() {
  const std::scoped_lock lock(mutex_);
  if (auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

}  // namespace mpscnn
