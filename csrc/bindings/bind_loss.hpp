// SPDX-License-Identifier: Apache-2.0
// Functions shared by the bindings of losses.
#pragma once

#include <mpscnn/loss.hpp>

#include <memory>

#include "bind_arguments.hpp"

namespace mpscnn::bindings {

inline LossOptions options_from(const Text& type, const Text& reduction, Real weight, Real label_smoothing,
                                Integer number_of_classes, Real epsilon, Real delta, Boolean reduce_across_batch) {
  return {.type = loss_type_from_name(type.value, "type"),
          .reduction = loss_reduction_from_name(reduction.value, "reduction"),
          .weight = weight,
          .label_smoothing = label_smoothing,
          .number_of_classes = number_of_classes,
          .epsilon = epsilon,
          .delta = delta,
          .reduce_across_batch = reduce_across_batch};
}

/// Compute loss and gradient and wait. `takes_class_numbers`: labels that are arrays may be class numbers.
py::object call_loss(const LossKernel& kernel, const py::object& x, const py::object& labels, const py::object& weights,
                     const py::object& out, bool takes_class_numbers);
std::shared_ptr<Image> encode_loss(const LossKernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x,
                                   LossLabels& labels, const std::shared_ptr<Image>& out, Boolean temporary);

/// Called by bind_loss().
void bind_yolo_loss(py::module_& module);

}  // namespace mpscnn::bindings
