// SPDX-License-Identifier: Apache-2.0
// MPSCNNYOLOLoss.
#include <mpscnn/error.hpp>
#include <mpscnn/yolo_loss.hpp>

#include <cmath>

#include "core/device/objc_scope.hh"
#include "core/kernel/params.hpp"
#include "core/loss/loss_impl.hh"

namespace mpscnn {
namespace {

MPSCNNLossType objc_type(const Loss &loss) { return static_cast<MPSCNNLossType>(loss.options().type); }

MPSCNNLossDescriptor *objc_term(const Loss &loss, const char *shown, LossReduction reduction, bool across_batch) {
  auto own = loss.options();
  check(own.type != MPSCNNLossTypeCosineDistance, YOLOLoss::kName, ": ", shown,
        " has type \"cosine_distance\", which is a loss of whole images.");
  own.reduction = reduction;
  own.reduce_across_batch = across_batch;
  return objc_loss(own);
}

MPSCNNYOLOLossDescriptor *objc_loss(const YOLOLoss::AnchorBoxes &boxes, const YOLOTerms &terms, const Params &params) {
  const Options options(YOLOLoss::kName, params);
  const auto reduction = reduction_of(YOLOLoss::kName, params);
  const bool across_batch = options.boolean("reduce_across_batch");
  const auto real = [&](const char *name) { return static_cast<float>(options.real(name)); };
  const auto fraction = [&](const char *name) {
    const auto value = options.real(name);
    check(value >= 0 && value <= 1, YOLOLoss::kName, ": ", name, " (", value, ") is not between 0 and 1.");
    return static_cast<float>(value);
  };
  NSData *anchors = [NSData dataWithBytes:boxes.data() length:boxes.size() * sizeof(boxes[0])];
  MPSCNNYOLOLossDescriptor *descriptor =
      [MPSCNNYOLOLossDescriptor cnnLossDescriptorWithXYLossType:objc_type(*terms.xy)
                                                     WHLossType:objc_type(*terms.wh)
                                             confidenceLossType:objc_type(*terms.confidence)
                                                classesLossType:objc_type(*terms.classes)
                                                  reductionType:static_cast<MPSCNNReductionType>(reduction)
                                                    anchorBoxes:anchors
                                            numberOfAnchorBoxes:boxes.size()];
  descriptor.XYLossDescriptor = objc_term(*terms.xy, "xy_loss", reduction, across_batch);
  descriptor.WHLossDescriptor = objc_term(*terms.wh, "wh_loss", reduction, across_batch);
  descriptor.confidenceLossDescriptor = objc_term(*terms.confidence, "confidence_loss", reduction, across_batch);
  descriptor.classesLossDescriptor = objc_term(*terms.classes, "classes_loss", reduction, across_batch);
  descriptor.rescore = options.boolean("rescore");
  descriptor.scaleXY = real("scale_xy");
  descriptor.scaleWH = real("scale_wh");
  descriptor.scaleNoObject = real("scale_no_object");
  descriptor.scaleObject = real("scale_object");
  descriptor.scaleClass = real("scale_class");
  descriptor.minIOUForObjectPresence = fraction("min_iou_for_object_presence");
  descriptor.maxIOUForObjectAbsence = fraction("max_iou_for_object_absence");
  if (across_batch) descriptor.reduceAcrossBatch = YES;  // since macOS 11
  return descriptor;
}

void check_boxes(const YOLOLoss::AnchorBoxes &boxes) {
  const char *const name = YOLOLoss::kName;
  const auto count = static_cast<std::int64_t>(boxes.size());
  check(count >= 1, name, ": len(anchor_boxes) (", count, ") is less than the minimum (1).");
  check(count <= YOLOLoss::kMostAnchors, name, ": len(anchor_boxes) (", count, ") is greater than the maximum (",
        YOLOLoss::kMostAnchors, ").");
  for (std::size_t box = 0; box < boxes.size(); ++box)
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const float extent = boxes[box][axis];
      check(extent > 0 && std::isfinite(extent), name, ": anchor_boxes[", box, ", ", axis, "] (", extent,
            ") is not a finite number greater than 0.");
    }
}

}  // namespace

YOLOLoss::YOLOLoss(std::unique_ptr<Impl> impl, std::size_t boxes) : LossKernel(std::move(impl)), boxes_(boxes) {}

std::shared_ptr<YOLOLoss> YOLOLoss::make(std::shared_ptr<Device> device, const AnchorBoxes &boxes,
                                         const YOLOTerms &terms, const Params &options) {
  check_boxes(boxes);
  return guard([&] {
    MPSCNNYOLOLossDescriptor *descriptor = objc_loss(boxes, terms, options);
    auto kernel = Ref<MPSCNNKernel *>::adopt([[MPSCNNYOLOLoss alloc] initWithDevice:device->impl().device.get()
                                                                     lossDescriptor:descriptor]);
    check<NotImplementedError>(static_cast<bool>(kernel), kName, ": the device has no such kernel.");
    return std::make_shared<YOLOLoss>(std::unique_ptr<Impl>(new Impl{kName, device, reduction_of(kName, options),
                                                                     kernel, Ref<id>::retain(descriptor)}),
                                      boxes.size());
  });
}

void YOLOLoss::check_predictions(ImageShape shape) const {
  const auto anchors = static_cast<std::int64_t>(boxes_);
  check(shape.c % anchors == 0 && shape.c / anchors >= kBoxChannels, kName, ": x has ", shape.c,
        " channels, which are not ", kBoxChannels, " or more for each of ", anchors, " anchor boxes.");
}

}  // namespace mpscnn
