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
  py::class_<Optimizer, std::shared_ptr<Optimizer>>(module, "_Optimizer", "The core of a mpscnn.Optimizer.")
      .def(py::init([](const std::string& name, const py::dict& options, const std::shared_ptr<Device>& device) {
             return Optimizer::make(device_or_default(device), name, options_from(options));
           }),
           py::arg("name"), py::arg("options"), py::arg("device") = nullptr)
      .def(
          "_state_for",
          [](Optimizer& optimizer, const py::object& values) {
            const auto given = values_from(values);
            const ReleaseGil release;
            return optimizer.state_for(given);
          },
          py::keep_alive<0, 1>(), py::arg("values"))
      .def(
          "_encode",
          [](const Optimizer& optimizer, CommandBuffer& buffer, const py::object& gradient,
             const std::shared_ptr<OptimizerState>& state) {
            const auto given = gradients_from(gradient);
            const ReleaseGil release;
            optimizer.encode(buffer, given, *state);
          },
          py::arg("command_buffer"), py::arg("gradient"), py::arg("state").none(false))
      .def("_learning_rate", &Optimizer::learning_rate)
      .def(
          "_set_learning_rate", [](Optimizer& optimizer, Real rate) { optimizer.set_learning_rate(rate); },
          py::arg("learning_rate"))
      .def_property_readonly("device", &Optimizer::device, "Device");
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
  bind_state_members(state);
}

}  // namespace mpscnn::bindings
