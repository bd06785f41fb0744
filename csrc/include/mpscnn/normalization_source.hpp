// SPDX-License-Identifier: Apache-2.0
// Where the values of normalization come from: the C++ side of MPSCNNBatchNormalizationDataSource,
// MPSCNNInstanceNormalizationDataSource and MPSCNNGroupNormalizationDataSource.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <mpscnn/array.hpp>
#include <mpscnn/source.hpp>

namespace mpscnn {

class NormalizationSource : public Source {
 public:
  virtual std::int64_t channels() = 0;
  /// One float32 per channel each, C-contiguous, valid until purge(). Without: gamma 1, beta 0.
  virtual std::optional<ArrayView> gamma() = 0;
  virtual std::optional<ArrayView> beta() { return std::nullopt; }
  /// Batch normalization: both or neither.
  virtual std::optional<ArrayView> mean() { return std::nullopt; }
  virtual std::optional<ArrayView> variance() { return std::nullopt; }
  /// Group normalization.
  virtual std::optional<std::int64_t> groups() { return std::nullopt; }
  /// Without: FLT_MIN, Apple's.
  virtual std::optional<double> epsilon() { return std::nullopt; }
};

struct NormalizationArrays {
  ArrayView gamma;
  std::optional<ArrayView> beta = {}, mean = {}, variance = {};
  std::optional<std::int64_t> groups = {};
  double epsilon = 1e-5;
  std::string label = {};
};

/// Serves the arrays, in place where they are contiguous float32. Throws what is wrong with their shapes and types,
/// naming `who`, argument, value and limit.
std::shared_ptr<NormalizationSource> normalization_arrays(std::string_view who, NormalizationArrays arrays);

}  // namespace mpscnn
