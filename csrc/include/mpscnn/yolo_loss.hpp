// SPDX-License-Identifier: Apache-2.0
// YOLOLoss: an MPSCNNYOLOLoss, which computes the loss of predicted boxes and its gradient in one encode.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <mpscnn/loss.hpp>

namespace mpscnn {

/// The terms of an MPSCNNYOLOLossDescriptor; their reductions are ignored.
struct YOLOTerms {
  std::shared_ptr<Loss> xy, wh, confidence, classes;
};

class YOLOLoss final : public LossKernel {
 public:
  static constexpr const char* kName = "YOLOLoss";
  static constexpr std::int64_t kMostAnchors = 1024;
  /// Channels of each anchor box before those of the classes: X, Y, W, H, confidence.
  static constexpr std::int64_t kBoxChannels = 5;

  /// Width and height of each, in pixels of the predictions.
  using AnchorBoxes = std::vector<std::array<float, 2>>;

  static std::shared_ptr<YOLOLoss> make(std::shared_ptr<Device> device, const AnchorBoxes& boxes,
                                        const YOLOTerms& terms, const Params& options);
  YOLOLoss(std::unique_ptr<Impl> impl, std::size_t boxes);

  void check_predictions(ImageShape shape) const override;

 private:
  std::size_t boxes_;
};

}  // namespace mpscnn
