// SPDX-License-Identifier: Apache-2.0
// MPSMatrix over a buffer, and the kernels between images and matrices.
#include <mpscnn/error.hpp>
#include <mpscnn/matrix.hpp>

#include "core/device/completion_check.hh"
#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"

namespace mpscnn {

struct Matrix::Impl {
  std::shared_ptr<Device> device;
  std::shared_ptr<Buffer> buffer;  ///< null: a temporary matrix
  Ref<MPSMatrix *> matrix;
  DType dtype;
  Writer writer = {};

  ~Impl() {
    // Metal's validation refuses to free a temporary matrix whose readCount is not 0 [MPSMatrix.h].
    if (buffer) return;
    auto *temporary = static_cast<MPSTemporaryMatrix *>(matrix.get());
    if (temporary.readCount > 0) temporary.readCount = 0;
  }
};

namespace {

MPSDataType data_type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return MPSDataTypeFloat32;
    case DType::float16: return MPSDataTypeFloat16;
    case DType::uint8: return MPSDataTypeUInt8;
    case DType::uint16: return MPSDataTypeUInt16;
    case DType::int32: return MPSDataTypeInt32;
    case DType::uint32: return MPSDataTypeUInt32;
    default:
      throw TypeError(
          say("Matrix: dtype (", name_of(dtype), ") is not float32, float16, uint8, uint16, int32 or uint32."));
  }
}

std::uint64_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  data_type_of(dtype);
  check(rows >= 1, "Matrix: rows (", rows, ") is less than the minimum (1).");
  check(columns >= 1, "Matrix: columns (", columns, ") is less than the minimum (1).");
  std::uint64_t bytes = size_of(dtype);
  for (auto extent : {rows, columns})
    check<MemoryError>(!__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes), "Matrix: ", rows,
                       " rows of ", columns, " ", name_of(dtype), " need more bytes than can be counted.");
  return bytes;
}

std::uint64_t checked_bytes(const Device &device, std::int64_t rows, std::int64_t columns, DType dtype) {
  const auto bytes = bytes_of(rows, columns, dtype), limit = device.max_buffer_bytes();
  check<MemoryError>(bytes <= limit, "Matrix: ", rows, " rows of ", columns, " ", name_of(dtype), " need ", bytes,
                     " bytes, more than the device's max_buffer_bytes (", limit, ").");
  return bytes;
}

/// Descriptor with dense rows.
MPSMatrixDescriptor *descriptor_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return [MPSMatrixDescriptor matrixDescriptorWithRows:static_cast<NSUInteger>(rows)
                                               columns:static_cast<NSUInteger>(columns)
                                              rowBytes:static_cast<NSUInteger>(columns) * size_of(dtype)
                                              dataType:data_type_of(dtype)];
}

/// Matrix over the whole buffer.
std::shared_ptr<Matrix> matrix_on(std::shared_ptr<Buffer> buffer, std::int64_t rows, std::int64_t columns,
                                  DType dtype) {
  return guard([&] {
    auto matrix = Ref<MPSMatrix *>::adopt([[MPSMatrix alloc] initWithBuffer:buffer->impl().buffer.get()
                                                                 descriptor:descriptor_of(rows, columns, dtype)]);
    check<std::runtime_error>(static_cast<bool>(matrix), "Matrix: the device cannot make one of ", rows, " rows and ",
                              columns, " columns.");
    return std::make_shared<Matrix>(
        std::unique_ptr<Matrix::Impl>(new Matrix::Impl{buffer->impl().device, buffer, matrix, dtype}));
  });
}

}  // namespace

Matrix::Matrix(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matrix::~Matrix() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<Matrix> Matrix::make(std::shared_ptr<Device> device, std::int64_t rows, std::int64_t columns,
                                     DType dtype) {
  const auto bytes = checked_bytes(*device, rows, columns, dtype);
  return matrix_on(Buffer::make(device, bytes), rows, columns, dtype);
}

std::shared_ptr<Matrix> Matrix::temporary(CommandBuffer &buffer, std::int64_t rows, std::int64_t columns, DType dtype) {
  const auto device = buffer.device();
  checked_bytes(*device, rows, columns, dtype);
  return guard([&] {
    auto matrix = Ref<MPSMatrix *>::retain([MPSTemporaryMatrix
        temporaryMatrixWithCommandBuffer:buffer.impl().buffer.get()
                        matrixDescriptor:descriptor_of(rows, columns, dtype)]);
    check<std::runtime_error>(static_cast<bool>(matrix), "Matrix: the device cannot make a temporary one of ", rows,
                              " rows and ", columns, " columns.");
    return std::make_shared<Matrix>(std::unique_ptr<Impl>(new Impl{device, nullptr, matrix, dtype}));
  });
}

std::shared_ptr<Matrix> Matrix::share(std::shared_ptr<Device> device, const ArrayView &array) {
  bytes_of(array.shape[0], array.shape[1], array.dtype);
  return matrix_on(Buffer::share(device, array), array.shape[0], array.shape[1], array.dtype);
}

std::int64_t Matrix::rows() const { return static_cast<std::int64_t>([impl_->matrix.get() rows]); }
std::int64_t Matrix::columns() const { return static_cast<std::int64_t>([impl_->matrix.get() columns]); }
DType Matrix::dtype() const { return impl_->dtype; }
std::shared_ptr<Device> Matrix::device() const { return impl_->device; }
bool Matrix::is_temporary() const { return impl_->buffer == nullptr; }

std::int64_t Matrix::read_count() const {
  if (!is_temporary()) return 0;
  return static_cast<std::int64_t>([static_cast<MPSTemporaryMatrix *>(impl_->matrix.get()) readCount]);
}

void Matrix::set_read_count(std::int64_t count) {
  check<std::runtime_error>(is_temporary(), "Matrix: only a temporary matrix has a read_count.");
  check(count >= 0, "Matrix: read_count (", count, ") is less than the minimum (0).");
  check<std::runtime_error>(read_count() > 0, "Matrix: read_count is 0 already; the storage is gone.");
  guard([&] { [static_cast<MPSTemporaryMatrix *>(impl_->matrix.get()) setReadCount:static_cast<NSUInteger>(count)]; });
}

void Matrix::check_readable() const {
  check<std::runtime_error>(!is_temporary(), "Matrix: a temporary matrix cannot be read by the CPU.");
  const auto writer = impl_->writer.get();
  if (!writer) return;
  const auto status = [writer.get() status];
  check<std::runtime_error>(status >= MTLCommandBufferStatusCompleted,
                            "Matrix: the command buffer that writes it has not completed (status ",
                            name_of(static_cast<CommandBufferStatus>(status)), "); commit() and wait() come first.");
  check<std::runtime_error>(status != MTLCommandBufferStatusError,
                            "Matrix: the command buffer that writes it has failed.");
  impl_->writer.forget(writer);
}

ArrayView Matrix::array() const {
  return {.data = impl_->buffer->contents(),
          .dtype = impl_->dtype,
          .shape = shape(),
          .strides = contiguous_strides(shape(), impl_->dtype)};
}

// ----------------------------------------------------------------------------------------------- copies

RowLayout row_layout_from_name(std::string_view name) {
  if (name == "CHW") return RowLayout::CHW;
  if (name == "HWC") return RowLayout::HWC;
  throw std::invalid_argument(say("layout (\"", name, "\") is not \"CHW\" or \"HWC\"."));
}

const char *name_of(RowLayout layout) { return layout == RowLayout::CHW ? "CHW" : "HWC"; }

namespace {

template <class Kernel>
struct Copy {
  std::shared_ptr<Device> device;
  Ref<Kernel *> kernel;
  RowLayout layout;
  MatrixOrigin origin;
};

template <class Kernel>
Copy<Kernel> make_copy(std::shared_ptr<Device> device, RowLayout layout, MatrixOrigin origin, const char *name) {
  check(origin[0] >= 0 && origin[1] >= 0, name, ": origin (", origin[0], ", ", origin[1], ") is negative.");
  return guard([&] {
    auto kernel = Ref<Kernel *>::adopt([[Kernel alloc]
        initWithDevice:device->impl().device.get()
            dataLayout:layout == RowLayout::CHW ? MPSDataLayoutFeatureChannelsxHeightxWidth
                                                : MPSDataLayoutHeightxWidthxFeatureChannels]);
    check<NotImplementedError>(static_cast<bool>(kernel), name, ": the device has no such kernel.");
    return Copy<Kernel>{device, kernel, layout, origin};
  });
}

/// MPS takes rows as x and columns as y [MPSImageCopy.h].
MTLOrigin origin_of(MatrixOrigin origin) {
  return MTLOriginMake(static_cast<NSUInteger>(origin[0]), static_cast<NSUInteger>(origin[1]), 0);
}

void check_fits(const char *name, const Image &image, const Matrix &matrix, MatrixOrigin origin, const char *image_name,
                const char *matrix_name) {
  check<TypeError>(image.dtype() == matrix.dtype(), name, ": ", matrix_name, ".dtype (", name_of(matrix.dtype()),
                   ") is not that of ", image_name, " (", name_of(image.dtype()), ").");
  const auto s = image.shape();
  const auto values = s.h * s.w * s.c;
  check(origin[0] <= matrix.rows() && s.n <= matrix.rows() - origin[0] && origin[1] <= matrix.columns() &&
            values <= matrix.columns() - origin[1],
        name, ": ", s.n, " rows of ", values, " values from origin (", origin[0], ", ", origin[1], ") on end beyond ",
        matrix_name, ".shape ", as_tuple(matrix.shape()), ".");
}

}  // namespace

struct ImageCopyToMatrix::Impl : Copy<MPSImageCopyToMatrix> {};
struct MatrixCopyToImage::Impl : Copy<MPSMatrixCopyToImage> {};

ImageCopyToMatrix::ImageCopyToMatrix(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImageCopyToMatrix::~ImageCopyToMatrix() {
  Pool pool;
  impl_.reset();
}
RowLayout ImageCopyToMatrix::layout() const { return impl_->layout; }
MatrixOrigin ImageCopyToMatrix::origin() const { return impl_->origin; }
std::shared_ptr<Device> ImageCopyToMatrix::device() const { return impl_->device; }

std::shared_ptr<ImageCopyToMatrix> ImageCopyToMatrix::make(std::shared_ptr<Device> device, RowLayout layout,
                                                           MatrixOrigin origin) {
  auto copy = make_copy<MPSImageCopyToMatrix>(device, layout, origin, "ImageCopyToMatrix");
  copy.kernel.get().destinationMatrixOrigin = origin_of(origin);
  return std::make_shared<ImageCopyToMatrix>(std::unique_ptr<Impl>(new Impl{std::move(copy)}));
}

std::shared_ptr<Matrix> ImageCopyToMatrix::encode(CommandBuffer &buffer, const Image &source,
                                                  std::shared_ptr<Matrix> out, bool temporary) const {
  const char *const name = "ImageCopyToMatrix";
  check_open(buffer, *impl_->device, name);
  check_source(source, *impl_->device, name);
  if (out) {
    check_same_device(*out->device(), *impl_->device, "out");
    check<std::runtime_error>(!out->is_temporary() || out->read_count() > 0, name,
                              ": out is a temporary matrix whose read_count is 0.");
  } else {
    const auto s = source.shape();
    std::int64_t rows = 0, columns = 0;
    check<MemoryError>(!__builtin_add_overflow(impl_->origin[0], s.n, &rows) &&
                           !__builtin_add_overflow(impl_->origin[1], s.h * s.w * s.c, &columns),
                       name, ": origin (", impl_->origin[0], ", ", impl_->origin[1], ") is beyond any matrix.");
    out = temporary ? Matrix::temporary(buffer, rows, columns, source.dtype())
                    : Matrix::make(impl_->device, rows, columns, source.dtype());
  }
  check_fits(name, source, *out, impl_->origin, "x", "out");
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    check_files_of(commands, {&source});
    [impl_->kernel.get() encodeToCommandBuffer:commands
                                   sourceImage:source.impl().image.get()
                             destinationMatrix:out->impl().matrix.get()];
    out->impl().writer.set(commands);
  });
  return out;
}

MatrixCopyToImage::MatrixCopyToImage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MatrixCopyToImage::~MatrixCopyToImage() {
  Pool pool;
  impl_.reset();
}
RowLayout MatrixCopyToImage::layout() const { return impl_->layout; }
MatrixOrigin MatrixCopyToImage::origin() const { return impl_->origin; }
std::shared_ptr<Device> MatrixCopyToImage::device() const { return impl_->device; }

std::shared_ptr<MatrixCopyToImage> MatrixCopyToImage::make(std::shared_ptr<Device> device, RowLayout layout,
                                                           MatrixOrigin origin) {
  auto copy = make_copy<MPSMatrixCopyToImage>(device, layout, origin, "MatrixCopyToImage");
  copy.kernel.get().sourceMatrixOrigin = origin_of(origin);
  return std::make_shared<MatrixCopyToImage>(std::unique_ptr<Impl>(new Impl{std::move(copy)}));
}

void MatrixCopyToImage::encode(CommandBuffer &buffer, const Matrix &source, const Image &out) const {
  const char *const name = "MatrixCopyToImage";
  check_open(buffer, *impl_->device, name);
  check_same_device(*source.device(), *impl_->device, "x");
  check<std::runtime_error>(!source.is_temporary() || source.read_count() > 0, name,
                            ": x is a temporary matrix whose read_count is 0: its last read has been encoded.");
  check_target(out, *impl_->device, name);
  check_fits(name, out, source, impl_->origin, "out", "x");
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    check_files_of(commands, {&out});
    [impl_->kernel.get() encodeToCommandBuffer:commands
                                  sourceMatrix:source.impl().matrix.get()
                              destinationImage:out.impl().image.get()];
    out.impl().note_write(commands);
  });
}

}  // namespace mpscnn
