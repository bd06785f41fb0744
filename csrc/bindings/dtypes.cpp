// SPDX-License-Identifier: Apache-2.0
#include "dtypes.hpp"

#include <cstring>
#include <string_view>

#include <mpscnn/array_protocols.hpp>
#include <mpscnn/error.hpp>

namespace mpscnn::bindings {

namespace {

using Npy = py::detail::npy_api;

/// ml_dtypes' bfloat16, once imported.
int bfloat16_number(const py::detail::PyArrayDescr_Proxy* descr) {
  static int number = -1;  // NumPy registers user types once per process
  if (number >= 0) return number;
  const char* name = reinterpret_cast<PyTypeObject*>(descr->typeobj)->tp_name;
  const char* dot = std::strrchr(name, '.');
  if (std::string_view(dot ? dot + 1 : name) == "bfloat16") number = descr->type_num;
  return number;
}

}  // namespace

std::optional<DType> dtype_of(const py::detail::PyArrayDescr_Proxy* descr) {
  if (descr->byteorder == '>' || descr->byteorder == '<') {
    const std::uint16_t one = 1;
    const bool little = *reinterpret_cast<const std::uint8_t*>(&one) == 1;
    if ((descr->byteorder == '<') != little) return std::nullopt;
  }
  switch (descr->type_num) {
    case Npy::NPY_UINT8_: return DType::uint8;
    case Npy::NPY_UINT16_: return DType::uint16;
    case 23: return DType::float16;  // NPY_HALF
    case Npy::NPY_FLOAT_: return DType::float32;
    case Npy::NPY_DOUBLE_: return DType::float64;
    case Npy::NPY_INT_: return DType::int32;
    case Npy::NPY_UINT_: return DType::uint32;
    case Npy::NPY_LONG_: return sizeof(long) == 8 ? DType::int64 : DType::int32;
    case Npy::NPY_LONGLONG_: return DType::int64;
    default: break;
  }
  if (descr->type_num >= 256 && descr->type_num == bfloat16_number(descr)) return DType::bfloat16;
  return std::nullopt;
}

py::dtype dtype_object(py::handle dtype, const char* name) {
  try {
    return py::dtype::from_args(py::reinterpret_borrow<py::object>(dtype));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    throw TypeError(say(name, " (", py::repr(dtype).cast<std::string>(), ") is not a dtype."));
  }
}

DType dtype_from(py::handle dtype, const char* name) {
  if (PyUnicode_Check(dtype.ptr()) && PyUnicode_CompareWithASCIIString(dtype.ptr(), "bfloat16") == 0)
    return DType::bfloat16;
  const py::dtype descr = dtype_object(dtype, name);
  if (const auto known = dtype_of(reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(descr.ptr()))) return *known;
  throw TypeError(say(name, " (", py::str(py::handle(descr)).cast<std::string>(), ") is not ", kKnownTypes, "."));
}

DType dtype_from(py::handle dtype, const char* name, DType otherwise) {
  return dtype.is_none() ? otherwise : dtype_from(dtype, name);
}

py::dtype numpy_dtype(DType dtype) {
  int number = 0;
  switch (dtype) {
    case DType::uint8: number = Npy::NPY_UINT8_; break;
    case DType::uint16: number = Npy::NPY_UINT16_; break;
    case DType::int32: number = Npy::NPY_INT32_; break;
    case DType::uint32: number = Npy::NPY_UINT32_; break;
    case DType::int64: number = Npy::NPY_INT64_; break;
    case DType::float16: number = 23; break;  // NPY_HALF
    case DType::float32: number = Npy::NPY_FLOAT_; break;
    case DType::float64: number = Npy::NPY_DOUBLE_; break;
    case DType::bfloat16: {
      static PyObject* bfloat16 = nullptr;  // never released; a failed import is retried
      if (!bfloat16) {
        try {
          bfloat16 = py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16")).release().ptr();
        } catch (py::error_already_set& error) {
          if (!error.matches(PyExc_ImportError)) throw;
          throw TypeError("bfloat16 arrays need the package ml_dtypes, which is not installed: pip install ml_dtypes.");
        }
      }
      return py::reinterpret_borrow<py::dtype>(bfloat16);
    }
  }
  PyObject* descr = Npy::get().PyArray_DescrFromType_(number);
  if (!descr) throw py::error_already_set();
  return py::reinterpret_steal<py::dtype>(descr);
}

}  // namespace mpscnn::bindings
