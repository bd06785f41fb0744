// SPDX-License-Identifier: Apache-2.0
// Losses as kernels that take only images: MPSNNForwardLoss, MPSNNLossGradient, and MPSNNInitialGradient, which creates
// the initial gradient of the backward pass.
#pragma once

#include <memory>

#include <mpscnn/loss.hpp>

namespace mpscnn {

class ForwardLoss {
 public:
  struct Impl;
  static std::shared_ptr<ForwardLoss> make(std::shared_ptr<Device> device, const Params& options);
  explicit ForwardLoss(std::unique_ptr<Impl> impl);
  ~ForwardLoss();

  ImageShape result_shape(ImageShape predictions) const;
  /// Write the loss into `out`, or a new float32 image, temporary on request. `weights` may be null. Thread-safe on
  /// different command buffers, as are the kernels below.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& x, const Image& labels, const Image* weights,
                                std::shared_ptr<Image> out, bool temporary) const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

class LossGradient {
 public:
  struct Impl;
  static std::shared_ptr<LossGradient> make(std::shared_ptr<Device> device, const Params& options);
  explicit LossGradient(std::unique_ptr<Impl> impl);
  ~LossGradient();

  /// `grad` has x's shape, or one value for each image.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& grad, const Image& x, const Image& labels,
                                const Image* weights, std::shared_ptr<Image> out, bool temporary) const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

class InitialGradient {
 public:
  struct Impl;
  static std::shared_ptr<InitialGradient> make(std::shared_ptr<Device> device);
  explicit InitialGradient(std::unique_ptr<Impl> impl);
  ~InitialGradient();

  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& x, std::shared_ptr<Image> out,
                                bool temporary) const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
