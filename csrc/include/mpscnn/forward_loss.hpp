// SPDX-License-Identifier: Apache-2.0
// Losses as kernels that take only images: MPSNNForwardLoss, MPSNNLossGradient, and MPSNNInitialGradient, which creates
// the initial gradient of the backward pass.
#pragma once

#include <memory>

#include <mpscnn/loss.hpp>

namespace mpscnn {

/// Source images of an encode. MPSNNForwardLoss has x, labels and weights, MPSNNLossGradient grad too, and
/// MPSNNInitialGradient x alone. Weights may be null.
struct LossSources {
  const Image* grad = nullptr;  ///< of x's shape, or with one value for each image
  const Image* x = nullptr;
  const Image* labels = nullptr;
  const Image* weights = nullptr;
};

/// MPSNNForwardLoss, MPSNNLossGradient or MPSNNInitialGradient.
class ForwardLossKernel {
 public:
  struct Impl;
  /// `name` is the class of Python: "ForwardLoss", "LossGradient" or "InitialGradient".
  static std::shared_ptr<ForwardLossKernel> make(std::shared_ptr<Device> device, std::string_view name,
                                                 const Params& options);
  explicit ForwardLossKernel(std::unique_ptr<Impl> impl);
  ~ForwardLossKernel();

  const char* name() const;
  ImageShape result_shape(const Image& x) const;
  DType result_dtype(const Image& x) const;
  /// Encode into `out`, or a new image, temporary on request. Thread-safe on different command buffers.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const LossSources& sources, std::shared_ptr<Image> out,
                                bool temporary) const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
