// SPDX-License-Identifier: Apache-2.0
// Data sources written in Python, and the Python class of the built-in one.
#include <mpscnn/data_source.hpp>
#include <mpscnn/normalization_source.hpp>
#include <mpscnn/normalization_update.hpp>
#include <mpscnn/weights_update.hpp>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// Return whether the object has the member, without evaluating properties. Exceptions of __getattr__ are rethrown.
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

template <class State>
constexpr const char* kStateName = nullptr;
template <>
constexpr const char* kStateName<ConvolutionWeightsAndBiasesState> = "ConvolutionWeightsAndBiasesState";
template <>
constexpr const char* kStateName<NormalizationGammaAndBetaState> = "NormalizationGammaAndBetaState";
template <>
constexpr const char* kStateName<NormalizationMeanAndVarianceState> = "NormalizationMeanAndVarianceState";

/// A Python object whose members MPS reads, from any thread; attributes and methods without arguments are equivalent.
class PythonObject {
 public:
  explicit PythonObject(py::object object) : object_(keep_python_object(object)), self_(object.ptr()) {}
  virtual ~PythonObject() = default;

  py::object object() const { return py::reinterpret_borrow<py::object>(self_); }

 protected:
  bool call_load() const {
    const AcquireGil gil;
    return is_yes("load", object().attr("load")());
  }
  /// Return the state that a method returned; null for None. Call with the GIL.
  template <class State>
  static std::shared_ptr<State> state_from(const py::object& answer, const char* method) {
    if (answer.is_none()) return nullptr;
    check<TypeError>(py::isinstance<State>(answer), "data source: ", method, "() returned ",
                     py::repr(answer).cast<std::string>(), ", which is not a ", kStateName<State>, " or None.");
    check_made(answer, say("data source: what ", method, "() returned"));
    return answer.cast<std::shared_ptr<State>>();
  }
  /// Return whether a method returned True or None. Call with the GIL.
  static bool is_yes(const char* method, const py::object& answer) {
    check<TypeError>(answer.is_none() || PyBool_Check(answer.ptr()), "data source: ", method, "() returned ",
                     py::repr(answer).cast<std::string>(), ", which is not True, False or None.");
    return !answer.is(py::bool_(false));
  }
  void call_purge() const {
    const AcquireGil gil;
    object().attr("purge")();
  }
  /// Return the member, or None if there is none. Call with the GIL.
  py::object member(const char* name) const {
    // py::getattr() with a default would also swallow exceptions of a property.
    if (!has_member(self_, name)) return py::none();
    const py::object value = object().attr(name);
    return PyCallable_Check(value.ptr()) ? value() : value;
  }
  std::optional<ArrayView> array(const char* name) const {
    const AcquireGil gil;
    const auto value = member(name);
    if (value.is_none()) return std::nullopt;
    return view_of(value, name);
  }
  std::optional<std::int64_t> integer(const char* name) const {
    const AcquireGil gil;
    const auto value = member(name);
    if (value.is_none()) return std::nullopt;
    return int_of(value, say("data source: ", name));
  }
  std::string text(const char* name) const {
    const AcquireGil gil;
    const auto value = member(name);
    return value.is_none() ? std::string() : std::string(text_of(py::str(value), say("data source: ", name)));
  }

 private:
  std::shared_ptr<void> object_;
  PyObject* self_;
};

/// An object with `load()`, `purge()`, `descriptor` and `weights`; optionally `update()` and `update_on_cpu()`.
class PythonSource final : public DataSource, public UpdatingSource, public PythonObject {
 public:
  explicit PythonSource(const py::object& object)
      : PythonObject(object),
        has_update_(has_member(object, "update")),
        has_update_on_cpu_(has_member(object, "update_on_cpu")) {}

  bool has_update() const override { return has_update_; }
  bool has_update_on_cpu() const override { return has_update_on_cpu_; }
  std::shared_ptr<ConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<CommandBuffer>& buffer, const std::shared_ptr<GradientState>& gradient,
      const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) override {
    const AcquireGil gil;
    return state_from<ConvolutionWeightsAndBiasesState>(object().attr("update")(buffer, gradient, source), "update");
  }
  bool update_on_cpu(const std::shared_ptr<GradientState>& gradient,
                     const std::shared_ptr<ConvolutionWeightsAndBiasesState>& source) override {
    const AcquireGil gil;
    return is_yes("update_on_cpu", object().attr("update_on_cpu")(gradient, source));
  }

  bool load() override { return call_load(); }
  void purge() override { call_purge(); }
  ConvolutionDescriptor descriptor() override {
    const AcquireGil gil;
    const auto value = member("descriptor");
    return *object_of<ConvolutionDescriptor>(value, "data source: descriptor");
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
  std::string label() override { return text("label"); }
  DType kernel_dtype() override {
    {
      const AcquireGil gil;
      const auto value = member("kernel_dtype");
      if (!value.is_none()) return dtype_from(value, "data source: kernel_dtype");
    }
    return DataSource::kernel_dtype();
  }

 private:
  const bool has_update_, has_update_on_cpu_;
};

/// An object with `load()`, `purge()`, `channels` and `gamma`; optionally `update()`, `update_mean_and_variance()` and
/// `update_on_cpu()`.
class PythonNormalizationSource final : public NormalizationSource, public UpdatingNormalization, public PythonObject {
 public:
  explicit PythonNormalizationSource(const py::object& object)
      : PythonObject(object),
        has_update_(has_member(object, "update")),
        has_update_mean_and_variance_(has_member(object, "update_mean_and_variance")),
        has_update_on_cpu_(has_member(object, "update_on_cpu")) {}

  bool has_update() const override { return has_update_; }
  bool has_update_mean_and_variance() const override { return has_update_mean_and_variance_; }
  bool has_update_on_cpu() const override { return has_update_on_cpu_; }
  std::shared_ptr<NormalizationGammaAndBetaState> update(
      const std::shared_ptr<CommandBuffer>& buffer, const Gradients& gradients,
      const std::shared_ptr<NormalizationGammaAndBetaState>& source) override {
    const AcquireGil gil;
    return state_from<NormalizationGammaAndBetaState>(object().attr("update")(buffer, gradients, source), "update");
  }
  std::shared_ptr<NormalizationMeanAndVarianceState> update_mean_and_variance(
      const std::shared_ptr<CommandBuffer>& buffer, const std::shared_ptr<BatchNormalizationState>& batch) override {
    const AcquireGil gil;
    return state_from<NormalizationMeanAndVarianceState>(object().attr("update_mean_and_variance")(buffer, batch),
                                                         "update_mean_and_variance");
  }
  bool update_on_cpu(const Gradients& gradients,
                     const std::shared_ptr<NormalizationGammaAndBetaState>& source) override {
    const AcquireGil gil;
    return is_yes("update_on_cpu", object().attr("update_on_cpu")(gradients, source));
  }

  bool load() override { return call_load(); }
  void purge() override { call_purge(); }
  std::int64_t channels() override {
    const auto channels = integer("channels");
    check(channels.has_value(), "data source: channels is None.");
    return *channels;
  }
  std::optional<ArrayView> gamma() override { return array("gamma"); }
  std::optional<ArrayView> beta() override { return array("beta"); }
  std::optional<ArrayView> mean() override { return array("mean"); }
  std::optional<ArrayView> variance() override { return array("variance"); }
  std::optional<std::int64_t> groups() override { return integer("groups"); }
  std::optional<double> epsilon() override {
    const AcquireGil gil;
    const auto value = member("epsilon");
    if (value.is_none()) return std::nullopt;
    return float_of(value, "data source: epsilon");
  }
  std::string label() override { return text("label"); }

 private:
  const bool has_update_, has_update_mean_and_variance_, has_update_on_cpu_;
};

std::optional<py::array> array_or_none(std::optional<ArrayView> view) {
  if (!view) return std::nullopt;
  view->read_only = true;
  return array_from(*view);
}

}  // namespace

py::object to_python(const std::shared_ptr<Source>& source) {
  if (const auto* python = dynamic_cast<const PythonObject*>(source.get())) return python->object();
  if (const auto normalization = std::dynamic_pointer_cast<NormalizationSource>(source)) return py::cast(normalization);
  return py::cast(std::dynamic_pointer_cast<DataSource>(source));
}

namespace {

/// Return the built-in `Kind`, or a `Python` around an object with all these members; null for other objects.
template <class Kind, class Python>
std::shared_ptr<Kind> source_of(py::handle object, const char* argument, std::initializer_list<const char*> members) {
  if (py::isinstance<Kind>(object)) return object_of<Kind>(object, argument);
  for (const auto* name : members)
    if (!has_member(object, name)) return nullptr;
  return std::make_shared<Python>(py::reinterpret_borrow<py::object>(object));
}

}  // namespace

std::shared_ptr<DataSource> data_source_of(py::handle object) {
  return source_of<DataSource, PythonSource>(object, "weight", {"load", "purge", "descriptor", "weights"});
}

std::shared_ptr<NormalizationSource> normalization_source_of(py::handle object) {
  return source_of<NormalizationSource, PythonNormalizationSource>(object, "gamma",
                                                                   {"load", "purge", "channels", "gamma"});
}

void bind_data_source(py::module_& module) {
  using Arrays = DataSource;
  py::class_<Arrays, std::shared_ptr<Arrays>>(
      module, "_DataSource",
      "The built-in data source, for weights that were given as an array; its members are those of mpscnn.DataSource.")
      .def("load", &Arrays::load, py::call_guard<ReleaseGil>())
      .def("purge", &Arrays::purge, py::call_guard<ReleaseGil>())
      .def_property_readonly("descriptor", &Arrays::descriptor)
      .def_property_readonly("weights", [](Arrays& source) { return array_or_none(source.weights()); })
      .def_property_readonly("bias", [](Arrays& source) { return array_or_none(source.bias()); })
      .def_property_readonly("ranges", [](Arrays& source) { return array_or_none(source.ranges()); })
      .def_property_readonly("lookup_table", [](Arrays& source) { return array_or_none(source.lookup_table()); })
      .def_property_readonly("kernel_dtype", [](Arrays& source) { return name_of(source.kernel_dtype()); })
      .def_property_readonly("label", [](Arrays& source) { return optional_text(source.label()); })
      .def("__repr__", [](Arrays& source) {
        return say("<mpscnn.DataSource, built in, of ", py::repr(py::cast(source.descriptor())).cast<std::string>(),
                   ">");
      });
  using Values = NormalizationSource;
  py::class_<Values, std::shared_ptr<Values>>(
      module, "_NormalizationDataSource",
      "The built-in data source of normalization, for values that were given as "
      "arrays; its members are those of mpscnn.NormalizationDataSource.")
      .def("load", &Values::load, py::call_guard<ReleaseGil>())
      .def("purge", &Values::purge, py::call_guard<ReleaseGil>())
      .def_property_readonly("channels", &Values::channels)
      .def_property_readonly("gamma", [](Values& source) { return array_or_none(source.gamma()); })
      .def_property_readonly("beta", [](Values& source) { return array_or_none(source.beta()); })
      .def_property_readonly("mean", [](Values& source) { return array_or_none(source.mean()); })
      .def_property_readonly("variance", [](Values& source) { return array_or_none(source.variance()); })
      .def_property_readonly("groups", &Values::groups)
      .def_property_readonly("epsilon", &Values::epsilon)
      .def_property_readonly("label", [](Values& source) { return optional_text(source.label()); })
      .def("__repr__", [](Values& source) {
        return say("<mpscnn.NormalizationDataSource, built in, of ", source.channels(), " channels>");
      });
}

}  // namespace mpscnn::bindings
