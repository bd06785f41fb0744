// SPDX-License-Identifier: Apache-2.0
#include "numbers.hpp"

#include <string_view>
#include <utility>

#include "arguments.hpp"

namespace mpscnn::bindings {

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

}  // namespace mpscnn::bindings
