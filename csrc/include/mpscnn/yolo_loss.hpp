// SPDX-License-Identifier: Apache-2.0
// YOLOLoss: an MPSCNNYOLOLoss, which computes the loss of predicted boxes and its gradient in one encode.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <mpscnn/loss.hpp>

namespace mpscnn {

/// Properties of MPSCNNYOLOLossDescriptor; the defaults are Apple's. The reductions of the four losses are ignored.
struct YOLOLossOptions {
  std::shared_ptr<Loss> xy, wh, confidence, classes;
  LossReduction reduction = LossReduction::sum;
  bool rescore = true, reduce_across_batch = false;
  double scale_xy = 10, scale_wh = 10, scale_no_object = 5, scale_object = 100, scale_class = 2;
  double min_iou_for_object_presence = 0.7, max_iou_for_object_absence = 0.3;
  std::vector<std::array<float, 2>> anchor_boxes = {};  ///< width and height of each, in pixels of the predictions

  /// Throw for unsupported options.
  void check() const;
};

class YOLOLoss final : public LossKernel {
 public:
  static constexpr const char* kName = "YOLOLoss";
  static constexpr std::int64_t kMostAnchors = 1024;
  /// Channels of each anchor box before those of the classes: X, Y, W, H, confidence.
  static constexpr std::int64_t kBoxChannels = 5;

  static std::shared_ptr<YOLOLoss> make(std::shared_ptr<Device> device, const YOLOLossOptions& options);
  YOLOLoss(std::unique_ptr<Impl> impl, const YOLOLossOptions& options);

  void check_predictions(ImageShape shape) const override;
  const YOLOLossOptions& options() const { return options_; }

 private:
  YOLOLossOptions options_;
};

}  // namespace mpscnn
