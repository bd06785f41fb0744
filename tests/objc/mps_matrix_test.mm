// SPDX-License-Identifier: Apache-2.0
// Matrices and vectors over buffers, temporary ones, and copies between images and matrices. Prints "N passed, N
// failed".

#import "mps_test.hh"

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

constexpr auto kHWC = MPSDataLayoutHeightxWidthxFeatureChannels;
constexpr auto kCHW = MPSDataLayoutFeatureChannelsxHeightxWidth;

MPSMatrixDescriptor *described(NSUInteger rows, NSUInteger columns, NSUInteger row_bytes,
                               MPSDataType type = MPSDataTypeFloat32) {
  return [MPSMatrixDescriptor matrixDescriptorWithRows:rows columns:columns rowBytes:row_bytes dataType:type];
}

/// Make float32 matrices filled with NaN.
MPSMatrix *make_matrix(NSUInteger rows, NSUInteger columns, NSUInteger row_bytes, NSUInteger matrices = 1,
                       NSUInteger matrix_bytes = 0) {
  MPSMatrixDescriptor *descriptor =
      [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                            columns:columns
                                           matrices:matrices
                                           rowBytes:row_bytes
                                        matrixBytes:matrix_bytes ? matrix_bytes : rows * row_bytes
                                           dataType:MPSDataTypeFloat32];
  MPSMatrix *matrix = [[[MPSMatrix alloc] initWithDevice:device descriptor:descriptor] autorelease];
  float *values = static_cast<float *>([[matrix data] contents]);
  std::fill(values, values + [[matrix data] length] / sizeof(float), NAN);
  return matrix;
}

float value_at(MPSMatrix *matrix, NSUInteger index, NSUInteger row, NSUInteger column) {
  const char *bytes = static_cast<const char *>([[matrix data] contents]) + [matrix offset];
  float value;
  std::memcpy(&value, bytes + index * [matrix matrixBytes] + row * [matrix rowBytes] + column * sizeof value,
              sizeof value);
  return value;
}

/// Return the values of an image as a row of a matrix holds them.
std::vector<float> row_of(const Tensor &x, long image, MPSDataLayout layout) {
  std::vector<float> row;
  if (layout == kHWC) {
    for (long y = 0; y < x.h; ++y)
      for (long column = 0; column < x.w; ++column)
        for (long k = 0; k < x.c; ++k) row.push_back(static_cast<float>(x.at(image, y, column, k)));
  } else {
    for (long k = 0; k < x.c; ++k)
      for (long y = 0; y < x.h; ++y)
        for (long column = 0; column < x.w; ++column) row.push_back(static_cast<float>(x.at(image, y, column, k)));
  }
  return row;
}

/// Return whether row `row` holds `expected` from `column` on, and NaN elsewhere.
bool has_row(MPSMatrix *matrix, NSUInteger index, NSUInteger row, NSUInteger column,
             const std::vector<float> &expected) {
  for (NSUInteger i = 0; i < [matrix columns]; ++i) {
    const float got = value_at(matrix, index, row, i);
    const bool inside = i >= column && i - column < expected.size();
    if (inside ? got != expected[i - column] : !std::isnan(got)) return false;
  }
  return true;
}

template <class Kernel>
Kernel *make_copy(MPSDataLayout layout) {
  return [[[Kernel alloc] initWithDevice:device dataLayout:layout] autorelease];
}

// ------------------------------------------------------------------------------------------- descriptors

void test_descriptors() {
  MPSMatrixDescriptor *descriptor = described(3, 5, 32);
  check([descriptor rows] == 3 && [descriptor columns] == 5 && [descriptor rowBytes] == 32, "rows, columns, rowBytes");
  check([descriptor matrices] == 1 && [descriptor matrixBytes] == 96, "one matrix is as long as its rows");
  check([descriptor dataType] == MPSDataTypeFloat32, "dataType");
  [descriptor setRows:4];
  check([descriptor matrixBytes] == 128, "matrixBytes follows rows");
  [descriptor setRowBytes:20];
  check([descriptor matrixBytes] == 80, "matrixBytes follows rowBytes");
  [descriptor setColumns:2];
  [descriptor setDataType:MPSDataTypeFloat16];
  check([descriptor columns] == 2 && [descriptor dataType] == MPSDataTypeFloat16, "columns and dataType are set");
  MPSMatrixDescriptor *several = [MPSMatrixDescriptor matrixDescriptorWithRows:2
                                                                       columns:3
                                                                      matrices:4
                                                                      rowBytes:16
                                                                   matrixBytes:64
                                                                      dataType:MPSDataTypeInt32];
  [several setRows:3];
  check([several matrices] == 4 && [several matrixBytes] == 64, "the step between several matrices stays");
  check([[MPSMatrixDescriptor matrixDescriptorWithDimensions:3 columns:5 rowBytes:20
                                                    dataType:MPSDataTypeUInt8] dataType] == MPSDataTypeUInt8,
        "the older factory");
  MPSVectorDescriptor *vector = [MPSVectorDescriptor vectorDescriptorWithLength:7 dataType:MPSDataTypeFloat16];
  check([vector length] == 7 && [vector vectors] == 1 && [vector vectorBytes] == 14, "a vector");
  [vector setDataType:MPSDataTypeFloat32];
  check([vector vectorBytes] == 28, "vectorBytes follows dataType");
  [vector setLength:3];
  check([vector vectorBytes] == 12, "vectorBytes follows length");
  vector = [MPSVectorDescriptor vectorDescriptorWithLength:7 vectors:3 vectorBytes:64 dataType:MPSDataTypeInt8];
  check([vector vectors] == 3 && [vector vectorBytes] == 64, "several vectors");
}

void test_recommended_bytes() {
  check([MPSMatrixDescriptor rowBytesForColumns:3 dataType:MPSDataTypeFloat32] == 16, "3 floats");
  check([MPSMatrixDescriptor rowBytesForColumns:9 dataType:MPSDataTypeFloat16] == 32, "9 halves");
  check([MPSMatrixDescriptor rowBytesFromColumns:16 dataType:MPSDataTypeUInt8] == 16, "16 bytes");
  check([MPSVectorDescriptor vectorBytesForLength:5 dataType:MPSDataTypeInt32] == 32, "5 integers");
  check_raises("rowBytesForColumns of an unknown type", kArgument, "dataType (0x4) is not one of whole bytes",
               [] { [MPSMatrixDescriptor rowBytesForColumns:3 dataType:MPSDataTypeUInt4]; });
}

// ------------------------------------------------------------------------------------ matrices and vectors

void test_matrices() {
  id<MTLBuffer> buffer = [[device newBufferWithLength:256 options:MTLResourceStorageModeShared] autorelease];
  MPSMatrix *matrix = [[[MPSMatrix alloc] initWithBuffer:buffer offset:16 descriptor:described(3, 5, 24)] autorelease];
  check([matrix rows] == 3 && [matrix columns] == 5 && [matrix matrices] == 1, "extents");
  check([matrix rowBytes] == 24 && [matrix matrixBytes] == 72 && [matrix offset] == 16, "steps and offset");
  check([matrix dataType] == MPSDataTypeFloat32 && [matrix data] == buffer && [matrix device] == device, "data");
  check([matrix resourceSize] == 256, "resourceSize is the buffer's");
  [matrix synchronizeOnCommandBuffer:command_buffer()];
  MPSMatrix *own = [[[MPSMatrix alloc] initWithDevice:device descriptor:described(3, 5, 24)] autorelease];
  check([[own data] length] == 72 && [own offset] == 0 && [own resourceSize] == 72, "an own buffer");
  bool zeros = true;
  for (NSUInteger i = 0; i < 72; ++i) zeros = zeros && static_cast<char *>([[own data] contents])[i] == 0;
  check(zeros, "an own buffer is zero-filled");
  [[own data] didModifyRange:NSMakeRange(0, 72)];  // on a Mac it may be managed
  check_raises("modified beyond an own buffer", kArgument, "range (0, 73) ends beyond length (72)",
               [own] { [[own data] didModifyRange:NSMakeRange(0, 73)]; });
  check_raises("modified in the program's shared buffer", kUsage, "didModifyRange: is for managed storage",
               [matrix] { [[matrix data] didModifyRange:NSMakeRange(0, 1)]; });
  // The last row ends where its elements end.
  check([[[[MPSMatrix alloc] initWithBuffer:buffer offset:188 descriptor:described(3, 5, 24)] autorelease] rows] == 3,
        "the last row may end with the buffer");

  const auto with_buffer = [buffer](NSUInteger offset, MPSMatrixDescriptor *descriptor) {
    return [[[MPSMatrix alloc] initWithBuffer:buffer offset:offset descriptor:descriptor] autorelease];
  };
  const auto refused = [&](const char *part, NSUInteger offset, MPSMatrixDescriptor *descriptor) {
    check_raises(std::string("a matrix with ") + part, kArgument, part, [&] { with_buffer(offset, descriptor); });
  };
  refused("MPSMatrix: 68 bytes from offset 192 end beyond the buffer's length (256).", 192, described(3, 5, 24));
  refused("offset (2) is not a multiple of the size of an element (4)", 2, described(3, 5, 24));
  refused("4 bytes from offset 260 end beyond", 260, described(1, 1, 4));
  refused("rows (0) is less than the minimum (1)", 0, described(0, 5, 24));
  refused("columns (0) is less than the minimum (1)", 0, described(3, 0, 24));
  refused("rowBytes (16) is less than what one takes (20 bytes)", 0, described(3, 5, 16));
  refused("rowBytes (22) is not a multiple of the size of an element (4)", 0, described(3, 5, 22));
  refused("dataType (0x0)", 0, described(3, 5, 24, MPSDataTypeInvalid));
  refused("rowBytes (4611686018427387904) x 8 is too large", 0, described(8, 5, NSUInteger{1} << 62));
  refused("columns (9223372036854775807) is too large", 0, described(1, INT64_MAX, 24));
  refused("descriptor is nil", 0, nil);
  const auto several = [](NSUInteger matrices, NSUInteger matrix_bytes) {
    return [MPSMatrixDescriptor matrixDescriptorWithRows:2
                                                 columns:3
                                                matrices:matrices
                                                rowBytes:16
                                             matrixBytes:matrix_bytes
                                                dataType:MPSDataTypeFloat32];
  };
  refused("matrices (0) is less than the minimum (1)", 0, several(0, 32));
  refused("matrixBytes (16) is less than what one takes (28 bytes)", 0, several(2, 16));
  refused("matrixBytes (40) is not a multiple of rowBytes (16)", 0, several(2, 40));
  refused("end beyond the buffer's length", 0, several(9, 32));
  check([with_buffer(0, several(8, 32)) matrices] == 8, "as many matrices as the buffer holds");
  check_raises("no buffer", kArgument, "MPSMatrix: buffer",
               [] { [[MPSMatrix alloc] initWithBuffer:nil descriptor:described(1, 1, 4)]; });
  check_raises("no device", kArgument, "MPSMatrix: device",
               [] { [[MPSMatrix alloc] initWithDevice:nil descriptor:described(1, 1, 4)]; });
  check_raises("too large", kArgument, "more than the device's maxBufferLength",
               [] { [[MPSMatrix alloc] initWithDevice:device descriptor:described(NSUInteger{1} << 40, 1, 1024)]; });
  check_raises("init", kArgument, "is unavailable", [] { [(id)[MPSMatrix alloc] init]; });
}

void test_vectors() {
  id<MTLBuffer> buffer = [[device newBufferWithLength:64 options:MTLResourceStorageModeShared] autorelease];
  MPSVectorDescriptor *descriptor = [MPSVectorDescriptor vectorDescriptorWithLength:3
                                                                            vectors:2
                                                                        vectorBytes:16
                                                                           dataType:MPSDataTypeFloat32];
  MPSVector *vector = [[[MPSVector alloc] initWithBuffer:buffer offset:8 descriptor:descriptor] autorelease];
  check([vector length] == 3 && [vector vectors] == 2 && [vector vectorBytes] == 16, "extents of a vector");
  check([vector offset] == 8 && [vector data] == buffer && [vector device] == device, "data of a vector");
  check([vector dataType] == MPSDataTypeFloat32 && [vector resourceSize] == 64, "type of a vector");
  MPSVector *own = [[[MPSVector alloc] initWithDevice:device descriptor:descriptor] autorelease];
  check([own resourceSize] == 32, "an own buffer of a vector");
  [[own data] didModifyRange:NSMakeRange(0, 32)];
  check_raises("a vector beyond its buffer", kArgument,
               "MPSVector: 28 bytes from offset 40 end beyond the buffer's length (64).",
               [&] { [[MPSVector alloc] initWithBuffer:buffer offset:40 descriptor:descriptor]; });
  [descriptor setLength:5];
  check_raises("vectorBytes below the length", kArgument, "vectorBytes (16) is less than what one takes (20 bytes)",
               [&] { [[MPSVector alloc] initWithBuffer:buffer descriptor:descriptor]; });
  [descriptor setLength:0];
  check_raises("a vector of nothing", kArgument, "length (0) is less than the minimum (1)",
               [&] { [[MPSVector alloc] initWithBuffer:buffer descriptor:descriptor]; });
}

// ---------------------------------------------------------------------------------------------- temporaries

void test_temporaries() {
  id<MTLCommandBuffer> buffer = command_buffer();
  const Tensor x = Tensor::random(1, 2, 3, 4, 1);
  MPSTemporaryMatrix *temporary = [MPSTemporaryMatrix temporaryMatrixWithCommandBuffer:buffer
                                                                      matrixDescriptor:described(1, 24, 96)];
  [MPSTemporaryMatrix prefetchStorageWithCommandBuffer:buffer
                                  matrixDescriptorList:[NSArray arrayWithObject:described(1, 24, 96)]];
  check([temporary readCount] == 1 && [temporary rows] == 1 && [temporary columns] == 24, "a temporary matrix");
  check([[temporary data] contents] == NULL, "its storage is private");
  check_raises("commit before it is read", kUsage, "MPSTemporaryMatrix (1 x 24)", [&] { [buffer commit]; });
  [temporary setReadCount:2];
  id<MTLCommandBuffer> other = command_buffer();
  MPSMatrixCopyToImage *back = make_copy<MPSMatrixCopyToImage>(kHWC);
  MPSImage *first = make_nan_image(1, 2, 3, 4), *second = make_nan_image(1, 2, 3, 4);
  check_raises("on another command buffer", kUsage, "belongs to another command buffer",
               [&] { [back encodeToCommandBuffer:other sourceMatrix:temporary destinationImage:first]; });
  [make_copy<MPSImageCopyToMatrix>(kHWC) encodeToCommandBuffer:buffer
                                                   sourceImage:make_image(x)
                                             destinationMatrix:temporary];
  check([temporary readCount] == 2, "writing does not count");
  [back encodeToCommandBuffer:buffer sourceMatrix:temporary destinationImage:first];
  check([temporary readCount] == 1, "reading counts");
  [back encodeToCommandBuffer:buffer sourceMatrix:temporary destinationImage:second];
  check([temporary readCount] == 0 && [temporary resourceSize] == 0, "read for the last time");
  check_raises("reading once more", kUsage, "readCount of 0",
               [&] { [back encodeToCommandBuffer:buffer sourceMatrix:temporary destinationImage:first]; });
  check_raises("data once more", kUsage, "readCount of 0", [&] { [temporary data]; });
  check_raises("reviving it", kUsage, "readCount of 0", [&] { [temporary setReadCount:1]; });
  run(buffer);
  check_equal("through a temporary matrix", read_image(first), x, 0);
  check_equal("through a temporary matrix, again", read_image(second), x, 0);
  check_raises("made like others", kArgument, "is unavailable", [&] {
    [[MPSTemporaryMatrix alloc] initWithDevice:device descriptor:described(1, 24, 96)];
  });
  check_raises("of a committed buffer", kUsage, "committed", [&] {
    [MPSTemporaryMatrix temporaryMatrixWithCommandBuffer:buffer matrixDescriptor:described(1, 24, 96)];
  });

  id<MTLCommandBuffer> last = command_buffer();
  MPSVectorDescriptor *descriptor = [MPSVectorDescriptor vectorDescriptorWithLength:3 dataType:MPSDataTypeFloat32];
  MPSTemporaryVector *vector = [MPSTemporaryVector temporaryVectorWithCommandBuffer:last descriptor:descriptor];
  [MPSTemporaryVector prefetchStorageWithCommandBuffer:last descriptorList:[NSArray arrayWithObject:descriptor]];
  check([vector readCount] == 1 && [vector length] == 3 && [[vector data] contents] == NULL, "a temporary vector");
  check_raises("commit with a vector unread", kUsage, "MPSTemporaryVector (1 x 3)", [&] { [last commit]; });
  [vector setReadCount:0];
  check_raises("a vector's data", kUsage, "MPSTemporaryVector (1 x 3) has a readCount of 0", [&] { [vector data]; });
  run(last);
}

// ------------------------------------------------------------------------------------ images and matrices

void test_copies() {
  const Tensor x = Tensor::random(3, 4, 5, 7, 2);
  for (const MPSDataLayout layout : {kHWC, kCHW}) {
    const std::string what = layout == kHWC ? "HWC" : "CHW";
    MPSImageCopyToMatrix *to = make_copy<MPSImageCopyToMatrix>(layout);
    MPSMatrixCopyToImage *from = make_copy<MPSMatrixCopyToImage>(layout);
    check([to dataLayout] == layout && [from dataLayout] == layout, what + ": dataLayout");
    // Three images in one object: rows 1 to 3 from column 2 on, of the second of two matrices.
    MPSMatrix *matrix = make_matrix(5, 145, 600, 2, 3600);
    [to setDestinationMatrixOrigin:MTLOriginMake(1, 2, 0)];
    [to setDestinationMatrixBatchIndex:1];
    id<MTLCommandBuffer> buffer = command_buffer();
    [to encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationMatrix:matrix];
    run(buffer);
    for (NSUInteger i = 0; i < 3; ++i)
      check(has_row(matrix, 1, i + 1, 2, row_of(x, static_cast<long>(i), layout)), what + ": image i in row i");
    check(has_row(matrix, 1, 0, 0, {}) && has_row(matrix, 1, 4, 0, {}), what + ": other rows are left alone");
    for (NSUInteger row = 0; row < 5; ++row)
      check(has_row(matrix, 0, row, 0, {}), what + ": the other matrix is left alone");
    // And back, as one object and as a batch.
    [from setSourceMatrixOrigin:MTLOriginMake(1, 2, 0)];
    [from setSourceMatrixBatchIndex:1];
    MPSImage *whole = make_nan_image(3, 4, 5, 7);
    MPSImageBatch *batch = make_batch(Tensor(3, 4, 5, 7, NAN));
    buffer = command_buffer();
    [from encodeToCommandBuffer:buffer sourceMatrix:matrix destinationImage:whole];
    [from encodeBatchToCommandBuffer:buffer sourceMatrix:matrix destinationImages:batch];
    run(buffer);
    check_equal(what + ": back", read_image(whole), x, 0);
    for (NSUInteger i = 0; i < 3; ++i)
      check_equal(what + ": back as a batch", read_image([batch objectAtIndex:i]), x.image(static_cast<long>(i)), 0);
    // A batch of images, adjacent in memory or not.
    MPSImage *together = make_image(x);
    for (MPSImageBatch *given : {make_batch(x), [together batchRepresentation]}) {
      MPSMatrix *rows = make_matrix(5, 145, 600, 2, 3600);
      buffer = command_buffer();
      [to encodeBatchToCommandBuffer:buffer sourceImages:given destinationMatrix:rows];
      run(buffer);
      for (NSUInteger i = 0; i < 3; ++i)
        check(has_row(rows, 1, i + 1, 2, row_of(x, static_cast<long>(i), layout)), what + ": a batch");
    }
    // Some channels of an image with more: strides that are not dense.
    Tensor wide = Tensor::random(2, 3, 4, 12, 3);
    MPSImage *part = [make_image(wide) subImageWithFeatureChannelRange:NSMakeRange(4, 8)];
    MPSMatrix *rows = make_matrix(2, 96, 384);
    buffer = command_buffer();
    [make_copy<MPSImageCopyToMatrix>(layout) encodeToCommandBuffer:buffer sourceImage:part destinationMatrix:rows];
    run(buffer);
    for (NSUInteger i = 0; i < 2; ++i)
      check(has_row(rows, 0, i, 0, row_of(wide.channels(4, 8), static_cast<long>(i), layout)), what + ": a sub-image");
  }
  check([[[[MPSImageCopyToMatrix alloc] initWithDevice:device] autorelease] dataLayout] == kCHW, "the layout of the start");
}

/// A matrix over the middle of the program's buffer, elements of two bytes and of one.
void test_copies_of_small_types() {
  const Tensor x = Tensor::random(2, 2, 3, 3, 4);
  id<MTLBuffer> storage = [[device newBufferWithLength:256 options:MTLResourceStorageModeShared] autorelease];
  MPSMatrix *halves = [[[MPSMatrix alloc] initWithBuffer:storage
                                                  offset:6
                                              descriptor:described(2, 18, 40, MPSDataTypeFloat16)] autorelease];
  MPSImage *result = make_half_image(Tensor(2, 2, 3, 3, 0.5));
  id<MTLCommandBuffer> buffer = command_buffer();
  [make_copy<MPSImageCopyToMatrix>(kCHW) encodeToCommandBuffer:buffer
                                                   sourceImage:make_half_image(x)
                                             destinationMatrix:halves];
  [make_copy<MPSMatrixCopyToImage>(kCHW) encodeToCommandBuffer:buffer sourceMatrix:halves destinationImage:result];
  run(buffer);
  check_equal("halves there and back", read_half_image(result), x, 0);
  const auto *values = reinterpret_cast<const _Float16 *>(static_cast<const char *>([storage contents]) + 6);
  check(static_cast<float>(values[1]) == static_cast<float>(x.at(0, 0, 1, 0)), "channels first, columns next");
  check(static_cast<float>(values[20]) == static_cast<float>(x.at(1, 0, 0, 0)), "the second image in the second row");

  MPSImage *bytes = [[[MPSImage alloc] initWithDevice:device
                                      imageDescriptor:describe(1, 1, 2, 3, MPSImageFeatureChannelFormatUnorm8)]
      autorelease];
  const unsigned char given[] = {1, 2, 3, 40, 50, 255};
  [bytes writeBytes:given dataLayout:kHWC imageIndex:0];
  for (const MPSDataType type : {MPSDataTypeUInt8, MPSDataTypeUnorm8}) {
    MPSMatrix *matrix = [[[MPSMatrix alloc] initWithDevice:device descriptor:described(1, 6, 6, type)] autorelease];
    buffer = command_buffer();
    [make_copy<MPSImageCopyToMatrix>(kCHW) encodeToCommandBuffer:buffer sourceImage:bytes destinationMatrix:matrix];
    run(buffer);
    const unsigned char expected[] = {1, 40, 2, 50, 3, 255};
    check(std::memcmp([[matrix data] contents], expected, 6) == 0, "bytes as they are stored");
  }
}

void test_refused_copies() {
  const Tensor x(2, 2, 3, 4, 1);
  MPSImage *image = make_image(x);
  MPSMatrix *matrix = make_matrix(3, 30, 120);
  MPSImageCopyToMatrix *to = make_copy<MPSImageCopyToMatrix>(kHWC);
  MPSMatrixCopyToImage *from = make_copy<MPSMatrixCopyToImage>(kHWC);
  const auto refused = [&](const char *part) {
    id<MTLCommandBuffer> buffer = command_buffer();
    check_raises(std::string("to a matrix, ") + part, kArgument, part,
                 [&] { [to encodeToCommandBuffer:buffer sourceImage:image destinationMatrix:matrix]; });
  };
  [to setDestinationMatrixOrigin:MTLOriginMake(2, 0, 0)];
  refused("2 images from row destinationMatrixOrigin.x (2) on end beyond the 3 rows of destinationMatrix");
  [to setDestinationMatrixOrigin:MTLOriginMake(0, 7, 0)];
  refused("2 x 3 x 4 values (height x width x channels) from column destinationMatrixOrigin.y (7) on end beyond the 30 "
          "columns of destinationMatrix");
  [to setDestinationMatrixOrigin:MTLOriginMake(0, 0, 1)];
  refused("destinationMatrixOrigin.z (1) is not 0");
  [to setDestinationMatrixOrigin:MTLOriginMake(0, 0, 0)];
  [to setDestinationMatrixBatchIndex:1];
  refused("destinationMatrixBatchIndex (1) is not less than the 1 matrices of destinationMatrix");
  [to setDestinationMatrixBatchIndex:0];
  image = make_half_image(x);
  refused("destinationMatrix.dataType (0x10000020) is not that of sourceImage, whose channels are float16");
  image = nil;
  refused("sourceImage is nil");
  image = make_image(x);
  matrix = nil;
  refused("destinationMatrix is nil");
  matrix = make_matrix(3, 30, 120);
  id<MTLCommandBuffer> buffer = command_buffer();
  [from setSourceMatrixOrigin:MTLOriginMake(2, 0, 0)];
  check_raises("from a matrix", kArgument, "sourceMatrixOrigin.x (2) on end beyond the 3 rows of sourceMatrix",
               [&] { [from encodeToCommandBuffer:buffer sourceMatrix:matrix destinationImage:image]; });
  check_raises("a batch of images that hold several", kArgument, "numberOfImages (2)", [&] {
    [to encodeBatchToCommandBuffer:buffer sourceImages:[NSArray arrayWithObject:image] destinationMatrix:matrix];
  });
  check_raises("an empty batch", kArgument, "sourceImages has 0 images", [&] {
    [to encodeBatchToCommandBuffer:buffer sourceImages:[NSArray array] destinationMatrix:matrix];
  });
  check_raises("dataLayout", kArgument, "dataLayout (2) is not 0 or 1",
               [] { make_copy<MPSImageCopyToMatrix>(static_cast<MPSDataLayout>(2)); });
  run(buffer);
  check_raises("a committed buffer", kUsage, "committed",
               [&] { [to encodeToCommandBuffer:buffer sourceImage:image destinationMatrix:matrix]; });
  // Temporary images are read, too.
  buffer = command_buffer();
  MPSTemporaryImage *temporary = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                    imageDescriptor:describe(2, 2, 3, 4)];
  [to encodeToCommandBuffer:buffer sourceImage:temporary destinationMatrix:matrix];
  check([temporary readCount] == 0, "a temporary image has been read");
  run(buffer);
}

void test_twins_of_copies() {
  MPSImageCopyToMatrix *to = make_copy<MPSImageCopyToMatrix>(kHWC);
  [to setDestinationMatrixOrigin:MTLOriginMake(1, 2, 0)];
  [to setDestinationMatrixBatchIndex:3];
  for (MPSImageCopyToMatrix *twin : {(MPSImageCopyToMatrix *)[[to copy] autorelease], archived(to)}) {
    const MTLOrigin origin = [twin destinationMatrixOrigin];
    check([twin dataLayout] == kHWC && origin.x == 1 && origin.y == 2 && origin.z == 0 &&
              [twin destinationMatrixBatchIndex] == 3,
          "a twin of MPSImageCopyToMatrix");
  }
  MPSMatrixCopyToImage *from = make_copy<MPSMatrixCopyToImage>(kHWC);
  [from setSourceMatrixOrigin:MTLOriginMake(4, 5, 0)];
  [from setSourceMatrixBatchIndex:6];
  for (MPSMatrixCopyToImage *twin : {(MPSMatrixCopyToImage *)[[from copy] autorelease], archived(from)}) {
    const MTLOrigin origin = [twin sourceMatrixOrigin];
    check([twin dataLayout] == kHWC && origin.x == 4 && origin.y == 5 && [twin sourceMatrixBatchIndex] == 6,
          "a twin of MPSMatrixCopyToImage");
  }
}

}  // namespace

int main() {
  return run_tests({test_descriptors, test_recommended_bytes, test_matrices, test_vectors, test_temporaries,
                    test_copies, test_copies_of_small_types, test_refused_copies, test_twins_of_copies});
}
