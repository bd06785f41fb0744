// SPDX-License-Identifier: Apache-2.0
// Copies between images and matrices: row origin.x + i is image i, from column origin.y on [MPSImageCopy.h].

#import "mps/MPSCNNKernel+Engine.hh"
#import "mps/MPSMatrix+Engine.hh"

#include <vector>

#include "engine/problem/problem.hpp"
#include "engine/shared/pixels.hpp"

namespace openmps {
namespace {

/// State of MPSImageCopyToMatrix and MPSMatrixCopyToImage.
struct MatrixCopyState : Extends<MatrixCopyState, KernelState> {
  MTLOrigin origin = {0, 0, 0};  ///< row, column, 0
  NSUInteger batch_index = 0;
  MPSDataLayout layout = MPSDataLayoutFeatureChannelsxHeightxWidth;

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    archive.field(@"MatrixCopy.origin.x", origin.x);
    archive.field(@"MatrixCopy.origin.y", origin.y);
    archive.field(@"MatrixCopy.origin.z", origin.z);
    archive.field(@"MatrixCopy.batchIndex", batch_index);
    archive.field(@"MatrixCopy.dataLayout", layout);
  }
  void did_read(MPSKernel *kernel) override {
    KernelState::did_read(kernel);
    check_layout();
  }
  void check_layout() const {
    if (layout > MPSDataLayoutFeatureChannelsxHeightxWidth)
      raise_for(*this, @"dataLayout (%lu) is not 0 or 1.", (unsigned long)layout);
  }
};

/// Apple's names that differ between the two directions, for errors.
struct CopyNames {
  const char *image, *images, *matrix, *origin, *batch_index;
};
constexpr CopyNames kToMatrix = {"sourceImage", "sourceImages", "destinationMatrix", "destinationMatrixOrigin",
                                 "destinationMatrixBatchIndex"};
constexpr CopyNames kToImage = {"destinationImage", "destinationImages", "sourceMatrix", "sourceMatrixOrigin",
                                "sourceMatrixBatchIndex"};

/// Return whether the element types are the same: bytes are copied as they are stored.
bool is_same_type(Format format, MPSDataType type) {
  switch (format) {
    case Format::unorm8: return type == MPSDataTypeUInt8 || type == MPSDataTypeUnorm8;
    case Format::unorm16: return type == MPSDataTypeUInt16;
    case Format::float16: return type == MPSDataTypeFloat16;
    case Format::float32: return type == MPSDataTypeFloat32;
    case Format::bfloat16: return type == MPSDataTypeBFloat16;
  }
  return false;
}

/// Return the images' rows in the matrix; raise if not all of the images fit. The view shows one row as H x W x C,
/// whatever the layout of the elements.
ImageView rows_of(const MatrixCopyState &state, const CopyNames &names, MPSMatrix *matrix, const ImageView &image,
                  std::int64_t images) {
  const RowState &rows = [matrix openmps_state];
  const RowLayout &layout = rows.layout;
  if (!is_same_type(image.format, layout.type)) {
    static const char *const formats[] = {"unorm8", "unorm16", "float16", "float32"};
    raise_for(state, @"%s.dataType (0x%lx) is not that of %s, whose channels are %s.", names.matrix,
              (unsigned long)layout.type, names.image, formats[static_cast<int>(image.format)]);
  }
  if (state.origin.z != 0) raise_for(state, @"%s.z (%lu) is not 0.", names.origin, (unsigned long)state.origin.z);
  if (state.batch_index >= layout.matrices)
    raise_for(state, @"%s (%lu) is not less than the %lu matrices of %s.", names.batch_index,
              (unsigned long)state.batch_index, (unsigned long)layout.matrices, names.matrix);
  const auto count = static_cast<NSUInteger>(images), values = static_cast<NSUInteger>(image.h * image.w * image.c);
  if (state.origin.x > layout.rows || count > layout.rows - state.origin.x)
    raise_for(state, @"%lu images from row %s.x (%lu) on end beyond the %lu rows of %s.", (unsigned long)count,
              names.origin, (unsigned long)state.origin.x, (unsigned long)layout.rows, names.matrix);
  if (state.origin.y > layout.columns || values > layout.columns - state.origin.y)
    raise_for(state,
              @"%ld x %ld x %ld values (height x width x channels) from column %s.y (%lu) on end beyond the %lu "
              @"columns of %s.",
              (long)image.h, (long)image.w, (long)image.c, names.origin, (unsigned long)state.origin.y,
              (unsigned long)layout.columns, names.matrix);
  const NSUInteger element = size_of(image.format);
  ImageView view;
  view.memory = [rows.buffer.get() openmps_memory];
  view.offset = rows.offset + state.batch_index * layout.matrix_bytes + state.origin.x * layout.row_bytes +
                state.origin.y * element;
  view.format = image.format;
  view.n = images;
  view.h = image.h;
  view.w = image.w;
  view.c = image.c;
  view.w_stride = view.c;
  view.h_stride = view.w * view.c;
  // A matrix of one row may have any rowBytes.
  view.n_stride = layout.rows == 1 ? view.h * view.h_stride : static_cast<std::int64_t>(layout.row_bytes / element);
  return view;
}

/// Copy C x H x W on one side, which no view can describe: the host moves the elements.
HostTask transpose(const ImageView &image, const ImageView &rows, bool to_image) {
  touch(image.memory, @"MPSImage");
  touch(rows.memory, @"MPSMatrix");
  return HostTask{[image, rows, to_image] {
    const std::size_t element = size_of(image.format);
    const auto bytes = [element](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
    using Mode = HostAccess::Mode;
    const HostAccess of_image(image.memory, to_image ? Mode::update : Mode::read);
    const HostAccess of_rows(rows.memory, to_image ? Mode::read : Mode::update);
    if (!of_image.data() || !of_rows.data()) throw std::bad_alloc();
    for (std::int64_t i = 0; i < image.n; ++i) {
      const Pixels pixels = {of_image.data() + image.offset + bytes(i * image.n_stride), bytes(image.w_stride),
                             bytes(image.h_stride)};
      const Planes planes = {of_rows.data() + rows.offset + bytes(i * rows.n_stride), element, bytes(image.w),
                             bytes(image.h * image.w)};
      const auto h = static_cast<std::size_t>(image.h), w = static_cast<std::size_t>(image.w);
      const auto c = static_cast<std::size_t>(image.c);
      if (to_image)
        planes_to_pixels(pixels, planes, h, w, c, element);
      else
        pixels_to_planes(planes, pixels, h, w, c, element);
    }
  }};
}

Problem copy_problem(const MatrixCopyState &state, const CopyNames &names, const ImageView &image,
                     const ImageView &rows, bool to_image) {
  if (overlap(image, rows)) raise_for(state, @"%s and %s have memory in common.", names.image, names.matrix);
  // With one channel, or one pixel, both layouts are the same.
  if (state.layout == MPSDataLayoutFeatureChannelsxHeightxWidth && image.c > 1 && image.h * image.w > 1)
    return transpose(image, rows, to_image);
  return to_image ? CopyProblem{rows, image} : CopyProblem{image, rows};
}

void encode_copy(MPSKernel *kernel, id<MTLCommandBuffer> buffer, NSArray *images, MPSMatrix *matrix, bool to_image) {
  const auto &state = state_of<MatrixCopyState>(kernel);
  const CopyNames &names = to_image ? kToImage : kToMatrix;
  Recorder &recorder = begin_encode(state, buffer);
  if (matrix == nil) raise_for(state, @"%s is nil.", names.matrix);
  [matrix openmps_willUseOn:buffer];
  std::int64_t count = 0;
  for (MPSImage *image in images) count += [image openmps_view].n;
  std::vector<Problem> problems;
  ImageView rows, run, run_rows;
  std::int64_t done = 0;
  for (MPSImage *image in images) {
    const ImageView view = [image openmps_view];
    if (done == 0) rows = rows_of(state, names, matrix, view, count);
    // Images that follow each other in memory become one problem.
    if (done == 0 || !append_images(run, view)) {
      if (done > 0) problems.push_back(copy_problem(state, names, run, run_rows, to_image));
      run = view;
      run_rows = rows.images(done, view.n);
    } else {
      run_rows.n = run.n;
    }
    done += view.n;
  }
  problems.push_back(copy_problem(state, names, run, run_rows, to_image));
  for (MPSImage *image in images) {
    if (to_image)
      [image openmps_willWriteOn:buffer];
    else
      [image openmps_willReadOn:buffer];
  }
  for (Problem &problem : problems) recorder.append(std::move(problem), state.title);
  if (to_image) {
    [matrix openmps_didRead];
  } else {
    std::vector<MPSImage *> read;
    for (MPSImage *image in images) read.push_back(image);
    each_distinct(std::move(read), [](MPSImage *image) { [image openmps_didRead]; });
  }
}

void encode_one(MPSKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *image, MPSMatrix *matrix, bool to_image) {
  check_image(state_of<MatrixCopyState>(kernel), image, (to_image ? kToImage : kToMatrix).image);
  encode_copy(kernel, buffer, [NSArray arrayWithObject:image], matrix, to_image);
}

void encode_batch(MPSKernel *kernel, id<MTLCommandBuffer> buffer, MPSImageBatch *images, MPSMatrix *matrix,
                  bool to_image) {
  const CopyNames &names = to_image ? kToImage : kToMatrix;
  check_batch(state_of<MatrixCopyState>(kernel), images, [images count], names.images);
  encode_copy(kernel, buffer, images, matrix, to_image);
}

}  // namespace
}  // namespace openmps

using openmps::MatrixCopyState;

/// Members of both classes.
#define OPENMPS_MATRIX_COPY(ORIGIN, SET_ORIGIN, BATCH_INDEX, SET_BATCH_INDEX)                    \
  +(openmps::KernelState *)openmps_newState {                                                    \
    return new MatrixCopyState();                                                                \
  }                                                                                              \
  OPENMPS_INIT_WITH_CODER                                                                        \
  -(instancetype)initWithDevice : (id<MTLDevice>)device dataLayout : (MPSDataLayout)dataLayout { \
    if (!(self = [super openmps_initWithDevice:device])) return nil;                             \
    openmps::UnwindRelease unwind(self);                                                         \
    auto &state = openmps::state_of<MatrixCopyState>(self);                                      \
    state.layout = dataLayout;                                                                   \
    state.check_layout();                                                                        \
    return unwind.done();                                                                        \
  }                                                                                              \
  OPENMPS_GETTER(MatrixCopyState, MPSDataLayout, dataLayout, layout)                             \
  OPENMPS_PROPERTY(MatrixCopyState, MTLOrigin, ORIGIN, SET_ORIGIN, origin)                       \
  OPENMPS_PROPERTY(MatrixCopyState, NSUInteger, BATCH_INDEX, SET_BATCH_INDEX, batch_index)

@implementation MPSImageCopyToMatrix

OPENMPS_MATRIX_COPY(destinationMatrixOrigin, setDestinationMatrixOrigin, destinationMatrixBatchIndex,
                    setDestinationMatrixBatchIndex)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
            destinationMatrix:(MPSMatrix *)destinationMatrix {
  openmps::encode_one(self, commandBuffer, sourceImage, destinationMatrix, false);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImages
                 destinationMatrix:(MPSMatrix *)destinationMatrix {
  openmps::encode_batch(self, commandBuffer, sourceImages, destinationMatrix, false);
}

@end

@implementation MPSMatrixCopyToImage

OPENMPS_MATRIX_COPY(sourceMatrixOrigin, setSourceMatrixOrigin, sourceMatrixBatchIndex, setSourceMatrixBatchIndex)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                 sourceMatrix:(MPSMatrix *)sourceMatrix
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_one(self, commandBuffer, destinationImage, sourceMatrix, true);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceMatrix:(MPSMatrix *)sourceMatrix
                 destinationImages:(MPSImageBatch *)destinationImages {
  openmps::encode_batch(self, commandBuffer, destinationImages, sourceMatrix, true);
}

@end
