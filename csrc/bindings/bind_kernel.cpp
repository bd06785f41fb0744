// SPDX-License-Identifier: Apache-2.0
// _core.Kernel: base of the classes built from the table.
#include <mpscnn/array_call.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <pybind11/stl.h>

#include <mpscnn/data_source.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/weights_update.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "fast_arguments.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// Make a kernel from the row's arguments by name; or copy a kernel, with its device; or make a gradient kernel from
/// (kernel, source).
std::shared_ptr<Kernel> make_kernel(const Str<"name">& name, const py::object& given,
                                    const OptionalArg<Device, "device">& device) {
  if (py::isinstance<Kernel>(given)) {
    const auto kernel = given.cast<std::shared_ptr<Kernel>>();
    const ReleaseGil release;
    return kernel->copy(false);
  }
  if (PyTuple_Check(given.ptr())) {
    const auto [kernel, source] = given.cast<std::pair<Arg<Kernel, "self">, std::size_t>>();
    const ReleaseGil release;
    return kernel->gradient(source);
  }
  if (!PyDict_Check(given.ptr())) refuse(given, "arguments", "a dict");
  const auto arguments = py::reinterpret_borrow<py::dict>(given);
  const auto* row = find_kernel(name.value);
  check<KeyError>(row != nullptr, "there is no kernel \"", name.value, "\".");
  const auto params = params_from(*row, arguments);
  const ReleaseGil release;
  return Kernel::make(device_or_default(device), *row, params);
}

const ParamSpec& attribute(const Kernel& kernel, std::string_view name) {
  for (auto specs : {kernel.row().params, common_params(kernel.row())})
    for (const auto* spec : specs)
      if (spec->name == name && spec->attribute) return *spec;
  throw KeyError(say(kernel.row().name, " has no attribute \"", name, "\"."));
}

std::optional<DType> optional_dtype(py::handle dtype) {
  return dtype.is_none() ? std::nullopt : std::optional(dtype_from(dtype, "dtype"));
}

using Images = PerSource<std::shared_ptr<Image>>;
using Views = PerSource<ArrayView>;
using Shapes = PerSource<ImageShape>;

/// The state argument of a call: at most one of the two is set.
struct State {
  std::shared_ptr<BatchNormalizationState> batch;
  std::shared_ptr<GradientState> gradient;
  bool is_given() const { return batch || gradient; }
  EncodeStates states(std::shared_ptr<GradientState>* left = nullptr) const {
    return {.batch = batch.get(), .gradient = gradient.get(), .left = left};
  }
};

bool is_state(py::handle object) {
  return py::isinstance<BatchNormalizationState>(object) || py::isinstance<GradientState>(object);
}

/// Convert the argument `state`.
State state_of(const Kernel& kernel, py::handle object) {
  State state;
  if (object.is_none()) return state;
  check<TypeError>(is_state(object), kernel.row().name, ": state (", type_name(object),
                   ") is not a BatchNormalizationState or GradientState.");
  if (py::isinstance<GradientState>(object))
    state.gradient = object_of<GradientState>(object, "state");
  else
    state.batch = object_of<BatchNormalizationState>(object, "state");
  return state;
}

/// The argument `with_state`: whether to return a state for the gradient kernel, and which state the encode joins.
class StateArgument {
 public:
  StateArgument(const Kernel& kernel, py::handle object) {
    if (!object || object.ptr() == Py_False) return;
    if (is_bool(object)) {
      wanted_ = bool_of(object, "with_state");
      return;
    }
    check<TypeError>(py::isinstance<GradientState>(object), kernel.row().name, ": with_state (", type_name(object),
                     ") is not True, False or a GradientState.");
    wanted_ = true;
    state_ = object_of<GradientState>(object, "with_state");
  }

  bool is_wanted() const { return wanted_; }
  std::shared_ptr<GradientState>* state() { return wanted_ ? &state_ : nullptr; }
  /// Return the call's result, with the state if wanted.
  py::object beside(py::object result) const {
    return wanted_ ? py::object(py::make_tuple(std::move(result), state_)) : result;
  }

 private:
  bool wanted_ = false;
  std::shared_ptr<GradientState> state_;
};

using Given = std::span<PyObject* const>;  ///< by position

/// Return the sources. A state may follow them by position: it is stored in `state` if none was given by name.
PerSource<py::handle> sources_of(const Kernel& kernel, Given given, State* state = nullptr) {
  auto count = given.size();
  if (state && !state->is_given() && count > 1 && is_state(given[count - 1])) *state = state_of(kernel, given[--count]);
  kernel.check_source_count(count);
  PerSource<py::handle> sources;
  for (std::size_t i = 0; i < count; ++i) sources.push_back(given[i]);
  return sources;
}

/// Throw for arguments that a kernel whose result is a state does not accept.
void check_no_destination(const Kernel& kernel, bool out, py::handle dtype, bool temporary, bool with_state) {
  const auto no = [&](bool given, const char* name) {
    check<TypeError>(!given, kernel.row().name, ": ", name, " was given; the result is a BatchNormalizationState.");
  };
  no(out, "out");
  no(!dtype.is_none(), "dtype");
  no(temporary, "temporary");
  no(with_state, "with_state");
}

void check_batch_state(const Kernel& kernel, const State& state) {
  check<TypeError>(!state.gradient, kernel.row().name, ": state is not a BatchNormalizationState.");
}

std::shared_ptr<Image> source_image(const Kernel& kernel, py::handle source, std::size_t number) {
  return object_of<Image>(source, kernel.row().sources[number]);
}

/// Append a kernel to a command buffer; return the result.
py::object encode(Kernel& kernel, CommandBuffer& buffer, Given given, py::handle out_or_none, bool temporary,
                  py::handle state_or_none, py::handle dtype_like, py::handle with_state) {
  State state = state_of(kernel, state_or_none);
  StateArgument left(kernel, with_state);
  const auto out = object_or_null<Image>(out_or_none, "out");
  Images images;
  for (const auto source : sources_of(kernel, given, &state))
    images.push_back(source_image(kernel, source, images.size()));
  if (!kernel.row().has_image()) {
    check_no_destination(kernel, out != nullptr, dtype_like, temporary, left.is_wanted());
    check_batch_state(kernel, state);
    {
      const ReleaseGil release;
      state.batch = mpscnn::encode(kernel, buffer, images.span(), state.batch);
    }
    return py::cast(state.batch);
  }
  const auto dtype = optional_dtype(dtype_like);
  check(!out || !temporary, kernel.row().name, ": temporary (True) was given together with out.");
  check(!out || !dtype, kernel.row().name, ": dtype was given together with out, which has one.");
  std::shared_ptr<Image> result;
  {
    const ReleaseGil release;
    result = mpscnn::encode(kernel, buffer, images.span(), state.states(left.state()), out, temporary, dtype);
  }
  return left.beside(py::cast(result));
}

ArrayView images_view(const Kernel& kernel, py::handle object, std::size_t source) {
  const auto& row = kernel.row();
  const std::string name(row.sources[source]);
  auto view = pixels_of(object, name.c_str(), kernel.device().get());
  check(view.ndim() == 4, row.name, ": ", name, ".ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  return view;
}

std::shared_ptr<BatchNormalizationState> call_for_state(Kernel& kernel, const PerSource<py::handle>& objects,
                                                        const std::shared_ptr<BatchNormalizationState>& state) {
  if (py::isinstance<Image>(objects[0])) {
    Images images;
    for (const auto object : objects) images.push_back(source_image(kernel, object, images.size()));
    const ReleaseGil release;
    return run(kernel, images.span(), state);
  }
  Views views;
  for (const auto object : objects) views.push_back(images_view(kernel, object, views.size()));
  const ReleaseGil release;
  return run(kernel, views.span(), state);
}

/// Run a kernel on its own command buffer and wait. Arrays give arrays, Images give Images.
py::object call_kernel(Kernel& kernel, Given given, py::handle out, py::handle state_or_none, py::handle dtype_like,
                       py::handle with_state) {
  const auto& row = kernel.row();
  State state = state_of(kernel, state_or_none);
  StateArgument left(kernel, with_state);
  const auto objects = sources_of(kernel, given, &state);
  if (!row.has_image()) {
    check_no_destination(kernel, !out.is_none(), dtype_like, false, left.is_wanted());
    check_batch_state(kernel, state);
    return py::cast(call_for_state(kernel, objects, state.batch));
  }
  const auto dtype = optional_dtype(dtype_like);
  check(out.is_none() || !dtype, row.name, ": dtype was given together with out, which has one.");
  if (py::isinstance<Image>(objects[0])) {
    Images sources;
    for (const auto object : objects) {
      check<TypeError>(py::isinstance<Image>(object), row.name, ": ", row.sources[0], " is an Image; ",
                       row.sources[sources.size()], " is not.");
      sources.push_back(source_image(kernel, object, sources.size()));
    }
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), row.name, ": ", row.sources[0],
                     " is an Image; out is not.");
    auto destination = object_or_null<Image>(out, "out");
    {
      const ReleaseGil release;
      destination = run(kernel, sources.span(), state.states(left.state()), destination, dtype);
    }
    return left.beside(py::cast(destination));
  }
  Views views;
  for (const auto object : objects) views.push_back(images_view(kernel, object, views.size()));
  std::optional<ArrayView> target;
  if (!out.is_none()) {
    check_made(out, "out");
    target = writable_pixels_of(out, "out", kernel.device().get());
    check(target->ndim() == 4, row.name, ": out.ndim (", target->ndim(), ") is not 4 (N, H, W, C).");
  }
  {
    const ReleaseGil release;
    target = run(kernel, views.span(), state.states(left.state()), target, dtype);
  }
  return left.beside(out.is_none() ? object_from(*target, kernel.device()) : py::reinterpret_borrow<py::object>(out));
}

using ReloadedState =
    std::variant<std::monostate, std::shared_ptr<ConvolutionWeightsAndBiasesState>,
                 std::shared_ptr<NormalizationGammaAndBetaState>, std::shared_ptr<NormalizationMeanAndVarianceState>,
                 std::shared_ptr<BatchNormalizationState>>;

void reload(Kernel& kernel, const OptionalArg<CommandBuffer, "command_buffer">& buffer, const ReloadedState& state) {
  const bool given = state.index() != 0, on_buffer = buffer.value != nullptr;
  check<TypeError>(!given || on_buffer, kernel.row().name, ": state was given without command_buffer.");
  check<TypeError>(given || !on_buffer, kernel.row().name, ": command_buffer was given without state.");
  const ReleaseGil release;
  std::visit(
      [&]<class Kind>(const Kind& one) {
        if constexpr (std::is_same_v<Kind, std::monostate>)
          kernel.reload();
        else
          kernel.reload(*buffer.value, *one);
      },
      state);
}

Int4 result_shape(const Kernel& kernel, const py::args& given) {
  Shapes shapes;
  for (const auto object : sources_of(kernel, Given(&PyTuple_GET_ITEM(given.ptr(), 0), given.size()))) {
    const auto extents = extents_from(object, "shape");
    check(extents.size() == 4, kernel.row().name, ": len(shape) (", extents.size(), ") is not 4 (N, H, W, C).");
    for (auto extent : extents)
      check(extent >= 1, kernel.row().name, ": shape ", as_tuple(extents), " has an extent (", extent,
            ") less than the minimum (1).");
    shapes.push_back({extents[0], extents[1], extents[2], extents[3]});
  }
  ImageShape s;
  {
    const ReleaseGil release;
    s = kernel.result_shape(shapes.span());
  }
  return tuple_of(s);
}

/// Show Python's garbage collector the reference from a kernel to its padding policy, which may refer to the kernel.
/// The other objects of such a cycle can be cleared, which breaks it.
int traverse(PyObject* self, visitproc visit, void* arg) {
  const auto* instance = reinterpret_cast<const py::detail::instance*>(self);
  if (instance->simple_layout && instance->simple_holder_constructed) {
    const auto* kernel = py::cast<const Kernel*>(py::handle(self));
    if (const auto policy = kernel->padding_policy()) Py_VISIT(to_python(policy).ptr());
  }
  Py_VISIT(Py_TYPE(self));
  return 0;
}

/// Only classes derived in Python have instance attributes. With pybind11's dynamic_attr, Python 3.11 would show the
/// collector their dictionary twice, and cycles through a kernel would never be collected.
void set_up_kernel_type(PyHeapTypeObject* type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->ht_type.tp_traverse = &traverse;
}

PyObject* py_call(PyObject* self, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"x", "out", "state", "dtype", "with_state"};
  return result_or_error([&] {
    check_made(self, "self");
    const auto count = static_cast<std::size_t>(given);
    PyObject* named[std::size(kNames)] = {count > 0 ? values[0] : nullptr};
    place_keywords("Kernel.__call__", kNames, values + count, keywords, named);
    check<TypeError>(named[0], "Kernel.__call__() misses the argument 'x'.");
    const auto or_none = [&](std::size_t i) { return py::handle(named[i] ? named[i] : Py_None); };
    const Given sources = count > 0 ? Given(values, count) : Given(named, 1);
    return call_kernel(py::cast<Kernel&>(py::handle(self)), sources, or_none(1), or_none(2), or_none(3), named[4]);
  });
}

PyObject* py_encode(PyObject* self, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"command_buffer", "x", "out", "temporary", "state", "dtype", "with_state"};
  return result_or_error([&] {
    check_made(self, "self");
    const auto count = static_cast<std::size_t>(given);
    PyObject* named[std::size(kNames)] = {count > 0 ? values[0] : nullptr, count > 1 ? values[1] : nullptr};
    place_keywords("Kernel.encode", kNames, values + count, keywords, named);
    check<TypeError>(named[0], "Kernel.encode() misses the argument 'command_buffer'.");
    check<TypeError>(named[1], "Kernel.encode() misses the argument 'x'.");
    const auto or_none = [&](std::size_t i) { return py::handle(named[i] ? named[i] : Py_None); };
    const auto buffer = object_of<CommandBuffer>(named[0], "command_buffer");
    const Given sources = count > 1 ? Given(values + 1, count - 1) : Given(named + 1, 1);
    return encode(py::cast<Kernel&>(py::handle(self)), *buffer, sources, or_none(2),
                  named[3] && bool_of(named[3], "temporary"), or_none(4), or_none(5), named[6]);
  });
}

PyMethodDef kKernelMethods[] = {fast_method("__call__", py_call), fast_method("encode", py_encode)};

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<Kernel, std::shared_ptr<Kernel>> kind(module, "_Kernel", py::custom_type_setup(&set_up_kernel_type));
  for (auto& method : kKernelMethods)
    kind.attr(method.ml_name) =
        py::reinterpret_steal<py::object>(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(kind.ptr()), &method));
  kind.def(py::init(&make_kernel))
      .def_property_readonly("_name", [](const Kernel& kernel) { return kernel.row().name; })
      .def("_result_shape", &result_shape)
      .def("_reload", &reload)
      .def("_read_in_place",
           [](Kernel& kernel, const Arg<CommandBuffer, "command_buffer">& buffer,
              const Arg<ConvolutionWeightsAndBiasesState, "state">& state) {
             const ReleaseGil release;
             return kernel.read_in_place(*buffer, *state);
           })
      .def("_export_weights",
           [](Kernel& kernel, const Arg<CommandBuffer, "command_buffer">& buffer) {
             const ReleaseGil release;
             return kernel.export_weights(*buffer);
           })
      .def("_update",
           [](Kernel& kernel, const Arg<CommandBuffer, "command_buffer">& buffer,
              const Arg<GradientState, "state">& state) {
             const ReleaseGil release;
             update_weights(kernel, buffer, state);
           })
      .def("_update_on_cpu",
           [](Kernel& kernel, const Arg<GradientState, "state">& state) {
             const ReleaseGil release;
             update_weights_on_cpu(kernel, state);
           })
      .def_property_readonly("_data_source", [](const Kernel& kernel) { return to_python(kernel.data_source()); })
      .def_property_readonly("device", &Kernel::device, "The device that the kernel runs on.")
      .def_property_readonly("neuron_descriptor", &Kernel::neuron,
                             "Activation that a neuron kernel computes, or a kernel with weights applies to its "
                             "result.")
      .def(
          "_archived",
          [](const Kernel& kernel) {
            const ReleaseGil release;
            return kernel.copy(true);
          },
          "Return a copy by way of NSKeyedArchiver and MPSKeyedUnarchiver.")
      .def(
          "_window",
          [](const Kernel& kernel) {
            KernelWindow window;
            {
              const ReleaseGil release;
              window = kernel.window();
            }
            return std::array{tuple_of(window.kernel_size), tuple_of(window.stride), tuple_of(window.dilation)};
          },
          "Return kernel_size, stride and dilation, each (height, width).")
      .def("_get",
           [](const Kernel& kernel, const std::string& name) {
             const auto& spec = attribute(kernel, name);
             Value value;
             {
               const ReleaseGil release;
               value = kernel.get(name);
             }
             return to_python(spec, value);
           })
      .def("_set", [](Kernel& kernel, const std::string& name, const py::object& object) {
        const auto value = value_of(kernel.row(), attribute(kernel, name), object);
        const ReleaseGil release;
        kernel.set(name, value);
      });
}

}  // namespace mpscnn::bindings
