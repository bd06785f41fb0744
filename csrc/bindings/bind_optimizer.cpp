// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/optimizer.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// Return the memory that the optimizer keeps, by name.
std::vector<std::tuple<std::string, std::shared_ptr<Buffer>, Extents>> arrays_of(const OptimizerState& state) {
  std::vector<std::tuple<std::string, std::shared_ptr<Buffer>, Extents>> arrays;
  const ReleaseGil release;
  for (const auto& one : state.remembered()) arrays.emplace_back(one.name, one.buffer, one.shape);
  return arrays;
}

}  // namespace

void bind_optimizer(py::module_& module) {
  py::class_<OptimizerState, std::shared_ptr<OptimizerState>> state(module, "_OptimizerState");
  py::class_<Optimizer, std::shared_ptr<Optimizer>>(module, "_Optimizer")
      .def(py::init([](const std::string& name, const py::dict& options, const OptionalArg<Device, "device">& device) {
        return Optimizer::make(device_or_default(device), name, options_from(options));
      }))
      .def(
          "_state_for",
          [](Optimizer& optimizer, const OptimizedValues& values) {
            const ReleaseGil release;
            return optimizer.state_for(values);
          },
          py::keep_alive<0, 1>())
      .def("_encode",
           [](const Optimizer& optimizer, const Arg<CommandBuffer, "command_buffer">& buffer,
              const Gradients& gradients, const Arg<OptimizerState, "state">& state) {
             const ReleaseGil release;
             optimizer.encode(*buffer, gradients, *state);
           })
      .def_property("_learning_rate", &Optimizer::learning_rate,
                    [](Optimizer& optimizer, Float<"learning_rate"> rate) { optimizer.set_learning_rate(rate); })
      .def_property_readonly("device", &Optimizer::device, "The device that the optimizer works on.");
  state.def("_arrays", &arrays_of)
      .def_property(
          "time_step", &OptimizerState::time_step,
          [](OptimizerState& state, Int<"time_step"> time_step) { state.set_time_step(time_step); },
          "Number of encoded steps, >= 0. May be set; Adam's t of the next step is one more.")
      .def_property_readonly("_optimizer", &OptimizerState::optimizer)
      .def_property_readonly("_values", &OptimizerState::values)
      .def("__repr__", [](const OptimizerState& state) {
        return say("<mpscnn.OptimizerState of ", state.optimizer()->name(), ", time_step ", state.time_step(), ">");
      });
}

}  // namespace mpscnn::bindings
