// SPDX-License-Identifier: Apache-2.0
// Arguments of Python calls: strict types for signatures, and errors for wrong arguments.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <mpscnn/error.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// A parameter that accepts exactly its Python type, without conversion. answer_wrong_arguments() reports arguments of
/// other types.
template <class T>
struct Strict {
  T value{};
  operator const T&() const { return value; }
};
using Text = Strict<std::string>;      ///< str
using Integer = Strict<std::int64_t>;  ///< int, or a scalar that is one
using Boolean = Strict<bool>;          ///< True or False, NumPy's too
using Real = Strict<double>;           ///< float, or a scalar that is a number

/// An object of a bound class, or None. A plain shared_ptr accepts None only after pybind11 has searched for another
/// overload, which costs half a microsecond per call.
template <class T>
struct OrNone {
  std::shared_ptr<T> value;
};

bool load(py::handle object, Text& text);
bool load(py::handle object, Integer& integer);
bool load(py::handle object, Boolean& boolean);
bool load(py::handle object, Real& real);

/// "ndarray", "NoneType".
std::string type_name(py::handle object);

/// Throw the errors of text_of().
[[noreturn]] void refuse_text(py::handle object, std::string_view name);

/// Return the string's UTF-8, valid as long as the object. Throw TypeError "label (int) is not a str.", ValueError for
/// lone surrogates.
inline std::string_view text_of(py::handle object, std::string_view name) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8AndSize(object.ptr(), &length) : nullptr;
  if (!text) refuse_text(object, name);
  return {text, static_cast<std::size_t>(length)};
}

/// Return None for an empty string (no label, no error).
py::object text_or_none(const std::string& text);

/// Sort the arguments of a call by `names`; missing ones stay null. Throw TypeError with the function's name, as Python
/// does, for too many, unknown, repeated or missing arguments; the first `required` must be given.
inline void place_arguments(const char* function, std::span<const char* const> names, std::size_t positional,
                            std::size_t required, PyObject* const* values, std::size_t given, PyObject* keywords,
                            std::span<PyObject*> placed) {
  check<TypeError>(given <= positional, function, "() takes at most ", positional, " positional argument",
                   positional == 1 ? "" : "s", " (", given, " given).");
  for (std::size_t i = 0; i < given; ++i) placed[i] = values[i];
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
    placed[at] = values[given + static_cast<std::size_t>(i)];
  }
  for (std::size_t i = 0; i < required; ++i)
    check<TypeError>(placed[i], function, "() misses the argument '", names[i], "'.");
}

/// Return whether the object is of a bound class and its __init__ has not run, so that it holds no C++ object.
bool is_unmade(py::handle object);

/// Throw TypeError "self (Image) was not made: …".
void check_made(py::handle object, const char* name);

/// Replace pybind11's list of signatures, in errors of all functions and classes of `module`, by a message about the
/// wrong argument, and reject objects whose __init__ has not run. Successful calls cost a few pointer comparisons more.
/// Call when everything is bound.
void answer_wrong_arguments(py::module_& module);

}  // namespace mpscnn::bindings

namespace pybind11::detail {

#define MPSCNN_STRICT_CASTER(Type, python_name)                                      \
  template <>                                                                        \
  struct type_caster<mpscnn::bindings::Type> {                                       \
    PYBIND11_TYPE_CASTER(mpscnn::bindings::Type, const_name(python_name));           \
    bool load(handle source, bool) { return mpscnn::bindings::load(source, value); } \
  }

MPSCNN_STRICT_CASTER(Text, "str");
MPSCNN_STRICT_CASTER(Integer, "int");
MPSCNN_STRICT_CASTER(Boolean, "bool");
MPSCNN_STRICT_CASTER(Real, "float");

#undef MPSCNN_STRICT_CASTER

template <class T>
struct type_caster<mpscnn::bindings::OrNone<T>> {
  using Caster = make_caster<std::shared_ptr<T>>;
  PYBIND11_TYPE_CASTER(mpscnn::bindings::OrNone<T>, Caster::name);
  bool load(handle source, bool convert) {
    if (source.is_none()) return true;
    Caster caster;
    if (!caster.load(source, convert)) return false;
    value.value = cast_op<std::shared_ptr<T>&>(caster);
    return true;
  }
};

}  // namespace pybind11::detail
