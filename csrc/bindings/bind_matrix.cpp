// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/matrix.hpp>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

/// The array holds the matrix.
py::array matrix_view(const std::shared_ptr<Matrix>& matrix) {
  matrix->check_readable();
  auto view = matrix->array();
  view.owner = matrix;
  return array_from(view);
}

std::shared_ptr<Matrix> share(const py::object& x, const OptionalArg<Device, "device">& device) {
  const auto view = view_of(x, "x");
  check(view.ndim() == 2, "Matrix: x.ndim (", view.ndim(), ") is not 2.");
  return Matrix::share(device_or_default(device), view);
}

py::object view_of_object(py::handle self) { return matrix_view(object_of<Matrix>(self, "self")); }

MatrixOrigin origin_from(const py::object& origin, const char* name) {
  const auto extents = extents_from(origin, "origin");
  check(extents.size() == 2, name, ": len(origin) (", extents.size(), ") is not 2 (row, column).");
  return {extents[0], extents[1]};
}

/// Bind the members that both classes have.
template <class Kernel>
py::class_<Kernel, std::shared_ptr<Kernel>> bind_copy(py::module_& module, const char* name) {
  py::class_<Kernel, std::shared_ptr<Kernel>> kind(module, say("_", name).c_str());
  kind.def(py::init([name](const Str<"layout">& layout, const py::object& origin,
                           const OptionalArg<Device, "device">& device) {
        return Kernel::make(device_or_default(device), row_layout_from_name(layout.value), origin_from(origin, name));
      }))
      .def_property_readonly("_layout", [](const Kernel& kernel) { return name_of(kernel.layout()); })
      .def_property_readonly(
          "origin",
          [](const Kernel& kernel) { return IntPair(py::make_tuple(kernel.origin()[0], kernel.origin()[1])); },
          "Row and column of the first value.")
      .def_property_readonly("device", &Kernel::device, "The device that copies.");
  kind.def("__repr__", [name](const Kernel& kernel) {
    const auto [row, column] = kernel.origin();
    return say("<mpscnn.", name, " ", name_of(kernel.layout()), " from (", row, ", ", column, ") on>");
  });
  return kind;
}

}  // namespace

void bind_matrix(py::module_& module) {
  using In = Arg<CommandBuffer, "command_buffer">;
  py::class_<Matrix, std::shared_ptr<Matrix>> kind(module, "_Matrix",
                                                   py::custom_type_setup(&set_up_buffer_protocol<&view_of_object>));
  kind.def(py::init([](Int<"rows"> rows, Int<"columns"> columns, const py::object& dtype,
                       const OptionalArg<Device, "device">& device) {
        return Matrix::make(device_or_default(device), rows, columns, dtype_from(dtype, "dtype", DType::float32));
      }))
      .def_static("_share", &share)
      .def_static("_temporary",
                  [](const In& buffer, Int<"rows"> rows, Int<"columns"> columns, const py::object& dtype) {
                    return Matrix::temporary(*buffer, rows, columns, dtype_from(dtype, "dtype", DType::float32));
                  })
      .def("_numpy", [](const Arg<Matrix, "self">& matrix) { return matrix_view(matrix); })
      .def_property_readonly("rows", &Matrix::rows, "Number of rows.")
      .def_property_readonly("columns", &Matrix::columns, "Number of columns.")
      .def_property_readonly(
          "shape", [](const Matrix& matrix) { return IntPair(py::make_tuple(matrix.rows(), matrix.columns())); },
          "(rows, columns).")
      .def_property_readonly(
          "dtype", [](const Matrix& matrix) { return numpy_dtype(matrix.dtype()); }, "The type of the values.")
      .def_property_readonly("is_temporary", &Matrix::is_temporary,
                             "Whether the matrix is valid on one command buffer.")
      .def_property(
          "read_count", &Matrix::read_count,
          [](Matrix& matrix, Int<"read_count"> count) { matrix.set_read_count(count); },
          "Reads left before a temporary matrix's storage is recycled.")
      .def_property_readonly("device", &Matrix::device, "The device that the matrix is on.");
  kind.def("__repr__", [](const Matrix& matrix) {
    return say("<mpscnn.", matrix.is_temporary() ? "temporary " : "", "Matrix ", as_tuple(matrix.shape()), " ",
               name_of(matrix.dtype()), ">");
  });

  bind_copy<ImageCopyToMatrix>(module, "ImageCopyToMatrix")
      .def("_call",
           [](const ImageCopyToMatrix& kernel, const Arg<Image, "x">& x, const OptionalArg<Matrix, "out">& out) {
             const ReleaseGil release;
             const auto buffer = CommandBuffer::make(kernel.device());
             const auto matrix = kernel.encode(*buffer, *x, out);
             buffer->run();
             return matrix;
           })
      .def("_encode", [](const ImageCopyToMatrix& kernel, const In& buffer, const Arg<Image, "x">& x,
                         const OptionalArg<Matrix, "out">& out, Bool<"temporary"> temporary) {
        check(!out || !temporary, "ImageCopyToMatrix: temporary (True) was given together with out.");
        const ReleaseGil release;
        return kernel.encode(*buffer, *x, out, temporary);
      });

  bind_copy<MatrixCopyToImage>(module, "MatrixCopyToImage")
      .def("_call",
           [](const MatrixCopyToImage& kernel, const Arg<Matrix, "x">& x, const Arg<Image, "out">& out) {
             const ReleaseGil release;
             const auto buffer = CommandBuffer::make(kernel.device());
             kernel.encode(*buffer, *x, *out);
             buffer->run();
           })
      .def("_encode", [](const MatrixCopyToImage& kernel, const In& buffer, const Arg<Matrix, "x">& x,
                         const Arg<Image, "out">& out) {
        const ReleaseGil release;
        kernel.encode(*buffer, *x, *out);
      });
}

}  // namespace mpscnn::bindings
