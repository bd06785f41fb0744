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

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"

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

/// Return the Buffer itself, or a new one with a copy of the numbers.
std::shared_ptr<Buffer> floats_buffer(py::handle object, const char* name, const std::shared_ptr<Device>& device,
                                      bool any_rank = false) {
  check_made(object, name);
  if (py::isinstance<Buffer>(object)) {
    auto buffer = object.cast<std::shared_ptr<Buffer>>();
    check(buffer->bytes() % sizeof(float) == 0, name, " has ", buffer->bytes(), " bytes, not a multiple of ",
          sizeof(float), ".");
    return buffer;
  }
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) view_of(object, name);  // throws for other objects
  const auto floats = py::module_::import("numpy").attr("ascontiguousarray")(object, "float32");
  const auto view = view_of(floats, name);
  check(any_rank || view.ndim() == 1, name, ".ndim (", view.ndim(), ") is not 1.");
  check(view.size() >= 1, name, ".shape ", as_tuple(view.shape), " has an extent (0) less than the minimum (1).");
  const auto bytes = static_cast<std::size_t>(view.size()) * sizeof(float);
  auto buffer = Buffer::make(device, bytes);
  std::memcpy(buffer->contents(), view.data, bytes);
  return buffer;
}

/// Return a view of the buffer with the given shape, or of all its elements.
py::array floats_view(const std::shared_ptr<Buffer>& buffer, Extents shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(buffer->bytes() / sizeof(float))};
  return array_from({.data = buffer->contents(),
                     .dtype = DType::float32,
                     .shape = shape,
                     .strides = contiguous_strides(shape, DType::float32),
                     .owner = buffer});
}

/// Bind a state of two buffers, with a property for each.
template <class Kind>
void bind_buffers(py::module_& module, const char* name, const char* doc,
                  std::pair<const char*, std::shared_ptr<Buffer> Kind::*> first,
                  std::pair<const char*, std::shared_ptr<Buffer> Kind::*> second) {
  py::class_<Kind, std::shared_ptr<Kind>> kind(module, name, doc);
  kind.def(py::init([=](const py::object& a, const py::object& b, const std::shared_ptr<Device>& device) {
             const auto target = device_or_default(device);
             auto state = std::make_shared<Kind>();
             (*state).*(first.second) = floats_buffer(a, first.first, target);
             (*state).*(second.second) = floats_buffer(b, second.first, target);
             return state;
           }),
           py::arg(first.first), py::arg(second.first), py::kw_only(), py::arg("device") = nullptr);
  for (const auto& [property, buffer] : {first, second})
    kind.def_property_readonly(
        property, [buffer](const Kind& state) { return floats_view(state.*buffer); },
        "array, float32, writable: a view of the buffer, which work that is committed may read.");
  kind.def("__repr__", [=](const Kind& state) {
    return say("<mpscnn.", name, " of ", (state.*(first.second))->bytes() / sizeof(float), " channels>");
  });
}

void bind_convolution_state(py::module_& module) {
  using State = ConvolutionWeightsAndBiasesState;
  py::class_<State, std::shared_ptr<State>>(module, "ConvolutionWeightsAndBiasesState",
                                            R"(Weights and biases of a convolution in device memory.

    ``kernel.export_weights(command_buffer)`` makes one, ``kernel.reload(command_buffer, state)`` takes one.

    Parameters
    ----------
    weights : Buffer, array or sequence, shape (O, kH, kW, I / groups) or any of as many elements
        In MPS's order, those of a transposed convolution rotated. A Buffer is used as it is, float32; anything else is
        copied into a new one as float32.
    biases : Buffer, array or sequence, shape (O,), optional
        None: the kernel has none afterwards.
    device : Device, optional

    Raises
    ------
    ValueError "biases.ndim (2) is not 1."
    TypeError  "weights (int) is not an array: …"

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionWeightsAndBiasesState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> conv = mpscnn.Convolution(np.ones((1, 2, 1, 1), np.float32))
    >>> with mpscnn.CommandBuffer() as commands:
    ...     conv.reload(commands, mpscnn.ConvolutionWeightsAndBiasesState([2, 3], [10]))
    ...     state = conv.export_weights(commands)
    >>> conv(np.ones((1, 1, 1, 2), np.float32)).item(), state.weights.ravel().tolist()
    (15.0, [2.0, 3.0]))")
      .def(py::init([](const py::object& weights, const py::object& biases, const std::shared_ptr<Device>& device) {
             const auto target = device_or_default(device);
             auto state = std::make_shared<State>();
             state->weights = floats_buffer(weights, "weights", target, /*any_rank=*/true);
             if (!biases.is_none()) state->biases = floats_buffer(biases, "biases", target);
             return state;
           }),
           py::arg("weights"), py::arg("biases") = py::none(), py::kw_only(), py::arg("device") = nullptr)
      .def_property_readonly(
          "weights", [](const State& state) { return floats_view(state.weights, state.shape); },
          "array, float32, writable: a view of the buffer, which work that is committed may read or write. Exported "
          "ones "
          "have shape (O, kH, kW, I / groups), others one axis.")
      .def_property_readonly(
          "biases",
          [](const State& state) { return state.biases ? py::object(floats_view(state.biases)) : py::none(); },
          "array, float32, writable: a view of the buffer; or None.")
      .def("__repr__", [](const State& state) {
        return say("<mpscnn.ConvolutionWeightsAndBiasesState of ", state.weights->bytes() / sizeof(float), " weights, ",
                   state.biases ? state.biases->bytes() / sizeof(float) : 0, " biases>");
      });
}

void bind_gradient_state(py::module_& module) {
  using State = GradientState;
  py::class_<State, std::shared_ptr<State>> kind(module, "GradientState",
                                                 R"(State that a forward kernel passes to its gradient kernel.

    ``y, state = kernel.encode(commands, x, with_state=True)`` makes one, ``kernel.gradient.encode(commands, grad_y, x,
    state)`` takes it, once. It holds the geometry of the forward encode, and what the gradient kernel computes with
    respect to parameters: the sums over all images, in memory of the device that NumPy sees without a copy.

    Parts of one batch share the state of a convolution: ``conv.encode(commands, part, with_state=state)`` joins it, before
    any gradient has used it, with a source that differs in the number of images at most. The gradient kernel then takes
    it once for each part, in any order.

    Raises
    ------
    TypeError      "GradientState: a forward encode makes it (with_state=True)."
    AttributeError "GradientState: the state of PoolingMax has no grad_weight."
    RuntimeError   "GradientState: no gradient kernel that computes grad_weight has been encoded with the state.",
                   "GradientState: gradients of 1 of the 2 forward encodes of the state have been encoded; grad_weight is
                   the sum over all.", and before the command buffers that compute it have completed.

    Source
    ------
    MPSNeuralNetwork/MPSNNGradientState.h, MPSNNGradientState and the classes derived from it.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> x = np.array([[[[-1.0, 2.0]]]], np.float32)
    >>> relu = mpscnn.NeuronReLU()
    >>> y, state = relu(x, with_state=True)
    >>> relu.gradient(np.ones_like(y), x, state).tolist()
    [[[[0.0, 1.0]]]])");
  kind.def(py::init([]() -> std::shared_ptr<State> {
    throw TypeError("GradientState: a forward encode makes it (with_state=True).");
  }));
  const auto property = [&kind](const char* name, const char* doc) {
    kind.def_property_readonly(
        name,
        [name](const State& state) {
          State::Values values;
          {
            const ReleaseGil release;
            const auto names = state.names();
            if (std::ranges::find(names, name) == names.end())
              throw py::attribute_error(
                  say("GradientState: the state of ", state.kernel()->row().name, " has no ", name, "."));
            values = state.values(name);
          }
          return floats_view(values.buffer, values.shape);
        },
        doc);
  };
  property("grad_weight",
           "array, shape (O, kH, kW, I / groups), float32: with respect to the weights, in MPS's order; a view. "
           "``.transpose(0, 3, 1, 2)`` is PyTorch's order.");
  property("grad_bias", "array, shape (O,), float32: with respect to the biases; a view.");
  property("grad_gamma", "array, shape (C,), float32: with respect to gamma; a view.");
  property("grad_beta", "array, shape (C,), float32: with respect to beta; a view.");
  kind.def_property_readonly("encodes", &State::encodes,
                             "int: forward encodes that share the state, one per chunk of a batch.")
      .def_property_readonly("device", &State::device, "Device")
      .def("__repr__", [](const State& state) {
        const auto encodes = state.encodes();
        return say("<mpscnn.GradientState of ", encodes > 1 ? say(encodes, " encodes of ") : "",
                   state.kernel()->row().name, ">");
      });
}

}  // namespace

void bind_state(py::module_& module) {
  bind_convolution_state(module);
  bind_gradient_state(module);
  bind_buffers<NormalizationGammaAndBetaState>(
      module, "NormalizationGammaAndBetaState",
      R"(gamma and beta in device memory, for ``kernel.reload(command_buffer, state)``.

    Parameters
    ----------
    gamma, beta : Buffers, arrays or sequences, shape (C,)
        Buffers are used as they are, float32; anything else is copied into a new one as float32.
    device : Device, optional

    Raises
    ------
    ValueError "gamma.ndim (2) is not 1."
    TypeError  "gamma (int) is not an array: …"

    Source
    ------
    MPSNeuralNetwork/MPSCNNNormalizationWeights.h, MPSCNNNormalizationGammaAndBetaState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> norm = mpscnn.InstanceNormalization(np.ones(2, np.float32))
    >>> state = mpscnn.NormalizationGammaAndBetaState([0, 0], [3, 4])
    >>> with mpscnn.CommandBuffer() as commands:
    ...     norm.reload(commands, state)
    >>> norm(np.ones((1, 1, 1, 2), np.float32)).tolist()
    [[[[3.0, 4.0]]]])",
      {"gamma", &NormalizationGammaAndBetaState::gamma}, {"beta", &NormalizationGammaAndBetaState::beta});
  bind_buffers<NormalizationMeanAndVarianceState>(
      module, "NormalizationMeanAndVarianceState",
      R"(Mean and variance in device memory, for ``kernel.reload(command_buffer, state)``.

    Parameters
    ----------
    mean, variance : Buffers, arrays or sequences, shape (C,)
        Buffers are used as they are, float32; anything else is copied into a new one as float32.
    device : Device, optional

    Raises
    ------
    ValueError "mean.ndim (2) is not 1."
    TypeError  "mean (int) is not an array: …"

    Source
    ------
    MPSNeuralNetwork/MPSCNNBatchNormalization.h, MPSCNNNormalizationMeanAndVarianceState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> norm = mpscnn.BatchNormalization(np.ones(2, np.float32), epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     norm.reload(commands, mpscnn.NormalizationMeanAndVarianceState([1, 2], [4, 1]))
    >>> norm(np.ones((1, 1, 1, 2), np.float32)).tolist()
    [[[[0.0, -1.0]]]])",
      {"mean", &NormalizationMeanAndVarianceState::mean}, {"variance", &NormalizationMeanAndVarianceState::variance});
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
                             "int: values per channel in the statistics encoded so far.")
      .def_property_readonly(
          "mean", [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::mean); },
          "array, shape (C,), float32: a copy, which later statistics leave alone.")
      .def_property_readonly(
          "variance",
          [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::variance); },
          "array, shape (C,), float32: a copy. Of all values, not an estimate from a sample: the sum of squares is "
          "divided "
          "by count.")
      .def_property_readonly(
          "grad_gamma",
          [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::grad_gamma); },
          "array, shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient.")
      .def_property_readonly(
          "grad_beta",
          [](const BatchNormalizationState& state) { return floats_of(state, &BatchNormalizationState::grad_beta); },
          "array, shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient.")
      .def("reset", &BatchNormalizationState::reset, py::call_guard<ReleaseGil>(),
           "Start a new batch with the statistics that are encoded next.")
      .def_property_readonly("device", &BatchNormalizationState::device, "Device")
      .def("__repr__", [](const BatchNormalizationState& state) {
        return say("<mpscnn.BatchNormalizationState of ", state.channels(), " channels, ", state.count(),
                   " values each>");
      });
}

}  // namespace mpscnn::bindings
