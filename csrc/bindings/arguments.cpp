// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <cstring>

namespace mpscnn::bindings {
namespace {

PyTypeObject* metaclass = nullptr;  // of all classes of pybind11

std::string repr_of(py::handle object) { return py::repr(object).cast<std::string>(); }

}  // namespace

bool is_bool(py::handle object) {
  const std::string_view type = Py_TYPE(object.ptr())->tp_name;
  return PyBool_Check(object.ptr()) || type == "numpy.bool" || type == "numpy.bool_";
}

bool is_integer(py::handle object) {
  if (PyLong_Check(object.ptr())) return !PyBool_Check(object.ptr());
  return PyIndex_Check(object.ptr()) && !(py::hasattr(object, "ndim") && !py::int_(0).equal(object.attr("ndim")));
}

bool is_number(py::handle object) {
  // NumPy scalars are numbers, one-element arrays are not.
  return PyFloat_Check(object.ptr()) ||
         (!PyBool_Check(object.ptr()) && !PyComplex_Check(object.ptr()) && PyNumber_Check(object.ptr()) &&
          !(py::hasattr(object, "ndim") && !py::int_(0).equal(object.attr("ndim"))));
}

Index index_of(py::handle object) {
  auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const auto value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  return {std::move(number), overflow == 0 ? std::optional<std::int64_t>(value) : std::nullopt};
}

Extents extents_from(py::handle object, const char* name) {
  const auto extent = [&](py::handle item) -> std::int64_t {
    check<TypeError>(is_integer(item), name, ": ", py::repr(item).cast<std::string>(), " (", type_name(item),
                     ") is not an integer.");
    const Index index = index_of(item);
    if (!index.value)
      throw std::invalid_argument(say(name, ": ", py::str(index.number).cast<std::string>(), " is beyond 64 bits."));
    return *index.value;
  };
  if (is_integer(object)) return {extent(object)};
  check<TypeError>(PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr()), name, " (", type_name(object),
                   ") is neither an int nor a sequence of them.");
  Extents extents;
  for (const auto item : py::reinterpret_borrow<py::sequence>(object)) extents.push_back(extent(item));
  return extents;
}

std::string type_name(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__name__")).cast<std::string>();
}

void refuse(py::handle object, std::string_view name, std::string_view wanted) {
  throw TypeError(say(name, " (", type_name(object), ") is not ", wanted, "."));
}

std::string_view text_of(py::handle object, std::string_view name) {
  if (!PyUnicode_Check(object.ptr())) refuse(object, name, "a str");
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
  if (!text) {
    PyErr_Clear();
    throw std::invalid_argument(say(name, " (", repr_of(object), ") is not valid Unicode."));
  }
  return {text, static_cast<std::size_t>(length)};
}

std::int64_t int_of(py::handle object, std::string_view name) {
  if (!is_integer(object)) refuse(object, name, "an int");
  return integer_from(object, name);
}

bool bool_of(py::handle object, std::string_view name) {
  if (!is_bool(object)) refuse(object, name, "True or False");
  const int truth = PyObject_IsTrue(object.ptr());
  if (truth < 0) throw py::error_already_set();
  return truth == 1;
}

double float_of(py::handle object, std::string_view name) {
  if (!is_number(object)) refuse(object, name, "a number");
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw std::invalid_argument(say(name, " (", repr_of(object), ") is no float."));
  }
  return value;
}

bool is_unmade(py::handle object) {
  PyTypeObject* const of_class = Py_TYPE(Py_TYPE(object.ptr()));
  if (of_class != metaclass && !PyType_IsSubtype(of_class, metaclass)) return false;
  const auto* instance = reinterpret_cast<const py::detail::instance*>(object.ptr());
  // A subobject of another object has no holder either, but is not owned.
  return instance->simple_layout && instance->owned && !instance->simple_holder_constructed;
}

void check_made(py::handle object, std::string_view name) {
  if (is_unmade(object))
    throw TypeError(say(name, " (", type_name(object), ") was not made: its __init__ has not run."));
}

void check_instance(py::handle object, std::string_view name, py::handle kind) {
  if (!py::isinstance(object, kind)) {
    const auto noun = py::str(kind.attr("__name__")).cast<std::string>();
    const bool begins_with_vowel = std::string_view("AEIOU").find(noun[0]) != std::string_view::npos;
    std::string wanted = (begins_with_vowel ? "an " : "a ") + noun;
    // A name, as PyTorch takes in place of a device.
    if (noun == "Device" && py::isinstance<py::str>(object))
      wanted += ": give Device(\"" + py::str(object).cast<std::string>() + "\")";
    refuse(object, name, wanted);
  }
  check_made(object, name);
}

std::optional<std::string> optional_text(std::string text) {
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

void refuse_unmade(py::module_& module) {
  for (const auto& [key, value] : py::dict(module.attr("__dict__"))) {
    if (!PyType_Check(value.ptr())) continue;
    metaclass = Py_TYPE(value.ptr());
    // pybind11 calls it for the memory of an object that it has to load and that has none yet.
    py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(value.ptr()))->operator_new = [](std::size_t) -> void* {
      throw TypeError("self was not made: its __init__ has not run.");
    };
  }
  module.def(
      "_document",
      [](py::handle function, const std::string& text) {
        auto* method = PyCFunction_Check(function.ptr())
                           ? reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml
                           : reinterpret_cast<PyMethodDescrObject*>(function.ptr())->d_method;
        method->ml_doc = strdup(text.c_str());  // as long as the process
      },
      "Set the docstring of a function in C, with its signature in front.");
  module.def("_is_made", [](const py::object& object) { return !is_unmade(object); });
  module.def(
      "_set_public_class",
      [](py::type kind) {
        auto* type = reinterpret_cast<PyTypeObject*>(kind.inc_ref().ptr());
        py::detail::get_type_info(type->tp_base)->type = type;
      },
      "Make a class derived from one of the module the class of all objects that the module returns.");
}

}  // namespace mpscnn::bindings
