// SPDX-License-Identifier: Apache-2.0
// Losses of values and of boxes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/common.hpp"

namespace openmps {

/// Values of MPSCNNLossType.
enum class LossType : std::uint8_t {
  absolute = 0,
  square,
  softmax,
  sigmoid,
  categorical,
  hinge,
  huber,
  cosine,
  log,
  kullback_leibler,
};

/// The loss of a prediction y against a label t. With s = smoothing > 0, t below is t * (1 - s) + s / classes (softmax)
/// or t * (1 - s) + s / 2 (sigmoid). 0 * log(0) is 0. Without per-value weights each value is multiplied by `weight`.
///   absolute: |y - t|                       square: (y - t)^2
///   softmax: -t * (y - ln(sum exp(y_q))), the sum over the channels q of the pixel
///   sigmoid: max(y, 0) - y * t + ln(1 + exp(-|y|))
///   categorical: -t * ln(y)                 hinge: max(1 - (2 * t - 1) * y, 0)
///   huber: d * d / 2 where |d| <= delta, else delta * (|d| - delta / 2), with d = y - t
///   cosine: -y * t; `weight` (1 with per-value weights) is added to the sum over an image
///   log: -t * ln(y + epsilon) - (1 - t) * ln(1 - y + epsilon)
///   kullback_leibler: t * (ln(t) - y)
struct LossFunction {
  LossType type = LossType::square;
  float weight = 1, smoothing = 0;
  std::int64_t classes = 1;
  float epsilon = 1e-7f, delta = 1;

  static constexpr auto fields() {
    using P = LossFunction;
    using namespace roles;
    return std::tuple(shape("type", &P::type), value("weight", &P::weight), value("smoothing", &P::smoothing),
                      value("classes", &P::classes), value("epsilon", &P::epsilon), value("delta", &P::delta));
  }
};

/// Loss of box predictions. Each pixel is a cell. For each anchor it has X Y W H C F0 ... in the prediction and x y w h
/// c f0 ... in the label: the box's centre in the cell, its size in cells, and c > 0 if there is a box.
///   t_w = ln(w / anchor's + 1e-5), t_h likewise; fit = IoU of anchor and label, both centred at one point
///   iou = IoU of the label and the box (sigmoid(X), sigmoid(Y), exp(W) * anchor's, exp(H) * anchor's), a constant
///   object = c > 0 and (no other anchor of the cell fits better, or fit > min_iou)
///   absent = fit < max_iou and not object
///   l = object * (xy(sigmoid(X), x) + xy(sigmoid(Y), y) + wh(W, t_w) + wh(H, t_h) + classes(F, f))
///       + (object * scale_object + absent * scale_no_object) * confidence(C, object * (rescore ? iou : 1))
/// The `weight` of xy, wh and classes includes the term's scale; confidence is scaled as shown.
struct BoxLoss {
  LossFunction xy, wh, confidence, classes;
  float scale_object = 1, scale_no_object = 1;
  float min_iou = 0.7f, max_iou = 0.3f;
  bool rescore = true;
  std::vector<float> anchors;  ///< width and height of each, in cells
};

/// none: one loss per element. The others give one value per image, at pixel (0, 0), channel 0: the sum; the sum
/// divided by the number of pixels (softmax) or values; the sum divided by the number of nonzero weights, if there are
/// any.
enum class LossReduction : std::uint8_t { none, sum, mean, mean_of_nonzero_weights };

/// l_i = weight_i * incoming_i * function(src_i, label_i) for all values of some images, reduced, and the derivatives
/// of the sum of all l_i by src (or by the labels), which no reduction divides.
struct LossProblem {
  /// Images of one memory layout. Operands without memory: weights are the function's weight, incoming is 1. gradient
  /// and loss are computed if they have memory.
  struct Part {
    std::int64_t n = 1, h = 1, w = 1, c = 1;
    Operand src, labels, weights, incoming;
    ImageView gradient;  ///< n x h x w x c; shares no memory with the rest
    ImageView loss;      ///< same extents, or n x 1 x 1 x 1 with a reduction

    static constexpr auto fields() {
      using P = Part;
      using namespace roles;
      return std::tuple(shape("n", &P::n), shape("h", &P::h), shape("w", &P::w), shape("c", &P::c), in("src", &P::src),
                        in("labels", &P::labels), in("weights", &P::weights), in("incoming", &P::incoming),
                        out("gradient", &P::gradient), out("loss", &P::loss));
    }
  };
  std::vector<Part> parts;
  LossFunction function;
  std::shared_ptr<const BoxLoss> boxes;  ///< replaces the function
  LossReduction reduction = LossReduction::sum;
  bool across_images = false;  ///< the first image has the loss of all images, the others 0
  bool by_labels = false;      ///< gradient by the labels; not for boxes

  static constexpr auto fields() {
    using P = LossProblem;
    using namespace roles;
    return std::tuple(chunks("parts", &P::parts), shape("function", &P::function), shape("boxes", &P::boxes),
                      shape("reduction", &P::reduction), shape("across_images", &P::across_images),
                      shape("by_labels", &P::by_labels));
  }
};

}  // namespace openmps
