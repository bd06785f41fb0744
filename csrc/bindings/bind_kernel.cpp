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
#include <mpscnn/pool_scope.hpp>
#include <mpscnn/weights_update.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

/// Make a kernel from the row's arguments by name; or copy a kernel, with its device; or make a gradient kernel from
/// (kernel, source).
std::shared_ptr<Kernel> make_kernel(const std::string& name, const py::object& given,
                                    const std::shared_ptr<Device>& device) {
  if (py::isinstance<Kernel>(given)) {
    const auto kernel = given.cast<std::shared_ptr<Kernel>>();
    const ReleaseGil release;
    return kernel->copy(false);
  }
  if (PyTuple_Check(given.ptr())) {
    check_made(py::reinterpret_borrow<py::tuple>(given)[0], "self");
    const auto [kernel, source] = given.cast<std::pair<std::shared_ptr<Kernel>, std::size_t>>();
    const ReleaseGil release;
    return kernel->gradient(source);
  }
  check<TypeError>(py::isinstance<py::dict>(given), "arguments (", type_name(given), ") is not a dict.");
  const auto arguments = py::reinterpret_borrow<py::dict>(given);
  const auto* row = find_kernel(name);
  check<KeyError>(row != nullptr, "there is no kernel \"", name, "\".");
  Params params;
  for (const auto& [key, object] : arguments) {
    const auto parameter = key.cast<std::string>();
    const ParamSpec* spec = nullptr;
    for (auto specs : {row->params, common_params(*row)})
      for (const auto* candidate : specs)
        if (candidate->name == parameter) spec = candidate;
    check<KeyError>(spec != nullptr, row->name, " has no parameter \"", parameter, "\".");
    params.emplace(parameter, value_of(*row, *spec, object));
  }
  const ReleaseGil release;
  return Kernel::make(device_or_default(device), *row, params);
}

const ParamSpec& attribute(const Kernel& kernel, std::string_view name) {
  for (auto specs : {kernel.row().params, common_params(kernel.row())})
    for (const auto* spec : specs)
      if (spec->name == name && spec->attribute) return *spec;
  throw KeyError(say(kernel.row().name, " has no attribute \"", name, "\"."));
}

std::optional<DType> optional_dtype(const py::object& dtype) {
  return dtype.is_none() ? std::nullopt : std::optional(dtype_from(dtype, "dtype"));
}

/// One item per source of a call, in the order of the row's names. Does not allocate: a small kernel takes ten
/// microseconds including the Python call.
template <class T>
class Each {
 public:
  void push_back(T item) { items_[size_++] = std::move(item); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t source) { return items_[source]; }
  const T& operator[](std::size_t source) const { return items_[source]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  std::span<const T> span() const { return std::span(items_).first(size_); }

 private:
  std::array<T, SourceNames::kMost> items_{};
  std::size_t size_ = 0;
};
using Images = Each<std::shared_ptr<Image>>;
using Views = Each<ArrayView>;
using Shapes = Each<ImageShape>;

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
  check_made(object, "state");
  if (py::isinstance<GradientState>(object))
    state.gradient = object.cast<std::shared_ptr<GradientState>>();
  else
    state.batch = object.cast<std::shared_ptr<BatchNormalizationState>>();
  return state;
}

/// The argument `with_state`: whether to return a state for the gradient kernel, and which state the encode joins.
class StateArgument {
 public:
  StateArgument(const Kernel& kernel, py::handle object) {
    if (object.ptr() == Py_False) return;
    Boolean yes;
    if (load(object, yes)) {
      wanted_ = yes;
      return;
    }
    check<TypeError>(py::isinstance<GradientState>(object), kernel.row().name, ": with_state (", type_name(object),
                     ") is not True, False or a GradientState.");
    check_made(object, "with_state");
    wanted_ = true;
    state_ = object.cast<std::shared_ptr<GradientState>>();
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

/// Return x and the further sources. A state may follow the sources by position: it is stored in `state` if none was
/// given by name.
Each<py::handle> sources_of(const Kernel& kernel, const py::object& x, const py::args& others, State* state = nullptr) {
  auto count = others.size();
  if (state && !state->is_given() && count > 0 && is_state(others[count - 1]))
    *state = state_of(kernel, others[--count]);
  kernel.check_source_count(1 + count);
  Each<py::handle> sources;
  sources.push_back(x);
  for (std::size_t i = 0; i < count; ++i) sources.push_back(others[i]);
  return sources;
}

std::shared_ptr<Image> encode_images(Kernel& kernel, CommandBuffer& buffer, const Images& images, const State& state,
                                     const std::shared_ptr<Image>& out, bool temporary = false,
                                     std::optional<DType> dtype = std::nullopt,
                                     std::shared_ptr<GradientState>* left = nullptr) {
  Each<const Image*> sources;
  for (const auto& image : images) sources.push_back(image.get());
  return kernel.encode(buffer, sources.span(), out, temporary, dtype, state.states(left));
}

std::shared_ptr<BatchNormalizationState> encode_state(Kernel& kernel, CommandBuffer& buffer, const Images& images,
                                                      const std::shared_ptr<BatchNormalizationState>& state) {
  Each<const Image*> sources;
  for (const auto& image : images) sources.push_back(image.get());
  return kernel.encode_state(buffer, sources.span(), state);
}

/// Allocate a result image that NumPy can view, for calls without `out`.
std::shared_ptr<Image> result_image(const Kernel& kernel, const Images& sources, const State& state,
                                    std::optional<DType> dtype) {
  Shapes shapes;
  for (const auto& source : sources) shapes.push_back(source->shape());
  return make_visible_image(kernel.device(), kernel.result_shape(shapes.span(), state.states()),
                            dtype.value_or(sources[0]->dtype()));
}

bool has_clip(const Kernel& kernel) { return !std::holds_alternative<std::monostate>(kernel.get("clip_rect")); }

void check_no_clip(const Kernel& kernel) {
  check(!has_clip(kernel), kernel.row().name, ": clip_rect needs a destination (out) whose other pixels are kept.");
}

/// Throw for arguments that a kernel whose result is a state does not accept.
void check_no_destination(const Kernel& kernel, const py::object& out, const py::object& dtype, bool temporary,
                          bool with_state) {
  const auto no = [&](bool given, const char* name) {
    check<TypeError>(!given, kernel.row().name, ": ", name, " was given; the result is a BatchNormalizationState.");
  };
  no(!out.is_none(), "out");
  no(!dtype.is_none(), "dtype");
  no(temporary, "temporary");
  no(with_state, "with_state");
}

void check_batch_state(const Kernel& kernel, const State& state) {
  check<TypeError>(!state.gradient, kernel.row().name, ": state is not a BatchNormalizationState.");
}

std::shared_ptr<Image> source_image(const Kernel& kernel, py::handle source, std::size_t number) {
  check<TypeError>(py::isinstance<Image>(source), kernel.row().sources[number], " (", type_name(source),
                   ") is not an Image.");
  return source.cast<std::shared_ptr<Image>>();
}

py::object encode(Kernel& kernel, CommandBuffer& buffer, const py::object& x, const py::args& others,
                  const OrNone<Image>& destination, Boolean temporary, const py::object& given,
                  const py::object& dtype_like, const py::object& with_state) {
  State state = state_of(kernel, given);
  StateArgument left(kernel, with_state);
  const auto& out = destination.value;
  Images images;
  for (const auto source : sources_of(kernel, x, others, &state))
    images.push_back(source_image(kernel, source, images.size()));
  if (!kernel.row().has_image()) {
    check_no_destination(kernel, py::cast(out), dtype_like, temporary, left.is_wanted());
    check_batch_state(kernel, state);
    {
      const ReleaseGil release;
      state.batch = encode_state(kernel, buffer, images, state.batch);
    }
    return py::cast(state.batch);
  }
  const auto dtype = optional_dtype(dtype_like);
  check(!out || !temporary, kernel.row().name, ": temporary (True) was given together with out.");
  check(!out || !dtype, kernel.row().name, ": dtype was given together with out, which has one.");
  std::shared_ptr<Image> result;
  {
    const ReleaseGil release;
    const PoolScope pool;
    if (out || temporary) {
      result = encode_images(kernel, buffer, images, state, out, temporary, dtype, left.state());
    } else {
      check_no_clip(kernel);
      const auto destination = result_image(kernel, images, state, dtype);
      result = encode_images(kernel, buffer, images, state, destination, false, std::nullopt, left.state());
    }
  }
  return left.beside(py::cast(result));
}

ArrayView images_view(const Kernel& kernel, py::handle object, std::size_t source) {
  const auto& row = kernel.row();
  const std::string name(row.sources[source]);
  auto view = pixels_of(object, name.c_str());
  check(view.ndim() == 4, row.name, ": ", name, ".ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  return view;
}

std::shared_ptr<BatchNormalizationState> call_for_state(Kernel& kernel, const Each<py::handle>& objects,
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
py::object call_kernel(Kernel& kernel, const py::object& x, const py::args& others, const py::object& out,
                       const py::object& given, const py::object& dtype_like, const py::object& with_state) {
  const auto& row = kernel.row();
  State state = state_of(kernel, given);
  StateArgument left(kernel, with_state);
  const auto objects = sources_of(kernel, x, others, &state);
  if (!row.has_image()) {
    check_no_destination(kernel, out, dtype_like, false, left.is_wanted());
    check_batch_state(kernel, state);
    return py::cast(call_for_state(kernel, objects, state.batch));
  }
  const auto dtype = optional_dtype(dtype_like);
  check(out.is_none() || !dtype, row.name, ": dtype was given together with out, which has one.");
  if (py::isinstance<Image>(x)) {
    Images sources;
    for (const auto object : objects) {
      check<TypeError>(py::isinstance<Image>(object), row.name, ": ", row.sources[0], " is an Image; ",
                       row.sources[sources.size()], " is not.");
      sources.push_back(object.cast<std::shared_ptr<Image>>());
    }
    check<TypeError>(out.is_none() || py::isinstance<Image>(out), row.name, ": ", row.sources[0],
                     " is an Image; out is not.");
    auto destination = out.is_none() ? nullptr : out.cast<std::shared_ptr<Image>>();
    {
      const ReleaseGil release;
      if (!destination) check_no_clip(kernel);
      if (!destination) destination = result_image(kernel, sources, state, dtype);
      run(kernel, sources.span(), state.states(left.state()), destination);
    }
    return left.beside(py::cast(destination));
  }
  Views views;
  for (const auto object : objects) views.push_back(images_view(kernel, object, views.size()));
  std::optional<ArrayView> target;
  if (!out.is_none()) {
    target = writable_pixels_of(out, "out");
    check(target->ndim() == 4, row.name, ": out.ndim (", target->ndim(), ") is not 4 (N, H, W, C).");
  }
  {
    const ReleaseGil release;
    target = run(kernel, views.span(), state.states(left.state()), target, dtype);
  }
  return left.beside(out.is_none() ? py::object(array_from(*target)) : out);
}

void reload(Kernel& kernel, const std::shared_ptr<CommandBuffer>& buffer, const py::object& state) {
  const auto with = [&]<class Kind>(Kind&& given) {
    check<TypeError>(buffer != nullptr, kernel.row().name, ": state was given without command_buffer.");
    const ReleaseGil release;
    kernel.reload(*buffer, *given);
  };
  check_made(state, "state");
  if (py::isinstance<NormalizationGammaAndBetaState>(state))
    return with(state.cast<std::shared_ptr<NormalizationGammaAndBetaState>>());
  if (py::isinstance<NormalizationMeanAndVarianceState>(state))
    return with(state.cast<std::shared_ptr<NormalizationMeanAndVarianceState>>());
  if (py::isinstance<ConvolutionWeightsAndBiasesState>(state))
    return with(state.cast<std::shared_ptr<ConvolutionWeightsAndBiasesState>>());
  if (py::isinstance<BatchNormalizationState>(state))
    return with(state.cast<std::shared_ptr<BatchNormalizationState>>());
  check<TypeError>(state.is_none(), "state (", type_name(state),
                   ") is not a ConvolutionWeightsAndBiasesState, NormalizationGammaAndBetaState, "
                   "NormalizationMeanAndVarianceState or BatchNormalizationState.");
  check<TypeError>(buffer == nullptr, kernel.row().name, ": command_buffer was given without state.");
  const ReleaseGil release;
  kernel.reload();
}

py::tuple result_shape(const Kernel& kernel, const py::object& shape, const py::args& others) {
  Shapes shapes;
  for (const auto object : sources_of(kernel, shape, others)) {
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
  return py::make_tuple(s.n, s.h, s.w, s.c);
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

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "Kernel", py::custom_type_setup(&set_up_kernel_type),
                                              "Base of all kernels.")
      .def(py::init(&make_kernel), py::arg("name"), py::arg("arguments"), py::arg("device") = nullptr)
      .def_property_readonly(
          "_name", [](const Kernel& kernel) { return kernel.row().name; }, "str: name of the row in the kernel table.")
      .def("__call__", &call_kernel, py::arg("x"), py::arg("out") = py::none(), py::arg("state") = py::none(),
           py::arg("dtype") = py::none(), py::arg("with_state") = false,
           R"(Run the kernel and wait.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            float32, float16, uint8 or uint16. Not copied where its memory can be shared.
        *others : arrays or Images, as x is
            Further sources of kernels that have several, in the order of their docstring.
        out : array or Image like the result, optional
            Written in place and returned; with ``clip_rect`` only in part.
        state : BatchNormalizationState or GradientState, optional
            For kernels whose docstring names it; it may stand behind the sources without its name.
        dtype : dtype, optional
            Of the result; default that of x.
        with_state : bool or GradientState, default False
            Of a kernel that has a gradient: return (result, GradientState), the state being for ``kernel.gradient``. A
            state that another encode of a convolution has left is joined: both are parts of one batch, whose
            gradients with respect to weights and biases are summed there.

        Returns
        -------
        array or Image, as x is, or BatchNormalizationState; with ``with_state`` a tuple of two)")
      .def("encode", &encode, py::arg("command_buffer"), py::arg("x"), py::arg("out") = py::none(),
           py::arg("temporary") = false, py::arg("state") = py::none(), py::arg("dtype") = py::none(),
           py::arg("with_state") = false,
           R"(Append the kernel to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        *others : Image
            Further sources of kernels that have several, in the order of their docstring.
        out : Image, optional
            Destination.
        temporary : bool, default False
            The result is read on this command buffer only, as often as its read_count says (1), never by the CPU.
        state : BatchNormalizationState or GradientState, optional
            For kernels whose docstring names it; it may stand behind the sources without its name.
        dtype : dtype, optional
            Of the result; default that of x.
        with_state : bool or GradientState, default False
            Of a kernel that has a gradient: return (result, GradientState), the state being for ``kernel.gradient``. A
            state that another encode of a convolution has left is joined: both are parts of one batch, whose
            gradients with respect to weights and biases are summed there.

        Returns
        -------
        Image or BatchNormalizationState, with ``with_state`` a tuple of two
            May be read when the command buffer has completed.)")
      .def("result_shape", &result_shape, py::arg("shape"),
           "Return (N, H, W, C) of the result for the shapes of the sources.")
      .def("reload", &reload, py::arg("command_buffer") = nullptr, py::arg("state") = py::none(),
           R"(Reload the weights or values: from the data source, immediately, or from device memory.

        Parameters
        ----------
        command_buffer : CommandBuffer, optional
            With ``state``. What is encoded from now on uses what stands in the state when the device gets there.
        state : ConvolutionWeightsAndBiasesState or a state of normalization, optional
            NormalizationGammaAndBetaState, NormalizationMeanAndVarianceState or BatchNormalizationState, of which mean
            and variance are read.)")
      .def("export_weights", &Kernel::export_weights, py::arg("command_buffer"), py::call_guard<ReleaseGil>(),
           R"(Append an export of the kernel's weights to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.

        Returns
        -------
        ConvolutionWeightsAndBiasesState
            float32 in MPS's order, batch normalization folded in and rounded as the kernel's are; to be read when the
            command buffer has completed.)")
      .def(
          "update",
          [](Kernel& kernel, const std::shared_ptr<CommandBuffer>& buffer,
             const std::shared_ptr<GradientState>& state) {
            const ReleaseGil release;
            update_weights(kernel, buffer, state);
          },
          py::arg("command_buffer").none(false), py::arg("state").none(false),
          R"(Encode new weights by the data source of a convolution's gradient kernel, and reload them.

        Calls ``update(command_buffer, state, weights)`` of the data source, where weights are the present ones
        (``export_weights()``), and reloads this kernel and its forward kernel on the command buffer from what it
        returns, a ConvolutionWeightsAndBiasesState; nothing is reloaded for None.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        state : GradientState
            Of a forward encode; the gradients with respect to the weights have been encoded, here or before.

        Raises
        ------
        What the data source raises, and
        TypeError    "ConvolutionGradient: the data source has no update()."
                     "data source: update() returned 3, which is not a ConvolutionWeightsAndBiasesState or None."
        RuntimeError "ConvolutionGradient: no gradient kernel that computes grad_weight has been encoded with state.")")
      .def(
          "update_on_cpu",
          [](Kernel& kernel, const std::shared_ptr<GradientState>& state) {
            const ReleaseGil release;
            update_weights_on_cpu(kernel, state);
          },
          py::arg("state").none(false),
          R"(Update the weights by the data source of a convolution's gradient kernel, and reload them.

        Calls ``update_on_cpu(state, weights)`` of the data source, where weights are the present ones, copied for this,
        and reloads this kernel and its forward kernel from the data source, unless it returns False.

        Parameters
        ----------
        state : GradientState
            The command buffers that compute its gradients have completed.

        Raises
        ------
        What the data source raises, and
        TypeError    "ConvolutionGradient: the data source has no update_on_cpu()."
                     "data source: update_on_cpu() returned 1, which is not True, False or None."
        RuntimeError before the gradients have been computed.)")
      .def_property_readonly(
          "data_source", [](const Kernel& kernel) { return to_python(kernel.data_source()); },
          "Source of the weights; None without weights.")
      .def_property_readonly("device", &Kernel::device, "Device")
      .def_property_readonly("neuron_descriptor", &Kernel::neuron,
                             "NeuronDescriptor or None: activation that a neuron kernel computes, or a kernel with "
                             "weights applies to its result.")
      .def(
          "_archived",
          [](const Kernel& kernel) {
            const ReleaseGil release;
            return kernel.copy(true);
          },
          "A copy by way of NSKeyedArchiver and MPSKeyedUnarchiver.")
      .def(
          "_window",
          [](const Kernel& kernel) {
            KernelWindow window;
            {
              const ReleaseGil release;
              window = kernel.window();
            }
            return py::make_tuple(tuple_of(window.kernel_size), tuple_of(window.stride), tuple_of(window.dilation));
          },
          "kernel_size, stride and dilation, each (height, width).")
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
