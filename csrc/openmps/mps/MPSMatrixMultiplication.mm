// SPDX-License-Identifier: Apache-2.0
// Products of matrices, and of matrices and vectors [MPSMatrixMultiplication.h]. Products and sums are of floats, also
// for half precision.

#import "mps/MPSMatrixKernel+Engine.hh"

#include <cmath>

#include "engine/problem/problem.hpp"
#include "mps/Geometry.hpp"

namespace openmps {
namespace {

/// op(left) * op(right) has rows x columns values; a vector has one column.
struct ProductState : Extends<ProductState, KernelState> {
  MTLOrigin left = {0, 0, 0}, right = {0, 0, 0}, result = {0, 0, 0};
  MatrixBatch batch;
  bool transpose_left = false, transpose_right = false;
  NSUInteger rows = 0, columns = 0, terms = 0;
  float alpha = 1, beta = 0;

  void check_sizes(const char *rows_name, const char *columns_name, const char *terms_name) const {
    const auto check = [this](const char *name, NSUInteger value) {
      if (value < 1 || value > INT32_MAX)
        raise_for(*this, @"%s (%lu) is not between 1 and %d.", name, (unsigned long)value, INT32_MAX);
    };
    check(rows_name, rows);
    check(columns_name, columns);
    check(terms_name, terms);
  }

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    archive_origin(archive, @"MPSMatrixKernel.leftOrigin", left);
    archive_origin(archive, @"MPSMatrixKernel.rightOrigin", right);
    archive_origin(archive, @"MPSMatrixKernel.resultOrigin", result);
    batch.archive(archive);
    archive.field(@"MPSMatrixMultiplication.transposeLeft", transpose_left);
    archive.field(@"MPSMatrixMultiplication.transposeRight", transpose_right);
    archive.field(@"MPSMatrixMultiplication.resultRows", rows);
    archive.field(@"MPSMatrixMultiplication.resultColumns", columns);
    archive.field(@"MPSMatrixMultiplication.interiorColumns", terms);
    archive.field(@"MPSMatrixMultiplication.alpha", alpha);
    archive.field(@"MPSMatrixMultiplication.beta", beta);
  }
};

void encode_product(const ProductState &state, id<MTLCommandBuffer> buffer, const MatrixArgument &left,
                    const MatrixArgument &right, const MatrixArgument &result) {
  Recorder &recorder = begin_encode(state, buffer);
  state.check_sizes("resultRows", "resultColumns", "interiorColumns");
  const NSUInteger count = batch_count(state, state.batch, {&left, &right, &result});
  const auto view = [&](const MatrixArgument &argument, const MTLOrigin &origin, NSUInteger rows, NSUInteger columns,
                        bool is_transposed) {
    if (is_transposed) std::swap(rows, columns);
    return matrices_view(state, argument, origin, rows, columns, state.batch, count);
  };
  ProductProblem problem;
  problem.a = view(left, state.left, state.rows, state.terms, state.transpose_left);
  problem.b = view(right, state.right, state.terms, state.columns, state.transpose_right);
  problem.dst = view(result, state.result, state.rows, state.columns, false);
  for (const auto &[source, name] : {std::pair(&problem.a, left.name), std::pair(&problem.b, right.name)})
    if (overlap(*source, problem.dst)) raise_for(state, @"%s and %s share memory.", name, result.name);
  if (state.beta != 0) problem.c = problem.dst;
  problem.transpose_a = state.transpose_left;
  problem.transpose_b = state.transpose_right;
  problem.alpha = state.alpha;
  problem.beta = state.beta;
  encode_matrices(state, recorder, buffer, {&left, &right}, result, std::move(problem));
}

}  // namespace
}  // namespace openmps

using openmps::ProductState;

@implementation MPSMatrixMultiplication

+ (openmps::KernelState *)openmps_newState {
  return new ProductState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:resultRows:resultColumns:interiorColumns:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                    resultRows:(NSUInteger)resultRows
                 resultColumns:(NSUInteger)resultColumns
               interiorColumns:(NSUInteger)interiorColumns {
  return [self initWithDevice:device
                transposeLeft:NO
               transposeRight:NO
                   resultRows:resultRows
                resultColumns:resultColumns
              interiorColumns:interiorColumns
                        alpha:1
                         beta:0];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 transposeLeft:(BOOL)transposeLeft
                transposeRight:(BOOL)transposeRight
                    resultRows:(NSUInteger)resultRows
                 resultColumns:(NSUInteger)resultColumns
               interiorColumns:(NSUInteger)interiorColumns
                         alpha:(double)alpha
                          beta:(double)beta {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<ProductState>(self);
  state.transpose_left = transposeLeft, state.transpose_right = transposeRight;
  state.rows = resultRows, state.columns = resultColumns, state.terms = interiorColumns;
  state.alpha = static_cast<float>(alpha), state.beta = static_cast<float>(beta);
  state.check_sizes("resultRows", "resultColumns", "interiorColumns");
  return unwind.done();
}

OPENMPS_PROPERTY(ProductState, MTLOrigin, leftMatrixOrigin, setLeftMatrixOrigin, left)
OPENMPS_PROPERTY(ProductState, MTLOrigin, rightMatrixOrigin, setRightMatrixOrigin, right)
OPENMPS_PROPERTY(ProductState, MTLOrigin, resultMatrixOrigin, setResultMatrixOrigin, result)
OPENMPS_PROPERTY(ProductState, NSUInteger, batchStart, setBatchStart, batch.start)
OPENMPS_PROPERTY(ProductState, NSUInteger, batchSize, setBatchSize, batch.size)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   leftMatrix:(MPSMatrix *)leftMatrix
                  rightMatrix:(MPSMatrix *)rightMatrix
                 resultMatrix:(MPSMatrix *)resultMatrix {
  openmps::encode_product(
      openmps::state_of<ProductState>(self), commandBuffer, {leftMatrix, "leftMatrix", "leftMatrixOrigin"},
      {rightMatrix, "rightMatrix", "rightMatrixOrigin"}, {resultMatrix, "resultMatrix", "resultMatrixOrigin"});
}

@end

@implementation MPSMatrixBinaryKernel

+ (openmps::KernelState *)openmps_newState {
  return new ProductState();
}

OPENMPS_INIT_WITH_DEVICE
OPENMPS_INIT_WITH_CODER
OPENMPS_PROPERTY(ProductState, MTLOrigin, primarySourceMatrixOrigin, setPrimarySourceMatrixOrigin, left)
OPENMPS_PROPERTY(ProductState, MTLOrigin, secondarySourceMatrixOrigin, setSecondarySourceMatrixOrigin, right)
OPENMPS_PROPERTY(ProductState, MTLOrigin, resultMatrixOrigin, setResultMatrixOrigin, result)
OPENMPS_PROPERTY(ProductState, NSUInteger, batchStart, setBatchStart, batch.start)
OPENMPS_PROPERTY(ProductState, NSUInteger, batchSize, setBatchSize, batch.size)

@end

@implementation MPSMatrixVectorMultiplication

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:rows:columns:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device rows:(NSUInteger)rows columns:(NSUInteger)columns {
  return [self initWithDevice:device transpose:NO rows:rows columns:columns alpha:1 beta:0];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                     transpose:(BOOL)transpose
                          rows:(NSUInteger)rows
                       columns:(NSUInteger)columns
                         alpha:(double)alpha
                          beta:(double)beta {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<ProductState>(self);
  state.transpose_left = transpose;
  state.rows = rows, state.columns = 1, state.terms = columns;
  state.alpha = static_cast<float>(alpha), state.beta = static_cast<float>(beta);
  state.check_sizes("rows", "resultColumns", "columns");
  return unwind.done();
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  inputMatrix:(MPSMatrix *)inputMatrix
                  inputVector:(MPSVector *)inputVector
                 resultVector:(MPSVector *)resultVector {
  openmps::encode_product(openmps::state_of<ProductState>(self), commandBuffer,
                          {inputMatrix, "inputMatrix", "primarySourceMatrixOrigin"},
                          {inputVector, "inputVector", "secondarySourceMatrixOrigin", true},
                          {resultVector, "resultVector", "resultMatrixOrigin", true});
}

@end
