// SPDX-License-Identifier: Apache-2.0
// _core._TrainingPlan: the loop of a Trainer's step.
#include <mpscnn/training_plan.hpp>

#include <vector>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

using PlanValue = TrainingPlan::Value;
using PlanState = TrainingPlan::State;
using BatchStates = TrainingPlan::BatchStates;
using Kernels = std::vector<std::shared_ptr<Kernel>>;

using Running = std::shared_ptr<RunningStatistics>;

void bind_running_statistics(py::module_& module) {
  py::class_<RunningStatistics, std::shared_ptr<RunningStatistics>>(module, "_RunningStatistics")
      .def(py::init([](const std::vector<float>& mean, const std::vector<float>& variance) {
        auto running = std::make_shared<RunningStatistics>();
        running->mean = mean;
        running->variance = variance;
        return running;
      }))
      .def_property_readonly("mean", [](const Running& running) { return array_from(running->mean, running); })
      .def_property_readonly("variance", [](const Running& running) { return array_from(running->variance, running); })
      .def_readwrite("momentum", &RunningStatistics::momentum)
      .def_readwrite("tracked", &RunningStatistics::tracked);
}

void bind_step(py::module_& module) {
  py::class_<TrainingStep, std::shared_ptr<TrainingStep>>(module, "_TrainingStep")
      .def_property_readonly("loss", &TrainingStep::loss)
      .def_property_readonly("outputs", &TrainingStep::outputs)
      .def_property_readonly("status", [](const TrainingStep& step) { return name_of(step.status()); })
      .def("wait", &TrainingStep::wait, py::call_guard<ReleaseGil>());
}

}  // namespace

void bind_training_plan(py::module_& module) {
  using namespace py::literals;
  using Plan = TrainingPlan;
  using Values = std::vector<PlanValue>;
  using KernelPointer = std::shared_ptr<Kernel>;
  bind_running_statistics(module);
  bind_step(module);
  py::class_<Plan, std::shared_ptr<Plan>>(module, "_TrainingPlan")
      .def(py::init([](const std::array<std::int64_t, 3>& output, std::int64_t max_channels, std::size_t slots,
                       const py::object& dtype, const OptionalArg<Device, "device">& device) {
        return std::make_shared<Plan>(device_or_default(device), output, max_channels, slots,
                                      dtype_from(dtype, "dtype", DType::float32));
      }))
      .def(
          "encode",
          [](Plan& plan, const KernelPointer& kernel, const Values& sources, std::optional<PlanValue> result,
             std::optional<PlanState> state, const std::optional<BatchStates>& batch_states) {
            Plan::Encode encode{.kernel = kernel, .sources = sources, .result = result, .state = state};
            if (batch_states) encode.batch_states = std::make_shared<BatchStates>(*batch_states);
            return plan.encode(std::move(encode));
          },
          "kernel"_a, "sources"_a, "result"_a = py::none(), "state"_a = py::none(), "batch_states"_a = py::none())
      .def("encode_with_state",
           [](Plan& plan, const KernelPointer& kernel, const Values& sources, std::optional<PlanValue> result) {
             const auto made =
                 plan.encode({.kernel = kernel, .sources = sources, .result = result, .with_state = true});
             return std::pair(made, plan.last_state());
           })
      .def("encode_state",
           [](Plan& plan, const KernelPointer& kernel, const Values& sources, const BatchStates& states) {
             plan.encode_state(kernel, sources, std::make_shared<BatchStates>(states));
           })
      .def("allocate", &Plan::allocate)
      .def("loss", &Plan::loss)
      .def("update",
           [](Plan& plan, const std::shared_ptr<OptimizerState>& state,
              const std::variant<PlanState, BatchStates>& gradients, const Kernels& reloaded) {
             if (const auto* states = std::get_if<BatchStates>(&gradients))
               plan.update(state, std::make_shared<const BatchStates>(*states), reloaded);
             else
               plan.update(state, std::get<PlanState>(gradients), reloaded);
           })
      .def("track", [](Plan& plan, const Running& running,
                       const BatchStates& states) { plan.track(running, std::make_shared<BatchStates>(states)); })
      .def("replace_kernel", &Plan::replace_kernel, py::call_guard<ReleaseGil>())
      .def("chunks", &Plan::chunks)
      .def("commit",
           [](Plan& plan, const std::string& label, const py::object& x, const std::string& layout,
              std::vector<std::shared_ptr<LossLabels>> labels, const Loss& loss, const Optimizer& optimizer) {
             const auto view = pixels_of(x, "x");
             const auto order = image_layout_from_name(layout);
             const ReleaseGil release;
             return plan.commit(label, view, order, std::move(labels), loss, optimizer);
           })
      .def("complete_first", &Plan::complete_first, py::call_guard<ReleaseGil>())
      .def_property_readonly("in_progress", &Plan::in_progress);
}

}  // namespace mpscnn::bindings
