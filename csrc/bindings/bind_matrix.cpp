// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/matrix.hpp>

#include <mpscnn/error.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

/// The array holds the matrix.
py::array matrix_view(const std::shared_ptr<Matrix>& matrix) {
  matrix->check_readable();
  auto view = matrix->array();
  view.owner = matrix;
  return array_from(view);
}

std::shared_ptr<Matrix> from_array(const py::object& x, std::optional<Boolean> copy,
                                   const std::shared_ptr<Device>& device) {
  const auto target = device_or_default(device);
  const auto view = view_of(x, "x");
  check(view.ndim() == 2, "Matrix: x.ndim (", view.ndim(), ") is not 2.");
  if (copy && !*copy) return Matrix::share(target, view);
  if (!copy) {
    try {
      return Matrix::share(target, view);
    } catch (const BufferError&) {  // copied
    }
  }
  const auto matrix = Matrix::make(target, view.shape[0], view.shape[1], view.dtype);
  matrix_view(matrix)[py::ellipsis()] = array_from(view);
  return matrix;
}

py::object matrix_array(const std::shared_ptr<Matrix>& matrix, const py::object& dtype_like,
                        std::optional<Boolean> copy) {
  const auto array = matrix_view(matrix);
  const py::dtype dtype = dtype_like.is_none() ? array.dtype() : dtype_object(dtype_like, "dtype");
  const bool always = copy && *copy, never = copy && !*copy;
  check(!never || array.dtype().equal(dtype), "Matrix: dtype (", py::str(py::handle(dtype)).cast<std::string>(),
        ") is not the matrix's (", name_of(matrix->dtype()), "), which copy=False asks for.");
  return array.attr("astype")(dtype, py::arg("copy") = always);
}

py::object view_of_object(py::handle self) { return matrix_view(self.cast<std::shared_ptr<Matrix>>()); }

MatrixOrigin origin_from(const py::object& origin, const char* name) {
  const auto extents = extents_from(origin, "origin");
  check(extents.size() == 2, name, ": len(origin) (", extents.size(), ") is not 2 (row, column).");
  return {extents[0], extents[1]};
}

template <class Kernel>
py::object representation(const Kernel& kernel, const char* name) {
  const auto origin = kernel.origin();
  return py::str(say("<mpscnn.", name, " ", name_of(kernel.layout()), " from (", origin[0], ", ", origin[1], ") on>"));
}

/// Members of both classes.
template <class Kernel>
py::class_<Kernel, std::shared_ptr<Kernel>> bind_copy(py::module_& module, const char* name, const char* doc) {
  return py::class_<Kernel, std::shared_ptr<Kernel>>(module, name, doc)
      .def(py::init([name](const Text& layout, const py::object& origin, const std::shared_ptr<Device>& device) {
             return Kernel::make(device_or_default(device), row_layout_from_name(layout.value),
                                 origin_from(origin, name));
           }),
           py::arg("layout") = "CHW", py::kw_only(), py::arg("origin") = py::make_tuple(0, 0),
           py::arg("device") = nullptr)
      .def_property_readonly(
          "layout", [](const Kernel& kernel) { return name_of(kernel.layout()); }, "str: \"CHW\" or \"HWC\".")
      .def_property_readonly(
          "origin", [](const Kernel& kernel) { return py::make_tuple(kernel.origin()[0], kernel.origin()[1]); },
          "(int, int): row and column of the first value.")
      .def_property_readonly("device", &Kernel::device, "Device")
      .def("__repr__", [name](const Kernel& kernel) { return representation(kernel, name); });
}

}  // namespace

void bind_matrix(py::module_& module) {
  py::class_<Matrix, std::shared_ptr<Matrix>>(module, "Matrix",
                                              py::custom_type_setup(&set_up_buffer_protocol<&view_of_object>),
                                              R"(Rows of numbers that the device and NumPy share.

    ``Matrix(rows, columns)`` is zero-filled, ``Matrix.from_array(x)`` shows an array.

    Parameters
    ----------
    rows, columns : int, >= 1
    dtype : dtype, default float32
        float32, float16, uint8, uint16, int32 or uint32.
    device : Device, optional

    Sharing
    -------
    ``matrix.numpy()``, ``np.asarray(matrix)``, ``memoryview(matrix)`` and ``torch.from_dlpack(matrix)`` see the matrix's
    own memory, shape (rows, columns), writable, and hold the matrix.

    Raises
    ------
    ValueError   "Matrix: rows (0) is less than the minimum (1)."
    TypeError    "Matrix: dtype (float64) is not float32, float16, uint8, uint16, int32 or uint32."
    MemoryError  "Matrix: … rows of … float32 need … bytes, more than the device's max_buffer_bytes (…)."
    RuntimeError "Matrix: the command buffer that writes it has not completed …"

    Source
    ------
    MPSCore/MPSMatrix.h, MPSMatrix and MPSTemporaryMatrix.)")
      .def(py::init([](Integer rows, Integer columns, const py::object& dtype, const std::shared_ptr<Device>& device) {
             return Matrix::make(device_or_default(device), rows, columns, dtype_from(dtype, "dtype", DType::float32));
           }),
           py::arg("rows"), py::arg("columns"), py::arg("dtype") = "float32", py::kw_only(),
           py::arg("device") = nullptr)
      .def_static("from_array", &from_array, py::arg("x"), py::kw_only(), py::arg("copy") = py::none(),
                  py::arg("device") = nullptr,
                  R"(Return a matrix of an array of shape (rows, columns).

        Parameters
        ----------
        x : array, shape (rows, columns)
        copy : bool, optional
            None shares the memory if it can, True copies, False shares or raises BufferError with the reason: as for
            Buffer, the array is C-contiguous, writable and on whole pages.)")
      .def_static(
          "temporary",
          [](CommandBuffer& buffer, Integer rows, Integer columns, const py::object& dtype) {
            return Matrix::temporary(buffer, rows, columns, dtype_from(dtype, "dtype", DType::float32));
          },
          py::arg("command_buffer"), py::arg("rows"), py::arg("columns"), py::arg("dtype") = "float32",
          "Return a matrix that is valid on one command buffer, until its read_count is 0 (MPSTemporaryMatrix); never "
          "read by the CPU.")
      .def("numpy", &matrix_view, "array: a view of the matrix's memory, shape (rows, columns); not a copy.")
      .def("__array__", &matrix_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack__", [](const std::shared_ptr<Matrix>& matrix,
                            const py::kwargs& options) { return matrix_view(matrix).attr("__dlpack__")(**options); })
      .def("__dlpack_device__", [](const Matrix&) { return py::make_tuple(1, 0); })
      .def_property_readonly("rows", &Matrix::rows, "int")
      .def_property_readonly("columns", &Matrix::columns, "int")
      .def_property_readonly(
          "shape", [](const Matrix& matrix) { return py::make_tuple(matrix.rows(), matrix.columns()); },
          "(rows, columns)")
      .def_property_readonly(
          "dtype", [](const Matrix& matrix) { return numpy_dtype(matrix.dtype()); }, "numpy.dtype")
      .def_property_readonly("is_temporary", &Matrix::is_temporary, "bool")
      .def_property(
          "read_count", &Matrix::read_count, [](Matrix& matrix, Integer count) { matrix.set_read_count(count); },
          "int: reads left before a temporary matrix's storage is recycled.")
      .def_property_readonly("device", &Matrix::device, "Device")
      .def("__repr__", [](const Matrix& matrix) {
        return say("<mpscnn.", matrix.is_temporary() ? "temporary " : "", "Matrix ", as_tuple(matrix.shape()), " ",
                   name_of(matrix.dtype()), ">");
      });

  bind_copy<ImageCopyToMatrix>(module, "ImageCopyToMatrix", R"(Images to rows of a matrix: image i to row origin[0] + i.

    Parameters
    ----------
    layout : "CHW" or "HWC"
        Order of the values in a row.
    origin : (int, int), default (0, 0)
        Row and column of the first value of the first image.
    device : Device, optional

    Raises
    ------
    ValueError   "ImageCopyToMatrix: 2 rows of 140 values from origin (0, 0) on end beyond out.shape (1, 140)."
    TypeError    "ImageCopyToMatrix: out.dtype (float16) is not that of x (float32)."

    Source
    ------
    MPSImage/MPSImageCopy.h, MPSImageCopyToMatrix.)")
      .def(
          "__call__",
          [](const ImageCopyToMatrix& kernel, const Image& x, const std::shared_ptr<Matrix>& out) {
            const ReleaseGil release;
            const auto buffer = CommandBuffer::make(kernel.device());
            const auto matrix = kernel.encode(*buffer, x, out);
            buffer->run();
            return matrix;
          },
          py::arg("x"), py::arg("out") = nullptr,
          R"(Copy and wait.

        Parameters
        ----------
        x : Image
        out : Matrix, optional
            Of x's dtype; written in place and returned. Without it a new one that ends with the last value, zero
            elsewhere.)")
      .def(
          "encode",
          [](const ImageCopyToMatrix& kernel, CommandBuffer& buffer, const Image& x, const std::shared_ptr<Matrix>& out,
             Boolean temporary) {
            check(!out || !temporary, "ImageCopyToMatrix: temporary (True) was given together with out.");
            const ReleaseGil release;
            return kernel.encode(buffer, x, out, temporary);
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("out") = nullptr, py::arg("temporary") = false,
          "Matrix: the same on a command buffer; may be read when that has completed, and a temporary one on that "
          "command buffer only, as often as its read_count says (1).");

  bind_copy<MatrixCopyToImage>(module, "MatrixCopyToImage", R"(Rows of a matrix to images: row origin[0] + i to image i.

    Parameters
    ----------
    layout : "CHW" or "HWC"
        Order of the values in a row.
    origin : (int, int), default (0, 0)
        Row and column of the first value of the first image.
    device : Device, optional

    Raises
    ------
    ValueError   "MatrixCopyToImage: 2 rows of 140 values from origin (0, 0) on end beyond x.shape (1, 140)."
    TypeError    "MatrixCopyToImage: x.dtype (float16) is not that of out (float32)."

    Source
    ------
    MPSImage/MPSImageCopy.h, MPSMatrixCopyToImage.)")
      .def(
          "__call__",
          [](const MatrixCopyToImage& kernel, const Matrix& x, const std::shared_ptr<Image>& out) {
            const ReleaseGil release;
            const auto buffer = CommandBuffer::make(kernel.device());
            kernel.encode(*buffer, x, *out);
            buffer->run();
            return out;
          },
          py::arg("x"), py::arg("out").none(false),
          R"(Copy and wait.

        Parameters
        ----------
        x : Matrix
        out : Image
            Of x's dtype; written and returned. Its shape says how the rows are read.)")
      .def(
          "encode",
          [](const MatrixCopyToImage& kernel, CommandBuffer& buffer, const Matrix& x,
             const std::shared_ptr<Image>& out) {
            const ReleaseGil release;
            kernel.encode(buffer, x, *out);
            return out;
          },
          py::arg("command_buffer"), py::arg("x"), py::arg("out").none(false),
          "Image: the same on a command buffer; may be read when that has completed.");
}

}  // namespace mpscnn::bindings
