// SPDX-License-Identifier: Apache-2.0
// mpscnn._core: the extension module. One line per topic.
#include <pybind11/pybind11.h>

#include "bind_arguments.hpp"
#include "bindings.hpp"

PYBIND11_MODULE(_core, module) {
  using namespace mpscnn::bindings;
  module.doc() = "The compiled core of mpscnn; use the package mpscnn.";
  module.attr("__version__") = MPSCNN_VERSION;
  bind_error(module);
  bind_weights(module);
  bind_table(module);
  bind_device(module);
  bind_buffer(module);
  bind_command_buffer(module);
  bind_image(module);
  bind_image_conversion(module);
  bind_loss(module);
  bind_forward_loss(module);
  bind_matrix(module);
  bind_descriptor(module);
  bind_data_source(module);
  bind_state(module);
  bind_optimizer(module);
  bind_kernel(module);
  bind_network(module);
  bind_profile(module);
  answer_wrong_arguments(module);
}
