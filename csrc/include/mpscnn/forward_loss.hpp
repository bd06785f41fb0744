// SPDX-License-Identifier: Apache-2.0
// The losses as kernels of images alone: MPSNNForwardLoss, MPSNNLossGradient, and MPSNNInitialGradient, which makes the
// gradient that the backward pass begins with.
#pragma once

#include <memory>

#include <mpscnn/loss.hpp>

namespace mpscnn {

class ForwardLoss {
 public:
  struct Impl;
  static std::shared_ptr<ForwardLoss> make(std::shared_ptr<Device> device, const LossOptions& options);
  explicit ForwardLoss(std::unique_ptr<Impl> impl);
  ~ForwardLoss();

  ImageShape result_shape(ImageShape predictions) const;
  /// The loss into `out`, else into a new image of float32, temporary if asked. `weights` may be null. Safe from
  /// several threads on different command buffers, as are those below.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& x, const Image& labels, const Image* weights,
                                std::shared_ptr<Image> out, bool temporary) const;
  const LossOptions& options() const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

class LossGradient {
 public:
  struct Impl;
  static std::shared_ptr<LossGradient> make(std::shared_ptr<Device> device, const LossOptions& options, bool of_labels);
  explicit LossGradient(std::unique_ptr<Impl> impl);
  ~LossGradient();

  /// `grad` has x's shape, or one value for each image.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const Image& grad, const Image& x, const Image& labels,
                                const Image* weights, std::shared_ptr<Image> out, bool temporary) const;
  const LossOptions& options() const;
  bool of_labels() const;
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
