// SPDX-License-Identifier: Apache-2.0
// Arguments of METH_FASTCALL functions, for functions that take less time than pybind11's handling of arguments.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>
#include <string_view>

#include <mpscnn/error.hpp>

#include "bindings.hpp"

namespace mpscnn::bindings {

namespace py = pybind11;

/// Place the arguments given by keyword at the indices of their names. Throw TypeError with the function's name, as
/// Python does, for unknown and repeated ones.
inline void place_keywords(const char* function, std::span<const char* const> names, PyObject* const* values,
                           PyObject* keywords, std::span<PyObject*> placed) {
  const Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keywords, i);
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name, &length);
    if (!text) throw py::error_already_set();
    const std::string_view word(text, static_cast<std::size_t>(length));
    std::size_t at = 0;
    while (at < names.size() && word != names[at]) ++at;
    check<TypeError>(at < names.size(), function, "() has no argument '", word, "'.");
    check<TypeError>(!placed[at], function, "() got '", names[at], "' twice.");
    placed[at] = values[i];
  }
}

/// Arguments by position or keyword, as in a Python signature. Throw TypeError for too many and missing ones too; the
/// first `positional` may be given by position, the first `required` must be given.
template <std::size_t kCount>
class FastArguments {
 public:
  FastArguments(const char* function, const char* const (&names)[kCount], std::size_t positional, std::size_t required,
                PyObject* const* values, Py_ssize_t given, PyObject* keywords)
      : names_(names) {
    const auto count = static_cast<std::size_t>(given);
    check<TypeError>(count <= positional, function, "() takes at most ", positional, " positional argument",
                     positional == 1 ? "" : "s", " (", count, " given).");
    for (std::size_t i = 0; i < count; ++i) values_[i] = values[i];
    place_keywords(function, names, values + count, keywords, values_);
    for (std::size_t i = 0; i < required; ++i)
      check<TypeError>(values_[i], function, "() misses the argument '", names[i], "'.");
  }

  /// Return the argument; null if not given or None.
  PyObject* operator[](std::size_t i) const { return values_[i] == Py_None ? nullptr : values_[i]; }
  PyObject* as_given(std::size_t i) const { return values_[i]; }
  const char* name(std::size_t i) const { return names_[i]; }

 private:
  const char* const (&names_)[kCount];
  PyObject* values_[kCount] = {};
};

using FastFunction = PyObject*(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

/// Return `call()`; for an exception set the Python error and return null.
template <class Call>
PyObject* result_or_error(const Call& call) {
  try {
    return py::object(call()).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

/// Return the definition of a function, whose signature and docstring _document() sets.
inline PyMethodDef fast_method(const char* name, FastFunction* function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL | METH_KEYWORDS,
          nullptr};
}

}  // namespace mpscnn::bindings
