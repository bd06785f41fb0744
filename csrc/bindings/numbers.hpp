// SPDX-License-Identifier: Apache-2.0
// Python's numbers as arguments.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>

#include <mpscnn/array.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

/// An int or a scalar that is one; no bool, and no array, whatever its __index__ says.
bool is_integer(py::handle object);

/// A float, an int or a scalar that is a number; no bool, no complex number and no array, whatever its __float__ says.
bool is_number(py::handle object);

/// What operator.index() gives of an object that is_integer().
struct Index {
  py::object number;
  std::optional<std::int64_t> value;  ///< nullopt beyond 64 bits
};
Index index_of(py::handle object);

/// The value; throws std::invalid_argument "`words` (10000000000000000000) is beyond 64 bits."
template <class... Words>
std::int64_t integer_from(py::handle object, const Words&... words) {
  const Index index = index_of(object);
  if (!index.value)
    throw std::invalid_argument(
        say(words..., " (", py::str(index.number).template cast<std::string>(), ") is beyond 64 bits."));
  return *index.value;
}

/// The integers of a shape: an int, or a sequence of them. Throws TypeError, naming what was given;
/// std::invalid_argument beyond 64 bits.
Extents extents_from(py::handle object, const char* name);

inline py::tuple tuple_of(Pair pair) { return py::make_tuple(pair.h, pair.w); }
inline py::tuple tuple_of(const ImageShape& shape) { return py::make_tuple(shape.n, shape.h, shape.w, shape.c); }

}  // namespace mpscnn::bindings
