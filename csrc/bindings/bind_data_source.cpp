// SPDX-License-Identifier: Apache-2.0
// Data sources written in Python, and the built-in one as Python sees it.
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
  py::class_<DataSource, std::shared_ptr<DataSource>>(module, "_DataSource",
                                                      R"(The built-in data source, which serves an array.

    What ``kernel.data_source`` is for weights that were given as an array. Its members are those of
    ``mpscnn.DataSource``, and as with any other, weights are there from ``load()`` to ``purge()``.)")
      .def("load", &DataSource::load, py::call_guard<ReleaseGil>(),
           "Make the weights available: reorder them, unless they are in MPS's order already.")
      .def("purge", &DataSource::purge, py::call_guard<ReleaseGil>(),
           "The weights are not needed until the next load().")
      .def_property_readonly("descriptor", &DataSource::descriptor, "ConvolutionDescriptor")
      .def_property_readonly(
          "weights", [](DataSource& source) { return array_or_none(source.weights()); },
          "array, shape (O, kH, kW, I / groups), read-only, valid from load() to purge().")
      .def_property_readonly(
          "bias", [](DataSource& source) { return array_or_none(source.bias()); },
          "array, shape (O,), float32, read-only, or None.")
      .def_property_readonly(
          "ranges", [](DataSource& source) { return array_or_none(source.ranges()); },
          "array, shape (O, 2), float32, read-only, or None.")
      .def_property_readonly(
          "lookup_table", [](DataSource& source) { return array_or_none(source.lookup_table()); },
          "array, shape (256,), float32, read-only, or None.")
      .def_property_readonly(
          "kernel_dtype", [](DataSource& source) { return name_of(source.kernel_dtype()); },
          "str: float32 or float16, in which the kernel keeps the weights.")
      .def_property_readonly(
          "label", [](DataSource& source) { return text_or_none(source.label()); }, "str or None")
      .def("__repr__", [](DataSource& source) {
        return say("<mpscnn.DataSource, built in, of ", py::repr(py::cast(source.descriptor())).cast<std::string>(),
                   ">");
      });
}

}  // namespace mpscnn::bindings
