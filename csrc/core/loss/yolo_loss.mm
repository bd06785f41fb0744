// SPDX-License-Identifier: Apache-2.0
// MPSCNNYOLOLoss.
#include <mpscnn/error.hpp>
#include <mpscnn/yolo_loss.hpp>

#include <cmath>

#include "core/device/objc_scope.hh"
#include "core/loss/loss_impl.hh"

namespace mpscnn {
namespace {

MPSCNNLossType objc_type(const Loss &loss) { return static_cast<MPSCNNLossType>(loss.options().type); }

MPSCNNLossDescriptor *objc_term(const Loss &loss, const YOLOLossOptions &options) {
  auto own = loss.options();
  own.reduction = options.reduction;
  own.reduce_across_batch = options.reduce_across_batch;
  return objc_loss(own);
}

MPSCNNYOLOLossDescriptor *objc_loss(const YOLOLossOptions &options) {
  NSData *anchors = [NSData dataWithBytes:options.anchor_boxes.data()
                                   length:options.anchor_boxes.size() * sizeof(options.anchor_boxes[0])];
  MPSCNNYOLOLossDescriptor *descriptor =
      [MPSCNNYOLOLossDescriptor cnnLossDescriptorWithXYLossType:objc_type(*options.xy)
                                                     WHLossType:objc_type(*options.wh)
                                             confidenceLossType:objc_type(*options.confidence)
                                                classesLossType:objc_type(*options.classes)
                                                  reductionType:static_cast<MPSCNNReductionType>(options.reduction)
                                                    anchorBoxes:anchors
                                            numberOfAnchorBoxes:options.anchor_boxes.size()];
  descriptor.XYLossDescriptor = objc_term(*options.xy, options);
  descriptor.WHLossDescriptor = objc_term(*options.wh, options);
  descriptor.confidenceLossDescriptor = objc_term(*options.confidence, options);
  descriptor.classesLossDescriptor = objc_term(*options.classes, options);
  descriptor.rescore = options.rescore;
  descriptor.scaleXY = static_cast<float>(options.scale_xy);
  descriptor.scaleWH = static_cast<float>(options.scale_wh);
  descriptor.scaleNoObject = static_cast<float>(options.scale_no_object);
  descriptor.scaleObject = static_cast<float>(options.scale_object);
  descriptor.scaleClass = static_cast<float>(options.scale_class);
  descriptor.minIOUForObjectPresence = static_cast<float>(options.min_iou_for_object_presence);
  descriptor.maxIOUForObjectAbsence = static_cast<float>(options.max_iou_for_object_absence);
  if (options.reduce_across_batch) descriptor.reduceAcrossBatch = YES;  // since macOS 11
  return descriptor;
}

}  // namespace

void YOLOLossOptions::check() const {
  const char *const name = YOLOLoss::kName;
  for (const auto &[loss, shown] :
       {std::pair{xy.get(), "xy_loss"}, std::pair{wh.get(), "wh_loss"}, std::pair{confidence.get(), "confidence_loss"},
        std::pair{classes.get(), "classes_loss"}})
    mpscnn::check(loss->options().type != LossType::cosine_distance, name, ": ", shown,
                  " has type \"cosine_distance\", which is a loss of whole images.");
  for (const auto &[value, shown] :
       {std::pair{scale_xy, "scale_xy"}, std::pair{scale_wh, "scale_wh"}, std::pair{scale_no_object, "scale_no_object"},
        std::pair{scale_object, "scale_object"}, std::pair{scale_class, "scale_class"}})
    mpscnn::check(std::isfinite(static_cast<float>(value)), name, ": ", shown, " (", value,
                  ") is not a finite float32.");
  for (const auto &[value, shown] : {std::pair{min_iou_for_object_presence, "min_iou_for_object_presence"},
                                     std::pair{max_iou_for_object_absence, "max_iou_for_object_absence"}})
    mpscnn::check(value >= 0 && value <= 1, name, ": ", shown, " (", value, ") is not between 0 and 1.");
  const auto count = static_cast<std::int64_t>(anchor_boxes.size());
  mpscnn::check(count >= 1, name, ": len(anchor_boxes) (", count, ") is less than the minimum (1).");
  mpscnn::check(count <= YOLOLoss::kMostAnchors, name, ": len(anchor_boxes) (", count,
                ") is greater than the maximum (", YOLOLoss::kMostAnchors, ").");
  for (std::size_t box = 0; box < anchor_boxes.size(); ++box)
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const float extent = anchor_boxes[box][axis];
      mpscnn::check(extent > 0 && std::isfinite(extent), name, ": anchor_boxes[", box, ", ", axis, "] (", extent,
                    ") is not a finite number greater than 0.");
    }
}

YOLOLoss::YOLOLoss(std::unique_ptr<Impl> impl, const YOLOLossOptions &options)
    : LossKernel(std::move(impl)), options_(options) {}

std::shared_ptr<YOLOLoss> YOLOLoss::make(std::shared_ptr<Device> device, const YOLOLossOptions &options) {
  options.check();
  return guard([&] {
    auto kernel = Ref<MPSCNNKernel *>::adopt([[MPSCNNYOLOLoss alloc] initWithDevice:device->impl().device.get()
                                                                     lossDescriptor:objc_loss(options)]);
    mpscnn::check<NotImplementedError>(static_cast<bool>(kernel), kName, ": the device has no such kernel.");
    return std::make_shared<YOLOLoss>(std::unique_ptr<Impl>(new Impl{kName, device, options.reduction, kernel}),
                                      options);
  });
}

void YOLOLoss::check_predictions(ImageShape shape) const {
  const auto anchors = static_cast<std::int64_t>(options_.anchor_boxes.size());
  mpscnn::check(shape.c % anchors == 0 && shape.c / anchors >= kBoxChannels, kName, ": x has ", shape.c,
                " channels, which are not ", kBoxChannels, " or more for each of ", anchors, " anchor boxes.");
}

}  // namespace mpscnn
