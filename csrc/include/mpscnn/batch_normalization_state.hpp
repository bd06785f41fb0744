// SPDX-License-Identifier: Apache-2.0
// BatchNormalizationState: an MPSCNNBatchNormalizationState, mean and variance of a batch on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <mpscnn/device.hpp>

namespace mpscnn {

class CommandBuffer;

class BatchNormalizationState {
 public:
  struct Impl;
  static std::shared_ptr<BatchNormalizationState> make(std::shared_ptr<Device> device, std::int64_t channels);

  explicit BatchNormalizationState(std::unique_ptr<Impl> impl);
  ~BatchNormalizationState();

  std::int64_t channels() const;
  /// Values per channel in the statistics encoded so far.
  std::int64_t count() const;
  /// One value per channel. Throw std::runtime_error before statistics are encoded, and until they are computed.
  std::vector<float> mean() const;
  std::vector<float> variance() const;
  /// Encode copies of mean and variance to the host, if the device has memory of its own. After the command buffer,
  /// mean() and variance() return them without work for the device.
  void encode_download(CommandBuffer& buffer);
  /// Gradients of the loss with respect to gamma and beta. Throw likewise before a
  /// BatchNormalizationStatisticsGradient.
  std::vector<float> grad_gamma() const;
  std::vector<float> grad_beta() const;
  /// Start a new batch with the statistics that are encoded next.
  void reset();
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
