// SPDX-License-Identifier: Apache-2.0
#include "core/data_source/guarded_source.hpp"

#include <cfloat>
#include <utility>

#include <mpscnn/error.hpp>

#include "core/kernel/convolution_params.hpp"

namespace mpscnn {
namespace {

/// Return the OHWI shape of the weights; 1-bit weights are packed into words of 32 channels.
Extents ohwi_shape(const ConvolutionDescriptor& d, DType dtype) {
  const auto inputs = d.depthwise ? 1 : d.in_channels / d.groups;
  return {d.out_channels, d.kernel_size.h, d.kernel_size.w, dtype == DType::uint32 ? (inputs + 31) / 32 : inputs};
}

void check_floats(const std::optional<ArrayView>& array, const Extents& shape, const char* what) {
  if (!array) return;
  check<TypeError>(array->dtype == DType::float32, "data source: ", what, ".dtype (", name_of(array->dtype),
                   ") is not float32.");
  check(array->shape == shape && array->is_contiguous(), "data source: ", what, ".shape ", as_tuple(array->shape),
        " is not a contiguous ", as_tuple(shape), ".");
}

}  // namespace

bool Guarded::load() noexcept {
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
    // MPS does not call purge after a failed load.
    try {
      source_->purge();
    } catch (...) {
    }
  }
  return false;
}

void Guarded::purge() noexcept {
  const std::scoped_lock lock(mutex_);
  try {
    std::exception_ptr broken;
    try {
      check_read();
    } catch (...) {
      broken = std::current_exception();
    }
    if (loads_ > 0 && --loads_ == 0) forget();
    source_->purge();
    if (broken) std::rethrow_exception(broken);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

bool Guarded::run(const std::function<void()>& f) noexcept {
  try {
    f();
    return true;
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    return false;
  }
}

void Guarded::rethrow() {
  const std::scoped_lock lock(mutex_);
  if (auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

void GuardedSource::check_read() const {
  if (weights_.data) check_whole(weights_);
  for (const auto* array : {&bias_, &ranges_, &table_})
    if (*array) check_whole(**array);
}

void GuardedSource::forget() {
  weights_.data = nullptr;
  weights_.owner.reset();
  weights_owner_.reset();
  bias_.reset();
  ranges_.reset();
  table_.reset();
}

void GuardedSource::read() {
  descriptor_ = source_.descriptor();
  check_descriptor("data source", descriptor_);
  weights_ = source_.weights();
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
          "data source: descriptor asks for weights of shape ", as_tuple(shape), ".");
  check(weights_.size() * element == bytes, "data source: weights of shape ", as_tuple(weights_.shape), " have ",
        weights_.size(), " elements; the descriptor asks for ", bytes / element, " (OHWI ", as_tuple(shape), ").");
  check(weights_.is_contiguous(), "data source: weights are not C-contiguous (strides ", as_tuple(weights_.strides),
        ").");
  weights_owner_ = source_.weights_owner();
  borrowed_ = weights_owner_ ? memory_of(weights_) : MemoryRange{};
  bias_ = source_.bias();
  ranges_ = source_.ranges();
  table_ = source_.lookup_table();
  check_floats(bias_, {descriptor_.out_channels}, "bias");
  check_floats(ranges_, {descriptor_.out_channels, 2}, "ranges");
  check_floats(table_, {256}, "lookup_table");
  check(weights_.dtype != DType::uint8 || ranges_.has_value() != table_.has_value(),
        "data source: uint8 weights need either ranges or lookup_table.");
  kernel_dtype_ = source_.kernel_dtype();
  check(kernel_dtype_ == DType::float16 || kernel_dtype_ == DType::float32, "data source: kernel_dtype (",
        name_of(kernel_dtype_), ") is not float32 or float16.");
  check(kernel_dtype_ == DType::float16 || weights_.dtype == DType::float32,
        "data source: kernel_dtype (float32) needs float32 weights; weights.dtype is ", name_of(weights_.dtype), ".");
  label_ = source_.label();
}

void GuardedNormalization::Values::set(std::optional<ArrayView> array, std::int64_t channels, float fallback) {
  array_ = std::move(array);
  defaults_.assign(array_ ? 0 : static_cast<std::size_t>(channels), fallback);
}

void GuardedNormalization::read() {
  const auto& who = wanted_.who;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  channels_ = source_.channels();
  check(channels_ >= 1, who, ": channels (", channels_, ") is less than the minimum (1).");
  check(channels_ <= kMost, who, ": channels (", channels_, ") is greater than the maximum (", kMost, ").");
  check(!kept_channels_ || channels_ == *kept_channels_, who, ": channels (", channels_,
        ") is not that of the kernel (", kept_channels_.value_or(0), ").");
  if (wanted_.groups) {
    const auto groups = source_.groups();
    check(groups.has_value(), who, ": groups is None.");
    check(*groups >= 1, who, ": groups (", *groups, ") is less than the minimum (1).");
    check(channels_ % *groups == 0, who, ": groups (", *groups, ") does not divide channels (", channels_, ").");
    groups_ = *groups;
  }
  const auto read = [&](std::optional<ArrayView> array, const char* name) {
    check_floats(array, {channels_}, name);
    return array;
  };
  gamma_.set(read(source_.gamma(), "gamma"), channels_, 1);
  beta_ = read(source_.beta(), "beta");
  if (wanted_.statistics) {
    const auto mean = read(source_.mean(), "mean"), variance = read(source_.variance(), "variance");
    check(mean.has_value() == variance.has_value(), who, ": ", mean ? "variance" : "mean", " is None, ",
          mean ? "mean" : "variance", " is not.");
    has_statistics_ = mean.has_value();
    mean_.set(mean, channels_, 0);
    variance_.set(variance, channels_, 1);
    for (std::int64_t c = 0; c < channels_; ++c)
      check(variance_.data()[c] >= 0, who, ": variance[", c, "] (", variance_.data()[c],
            ") is less than the minimum (0).");
  }
  const auto epsilon = source_.epsilon();
  check(!epsilon || *epsilon >= 0, who, ": epsilon (", epsilon.value_or(0), ") is less than the minimum (0).");
  epsilon_ = epsilon ? static_cast<float>(*epsilon) : FLT_MIN;
  label_ = source_.label();
}

void GuardedNormalization::check_read() const {
  for (const auto* values : {&gamma_, &mean_, &variance_}) values->check_read();
  if (beta_) check_whole(*beta_);
}

void GuardedNormalization::forget() {
  gamma_.clear();
  beta_.reset();
  mean_.clear();
  variance_.clear();
}

}  // namespace mpscnn
