// SPDX-License-Identifier: Apache-2.0
// Parameters of bound functions. A parameter's type has its name, so that a wrong argument is reported by name:
//
//   .def("channels", [](const Image& image, Int<"first"> first, Int<"count"> count) { … })
//
// The public Python function around it has the signature, defaults and docstring.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <mpscnn/array.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

// ---- numbers

/// Return whether the object is True or False, NumPy's too.
bool is_bool(py::handle object);

/// Return whether the object is an int or integer scalar; not a bool or array, even with __index__.
bool is_integer(py::handle object);

/// Return whether the object is a float, int or real scalar; not a bool, complex number or array, even with __float__.
bool is_number(py::handle object);

/// Result of operator.index() for an object that is_integer().
struct Index {
  py::object number;
  std::optional<std::int64_t> value;  ///< nullopt beyond 64 bits
};
Index index_of(py::handle object);

/// Return the value. Throw std::invalid_argument "`words` (10000000000000000000) is beyond 64 bits."
template <class... Words>
std::int64_t integer_from(py::handle object, const Words&... words) {
  const Index index = index_of(object);
  if (!index.value)
    throw std::invalid_argument(
        say(words..., " (", py::str(index.number).template cast<std::string>(), ") is beyond 64 bits."));
  return *index.value;
}

/// Return the integers of a shape: an int or a sequence of ints. Throw TypeError with the argument;
/// std::invalid_argument beyond 64 bits.
Extents extents_from(py::handle object, const char* name);

using IntPair = py::typing::Tuple<py::int_, py::int_>;
using Int3 = py::typing::Tuple<py::int_, py::int_, py::int_>;
using Int4 = py::typing::Tuple<py::int_, py::int_, py::int_, py::int_>;

inline IntPair tuple_of(Pair pair) { return py::make_tuple(pair.h, pair.w); }
inline Int4 tuple_of(const ImageShape& shape) { return py::make_tuple(shape.n, shape.h, shape.w, shape.c); }

// ---- checks, for arguments of several types

/// "ndarray", "NoneType".
std::string type_name(py::handle object);

/// Throw TypeError "label (int) is not a str."
[[noreturn]] void refuse(py::handle object, std::string_view name, std::string_view wanted);

/// Return the string's UTF-8, valid as long as the object. Throw TypeError "label (int) is not a str.", ValueError for
/// lone surrogates.
std::string_view text_of(py::handle object, std::string_view name);
inline std::string str_of(py::handle object, std::string_view name) { return std::string(text_of(object, name)); }

/// Return the value of an int or a scalar that is one. Throw TypeError "first (bool) is not an int.", ValueError beyond
/// 64 bits.
std::int64_t int_of(py::handle object, std::string_view name);

/// Return the value of True or False, NumPy's too. Throw TypeError "copy (int) is not True or False."
bool bool_of(py::handle object, std::string_view name);

/// Return the value of a float or a scalar that is a number. Throw TypeError "epsilon (str) is not a number.",
/// ValueError for an int beyond a float's range.
double float_of(py::handle object, std::string_view name);

/// Return whether the object is of a bound class and its __init__ has not run, so that it holds no C++ object.
bool is_unmade(py::handle object);

/// Throw TypeError "x (Image) was not made: its __init__ has not run."
void check_made(py::handle object, std::string_view name);

/// Throw TypeError "x (int) is not an Image." unless the object is an instance of `kind` that was made.
void check_instance(py::handle object, std::string_view name, py::handle kind);

/// Return the C++ object. Throw TypeError "x (int) is not an Image."
template <class T>
std::shared_ptr<T> object_of(py::handle object, std::string_view name) {
  check_instance(object, name, py::type::handle_of<T>());
  return object.cast<std::shared_ptr<T>>();
}

/// Return the C++ object, or null for None.
template <class T>
std::shared_ptr<T> object_or_null(py::handle object, std::string_view name) {
  return object.is_none() ? nullptr : object_of<T>(object, name);
}

/// Return nullopt, which is None, for an empty string (no label, no error).
std::optional<std::string> optional_text(std::string text);

// ---- parameters

/// A string as a template argument.
template <std::size_t kSize>
struct Name {
  consteval Name(const char (&letters)[kSize]) { std::copy_n(letters, kSize, text); }  // NOLINT: implicit on purpose
  char text[kSize]{};
};

/// A value that `read(object, name)` checks.
template <class T, Name kName, T (*kRead)(py::handle, std::string_view)>
struct Checked {
  static constexpr auto kType = py::detail::make_caster<T>::name;
  T value{};
  operator const T&() const { return value; }
  void read(py::handle object) { value = kRead(object, kName.text); }
};
template <Name kName>
using Str = Checked<std::string, kName, &str_of>;
template <Name kName>
using Int = Checked<std::int64_t, kName, &int_of>;
template <Name kName>
using Bool = Checked<bool, kName, &bool_of>;
template <Name kName>
using Float = Checked<double, kName, &float_of>;

/// An object of a bound class.
template <class T, Name kName>
struct Arg {
  static constexpr auto kType = py::detail::make_caster<T>::name;
  std::shared_ptr<T> value;
  operator const std::shared_ptr<T>&() const { return value; }
  T& operator*() const { return *value; }
  T* operator->() const { return value.get(); }
  void read(py::handle object) { value = object_of<T>(object, kName.text); }
};

/// An object of a bound class, or None, which is null.
template <class T, Name kName>
struct OptionalArg {
  static constexpr auto kType = py::detail::make_caster<T>::name | py::detail::make_caster<py::none>::name;
  std::shared_ptr<T> value;
  operator const std::shared_ptr<T>&() const { return value; }
  explicit operator bool() const { return value != nullptr; }
  void read(py::handle object) { value = object_or_null<T>(object, kName.text); }
};

template <class T>
concept Parameter = requires(T parameter, py::handle object) { parameter.read(object); };

// ---- classes

/// Make all methods of the module's classes refuse a `self` whose __init__ has not run. Call when everything is bound.
void refuse_unmade(py::module_& module);

}  // namespace mpscnn::bindings

namespace pybind11::detail {

template <mpscnn::bindings::Parameter T>
struct type_caster<T> {
  PYBIND11_TYPE_CASTER(T, T::kType);
  bool load(handle source, bool) {
    value.read(source);
    return true;
  }
};

}  // namespace pybind11::detail
