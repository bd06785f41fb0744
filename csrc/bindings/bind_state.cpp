// SPDX-License-Identifier: Apache-2.0
// States that go from kernel to kernel.
#include <mpscnn/batch_normalization_state.hpp>

#include <cstring>

#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {
namespace {

py::array floats_of(const BatchNormalizationState& state, std::vector<float> (BatchNormalizationState::*read)() const) {
  std::vector<float> values;
  {
    const ReleaseGil release;
    values = (state.*read)();
  }
  auto array = empty_array({static_cast<std::int64_t>(values.size())}, DType::float32);
  std::memcpy(array.mutable_data(), values.data(), values.size() * sizeof(float));
  return array;
}

}  // namespace

void bind_state(py::module_& module) {
  py::class_<BatchNormalizationState, std::shared_ptr<BatchNormalizationState>>(module, "BatchNormalizationState",
                                                                                R"(Mean and variance of a batch.

    ``BatchNormalizationStatistics()(x)`` makes one, and adds to one that it is given; ``BatchNormalization(gamma)(x, state)``
    normalizes with it. What comes after that begins a new batch, so that one state serves a whole training. It belongs to
    the device: nothing goes through the CPU until ``mean`` or ``variance`` is read.

    Parameters
    ----------
    channels : int, >= 1
    device : Device, optional

    Raises
    ------
    ValueError   "BatchNormalizationState: channels (0) is less than the minimum (1)."
    RuntimeError "BatchNormalizationState: no statistics have been encoded to it.", and before the command buffer that
                 computes them has completed.

    Source
    ------
    MPSNeuralNetwork/MPSCNNBatchNormalization.h, MPSCNNBatchNormalizationState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> statistics = mpscnn.BatchNormalizationStatistics()
    >>> state = statistics(np.array([[[[1.0, 5.0], [3.0, 5.0]]]], np.float32))
    >>> state.mean.tolist(), state.variance.tolist(), state.count
    ([2.0, 5.0], [1.0, 0.0], 2)
    >>> state = statistics(np.full((1, 1, 2, 2), 5, np.float32), state)
    >>> state.mean.tolist(), state.count
    ([3.5, 5.0], 4))")
      .def(py::init([](Integer channels, const std::shared_ptr<Device>& device) {
             const auto target = device_or_default(device);
             const ReleaseGil release;
             return BatchNormalizationState::make(target, channels);
           }),
           py::arg("channels"), py::kw_only(), py::arg("device") = nullptr)
      .def_property_readonly("channels", &BatchNormalizationState::channels, "int: channels.")
      .def_property_readonly("count", &BatchNormalizationState::count,
                             "int: values of each channel that the statistics encoded so far cover.")
      .def_property_readonly(
          "mean", [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::mean); },
          "array, shape (C,), float32: a copy, which later statistics leave alone.")
      .def_property_readonly(
          "variance",
          [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::variance); },
          "array, shape (C,), float32: a copy. Of all values, not an estimate from a sample: the sum of squares is "
          "divided "
          "by count.")
      .def("reset", &BatchNormalizationState::reset, py::call_guard<ReleaseGil>(),
           "The statistics that are encoded from now on begin a new batch.")
      .def_property_readonly("device", &BatchNormalizationState::device, "Device")
      .def("__repr__", [](const BatchNormalizationState& state) {
        return say("<mpscnn.BatchNormalizationState of ", state.channels(), " channels, ", state.count(),
                   " values each>");
      });
}

}  // namespace mpscnn::bindings
