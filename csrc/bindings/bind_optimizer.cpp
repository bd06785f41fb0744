// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/optimizer.hpp>

#include <cstring>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

constexpr const char* kRegularizations[] = {"none", "l1", "l2"};

std::optional<std::array<double, 2>> clip_from(const py::object& clip) {
  if (clip.is_none()) return std::nullopt;
  const auto shown = [&] { return py::repr(clip).cast<std::string>(); };
  check<TypeError>(PySequence_Check(clip.ptr()) && !PyUnicode_Check(clip.ptr()), "gradient_clip (", shown(),
                   ") is not a pair of numbers (minimum, maximum).");
  const auto values = py::reinterpret_borrow<py::sequence>(clip);
  check(values.size() == 2, "len(gradient_clip) (", values.size(), ") is not 2 (minimum, maximum).");
  std::array<double, 2> numbers{};
  for (std::size_t i = 0; i < 2; ++i) {
    const py::object value = values[i];
    check<TypeError>(is_number(value), "gradient_clip (", shown(), ") is not a pair of numbers (minimum, maximum).");
    numbers[i] = value.cast<double>();
  }
  return numbers;
}

Regularization regularization_from(const std::optional<Text>& name) {
  if (!name) return Regularization::none;
  for (const auto kind : {Regularization::l1, Regularization::l2})
    if (name->value == kRegularizations[static_cast<std::size_t>(kind)]) return kind;
  throw std::invalid_argument(say("regularization (\"", name->value, "\") is not \"l1\" or \"l2\"."));
}

OptimizerOptions options_from(Real learning_rate, Real gradient_rescale, const py::object& gradient_clip,
                              const std::optional<Text>& regularization, Real regularization_scale) {
  return {.learning_rate = learning_rate,
          .gradient_rescale = gradient_rescale,
          .gradient_clip = clip_from(gradient_clip),
          .regularization = regularization_from(regularization),
          .regularization_scale = regularization_scale};
}

OptimizedValues values_from(const py::object& values) {
  check_made(values, "values");
  if (py::isinstance<Buffer>(values)) return values.cast<std::shared_ptr<Buffer>>();
  if (py::isinstance<ConvolutionWeightsAndBiasesState>(values))
    return values.cast<std::shared_ptr<ConvolutionWeightsAndBiasesState>>();
  if (py::isinstance<NormalizationGammaAndBetaState>(values))
    return values.cast<std::shared_ptr<NormalizationGammaAndBetaState>>();
  throw TypeError(say("values (", type_name(values),
                      ") is not a Buffer, ConvolutionWeightsAndBiasesState or NormalizationGammaAndBetaState."));
}

Gradients gradients_from(const py::object& gradient) {
  check_made(gradient, "gradient");
  if (py::isinstance<Buffer>(gradient)) return gradient.cast<std::shared_ptr<Buffer>>();
  if (py::isinstance<GradientState>(gradient)) return gradient.cast<std::shared_ptr<GradientState>>();
  if (py::isinstance<BatchNormalizationState>(gradient))
    return gradient.cast<std::shared_ptr<BatchNormalizationState>>();
  check<TypeError>(py::isinstance<py::list>(gradient) || py::isinstance<py::tuple>(gradient), "gradient (",
                   type_name(gradient),
                   ") is not a Buffer, GradientState, BatchNormalizationState or a list of GradientStates.");
  std::vector<std::shared_ptr<GradientState>> states;
  for (const auto& item : py::reinterpret_borrow<py::sequence>(gradient)) {
    const auto one = py::reinterpret_borrow<py::object>(item);
    const auto name = say("gradient[", states.size(), "]");
    check<TypeError>(py::isinstance<GradientState>(one), name, " (", type_name(one), ") is not a GradientState.");
    check_made(one, name.c_str());
    states.push_back(one.cast<std::shared_ptr<GradientState>>());
  }
  return states;
}

py::array view_of_remembered(const OptimizerState::Remembered& one) {
  return array_from({.data = one.buffer->contents(),
                     .dtype = DType::float32,
                     .shape = one.shape,
                     .strides = contiguous_strides(one.shape, DType::float32),
                     .owner = one.buffer});
}

std::vector<OptimizerState::Remembered> remembered(const OptimizerState& state) {
  const ReleaseGil release;
  return state.remembered();
}

py::dict state_dict(const OptimizerState& state) {
  py::dict saved;
  for (const auto& one : remembered(state)) saved[one.name.c_str()] = view_of_remembered(one).attr("copy")();
  saved["time_step"] = state.time_step();
  return saved;
}

/// Load a state dict. Nothing is changed unless all entries are valid.
void load_state_dict(OptimizerState& state, const py::object& given) {
  check<TypeError>(PyMapping_Check(given.ptr()) && py::hasattr(given, "keys"), "saved (", type_name(given),
                   ") is not a mapping, as state_dict() makes it.");
  const py::dict saved(given);
  const auto all = remembered(state);
  const auto of = [&](const char* name) {
    check(saved.contains(name), "OptimizerState: saved has no \"", name, "\".");
    return py::object(saved[name]);
  };
  std::vector<py::object> arrays;
  const auto numpy = py::module_::import("numpy");
  for (const auto& one : all) {
    const auto array = of(one.name.c_str());
    const auto view = view_of(array, one.name.c_str());
    check(view.shape == one.shape, "OptimizerState: ", one.name, ".shape ", as_tuple(view.shape), " of saved is not ",
          as_tuple(one.shape), ".");
    arrays.push_back(numpy.attr("asarray")(array, "float32"));
  }
  py::object step = of("time_step");
  if (py::isinstance<py::array>(step) && py::reinterpret_borrow<py::array>(step).ndim() == 0)
    step = step.attr("item")();  // a 0-d array, as np.load() returns it
  check<TypeError>(is_integer(step), "time_step (", type_name(step), ") is not an int.");
  check(saved.size() == all.size() + 1, "OptimizerState: saved has ", saved.size(), " entries, expected ",
        all.size() + 1, ".");
  state.set_time_step(integer_from(step, "time_step"));
  for (std::size_t i = 0; i < all.size(); ++i) view_of_remembered(all[i])[py::ellipsis()] = arrays[i];
}

py::object optional_text(Regularization kind) {
  if (kind == Regularization::none) return py::none();
  return py::str(kRegularizations[static_cast<std::size_t>(kind)]);
}

py::object clip_of(const Optimizer& optimizer) {
  const auto& clip = optimizer.options().gradient_clip;
  return clip ? py::object(py::make_tuple((*clip)[0], (*clip)[1])) : py::none();
}

using StateClass = py::class_<OptimizerState, std::shared_ptr<OptimizerState>>;

/// Bind the class before functions whose signature names it.
StateClass declare_state(py::module_& module) {
  return StateClass(module, "OptimizerState", R"(Values and the state that an optimizer keeps for them.

    ``optimizer.state_for(values)`` makes one. It belongs to the device; ``state_dict()`` is a copy for a file, and
    ``load_state_dict()`` goes on from there. The values are not in it: who gave them has them.

    Raises
    ------
    RuntimeError "OptimizerState: the command buffer that writes it has not completed …"

    Source
    ------
    The vectors that encodes of MPSNNOptimizers.h take: momentum, velocity and their like.

    Examples
    --------
    >>> import mpscnn
    >>> optimizer = mpscnn.OptimizerAdam()
    >>> state = optimizer.state_for(mpscnn.Buffer(8))
    >>> state.state_dict()
    {'momentum': array([0., 0.], dtype=float32), 'velocity': array([0., 0.], dtype=float32), 'time_step': 0}
    >>> state.load_state_dict(state.state_dict() | {"time_step": 10})
    >>> state.time_step
    10)");
}

void bind_base(py::module_& module) {
  py::class_<Optimizer, std::shared_ptr<Optimizer>>(module, "Optimizer",
                                                    R"(Base class of the optimizers; cannot be instantiated.

    An optimizer makes the next values of values and their gradients, on the device and in place. Each step goes in this
    order, element by element:

        g = gradient
        g = min(max(g, minimum), maximum)           with gradient_clip
        g = g * gradient_rescale
        g = g + regularization_scale * sign(value)  with regularization="l1"
        g = g + regularization_scale * value        with regularization="l2"; PyTorch's weight_decay

    and then the optimizer's own formula. What it remembers from step to step is held by an OptimizerState, one for each
    Buffer or layer, which is made once: steps allocate no memory of the device. One optimizer serves any number of them.

    The gradients of a batch are sums over its images. For their mean, gradient_rescale is 1 / images.

    Raises
    ------
    RuntimeError "OptimizerAdam: the command buffer has been committed already; …", and for gradients that no gradient
                 kernel has been encoded with.

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizer and MPSNNOptimizerDescriptor.)")
      .def(
          "state_for",
          [](Optimizer& optimizer, const py::object& values) {
            const auto given = values_from(values);
            const ReleaseGil release;
            return optimizer.state_for(given);
          },
          py::arg("values"),
          R"(Return a new zero-initialized OptimizerState for the values.

        Parameters
        ----------
        values : Buffer, ConvolutionWeightsAndBiasesState or NormalizationGammaAndBetaState
            float32, updated in place by each step. A Buffer is one array of any shape, as long as it is; that of
            ``mpscnn.Buffer(array)`` is the array's own memory. ``kernel.export_weights(command_buffer)`` makes the state
            of a convolution; it may be given before that command buffer is committed.

        Returns
        -------
        OptimizerState

        Raises
        ------
        TypeError   "values (ndarray) is not a Buffer, …"
        ValueError  "OptimizerAdam: values has 6 bytes, not a multiple of 4.")")
      .def(
          "encode",
          [](const Optimizer& optimizer, CommandBuffer& buffer, const py::object& gradient,
             const std::shared_ptr<OptimizerState>& state) {
            const auto given = gradients_from(gradient);
            const ReleaseGil release;
            optimizer.encode(buffer, given, *state);
          },
          py::arg("command_buffer"), py::arg("gradient"), py::arg("state").none(false),
          R"(Append one step to a command buffer, which updates the state's values.

        The kernels themselves follow when they are reloaded: ``kernel.reload(command_buffer, state.values)``, and
        ``kernel.gradient.reload(command_buffer, state.values)`` where a convolution's gradient kernel computes the
        gradient of its source.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        gradient : Buffer, GradientState, BatchNormalizationState or list of GradientState
            For values in a Buffer, one of as many float32. For a convolution the GradientState of its forward encode,
            whose grad_weight and grad_bias a gradient kernel computes on this command buffer or did before. For gamma
            and beta the GradientState of an instance or group normalization, or the BatchNormalizationState. Of several
            states, as the parts of a batch leave them, the sum is taken.
        state : OptimizerState
            Of this optimizer.

        Raises
        ------
        TypeError   "OptimizerAdam: gradient is not a GradientState, and the values of state are those of a convolution."
        ValueError  "OptimizerAdam: gradient has 8 elements; values of state has 7.", "OptimizerAdam: state is that of
                    another optimizer (OptimizerAdam)."
        RuntimeError "OptimizerAdam: no gradient kernel that computes grad_weight has been encoded with gradient.")")
      .def_property(
          "learning_rate", &Optimizer::learning_rate,
          [](Optimizer& optimizer, Real rate) { optimizer.set_learning_rate(rate); },
          "float: used by steps encoded from now on. May be set.")
      .def_property_readonly(
          "gradient_rescale", [](const Optimizer& optimizer) { return optimizer.options().gradient_rescale; },
          "float: factor of the gradients, applied after clipping.")
      .def_property_readonly("gradient_clip", &clip_of,
                             "(float, float) or None: minimum and maximum of the elements of gradients.")
      .def_property_readonly(
          "regularization",
          [](const Optimizer& optimizer) { return optional_text(optimizer.options().regularization); },
          "\"l1\", \"l2\" or None.")
      .def_property_readonly(
          "regularization_scale", [](const Optimizer& optimizer) { return optimizer.options().regularization_scale; },
          "float")
      .def_property_readonly("device", &Optimizer::device, "Device")
      .def("__repr__", [](const Optimizer& optimizer) {
        return say("<mpscnn.", optimizer.name(), " learning_rate=", optimizer.learning_rate(), ">");
      });
}

void bind_descent(py::module_& module) {
  using Kind = OptimizerStochasticGradientDescent;
  py::class_<Kind, Optimizer, std::shared_ptr<Kind>>(module, "OptimizerStochasticGradientDescent",
                                                     R"(Stochastic gradient descent, with momentum.

    With g as Optimizer says:

        value -= learning_rate * g                                              momentum_scale 0
        m = momentum_scale * m + learning_rate * g;  value -= m
        m = momentum_scale * m + g;  value -= learning_rate * (g + momentum_scale * m)  use_nesterov_momentum

    ``torch.optim.SGD(lr=learning_rate, momentum=momentum_scale, nesterov=use_nesterov_momentum)`` computes the same while
    the learning rate is constant, and with Nesterov's momentum always. Without, the rate is inside of m here and outside
    in PyTorch: a rate that changes works on later gradients only, where PyTorch's works on all.

    Parameters
    ----------
    learning_rate : float
    momentum_scale : float
        0: nothing is remembered.
    use_nesterov_momentum : bool
    gradient_rescale : float
    gradient_clip : (float, float), optional
        Minimum and maximum.
    regularization : "l1", "l2" or None
    regularization_scale : float
    device : Device, optional

    Raises
    ------
    ValueError   "OptimizerStochasticGradientDescent: learning_rate (inf) is not a finite number of float32."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerStochasticGradientDescent.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> values, gradient = mpscnn.Buffer(8), mpscnn.Buffer(8)
    >>> values.numpy("float32")[:] = 1, 2
    >>> gradient.numpy("float32")[:] = 4, -4
    >>> optimizer = mpscnn.OptimizerStochasticGradientDescent(0.25, momentum_scale=0.5)
    >>> state = optimizer.state_for(values)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     optimizer.encode(commands, gradient, state)
    ...     optimizer.encode(commands, gradient, state)
    >>> values.numpy("float32").tolist(), state.time_step
    ([-1.5, 4.5], 2))")
      .def(py::init([](Real learning_rate, Real momentum_scale, Boolean use_nesterov_momentum, Real gradient_rescale,
                       const py::object& gradient_clip, const std::optional<Text>& regularization,
                       Real regularization_scale, const std::shared_ptr<Device>& device) {
             const auto options =
                 options_from(learning_rate, gradient_rescale, gradient_clip, regularization, regularization_scale);
             return Kind::make(device_or_default(device), options, momentum_scale, use_nesterov_momentum);
           }),
           py::arg("learning_rate") = 0.001, py::kw_only(), py::arg("momentum_scale") = 0.0,
           py::arg("use_nesterov_momentum") = false, py::arg("gradient_rescale") = 1.0,
           py::arg("gradient_clip") = py::none(), py::arg("regularization") = py::none(),
           py::arg("regularization_scale") = 0.0, py::arg("device") = nullptr)
      .def_property_readonly(
          "momentum_scale", [](const Kind& optimizer) { return optimizer.momentum_scale; }, "float")
      .def_property_readonly(
          "use_nesterov_momentum", [](const Kind& optimizer) { return optimizer.use_nesterov_momentum; }, "bool");
}

void bind_rms_prop(py::module_& module) {
  using Kind = OptimizerRMSProp;
  py::class_<Kind, Optimizer, std::shared_ptr<Kind>>(
      module, "OptimizerRMSProp",
      R"(RMSProp: gradients divided by the root of their running mean square.

    With g as Optimizer says:

        s = decay * s + (1 - decay) * g**2
        value -= learning_rate * g / (sqrt(s) + epsilon)

    ``torch.optim.RMSprop(lr=learning_rate, alpha=decay, eps=epsilon)`` computes the same.

    Parameters
    ----------
    learning_rate : float
    decay : float, 0 to 1
    epsilon : float, >= 0
    gradient_rescale : float
    gradient_clip : (float, float), optional
        Minimum and maximum.
    regularization : "l1", "l2" or None
    regularization_scale : float
    device : Device, optional

    Raises
    ------
    ValueError   "OptimizerRMSProp: decay (1.5) is not between 0 and 1."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerRMSProp.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> values, gradient = mpscnn.Buffer(8), mpscnn.Buffer(8)
    >>> gradient.numpy("float32")[:] = 2, -4
    >>> optimizer = mpscnn.OptimizerRMSProp(0.5, decay=0, epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     optimizer.encode(commands, gradient, optimizer.state_for(values))
    >>> values.numpy("float32").tolist()
    [-0.5, 0.5])")
      .def(py::init([](Real learning_rate, Real decay, Real epsilon, Real gradient_rescale,
                       const py::object& gradient_clip, const std::optional<Text>& regularization,
                       Real regularization_scale, const std::shared_ptr<Device>& device) {
             const auto options =
                 options_from(learning_rate, gradient_rescale, gradient_clip, regularization, regularization_scale);
             return Kind::make(device_or_default(device), options, decay, epsilon);
           }),
           py::arg("learning_rate") = 0.001, py::kw_only(), py::arg("decay") = 0.9, py::arg("epsilon") = 1e-8,
           py::arg("gradient_rescale") = 1.0, py::arg("gradient_clip") = py::none(),
           py::arg("regularization") = py::none(), py::arg("regularization_scale") = 0.0, py::arg("device") = nullptr)
      .def_property_readonly(
          "decay", [](const Kind& optimizer) { return optimizer.decay; }, "float")
      .def_property_readonly("epsilon", [](const Kind& optimizer) { return optimizer.epsilon; }, "float");
}

void bind_adam(py::module_& module) {
  using Kind = OptimizerAdam;
  py::class_<Kind, Optimizer, std::shared_ptr<Kind>>(module, "OptimizerAdam",
                                                     R"(Adam, and with amsgrad=True its variant AMSGrad.

    With g as Optimizer says, and t = 1 in the first step of a state (its time_step is one less):

        rate = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t)
        m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g**2
        value -= rate * m / (sqrt(v) + epsilon)
        M = max(M, v);  value -= rate * m / (sqrt(M) + epsilon)    amsgrad

    epsilon is added to the root before its correction, as in TensorFlow's "epsilon hat":
    ``torch.optim.Adam(lr=learning_rate, betas=(beta1, beta2), eps=epsilon / sqrt(1 - beta2**t))`` computes the same, and so
    its eps would change with each step; with amsgrad too.

    Apple's class counts time steps by encodes, so that each layer of a network would advance it; here each OptimizerState
    has its own time_step.

    Parameters
    ----------
    learning_rate : float
    beta1, beta2 : float, 0 <= beta < 1
    epsilon : float, >= 0
    amsgrad : bool
    gradient_rescale : float
    gradient_clip : (float, float), optional
        Minimum and maximum.
    regularization : "l1", "l2" or None
    regularization_scale : float
    device : Device, optional

    Raises
    ------
    ValueError   "OptimizerAdam: beta1 (1) is not at least 0 and less than 1."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerAdam.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> conv = mpscnn.Convolution(np.ones((1, 1, 1, 1), np.float32))
    >>> optimizer = mpscnn.OptimizerAdam(0.5, epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     weights = optimizer.state_for(conv.export_weights(commands))
    >>> x = mpscnn.Image.from_array(np.full((1, 1, 1, 1), 3, np.float32))
    >>> with mpscnn.CommandBuffer() as commands:
    ...     y, state = conv.encode(commands, x, with_state=True)
    ...     grad_x = conv.gradient.encode(commands, y, x, state)
    ...     optimizer.encode(commands, state, weights)
    ...     conv.reload(commands, weights.values)
    ...     conv.gradient.reload(commands, weights.values)
    >>> round(conv(x).numpy().item(), 4)
    1.5)")
      .def(py::init([](Real learning_rate, Real beta1, Real beta2, Real epsilon, Boolean amsgrad, Real gradient_rescale,
                       const py::object& gradient_clip, const std::optional<Text>& regularization,
                       Real regularization_scale, const std::shared_ptr<Device>& device) {
             const auto options =
                 options_from(learning_rate, gradient_rescale, gradient_clip, regularization, regularization_scale);
             return Kind::make(device_or_default(device), options, beta1, beta2, epsilon, amsgrad);
           }),
           py::arg("learning_rate") = 0.001, py::kw_only(), py::arg("beta1") = 0.9, py::arg("beta2") = 0.999,
           py::arg("epsilon") = 1e-8, py::arg("amsgrad") = false, py::arg("gradient_rescale") = 1.0,
           py::arg("gradient_clip") = py::none(), py::arg("regularization") = py::none(),
           py::arg("regularization_scale") = 0.0, py::arg("device") = nullptr)
      .def_property_readonly(
          "beta1", [](const Kind& optimizer) { return optimizer.beta1; }, "float")
      .def_property_readonly(
          "beta2", [](const Kind& optimizer) { return optimizer.beta2; }, "float")
      .def_property_readonly(
          "epsilon", [](const Kind& optimizer) { return optimizer.epsilon; }, "float")
      .def_property_readonly("amsgrad", [](const Kind& optimizer) { return optimizer.amsgrad; }, "bool");
}

void bind_state_members(StateClass& kind) {
  kind.def("state_dict", &state_dict,
           R"(Return copies of the state arrays, by name, and time_step.

        Returns
        -------
        dict of str to float32 array, and "time_step" to int
            The arrays have the values' shape: "momentum" of SGD, "sum_of_squares" of RMSProp, "momentum", "velocity" and
            "maximum_velocity" of Adam; behind "weights." and "biases.", or "gamma." and "beta.", where the values are
            such. ``np.savez`` writes it.)")
      .def("load_state_dict", &load_state_dict, py::arg("saved"),
           R"(Restore a result of state_dict(). Nothing is changed unless all of it fits.

        Parameters
        ----------
        saved : mapping
            Arrays are converted to float32.

        Raises
        ------
        ValueError   "OptimizerState: saved has no \"momentum\".", "OptimizerState: momentum.shape (3,) of saved is not
                     (2,).")")
      .def_property(
          "time_step", &OptimizerState::time_step,
          [](OptimizerState& state, Integer time_step) { state.set_time_step(time_step); },
          "int, >= 0: number of encoded steps. May be set; Adam's t of the next step is one more.")
      .def_property_readonly("optimizer", &OptimizerState::optimizer, "The optimizer that made the state.")
      .def_property_readonly(
          "values",
          [](const OptimizerState& state) {
            return std::visit([](const auto& values) { return py::cast(values); }, state.values());
          },
          "The optimized values, as given.")
      .def("__repr__", [](const OptimizerState& state) {
        return say("<mpscnn.OptimizerState of ", state.optimizer()->name(), ", time_step ", state.time_step(), ">");
      });
}

}  // namespace

void bind_optimizer(py::module_& module) {
  auto state = declare_state(module);
  bind_base(module);
  bind_descent(module);
  bind_rms_prop(module);
  bind_adam(module);
  bind_state_members(state);
}

}  // namespace mpscnn::bindings
