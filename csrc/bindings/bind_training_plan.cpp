// SPDX-License-Identifier: Apache-2.0
// _core._TrainingPlan: the loop of a Trainer's step.
#include <mpscnn/training_plan.hpp>

#include <vector>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using PlanValue = TrainingPlan::Value;
using PlanState = TrainingPlan::State;
using BatchStates = TrainingPlan::BatchStates;
using Kernels = std::vector<std::shared_ptr<Kernel>>;

using Running = std::shared_ptr<RunningStatistics>;

void bind_running_statistics(py::module_& module) {
  py::class_<RunningStatistics, std::shared_ptr<RunningStatistics>>(
      module, "_RunningStatistics", "Running mean and variance of a batch normalization.")
      .def(py::init([](const std::vector<float>& mean, const std::vector<float>& variance) {
             auto running = std::make_shared<RunningStatistics>();
             running->mean = mean;
             running->variance = variance;
             return running;
           }),
           py::arg("mean"), py::arg("variance"))
      .def_property_readonly(
          "mean", [](const Running& running) { return array_from(running->mean, running); },
          "array, shape (C,), float32: a writable view.")
      .def_property_readonly(
          "variance", [](const Running& running) { return array_from(running->variance, running); },
          "array, shape (C,), float32: a writable view.")
      .def_readwrite("momentum", &RunningStatistics::momentum,
                     "float or None: weight of the batch, 0 to 1; None: means over all batches.")
      .def_readwrite("tracked", &RunningStatistics::tracked, "int: number of batches.");
}

void bind_step(py::module_& module) {
  py::class_<TrainingStep, std::shared_ptr<TrainingStep>>(module, "_TrainingStep", "A committed training step.")
      .def_property_readonly("loss", &TrainingStep::loss, "float, or None until the plan has completed the step.")
      .def_property_readonly("outputs", &TrainingStep::outputs, "list of Image: the predictions, one per chunk.")
      .def_property_readonly(
          "status", [](const TrainingStep& step) { return name_of(step.status()); },
          "str: status of the command buffer.")
      .def("wait", &TrainingStep::wait, py::call_guard<ReleaseGil>(), "Wait for the work.");
}

}  // namespace

void bind_training_plan(py::module_& module) {
  bind_running_statistics(module);
  bind_step(module);
  py::class_<TrainingPlan, std::shared_ptr<TrainingPlan>>(module, "_TrainingPlan",
                                                          "The encodes of a training step. Values and states are "
                                                          "numbers; value 0 is the input, value 1 the output.")
      .def(py::init([](const std::array<std::int64_t, 3>& output, std::int64_t max_channels, std::size_t slots,
                       const OptionalArg<Device, "device">& device) {
             return std::make_shared<TrainingPlan>(device_or_default(device), output, max_channels, slots);
           }),
           py::arg("output"), py::arg("max_channels"), py::arg("slots"), py::arg("device") = py::none())
      .def(
          "encode",
          [](TrainingPlan& plan, const std::shared_ptr<Kernel>& kernel, const std::vector<PlanValue>& sources,
             std::optional<PlanValue> result, std::optional<PlanState> state,
             const std::optional<BatchStates>& batch_states) {
            TrainingPlan::Encode encode{.kernel = kernel, .sources = sources, .result = result, .state = state};
            if (batch_states) encode.batch_states = std::make_shared<BatchStates>(*batch_states);
            return plan.encode(std::move(encode));
          },
          py::arg("kernel"), py::arg("sources"), py::arg("result") = py::none(), py::arg("state") = py::none(),
          py::arg("batch_states") = py::none(), "Append an encode; return its result.")
      .def(
          "encode_with_state",
          [](TrainingPlan& plan, const std::shared_ptr<Kernel>& kernel, const std::vector<PlanValue>& sources,
             std::optional<PlanValue> result) {
            const auto made = plan.encode({.kernel = kernel, .sources = sources, .result = result, .with_state = true});
            return std::pair(made, plan.last_state());
          },
          py::arg("kernel"), py::arg("sources"), py::arg("result") = py::none(),
          "Append an encode that leaves a state for gradient kernels; return its result and the state.")
      .def(
          "encode_state",
          [](TrainingPlan& plan, const std::shared_ptr<Kernel>& kernel, const std::vector<PlanValue>& sources,
             const BatchStates& states) { plan.encode_state(kernel, sources, std::make_shared<BatchStates>(states)); },
          py::arg("kernel"), py::arg("sources"), py::arg("states"), "Append an encode whose result is a state.")
      .def("allocate", &TrainingPlan::allocate, py::arg("like"), py::arg("channels"), py::arg("result") = py::none(),
           "Append a value with the extents of another, but other channels; return it.")
      .def("loss", &TrainingPlan::loss, "Append the loss of the output; return its gradient.")
      .def(
          "update",
          [](TrainingPlan& plan, const std::shared_ptr<OptimizerState>& state,
             const std::variant<PlanState, BatchStates>& gradients, const Kernels& reloaded) {
            if (const auto* states = std::get_if<BatchStates>(&gradients))
              plan.update(state, std::make_shared<const BatchStates>(*states), reloaded);
            else
              plan.update(state, std::get<PlanState>(gradients), reloaded);
          },
          py::arg("state"), py::arg("gradients"), py::arg("reloaded"),
          "Append the optimizer's step, and the reload of kernels.")
      .def(
          "track",
          [](TrainingPlan& plan, const std::shared_ptr<RunningStatistics>& running, const BatchStates& states) {
            plan.track(running, std::make_shared<BatchStates>(states));
          },
          py::arg("running"), py::arg("states"), "Add to running statistics when a step has completed.")
      .def("replace_kernel", &TrainingPlan::replace_kernel, py::arg("before"), py::arg("now"),
           py::call_guard<ReleaseGil>(), "Encode another kernel in the place of one.")
      .def("chunks", &TrainingPlan::chunks, py::arg("images"),
           "The number of images of each chunk of a batch; an MPSImage has up to 2048 slices of four channels.")
      .def(
          "commit",
          [](TrainingPlan& plan, const std::string& label, const py::object& x, const std::string& layout,
             std::vector<std::shared_ptr<LossLabels>> labels, const Loss& loss, const Optimizer& optimizer) {
            const auto view = pixels_of(x, "x");
            const auto order = image_layout_from_name(layout);
            const ReleaseGil release;
            return plan.commit(label, view, order, std::move(labels), loss, optimizer);
          },
          py::arg("label"), py::arg("x"), py::arg("layout"), py::arg("labels"), py::arg("loss"), py::arg("optimizer"),
          "Encode and commit a step on a batch.")
      .def("complete_first", &TrainingPlan::complete_first, py::call_guard<ReleaseGil>(),
           "Wait for the first step in progress and return it; None if there is none.")
      .def_property_readonly("in_progress", &TrainingPlan::in_progress, "int: number of steps in progress.");
}

}  // namespace mpscnn::bindings
