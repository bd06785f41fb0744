// SPDX-License-Identifier: Apache-2.0
// Descriptors of kernels: activation, batch normalization, geometry of a convolution.
#include <mpscnn/data_source.hpp>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>
#include <mpscnn/table.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

Pair pair_from(py::handle value, const char* name) {
  const bool is_sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  const bool is_pair =
      is_sequence && py::len(value) == 2 && is_integer(value[py::int_(0)]) && is_integer(value[py::int_(1)]);
  check<TypeError>(is_integer(value) || is_pair, "ConvolutionDescriptor: ", name, " (",
                   py::repr(value).cast<std::string>(), ") is not an integer or a pair (height, width).");
  const auto extents = extents_from(value, name);
  return {extents.front(), extents.back()};
}

/// Return the elements of a sequence in single precision.
std::vector<float> floats_from(py::handle values, const char* name) {
  const auto refuse = [&] {
    PyErr_Clear();
    throw TypeError(say(name, " (", py::str(py::type::handle_of(values).attr("__name__")).cast<std::string>(),
                        ") is not a sequence of numbers."));
  };
  if (py::hasattr(values, "__dlpack__") || py::hasattr(values, "__array_interface__")) {
    // A tensor with requires_grad cannot be iterated as numbers; its memory can be read.
    const auto array = py::isinstance<py::array>(values) ? py::reinterpret_borrow<py::array>(values)
                                                         : array_from(view_of(values, name));
    check(array.ndim() == 1, name, ".ndim (", array.ndim(), ") is not 1.");
    if (std::string_view("cmMOSTU").find(array.dtype().kind()) != std::string_view::npos) refuse();
    const py::array single = array.attr("astype")("float32", py::arg("order") = "C");
    const auto* first = static_cast<const float*>(single.data());
    return {first, first + single.size()};
  }
  if (PyUnicode_Check(values.ptr())) refuse();
  const auto items = py::reinterpret_steal<py::object>(PySequence_Fast(values.ptr(), ""));
  if (!items) refuse();
  std::vector<float> floats(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr())));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    Real number;
    if (!load(PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), number)) refuse();
    floats[i] = static_cast<float>(number.value);
  }
  return floats;
}

NeuronDescriptor make_neuron(const Text& type, const std::optional<Real>& a, const std::optional<Real>& b,
                             const std::optional<Real>& c, const py::object& data) {
  const auto* row = find_neuron(type.value);
  check(row != nullptr, "NeuronDescriptor: type (\"", type.value, "\") is not one of ", neuron_choices(), ".");
  const auto given = [](const std::optional<Real>& value, float otherwise) {
    return value ? static_cast<float>(value->value) : otherwise;
  };
  NeuronDescriptor neuron{.type = row->type,
                          .a = given(a, row->a),
                          .b = given(b, row->b),
                          .c = given(c, row->c),
                          .data = floats_from(data, "data")};
  check((type.value == "prelu") == !neuron.data.empty(), "NeuronDescriptor: data has ", neuron.data.size(),
        " values; type is \"", type.value, "\" and only \"prelu\" takes some.");
  return neuron;
}

/// Format with the fewest digits, at least six, that identify the float: "0.1", "2.0", "1e-05".
std::string shown(float number) {
  for (int digits = std::numeric_limits<float>::digits10;; ++digits) {
    // Python's functions do not depend on the locale. std::to_chars(float) came with macOS 13.3 [<charconv>].
    const std::unique_ptr<char, decltype(&PyMem_Free)> text(
        PyOS_double_to_string(number, 'g', digits, Py_DTSF_ADD_DOT_0, nullptr), PyMem_Free);
    if (!text) throw py::error_already_set();
    const auto again = static_cast<float>(PyOS_string_to_double(text.get(), nullptr, nullptr));
    if (again == number || digits == std::numeric_limits<float>::max_digits10) return text.get();
  }
}

std::string repr_of(const NeuronDescriptor& neuron) {
  const auto& row = neuron_name(neuron.type);
  std::string text = say("mpscnn.NeuronDescriptor(\"", row.name, '"');
  const float numbers[] = {neuron.a, neuron.b, neuron.c};
  for (int i = 0; i < 3; ++i)
    if (i < row.parameters || numbers[i] != 0) text += say(", ", "abc"[i], "=", shown(numbers[i]));
  if (!neuron.data.empty()) {
    constexpr std::size_t kMost = 8;
    text += ", data=[";
    for (std::size_t i = 0; i < neuron.data.size() && i < kMost; ++i) text += (i ? ", " : "") + shown(neuron.data[i]);
    text += neuron.data.size() > kMost ? say(", … ", neuron.data.size(), " values]") : "]";
  }
  return text + ")";
}

std::string repr_of(const BatchNorm& norm) {
  return say("<mpscnn.BatchNorm of ", norm.mean.size(), " channels, epsilon ", shown(norm.epsilon), ">");
}

py::object activation_of(const ConvolutionDescriptor& d) {
  return d.activation.type == 0 ? py::object(py::none()) : py::cast(d.activation);
}

/// Return the constructor call, without arguments that have their default.
std::string repr_of(const ConvolutionDescriptor& d) {
  const auto pair = [](Pair p) { return say("(", p.h, ", ", p.w, ")"); };
  std::string text =
      say("mpscnn.ConvolutionDescriptor(", pair(d.kernel_size), ", ", d.in_channels, ", ", d.out_channels);
  if (d.stride != Pair{1, 1}) text += ", stride=" + pair(d.stride);
  if (d.dilation != Pair{1, 1}) text += ", dilation=" + pair(d.dilation);
  if (d.groups != 1) text += say(", groups=", d.groups);
  if (d.depthwise) text += ", depthwise=True";
  if (d.sub_pixel_scale_factor != 1) text += say(", sub_pixel_scale_factor=", d.sub_pixel_scale_factor);
  if (d.activation.type != 0) text += ", activation=" + repr_of(d.activation);
  if (d.batch_norm) text += ", batch_norm=" + repr_of(*d.batch_norm);
  return text + ")";
}

/// Property of BatchNorm: a read-only view of its memory.
template <std::vector<float> BatchNorm::* kMember>
py::array values_of(const py::object& self) {
  auto& values = self.cast<BatchNorm&>().*kMember;
  const Extents shape{static_cast<std::int64_t>(values.size())};
  return array_from({.data = values.data(),
                     .dtype = DType::float32,
                     .shape = shape,
                     .strides = contiguous_strides(shape, DType::float32),
                     .read_only = true,
                     .owner = keep_python_object(self)});
}

/// For pickle: call the class with these attributes as arguments.
py::tuple made_again(const py::object& self, std::initializer_list<const char*> names) {
  py::dict arguments;
  for (const char* name : names) arguments[name] = self.attr(name);
  const auto partial = py::module_::import("functools").attr("partial");
  return py::make_tuple(partial(py::type::of(self), **arguments), py::tuple());
}

}  // namespace

void bind_descriptor(py::module_& module) {
  py::class_<NeuronDescriptor>(module, "NeuronDescriptor",
                               R"(An activation function and its parameters, to fuse into a kernel.

    Parameters
    ----------
    type : str
        "none", "relu", "linear", "sigmoid", "hard_sigmoid", "tanh", "absolute", "softplus", "softsign", "elu", "prelu",
        "relun", "power", "exponential", "logarithm" or "gelu"; PyTorch's spellings "identity", "leaky_relu",
        "hardsigmoid", "abs", "relu6", "exp" and "log" are taken as well, here and for ``activation=``.
    a, b, c : float, optional
        Parameters of the formula, which the docstring of the neuron kernel of that type gives; kept in single precision.
        None: what the name stands for, PyTorch's where PyTorch has the function: a = 0.01 for "leaky_relu"; a = 1/6,
        b = 0.5 for both spellings of the hard sigmoid; a = 0, b = 6 for "relu6" and "relun"; a = 0 for "relu"; 1, 0 for
        "linear"; 1, 1 for "tanh" and "softplus"; 1 for "elu"; 1, 0, 1 for "power"; 1, 0, -1 (base e) for "exponential"
        and "logarithm".
    data : sequence of float, optional
        PReLU: one slope per channel.

    Raises
    ------
    ValueError
        'NeuronDescriptor: type ("selu") is not one of "none", "identity", …'
        'NeuronDescriptor: data has 0 values; type is "prelu" and only "prelu" takes some.'
    TypeError
        "type (int) is not a str.", "a (str) is not a number.", "data (float) is not a sequence of numbers."

    Source
    ------
    MPSNeuralNetwork/MPSCNNNeuron.h, MPSNNNeuronDescriptor.)")
      .def(py::init(&make_neuron), py::arg("type"), py::arg("a") = py::none(), py::arg("b") = py::none(),
           py::arg("c") = py::none(), py::arg("data") = py::tuple())
      .def_property_readonly(
          "type", [](const NeuronDescriptor& n) { return neuron_name(n.type).name; },
          "str: the function's name, in Apple's spelling.")
      .def_readonly("a", &NeuronDescriptor::a, "float: first parameter of the formula.")
      .def_readonly("b", &NeuronDescriptor::b, "float: second parameter of the formula.")
      .def_readonly("c", &NeuronDescriptor::c, "float: third parameter of the formula.")
      .def_readonly("data", &NeuronDescriptor::data, "list of float: PReLU's slopes, one per channel.")
      .def("__repr__", [](const NeuronDescriptor& neuron) { return repr_of(neuron); })
      .def("__reduce__", [](const py::object& self) { return made_again(self, {"type", "a", "b", "c", "data"}); });

  py::class_<BatchNorm>(module, "BatchNorm",
                        R"(Batch normalization in inference, folded into the weights of a convolution.

    gamma / sqrt(variance + epsilon) * (y - mean) + beta, applied after the bias and before the activation.

    Parameters
    ----------
    mean, variance, gamma, beta : sequences of float, shape (O,)
        Copied, in single precision.
    epsilon : float, default 1e-5
        Added to the variance.

    Raises
    ------
    ValueError
        "BatchNorm: mean, variance, gamma and beta have 8, 8, 7 and 8 values, not the same number.",
        "mean.ndim (2) is not 1."
    TypeError
        "mean (float) is not a sequence of numbers.", "epsilon (str) is not a number."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h,
    MPSCNNConvolutionDescriptor setBatchNormalizationParametersForInferenceWithMean:variance:gamma:beta:epsilon:.)")
      .def(py::init([](const py::object& mean, const py::object& variance, const py::object& gamma,
                       const py::object& beta, Real epsilon) {
             BatchNorm norm{floats_from(mean, "mean"), floats_from(variance, "variance"), floats_from(gamma, "gamma"),
                            floats_from(beta, "beta"), static_cast<float>(epsilon.value)};
             check(norm.variance.size() == norm.mean.size() && norm.gamma.size() == norm.mean.size() &&
                       norm.beta.size() == norm.mean.size(),
                   "BatchNorm: mean, variance, gamma and beta have ", norm.mean.size(), ", ", norm.variance.size(),
                   ", ", norm.gamma.size(), " and ", norm.beta.size(), " values, not the same number.");
             return norm;
           }),
           py::arg("mean"), py::arg("variance"), py::arg("gamma"), py::arg("beta"), py::arg("epsilon") = 1e-5)
      .def_property_readonly("mean", &values_of<&BatchNorm::mean>, "array, shape (O,), float32, read-only.")
      .def_property_readonly("variance", &values_of<&BatchNorm::variance>, "array, shape (O,), float32, read-only.")
      .def_property_readonly("gamma", &values_of<&BatchNorm::gamma>, "array, shape (O,), float32, read-only.")
      .def_property_readonly("beta", &values_of<&BatchNorm::beta>, "array, shape (O,), float32, read-only.")
      .def_readonly("epsilon", &BatchNorm::epsilon, "float: added to the variance.")
      .def("__repr__", [](const BatchNorm& norm) { return repr_of(norm); })
      .def("__reduce__",
           [](const py::object& self) { return made_again(self, {"mean", "variance", "gamma", "beta", "epsilon"}); });

  py::class_<ConvolutionDescriptor>(module, "ConvolutionDescriptor", R"(Geometry of a convolution, for data sources.

    Parameters
    ----------
    kernel_size : int or (int, int), pixels, >= 1
        Height and width.
    in_channels, out_channels : int, >= 1
        Channels of source and result, of all groups together.
    stride, dilation : int or (int, int), pixels, >= 1, default 1
    groups : int, >= 1, default 1
        Each group has a multiple of 4 input and output channels.
    depthwise : bool, default False
        One filter per channel; weights (C, H, W, 1), groups stays 1.
    sub_pixel_scale_factor : int, >= 1, default 1
    activation : str, NeuronDescriptor, neuron kernel or None
    batch_norm : BatchNorm, optional
        Of as many values as there are output channels.

    Raises
    ------
    ValueError
        "ConvolutionDescriptor: batch_norm has 7 values; out_channels is 8.", 'activation ("swish") is not one of …'
        Numbers that do not fit each other are refused where a kernel is made of them:
        "data source: groups (3) does not divide in_channels (4) and out_channels (8)."
    TypeError
        "ConvolutionDescriptor: kernel_size (1.5) is not an integer or a pair (height, width).",
        "in_channels (str) is not an int.", "batch_norm (int) is not a BatchNorm."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionDescriptor and its subclasses.)")
      .def(py::init([](const py::object& kernel_size, Integer in_channels, Integer out_channels,
                       const py::object& stride, const py::object& dilation, Integer groups, Boolean depthwise,
                       Integer sub_pixel_scale_factor, const py::object& activation,
                       const std::optional<BatchNorm>& batch_norm) {
             ConvolutionDescriptor d{.kernel_size = pair_from(kernel_size, "kernel_size"),
                                     .in_channels = in_channels,
                                     .out_channels = out_channels,
                                     .stride = pair_from(stride, "stride"),
                                     .dilation = pair_from(dilation, "dilation"),
                                     .groups = groups,
                                     .depthwise = depthwise,
                                     .sub_pixel_scale_factor = sub_pixel_scale_factor};
             d.activation = neuron_from(activation);
             d.batch_norm = batch_norm;
             check(!batch_norm || static_cast<std::int64_t>(batch_norm->mean.size()) == out_channels,
                   "ConvolutionDescriptor: batch_norm has ", batch_norm ? batch_norm->mean.size() : 0,
                   " values; out_channels is ", out_channels, ".");
             return d;
           }),
           py::arg("kernel_size"), py::arg("in_channels"), py::arg("out_channels"), py::kw_only(),
           py::arg("stride") = 1, py::arg("dilation") = 1, py::arg("groups") = 1, py::arg("depthwise") = false,
           py::arg("sub_pixel_scale_factor") = 1, py::arg("activation") = py::none(),
           py::arg("batch_norm") = py::none())
      .def_property_readonly(
          "kernel_size", [](const ConvolutionDescriptor& d) { return tuple_of(d.kernel_size); },
          "(int, int), pixels: height and width.")
      .def_readonly("in_channels", &ConvolutionDescriptor::in_channels, "int: channels of the source, of all groups.")
      .def_readonly("out_channels", &ConvolutionDescriptor::out_channels, "int: channels of the result, of all groups.")
      .def_property_readonly(
          "stride", [](const ConvolutionDescriptor& d) { return tuple_of(d.stride); }, "(int, int), pixels.")
      .def_property_readonly(
          "dilation", [](const ConvolutionDescriptor& d) { return tuple_of(d.dilation); }, "(int, int), pixels.")
      .def_readonly("groups", &ConvolutionDescriptor::groups, "int: 1 of a depth-wise convolution.")
      .def_readonly("depthwise", &ConvolutionDescriptor::depthwise, "bool: one filter per channel.")
      .def_readonly("sub_pixel_scale_factor", &ConvolutionDescriptor::sub_pixel_scale_factor,
                    "int, pixels: side of the square that replaces each pixel.")
      .def_property_readonly("activation", &activation_of,
                             "NeuronDescriptor or None: activation applied to the result.")
      .def_readonly("batch_norm", &ConvolutionDescriptor::batch_norm,
                    "BatchNorm or None: batch normalization folded into the weights.")
      .def("__repr__", [](const ConvolutionDescriptor& d) { return repr_of(d); })
      .def("__reduce__", [](const py::object& self) {
        return made_again(self, {"kernel_size", "in_channels", "out_channels", "stride", "dilation", "groups",
                                 "depthwise", "sub_pixel_scale_factor", "activation", "batch_norm"});
      });
}

}  // namespace mpscnn::bindings
