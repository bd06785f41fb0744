// SPDX-License-Identifier: Apache-2.0
// Matrix: an MPSMatrix whose memory is visible to NumPy, and the kernels that copy between images and matrices.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include <mpscnn/array.hpp>
#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

class Matrix {
 public:
  struct Impl;
  /// Allocate zero-filled rows without gaps. float32, float16, uint8, uint16, int32 or uint32.
  static std::shared_ptr<Matrix> make(std::shared_ptr<Device> device, std::int64_t rows, std::int64_t columns,
                                      DType dtype);
  /// Create an uninitialized matrix that is valid on one command buffer, until its read_count(), initially 1, is 0.
  static std::shared_ptr<Matrix> temporary(CommandBuffer& buffer, std::int64_t rows, std::int64_t columns, DType dtype);
  /// Wrap the array's memory, shape (rows, columns). Throw BufferError like Buffer::share().
  static std::shared_ptr<Matrix> share(std::shared_ptr<Device> device, const ArrayView& array);

  explicit Matrix(std::unique_ptr<Impl> impl);
  ~Matrix();

  std::int64_t rows() const;
  std::int64_t columns() const;
  Extents shape() const { return {rows(), columns()}; }
  DType dtype() const;
  std::shared_ptr<Device> device() const;
  bool is_temporary() const;
  std::int64_t read_count() const;
  void set_read_count(std::int64_t count);
  /// Throw std::runtime_error for a temporary matrix, and while a command buffer is due to write it.
  void check_readable() const;
  /// Return a view of the memory, without an owner. Call check_readable() first.
  ArrayView array() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Order of an image's values in a row of a matrix.
enum class RowLayout : std::uint32_t { CHW, HWC };
RowLayout row_layout_from_name(std::string_view name);
const char* name_of(RowLayout layout);

/// Row and column of the first value of image 0.
using MatrixOrigin = std::array<std::int64_t, 2>;

/// Copies image i to row origin[0] + i, from column origin[1] on. Thread-safe on different command buffers.
class ImageCopyToMatrix {
 public:
  struct Impl;
  static std::shared_ptr<ImageCopyToMatrix> make(std::shared_ptr<Device> device, RowLayout layout, MatrixOrigin origin);
  explicit ImageCopyToMatrix(std::unique_ptr<Impl> impl);
  ~ImageCopyToMatrix();

  /// Encode into `out` or a new matrix that ends with the last value, temporary on request. Dtypes must be equal.
  std::shared_ptr<Matrix> encode(CommandBuffer& buffer, const Image& source, std::shared_ptr<Matrix> out = nullptr,
                                 bool temporary = false) const;
  RowLayout layout() const;
  MatrixOrigin origin() const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Inverse of ImageCopyToMatrix.
class MatrixCopyToImage {
 public:
  struct Impl;
  static std::shared_ptr<MatrixCopyToImage> make(std::shared_ptr<Device> device, RowLayout layout, MatrixOrigin origin);
  explicit MatrixCopyToImage(std::unique_ptr<Impl> impl);
  ~MatrixCopyToImage();

  void encode(CommandBuffer& buffer, const Matrix& source, const Image& out) const;
  RowLayout layout() const;
  MatrixOrigin origin() const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
