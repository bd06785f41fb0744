// SPDX-License-Identifier: Apache-2.0
// Rules of all kernels on matrices and vectors [MPSMatrixTypes.h]: origins, sizes and batches.

#import "mps/MPSMatrixKernel+Engine.hh"

#include <algorithm>

#include "engine/problem/problem.hpp"

namespace openmps {

namespace {

const RowNames &names_of(const MatrixArgument &argument) { return argument.is_vector ? kVectorNames : kMatrixNames; }

NSUInteger matrices_of(const MatrixArgument &argument) {
  const RowLayout &layout = [argument.object openmps_state].layout;
  return argument.is_vector ? layout.rows : layout.matrices;
}

}  // namespace

void MatrixBatch::archive(Archive &archive) {
  archive.field(@"MPSMatrixKernel.batchStart", start);
  archive.field(@"MPSMatrixKernel.batchSize", size);
}

void archive_origin(Archive &archive, NSString *key, MTLOrigin &origin) {
  archive.field([key stringByAppendingString:@".x"], origin.x);
  archive.field([key stringByAppendingString:@".y"], origin.y);
  archive.field([key stringByAppendingString:@".z"], origin.z);
}

NSUInteger batch_count(const KernelState &state, const MatrixBatch &batch,
                       std::initializer_list<const MatrixArgument *> arguments) {
  NSUInteger count = batch.size;
  if (count == 0) raise_for(state, @"batchSize (0) is less than 1.");
  for (const MatrixArgument *argument : arguments) {
    if (argument->object == nil) raise_for(state, @"%s is nil.", argument->name);
    const NSUInteger available = matrices_of(*argument);
    if (batch.start >= available)
      raise_for(state, @"batchStart (%lu) is not less than the %lu %s of %s.", (unsigned long)batch.start,
                (unsigned long)available, argument->is_vector ? "vectors" : "matrices", argument->name);
    count = std::min(count, available - batch.start);
  }
  return count;
}

ImageView matrices_view(const KernelState &state, const MatrixArgument &argument, const MTLOrigin &origin,
                        NSUInteger rows, NSUInteger columns, const MatrixBatch &batch, NSUInteger count) {
  const RowState &row_state = [argument.object openmps_state];
  const RowLayout &layout = row_state.layout;
  if (layout.type != MPSDataTypeFloat32 && layout.type != MPSDataTypeFloat16)
    raise_for(state, @"%s.dataType (0x%lx) is not MPSDataTypeFloat32 or MPSDataTypeFloat16.", argument.name,
              (unsigned long)layout.type);
  if (origin.z != 0 || (argument.is_vector && origin.y != 0))
    raise_for(state, @"%s.%s is not 0.", argument.origin_name, origin.z != 0 ? "z" : "y");
  const NSUInteger height = argument.is_vector ? layout.columns : layout.rows;
  const NSUInteger width = argument.is_vector ? 1 : layout.columns;
  if (origin.x > height || rows > height - origin.x || origin.y > width || columns > width - origin.y)
    raise_for(state,
              @"The kernel uses %lu x %lu values (rows x columns) of %s from %s (%lu, %lu) on, and it has "
              @"%lu x %lu.",
              (unsigned long)rows, (unsigned long)columns, argument.name, argument.origin_name, (unsigned long)origin.x,
              (unsigned long)origin.y, (unsigned long)height, (unsigned long)width);
  const NSUInteger element = element_size(layout.type);
  const NSUInteger row_bytes = argument.is_vector ? element : layout.rows == 1 ? width * element : layout.row_bytes;
  const NSUInteger matrix_bytes = argument.is_vector ? layout.row_bytes : layout.matrix_bytes;
  ImageView view;
  view.memory = [buffer_of(names_of(argument), row_state) openmps_memory];
  view.offset = row_state.offset + batch.start * matrix_bytes + origin.x * row_bytes + origin.y * element;
  view.format = layout.type == MPSDataTypeFloat16 ? Format::float16 : Format::float32;
  view.n = static_cast<std::int64_t>(count);
  view.w = static_cast<std::int64_t>(rows);
  view.c = static_cast<std::int64_t>(columns);
  view.w_stride = static_cast<std::int64_t>(row_bytes / element);
  view.h_stride = view.w * view.w_stride;
  view.n_stride = count == 1 ? view.h_stride : static_cast<std::int64_t>(matrix_bytes / element);
  return view;
}

void encode_matrices(const KernelState &state, Recorder &recorder, id<MTLCommandBuffer> buffer,
                     std::initializer_list<const MatrixArgument *> sources, const MatrixArgument &result,
                     Problem problem) {
  for (const MatrixArgument *source : sources) [source->object openmps_willUseOn:buffer];
  [result.object openmps_willUseOn:buffer];
  recorder.append(std::move(problem), state.title);
  std::vector<id> read;
  for (const MatrixArgument *source : sources)
    if (std::find(read.begin(), read.end(), source->object) == read.end()) read.push_back(source->object);
  for (id<OpenMPSRows> object : read) [object openmps_didRead];
}

}  // namespace openmps
