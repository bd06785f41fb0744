// SPDX-License-Identifier: Apache-2.0
// States that are passed between kernels.
#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/convolution_state.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/normalization_states.hpp>

#include <algorithm>
#include <cstring>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

py::array_t<float> floats_of(const BatchNormalizationState& state,
                             std::vector<float> (BatchNormalizationState::*read)() const) {
  std::vector<float> values;
  {
    const ReleaseGil release;
    values = (state.*read)();
  }
  return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

/// Bind a state of two buffers, with a property for each.
template <class Kind>
py::class_<Kind, std::shared_ptr<Kind>> bind_buffers(py::module_& module, const char* name, const char* first,
                                                     std::shared_ptr<Buffer> Kind::* one, const char* second,
                                                     std::shared_ptr<Buffer> Kind::* other) {
  return py::class_<Kind, std::shared_ptr<Kind>>(module, name)
      .def(py::init([=](const std::shared_ptr<Buffer>& a, const OptionalArg<Buffer, "buffer">& b) {
        auto state = std::make_shared<Kind>();
        (*state).*one = a;
        (*state).*other = b;
        return state;
      }))
      .def_property_readonly(first, [one](const Kind& state) { return state.*one; })
      .def_property_readonly(second, [other](const Kind& state) { return state.*other; });
}

void bind_gradient_state(py::module_& module) {
  using State = GradientState;
  py::class_<State, std::shared_ptr<State>> kind(module, "_GradientState");
  kind.def("_values",
           [](const State& state, const char* name) {
             State::Values values;
             {
               const ReleaseGil release;
               const auto names = state.names();
               if (std::ranges::find(names, name) == names.end())
                 throw py::attribute_error(say("GradientState: the state of ", state.maker(), " has no ", name, "."));
               values = state.values(name);
             }
             return std::pair(values.buffer, values.shape);
           })
      .def_property_readonly("encodes", &State::encodes,
                             "Number of forward encodes that share the state, one per chunk of a batch.")
      .def_property_readonly("device", &State::device, "The device that the state is on.");
  kind.def("__repr__", [](const State& state) {
    const auto encodes = state.encodes();
    return say("<mpscnn.GradientState of ", encodes > 1 ? say(encodes, " encodes of ") : "", state.maker(), ">");
  });
}

void bind_batch_normalization_state(py::module_& module) {
  using State = BatchNormalizationState;
  py::class_<State, std::shared_ptr<State>> kind(module, "_BatchNormalizationState");
  kind.def(py::init([](Int<"channels"> channels, const OptionalArg<Device, "device">& device) {
        const auto target = device_or_default(device);
        const ReleaseGil release;
        return State::make(target, channels);
      }))
      .def_property_readonly("channels", &State::channels, "Number of channels.")
      .def_property_readonly("count", &State::count, "Values per channel in the statistics encoded so far.")
      .def_property_readonly(
          "mean", [](const State& state) { return floats_of(state, &State::mean); },
          "Shape (C,), float32: a copy, which later statistics leave alone.")
      .def_property_readonly(
          "variance", [](const State& state) { return floats_of(state, &State::variance); },
          "Shape (C,), float32: a copy. Of all values, not an estimate from a sample: the sum of squares is divided by "
          "count.")
      .def_property_readonly(
          "grad_gamma", [](const State& state) { return floats_of(state, &State::grad_gamma); },
          "Shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient.")
      .def_property_readonly(
          "grad_beta", [](const State& state) { return floats_of(state, &State::grad_beta); },
          "Shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient.")
      .def("_reset", &State::reset, py::call_guard<ReleaseGil>())
      .def_property_readonly("device", &State::device, "The device that the state is on.");
  kind.def("__repr__", [](const State& state) {
    return say("<mpscnn.BatchNormalizationState of ", state.channels(), " channels, ", state.count(), " values each>");
  });
}

}  // namespace

void bind_state(py::module_& module) {
  using Weights = ConvolutionWeightsAndBiasesState;
  bind_buffers(module, "_ConvolutionWeightsAndBiasesState", "_weights", &Weights::weights, "_biases", &Weights::biases)
      .def_readonly("_shape", &Weights::shape);
  using Scale = NormalizationGammaAndBetaState;
  bind_buffers(module, "_NormalizationGammaAndBetaState", "_gamma", &Scale::gamma, "_beta", &Scale::beta);
  using Moments = NormalizationMeanAndVarianceState;
  bind_buffers(module, "_NormalizationMeanAndVarianceState", "_mean", &Moments::mean, "_variance", &Moments::variance);
  bind_gradient_state(module);
  bind_batch_normalization_state(module);
}

}  // namespace mpscnn::bindings
