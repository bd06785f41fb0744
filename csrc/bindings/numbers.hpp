// SPDX-License-Identifier: Apache-2.0
// Python numbers as arguments.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <optional>

#include <mpscnn/array.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

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

}  // namespace mpscnn::bindings
