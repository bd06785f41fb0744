// SPDX-License-Identifier: Apache-2.0
// Source of normalization parameters: the C++ side of MPSCNNBatchNormalizationDataSource,
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
  /// One float32 per channel, C-contiguous, valid until purge(). Defaults: gamma 1, beta 0.
  virtual std::optional<ArrayView> gamma() = 0;
  virtual std::optional<ArrayView> beta() { return std::nullopt; }
  /// Batch normalization only; both or neither.
  virtual std::optional<ArrayView> mean() { return std::nullopt; }
  virtual std::optional<ArrayView> variance() { return std::nullopt; }
  /// Group normalization only.
  virtual std::optional<std::int64_t> groups() { return std::nullopt; }
  /// Default: FLT_MIN, as Apple's.
  virtual std::optional<double> epsilon() { return std::nullopt; }
};

struct NormalizationArrays {
  ArrayView gamma;
  std::optional<ArrayView> beta = {}, mean = {}, variance = {};
  std::optional<std::int64_t> groups = {};
  double epsilon = 1e-5;
  std::string label = {};
};

/// Return a source of the arrays, in place if they are contiguous float32. Throw for wrong shapes and types, with
/// `who`, argument, value and limit.
std::shared_ptr<NormalizationSource> normalization_arrays(std::string_view who, NormalizationArrays arrays);

}  // namespace mpscnn
