// SPDX-License-Identifier: Apache-2.0
// Data sources written in Python, the built-in one as Python sees it, and their descriptors.
#include <mpscnn/data_source.hpp>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>

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
    return value.is_none() ? std::string() : py::str(value).cast<std::string>();
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
  if (is_integer(value)) return {value.cast<std::int64_t>(), value.cast<std::int64_t>()};
  check<TypeError>(py::isinstance<py::sequence>(value) && py::len(value) == 2 && is_integer(value[py::int_(0)]) &&
                       is_integer(value[py::int_(1)]),
                   "ConvolutionDescriptor: ", name, " (", py::repr(value).cast<std::string>(),
                   ") is not an integer or a pair (height, width).");
  const auto items = py::reinterpret_borrow<py::sequence>(value);
  return {items[0].cast<std::int64_t>(), items[1].cast<std::int64_t>()};
}

py::tuple tuple_of(Pair pair) { return py::make_tuple(pair.h, pair.w); }

void bind_descriptors(py::module_& module) {
  py::class_<NeuronDescriptor>(module, "_NeuronDescriptor")
      .def(py::init([](int type, float a, float b, float c, std::vector<float> data) {
             return NeuronDescriptor{type, a, b, c, std::move(data)};
           }),
           py::arg("type") = 0, py::arg("a") = 0.0f, py::arg("b") = 0.0f, py::arg("c") = 0.0f,
           py::arg("data") = std::vector<float>{})
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
                       const py::object& beta, float epsilon) {
             const auto floats = [](const py::object& values) { return py::list(values).cast<std::vector<float>>(); };
             BatchNorm norm{floats(mean), floats(variance), floats(gamma), floats(beta), epsilon};
             check(norm.variance.size() == norm.mean.size() && norm.gamma.size() == norm.mean.size() &&
                       norm.beta.size() == norm.mean.size(),
                   "BatchNorm: mean, variance, gamma and beta have ", norm.mean.size(), ", ", norm.variance.size(),
                   ", ", norm.gamma.size(), " and ", norm.beta.size(), " values, not the same number.");
             return norm;
           }),
           py::arg("mean"), py::arg("variance"), py::arg("gamma"), py::arg("beta"), py::arg("epsilon") = 1e-5f);

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
      .def(py::init([](const py::object& kernel_size, std::int64_t in_channels, std::int64_t out_channels,
                       const py::object& stride, const py::object& dilation, std::int64_t groups, bool depthwise,
                       std::int64_t sub_pixel_scale_factor, const py::object& activation,
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
