// SPDX-License-Identifier: Apache-2.0
// Built-in normalization data source over arrays, used in place if they are contiguous float32.
#include <mpscnn/normalization_source.hpp>

#include <mpscnn/error.hpp>

#include "core/kernel/params.hpp"

namespace mpscnn {
namespace {

class ArraysSource final : public NormalizationSource {
 public:
  explicit ArraysSource(NormalizationArrays arrays) : arrays_(std::move(arrays)) {}

  bool load() override { return true; }
  void purge() override {}
  std::int64_t channels() override { return arrays_.gamma.shape[0]; }
  std::optional<ArrayView> gamma() override { return arrays_.gamma; }
  std::optional<ArrayView> beta() override { return arrays_.beta; }
  std::optional<ArrayView> mean() override { return arrays_.mean; }
  std::optional<ArrayView> variance() override { return arrays_.variance; }
  std::optional<std::int64_t> groups() override { return arrays_.groups; }
  std::optional<double> epsilon() override { return arrays_.epsilon; }
  std::string label() override { return arrays_.label; }

 private:
  const NormalizationArrays arrays_;
};

/// Return the array as contiguous float32, copied only if needed.
ArrayView values(const ArrayView& given, const std::string& what) {
  if (given.ndim() == 1 && given.dtype == DType::float32 && given.is_contiguous()) return given;
  auto floats = std::make_shared<std::vector<float>>(to_floats(given, what));
  return {.data = floats->data(),
          .dtype = DType::float32,
          .shape = given.shape,
          .strides = contiguous_strides(given.shape, DType::float32),
          .owner = floats};
}

}  // namespace

std::shared_ptr<NormalizationSource> normalization_arrays(std::string_view who, NormalizationArrays arrays) {
  arrays.gamma = values(arrays.gamma, say(who, ": gamma"));
  const auto channels = arrays.gamma.shape[0];
  check(channels >= 1, who, ": gamma.shape ", as_tuple(arrays.gamma.shape), " has an extent (", channels,
        ") less than the minimum (1).");
  const auto take = [&](std::optional<ArrayView>& array, const char* name) {
    if (!array) return;
    array = values(*array, say(who, ": ", name));
    check(array->shape[0] == channels, who, ": ", name, ".shape ", as_tuple(array->shape), " is not gamma.shape ",
          as_tuple(arrays.gamma.shape), ".");
  };
  take(arrays.beta, "beta");
  take(arrays.mean, "mean");
  take(arrays.variance, "variance");
  return std::make_shared<ArraysSource>(std::move(arrays));
}

}  // namespace mpscnn
