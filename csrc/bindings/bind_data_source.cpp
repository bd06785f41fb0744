// SPDX-License-Identifier: Apache-2.0
// Data sources written in Python, the built-in one as Python sees it, and their descriptors.
#include <mpscnn/data_source.hpp>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {
namespace {

/// Whether the object has such a member, without evaluating a property of its class. Throws what __getattr__ raises.
bool has_member(py::handle object, const char* name) {
  if (py::hasattr(py::type::handle_of(object), name)) return true;
  if (PyObject* value = PyObject_GetAttrString(object.ptr(), name)) {
    Py_DECREF(value);
    return true;
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw py::error_already_set();
  PyErr_Clear();
  return false;
}

/// A Python object with `load()`, `purge()`, `descriptor` and `weights`; attributes and methods without arguments
/// are equally good. Called by MPS from any thread.
class PythonSource final : public DataSource {
 public:
  explicit PythonSource(py::object object) : object_(keep_python_object(object)), self_(object.ptr()) {}

  bool load() override {
    const AcquireGil gil;
    const py::object loaded = method("load");
    check<TypeError>(loaded.is_none() || PyBool_Check(loaded.ptr()), "data source: load() returned ",
                     py::repr(loaded).cast<std::string>(), ", which is not True, False or None.");
    return !loaded.is(py::bool_(false));
  }
  void purge() override {
    const AcquireGil gil;
    method("purge");
  }
  ConvolutionDescriptor descriptor() override {
    const AcquireGil gil;
    const auto value = member("descriptor");
    check<TypeError>(py::isinstance<ConvolutionDescriptor>(value), "data source: descriptor (", type_name(value),
                     ") is not a ConvolutionDescriptor.");
    check_made(value, "data source: descriptor");
    return value.cast<ConvolutionDescriptor>();
  }
  ArrayView weights() override {
    const AcquireGil gil;
    const auto value = member("weights");
    check(!value.is_none(), "data source: weights is None.");
    return view_of(value, "data source: weights");
  }
  std::optional<ArrayView> bias() override { return array("bias"); }
  std::optional<ArrayView> ranges() override { return array("ranges"); }
  std::optional<ArrayView> lookup_table() override { return array("lookup_table"); }
  std::string label() override {
    const AcquireGil gil;
    const auto value = member("label");
    return value.is_none() ? std::string() : std::string(text_of(py::str(value), "data source: label"));
  }
  py::object object() const { return py::reinterpret_borrow<py::object>(self_); }
  DType kernel_dtype() override {
    {
      const AcquireGil gil;
      const auto value = member("kernel_dtype");
      if (!value.is_none()) return dtype_from(value, "data source: kernel_dtype");
    }
    return DataSource::kernel_dtype();
  }

 private:
  py::object method(const char* name) const { return py::reinterpret_borrow<py::object>(self_).attr(name)(); }
  py::object member(const char* name) const {
    // py::getattr() with a default would also swallow what a property raises.
    if (!has_member(self_, name)) return py::none();
    const py::object value = py::reinterpret_borrow<py::object>(self_).attr(name);
    return PyCallable_Check(value.ptr()) ? value() : value;
  }
  std::optional<ArrayView> array(const char* name) const {
    const AcquireGil gil;
    const auto value = member(name);
    if (value.is_none()) return std::nullopt;
    return view_of(value, name);
  }
  static std::string type_name(py::handle value) {
    return py::str(py::type::handle_of(value).attr("__name__")).cast<std::string>();
  }

  std::shared_ptr<void> object_;
  PyObject* self_;
};

py::object array_or_none(const std::optional<ArrayView>& view) {
  if (!view) return py::none();
  auto shown = *view;
  shown.read_only = true;
  return array_from(shown);
}

Pair pair_from(py::handle value, const char* name) {
  const bool is_sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  const bool is_pair =
      is_sequence && py::len(value) == 2 && is_integer(value[py::int_(0)]) && is_integer(value[py::int_(1)]);
  check<TypeError>(is_integer(value) || is_pair, "ConvolutionDescriptor: ", name, " (",
                   py::repr(value).cast<std::string>(), ") is not an integer or a pair (height, width).");
  const auto extents = extents_from(value, name);
  return {extents.front(), extents.back()};
}

/// One float for each element of a sequence, in single precision.
std::vector<float> floats_from(py::handle values, const char* name) {
  const auto refuse = [&] {
    PyErr_Clear();
    throw TypeError(say(name, " (", py::str(py::type::handle_of(values).attr("__name__")).cast<std::string>(),
                        ") is not a sequence of numbers."));
  };
  if (py::hasattr(values, "__dlpack__") || py::hasattr(values, "__array_interface__")) {
    // A tensor with requires_grad gives no numbers, but it gives its memory.
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

py::tuple tuple_of(Pair pair) { return py::make_tuple(pair.h, pair.w); }

void bind_descriptors(py::module_& module) {
  py::class_<NeuronDescriptor>(module, "_NeuronDescriptor")
      .def(py::init([](int type, Real a, Real b, Real c, const py::object& data) {
             return NeuronDescriptor{type, static_cast<float>(a.value), static_cast<float>(b.value),
                                     static_cast<float>(c.value), floats_from(data, "data")};
           }),
           py::arg("type"), py::arg("a") = 0.0, py::arg("b") = 0.0, py::arg("c") = 0.0, py::arg("data") = py::tuple())
      .def_readonly("type", &NeuronDescriptor::type)
      .def_readonly("a", &NeuronDescriptor::a)
      .def_readonly("b", &NeuronDescriptor::b)
      .def_readonly("c", &NeuronDescriptor::c)
      .def_readonly("data", &NeuronDescriptor::data);

  py::class_<BatchNorm>(module, "BatchNorm",
                        R"(Batch normalization in inference, folded into the weights of a convolution.

    gamma / sqrt(variance + epsilon) * (y - mean) + beta, applied after the bias and before the activation.

    Parameters
    ----------
    mean, variance, gamma, beta : sequences of float, shape (O,)
    epsilon : float, default 1e-5

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
           py::arg("mean"), py::arg("variance"), py::arg("gamma"), py::arg("beta"), py::arg("epsilon") = 1e-5);

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
      .def_property_readonly("kernel_size", [](const ConvolutionDescriptor& d) { return tuple_of(d.kernel_size); })
      .def_property_readonly("stride", [](const ConvolutionDescriptor& d) { return tuple_of(d.stride); })
      .def_property_readonly("dilation", [](const ConvolutionDescriptor& d) { return tuple_of(d.dilation); })
      .def_readonly("in_channels", &ConvolutionDescriptor::in_channels)
      .def_readonly("out_channels", &ConvolutionDescriptor::out_channels)
      .def_readonly("groups", &ConvolutionDescriptor::groups)
      .def_readonly("depthwise", &ConvolutionDescriptor::depthwise)
      .def_readonly("sub_pixel_scale_factor", &ConvolutionDescriptor::sub_pixel_scale_factor);
}

}  // namespace

py::object to_python(const std::shared_ptr<DataSource>& source) {
  const auto* python = dynamic_cast<const PythonSource*>(source.get());
  return python ? python->object() : py::cast(source);
}

std::shared_ptr<DataSource> data_source_of(py::handle object) {
  check_made(object, "weight");
  if (py::isinstance<DataSource>(object)) return object.cast<std::shared_ptr<DataSource>>();
  for (const auto* name : {"load", "purge", "descriptor", "weights"})
    if (!has_member(object, name)) return nullptr;
  return std::make_shared<PythonSource>(py::reinterpret_borrow<py::object>(object));
}

void bind_data_source(py::module_& module) {
  bind_descriptors(module);
  py::class_<DataSource, std::shared_ptr<DataSource>>(module, "_DataSource")
      .def("load", &DataSource::load, py::call_guard<ReleaseGil>())
      .def("purge", &DataSource::purge, py::call_guard<ReleaseGil>())
      .def_property_readonly("descriptor", &DataSource::descriptor)
      .def_property_readonly("weights", [](DataSource& source) { return array_or_none(source.weights()); })
      .def_property_readonly("bias", [](DataSource& source) { return array_or_none(source.bias()); })
      .def_property_readonly("ranges", [](DataSource& source) { return array_or_none(source.ranges()); })
      .def_property_readonly("lookup_table", [](DataSource& source) { return array_or_none(source.lookup_table()); })
      .def_property_readonly("label", &DataSource::label);
}

}  // namespace mpscnn::bindings
