// SPDX-License-Identifier: Apache-2.0
// For wrong arguments, pybind11 raises an error with a list of the function's signatures. Here a wrapper around
// pybind11's entry point turns that error into a message about the argument, which it determines from the signature
// that pybind11 wrote for help().
#include "bind_arguments.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <mpscnn/error.hpp>

#include "bindings.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {

// ---- strict types

std::string type_name(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__name__")).cast<std::string>();
}

bool load(py::handle object, Text& text) {
  if (!PyUnicode_Check(object.ptr())) return false;
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
  if (data) {
    text.value.assign(data, static_cast<std::size_t>(length));
  } else {
    PyErr_Clear();
  }
  return data != nullptr;
}

bool load(py::handle object, Integer& integer) {
  if (!is_integer(object)) return false;
  const Index index = index_of(object);
  integer.value = index.value.value_or(0);
  return index.value.has_value();
}

bool load(py::handle object, Boolean& boolean) {
  if (PyBool_Check(object.ptr())) {
    boolean.value = object.ptr() == Py_True;
    return true;
  }
  const std::string_view type = Py_TYPE(object.ptr())->tp_name;
  if (type != "numpy.bool" && type != "numpy.bool_") return false;
  const int truth = PyObject_IsTrue(object.ptr());
  if (truth < 0) throw py::error_already_set();
  boolean.value = truth == 1;
  return true;
}

bool load(py::handle object, Real& real) {
  if (!is_number(object)) return false;
  real.value = PyFloat_AsDouble(object.ptr());
  if (real.value != -1.0 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

void refuse_text(py::handle object, std::string_view name) {
  if (!PyUnicode_Check(object.ptr())) throw TypeError(say(name, " (", type_name(object), ") is not a str."));
  PyErr_Clear();
  throw std::invalid_argument(say(name, " (", py::repr(object).cast<std::string>(), ") is not valid Unicode."));
}

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(py::str(text));
}

// ---- objects whose __init__ has not run

namespace {

PyTypeObject* metaclass = nullptr;  // of all classes of pybind11
PyObject* core = nullptr;           // the module

bool unmade(PyObject* object) {
  PyTypeObject* const of_class = Py_TYPE(Py_TYPE(object));
  if (of_class != metaclass && !PyType_IsSubtype(of_class, metaclass)) return false;
  const auto* instance = reinterpret_cast<const py::detail::instance*>(object);
  // A subobject of another object has no holder either, but is not owned.
  return instance->simple_layout && instance->owned && !instance->simple_holder_constructed;
}

}  // namespace

bool is_unmade(py::handle object) { return unmade(object.ptr()); }

void check_made(py::handle object, const char* name) {
  if (is_unmade(object))
    throw TypeError(say(name, " (", type_name(object), ") was not made: its __init__ has not run."));
}

// ---- error messages

namespace {

/// One parameter of a signature in pybind11's notation.
struct Parameter {
  std::string name, type;
  bool has_default = false, takes_none = false;
};

/// A signature as pybind11 writes it: "(self: _core.Image, x: object, *, copy: bool | None = None) -> None".
struct Signature {
  std::vector<Parameter> parameters;
  std::size_t positional = 0;
  bool takes_more = false;      ///< has *args
  bool takes_keywords = false;  ///< has **kwargs
};

/// Split `text` at commas outside of brackets and strings.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quote) {
      if (letter == quote) quote = 0;
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
    } else if (letter == '(' || letter == '[' || letter == '{') {
      ++depth;
    } else if (letter == ')' || letter == ']' || letter == '}') {
      if (--depth < 0) text = text.substr(0, i);  // the parenthesis that ends the parameters
    } else if (letter == ',' && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = text.find_first_not_of(' ', i + 1);
    }
  }
  if (start < text.size()) parts.push_back(text.substr(start));
  return parts;
}

/// Strip None from "_core.Device | None" and "Optional[_core.Device]"; return whether there was one.
bool drop_none(std::string& type) {
  constexpr std::string_view kUnion = " | None";
  if (type.ends_with(kUnion)) {
    type.resize(type.size() - kUnion.size());
    return true;
  }
  for (const std::string_view optional : {"Optional[", "typing.Optional["})
    if (type.starts_with(optional) && type.ends_with("]")) {
      type = type.substr(optional.size(), type.size() - optional.size() - 1);
      return true;
    }
  return false;
}

Signature signature_of(std::string_view doc) {
  Signature signature;
  bool by_keyword = false;
  for (const auto part : split(doc.substr(std::min(doc.find('('), doc.size() - 1) + 1))) {
    if (part.starts_with("*")) {
      by_keyword = true;
      signature.takes_keywords |= part.starts_with("**");
      signature.takes_more |= part != "*" && !part.starts_with("**");
      continue;
    }
    Parameter parameter;
    const auto colon = std::min(part.find(": "), part.size()), equals = std::min(part.find(" = "), part.size());
    parameter.name = part.substr(0, colon);
    if (colon < equals) parameter.type = part.substr(colon + 2, equals - colon - 2);
    parameter.has_default = equals < part.size();
    const bool is_optional = drop_none(parameter.type);
    // For bound classes, pybind11 does not write that None is accepted.
    parameter.takes_none = is_optional || part.ends_with(" = None");
    signature.parameters.push_back(std::move(parameter));
    if (!by_keyword) ++signature.positional;
  }
  return signature;
}

/// A pybind11 function and its Python name.
struct Callable {
  PyObject* function = nullptr;  ///< lives as long as the module
  std::string name;              ///< "Image.numpy", "Image" for its constructor
  std::string property;          ///< property whose setter it is
  bool has_self = false, is_constructor = false, is_repr = false;
};

/// Arguments of a call, in the vectorcall form of Python 3.9 and newer.
struct Given {
  std::vector<PyObject*> values;  ///< by position, then by keyword
  std::size_t positional = 0;
  py::object keywords;  ///< tuple of names; may be empty
};

/// Wrapped functions by the `self` that Python passes to them. Never destroyed: calls may happen at exit.
std::unordered_map<PyObject*, Callable>& callables() {
  static auto* map = new std::unordered_map<PyObject*, Callable>;
  return *map;
}

std::string with_article(const std::string& noun) {
  return (std::string_view("AEIOUaeiou").find(noun[0]) == std::string_view::npos ? "a " : "an ") + noun;
}

/// Throw if the type of the argument is wrong.
void check_argument(const Parameter& parameter, py::handle object) {
  const auto& [name, type, has_default, takes_none] = parameter;
  check_made(object, name.c_str());
  if (type.empty() || type == "object" || (object.is_none() && takes_none)) return;
  const auto refuse = [&](const std::string& wanted) {
    throw TypeError(say(name, " (", type_name(object), ") is not ", wanted, "."));
  };
  if (type == "str") {
    text_of(object, name);
  } else if (type == "int") {
    if (!is_integer(object)) refuse("an int");
    Integer integer;
    check(load(object, integer), name, " (", py::str(object).cast<std::string>(), ") is beyond 64 bits.");
  } else if (type == "bool") {
    Boolean boolean;
    if (!load(object, boolean)) refuse("True or False");
  } else if (type == "float") {
    if (!is_number(object)) refuse("a number");
    Real real;
    check(load(object, real), name, " (", py::repr(object).cast<std::string>(), ") is no float.");
  } else if (type == "dict") {
    if (!PyDict_Check(object.ptr())) refuse("a dict");
  } else {
    const auto noun = type.substr(type.rfind('.') + 1);
    const py::object kind = py::getattr(core, noun.c_str(), py::none());
    if (PyType_Check(kind.ptr()) && !py::isinstance(object, kind)) refuse(with_article(noun));
  }
}

/// Throw the error for a call that pybind11 has rejected.
[[noreturn]] void explain(const Callable& callable, const Given& given) {
  const auto* method = reinterpret_cast<PyCFunctionObject*>(callable.function)->m_ml;
  auto signature = signature_of(method->ml_doc ? method->ml_doc : "");
  auto& parameters = signature.parameters;
  if (callable.has_self && !parameters.empty()) parameters[0].name = "self";
  if (!callable.property.empty() && parameters.size() > 1) parameters[1].name = callable.property;

  // `self` is not among the arguments that the caller counts.
  const std::size_t hidden = callable.has_self ? 1 : 0;
  std::vector<PyObject*> values = given.values;
  std::size_t positional = given.positional;
  if (hidden) {
    check<TypeError>(positional > 0, callable.name, "() misses the argument 'self'.");
    if (!callable.is_constructor) check_argument(parameters.at(0), values[0]);
    values.erase(values.begin());
    --positional;
  }
  const std::size_t most = signature.positional - std::min(hidden, signature.positional);
  if (signature.takes_more && positional > most) {
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(most),
                 values.begin() + static_cast<std::ptrdiff_t>(positional));
    positional = most;
  }
  std::vector<const char*> names;
  std::size_t required = 0;
  for (std::size_t i = hidden; i < parameters.size(); ++i) {
    names.push_back(parameters[i].name.c_str());
    if (!parameters[i].has_default) required = names.size();
  }
  std::vector<PyObject*> placed(names.size());
  place_arguments(callable.name.c_str(), names, most, required, values.data(), positional,
                  signature.takes_keywords ? nullptr : given.keywords.ptr(), placed);
  for (std::size_t i = 0; i < placed.size(); ++i)
    if (placed[i]) check_argument(parameters[hidden + i], placed[i]);
  throw TypeError(say(callable.name, "(): the arguments are of types that it does not take."));
}

/// Whether the current TypeError is pybind11's, about the function itself and not about one that it called.
bool refused_by_pybind11(const PyObject* function) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  bool refused = false;
  if (value && !trace) {
    const auto text = py::reinterpret_steal<py::object>(PyObject_Str(value));
    const char* words = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
    const std::string_view name = reinterpret_cast<const PyCFunctionObject*>(function)->m_ml->ml_name;
    refused = words && std::string_view(words).starts_with(std::string(name) + "(): incompatible ");
    if (!words) PyErr_Clear();
  }
  PyErr_Restore(type, value, trace);
  return refused;
}

Given given_of(PyObject* const* values, Py_ssize_t positional, PyObject* keywords) {
  const auto named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  return {.values{values, values + positional + named},
          .positional = static_cast<std::size_t>(positional),
          .keywords = py::reinterpret_borrow<py::object>(keywords)};
}

Given given_of(PyObject* values, PyObject* keywords) {
  Given given;
  for (const auto value : py::reinterpret_borrow<py::tuple>(values)) given.values.push_back(value.ptr());
  given.positional = given.values.size();
  if (!keywords) return given;
  py::list names;
  for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(keywords)) {
    names.append(name);
    given.values.push_back(value.ptr());
  }
  given.keywords = py::tuple(names);
  return given;
}

/// Return the result for a rejected call: null with the error set, or the repr of an object whose __init__ has not run.
template <class... Passed>
PyObject* answer(PyObject* record, Passed... passed) {
  try {
    const auto found = callables().find(record);
    if (found == callables().end()) return nullptr;
    const auto given = given_of(passed...);
    if (found->second.is_repr && !given.values.empty() && is_unmade(given.values[0])) {
      PyErr_Clear();
      const auto kind = found->second.name.substr(0, found->second.name.find('.'));
      return py::str(say("<mpscnn.", kind, ", not made>")).release().ptr();
    }
    PyErr_Clear();
    explain(found->second, given);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// pybind11 3.1 and newer use vectorcall functions, older versions the other kind.
using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
using Slow = PyObject* (*)(PyObject*, PyObject*, PyObject*);
Fast fast_dispatcher = nullptr;
Slow slow_dispatcher = nullptr;

/// `kFirst`: first argument that must be initialized; 1 for constructors.
template <int kFirst>
PyObject* fast_entry(PyObject* record, PyObject* const* values, Py_ssize_t positional, PyObject* keywords) {
  const Py_ssize_t count = positional + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  for (Py_ssize_t i = kFirst; i < count; ++i)
    if (unmade(values[i])) [[unlikely]]
      return answer(record, values, positional, keywords);
  PyObject* result = fast_dispatcher(record, values, positional, keywords);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) [[unlikely]] {
    const auto found = callables().find(record);
    if (found != callables().end() && refused_by_pybind11(found->second.function))
      return answer(record, values, positional, keywords);
  }
  return result;
}

template <int kFirst>
PyObject* slow_entry(PyObject* record, PyObject* values, PyObject* keywords) {
  bool made = true;
  for (Py_ssize_t i = kFirst; i < PyTuple_GET_SIZE(values); ++i) made &= !unmade(PyTuple_GET_ITEM(values, i));
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t i = 0; keywords && PyDict_Next(keywords, &i, &name, &value);) made &= !unmade(value);
  if (!made) [[unlikely]]
    return answer(record, values, keywords);
  PyObject* result = slow_dispatcher(record, values, keywords);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) [[unlikely]] {
    const auto found = callables().find(record);
    if (found != callables().end() && refused_by_pybind11(found->second.function))
      return answer(record, values, keywords);
  }
  return result;
}

template <class Function>
PyCFunction untyped(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

void put_in_front(PyObject* function, Callable callable) {
  if (!PyCFunction_Check(function)) return;
  PyObject* record = PyCFunction_GET_SELF(function);
  auto* method = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (!record || callables().contains(record)) return;
  auto* const entry = reinterpret_cast<void (*)()>(method->ml_meth);
  switch (method->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_FASTCALL)) {
    case METH_FASTCALL | METH_KEYWORDS:
      fast_dispatcher = reinterpret_cast<Fast>(entry);
      method->ml_meth = untyped(callable.is_constructor ? fast_entry<1> : fast_entry<0>);
      break;
    case METH_VARARGS | METH_KEYWORDS:
      slow_dispatcher = reinterpret_cast<Slow>(entry);
      method->ml_meth = untyped(callable.is_constructor ? slow_entry<1> : slow_entry<0>);
      break;
    default: return;
  }
  callable.function = function;
  callables().emplace(record, std::move(callable));
}

void put_in_front_of_members(const py::handle& kind) {
  const auto class_name = py::str(kind.attr("__name__")).cast<std::string>();
  for (const auto& [key, value] : py::dict(kind.attr("__dict__"))) {
    const auto name = py::str(key).cast<std::string>();
    if (name.starts_with("_pybind11")) continue;
    const auto full = name == "__init__" ? class_name : class_name + "." + name;
    if (PyInstanceMethod_Check(value.ptr())) {
      put_in_front(
          PyInstanceMethod_GET_FUNCTION(value.ptr()),
          {.name = full, .has_self = true, .is_constructor = name == "__init__", .is_repr = name == "__repr__"});
    } else if (py::isinstance<py::staticmethod>(value)) {
      put_in_front(py::object(value.attr("__func__")).ptr(), {.name = full});
    } else if (PyObject_TypeCheck(value.ptr(), &PyProperty_Type)) {
      for (const char* accessor : {"fget", "fset"}) {
        py::object function = value.attr(accessor);
        if (PyInstanceMethod_Check(function.ptr()))
          function = py::reinterpret_borrow<py::object>(PyInstanceMethod_GET_FUNCTION(function.ptr()));
        put_in_front(function.ptr(), {.name = full, .property = name, .has_self = true});
      }
    }
  }
}

}  // namespace

void answer_wrong_arguments(py::module_& module) {
  core = module.ptr();
  for (const auto& [key, value] : py::dict(module.attr("__dict__"))) {
    if (PyType_Check(value.ptr())) {
      metaclass = Py_TYPE(value.ptr());
      put_in_front_of_members(value);
    } else if (PyCFunction_Check(value.ptr()) && !PyModule_Check(PyCFunction_GET_SELF(value.ptr()))) {
      put_in_front(value.ptr(), {.name = py::str(key).cast<std::string>()});
    }
  }
}

}  // namespace mpscnn::bindings
