// SPDX-License-Identifier: Apache-2.0
// Matrices of recurrent layers: rules of sequences [MPSRNNLayer.h], layout of weights.

#import "mps/MPSRNNMatrices+Engine.hh"

#include <algorithm>
#include <cstring>

#include "engine/shared/rows.hpp"

namespace openmps {

namespace {

Format format_of(const KernelState &state, MPSMatrix *matrix, const std::string &name) {
  const MPSDataType type = [matrix dataType];
  if (type != MPSDataTypeFloat32 && type != MPSDataTypeFloat16)
    raise_for(state, @"%s.dataType (0x%lx) is not MPSDataTypeFloat32 or MPSDataTypeFloat16.", name.c_str(),
              (unsigned long)type);
  if ([matrix matrices] != 1)
    raise_for(state, @"%s.matrices (%lu) is not 1.", name.c_str(), (unsigned long)[matrix matrices]);
  return type == MPSDataTypeFloat16 ? Format::float16 : Format::float32;
}

/// Return rows x columns values from `offset` bytes on; raise if a row or the last value ends beyond.
ImageView view_at(const KernelState &state, MPSMatrix *matrix, const std::string &name, NSUInteger offset,
                  NSUInteger rows, NSUInteger columns) {
  ImageView view;
  view.format = format_of(state, matrix, name);
  const RowState &row_state = [matrix openmps_state];
  const NSUInteger element = size_of(view.format);
  const NSUInteger row_bytes = rows == 1 ? std::max([matrix rowBytes], [matrix columns] * element) : [matrix rowBytes];
  if (rows > [matrix rows])
    raise_for(state, @"%s has %lu rows, less than the %lu rows of the sources.", name.c_str(),
              (unsigned long)[matrix rows], (unsigned long)rows);
  if (offset % element != 0)
    raise_for(state, @"The offset (%lu) of %s is not a multiple of the size of an element (%lu).",
              (unsigned long)offset, name.c_str(), (unsigned long)element);
  const NSUInteger first_column = offset % row_bytes / element;
  if (columns > row_bytes / element - first_column || (offset == 0 && columns > [matrix columns]))
    raise_for(state, @"%s has %lu columns from column %lu on, less than the layer's %lu feature channels.",
              name.c_str(), (unsigned long)(offset == 0 ? [matrix columns] : row_bytes / element - first_column),
              (unsigned long)first_column, (unsigned long)columns);
  id<OpenMPSBuffer> buffer = buffer_of(kMatrixNames, row_state);
  const NSUInteger bytes = (rows - 1) * row_bytes + columns * element, length = [buffer length] - row_state.offset;
  if (offset > length || bytes > length - offset)
    raise_for(state, @"%s ends beyond its buffer: %lu bytes from offset %lu on, and the buffer has %lu.", name.c_str(),
              (unsigned long)bytes, (unsigned long)offset, (unsigned long)length);
  view.memory = [buffer openmps_memory];
  view.offset = row_state.offset + offset;
  view.w = static_cast<std::int64_t>(rows), view.c = static_cast<std::int64_t>(columns);
  view.w_stride = static_cast<std::int64_t>(row_bytes / element);
  view.h_stride = view.n_stride = view.w * view.w_stride;
  return view;
}

}  // namespace

std::vector<ImageView> sequence_views(const KernelState &state, const MatrixSequence &sequence, std::int64_t columns,
                                      const std::vector<std::int64_t> *rows) {
  const NSUInteger count = [sequence.matrices count];
  if (count == 0) raise_for(state, @"%s has no matrices.", sequence.name);
  if (rows != nullptr && count != rows->size())
    raise_for(state, @"%s has %lu matrices, expected %lu as in the sources.", sequence.name, (unsigned long)count,
              (unsigned long)rows->size());
  std::vector<ImageView> views;
  for (NSUInteger i = 0; i < count; ++i) {
    MPSMatrix *matrix = [sequence.matrices objectAtIndex:i];
    const std::string name = std::string(sequence.name) + "[" + std::to_string(i) + "]";
    if (![matrix isKindOfClass:[MPSMatrix class]])
      raise_for(state, @"%s is of class %@, not MPSMatrix.", name.c_str(), [matrix class]);
    const NSUInteger own = rows == nullptr ? [matrix rows] : static_cast<NSUInteger>((*rows)[i]);
    if (rows == nullptr && i > 0 && own > static_cast<NSUInteger>(views.back().w))
      raise_for(state, @"%s has %lu rows, more than the %ld rows before.", name.c_str(), (unsigned long)own,
                (long)views.back().w);
    views.push_back(view_at(state, matrix, name, sequence.offsets == nullptr ? 0 : sequence.offsets[i], own,
                            static_cast<NSUInteger>(columns)));
  }
  return views;
}

std::vector<std::int64_t> row_counts(const std::vector<ImageView> &views) {
  std::vector<std::int64_t> counts;
  for (const ImageView &view : views) counts.push_back(view.w);
  return counts;
}

void check_initial_rows(const KernelState &state, const RecurrentData *initial, const StepRows &rows) {
  if (initial != nullptr && initial->rows < rows.count.front())
    raise_for(state, @"recurrentInputState has %ld rows, less than the %ld rows of sourceMatrices.",
              (long)initial->rows, (long)rows.count.front());
}

MPSRNNRecurrentMatrixState *encode_new_state(const CellCommands &commands, const KernelState &state,
                                             id<MTLCommandBuffer> temporary_on, const std::vector<const Cell *> &cells,
                                             const std::vector<std::vector<CellStep>> &steps, std::size_t index,
                                             const RecurrentData *initial) {
  const std::int64_t rows = std::max(steps[0][0].rows(), initial == nullptr ? 0 : initial->rows);
  MPSRNNRecurrentMatrixState *made = new_recurrent_state(state, temporary_on, Pass::forward, rows, cells);
  encode_state(commands, steps, index, initial, static_cast<RecurrentData &>(*[made openmps_data]));
  return made;
}

void UsedMatrices::write(NSArray<MPSMatrix *> *matrices) {
  for (MPSMatrix *matrix in matrices) [matrix openmps_willUseOn:buffer_];
}

void UsedMatrices::read(NSArray<MPSMatrix *> *matrices) {
  write(matrices);
  for (MPSMatrix *matrix in matrices)
    if (std::find(read_.begin(), read_.end(), matrix) == read_.end()) read_.push_back(matrix);
}

void UsedMatrices::did_read() const {
  for (id<OpenMPSRows> matrix : read_) [matrix openmps_didRead];
}

// -------------------------------------------------------------------------------------------------- weights

namespace {

constexpr WeightRole kWeightOrder[] = {WeightRole::input, WeightRole::recurrent, WeightRole::memory, WeightRole::bias};

}  // namespace

void add_weight_matrices(const KernelState &state, const Cell &cell, MPSDataType type,
                         id<MTLCommandBuffer> temporary_on, NSMutableArray<MPSMatrix *> *matrices) {
  if (type != MPSDataTypeFloat32 && type != MPSDataTypeFloat16)
    raise_for(state, @"dataType (0x%lx) is not MPSDataTypeFloat32 or MPSDataTypeFloat16.", (unsigned long)type);
  if (matrices == nil) raise_for(state, @"The array for the matrices is nil.");
  for (const WeightRole role : kWeightOrder) {
    if (!cell.has(role)) continue;
    const auto rows = static_cast<NSUInteger>(cell.rows(role)), columns = static_cast<NSUInteger>(cell.columns(role));
    MPSMatrixDescriptor *descriptor = [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                                                            columns:columns
                                                                           rowBytes:columns * element_size(type)
                                                                           dataType:type];
    if (temporary_on == nil) {
      [matrices addObject:[[[MPSMatrix alloc] initWithDevice:state.device.get() descriptor:descriptor] autorelease]];
      continue;
    }
    MPSMatrix *made = [MPSTemporaryMatrix temporaryMatrixWithCommandBuffer:temporary_on matrixDescriptor:descriptor];
    BufferFillProblem problem;
    problem.dst = [buffer_of(kMatrixNames, [made openmps_state]) openmps_memory];
    problem.bytes = rows * columns * element_size(type);
    begin_encode(state, temporary_on).append(problem, state.title);
    [matrices addObject:made];
  }
}

void fill_weight_matrices(const Cell &cell, NSArray<MPSMatrix *> *matrices) {
  NSUInteger next = 0;
  for (const WeightRole role : kWeightOrder) {
    if (!cell.has(role)) continue;
    MPSMatrix *matrix = [matrices objectAtIndex:next++];
    const std::vector<float> &values = cell.of(role).values;
    void *contents = [[matrix data] contents];
    if ([matrix dataType] == MPSDataTypeFloat32)
      std::memcpy(contents, values.data(), values.size() * sizeof(float));
    else
      row_from_float(values.data(), static_cast<std::byte *>(contents), Format::float16,
                     static_cast<std::int64_t>(values.size()));
    [[matrix data] didModifyRange:NSMakeRange(0, values.size() * element_size([matrix dataType]))];
  }
}

MatrixWeights weights_of(const KernelState &state, const Cell &cell, NSArray<MPSMatrix *> *matrices, const char *name) {
  MatrixWeights weights(cell, WeightRows::outputs);
  NSUInteger next = 0;
  for (const WeightRole role : kWeightOrder) {
    if (!cell.has(role)) continue;
    MPSMatrix *matrix = next < [matrices count] ? [matrices objectAtIndex:next] : nil;
    const auto rows = static_cast<NSUInteger>(cell.rows(role)), columns = static_cast<NSUInteger>(cell.columns(role));
    const std::string each = std::string(name) + "[" + std::to_string(next++) + "]";
    if (matrix == nil || [matrix rows] != rows || [matrix columns] != columns)
      raise_for(state, @"%s has %lu x %lu values (rows x columns), expected %lu x %lu.", each.c_str(),
                (unsigned long)[matrix rows], (unsigned long)[matrix columns], (unsigned long)rows,
                (unsigned long)columns);
    weights.all[index_of(role)] = view_at(state, matrix, each, 0, rows, columns);
  }
  if (next != [matrices count])
    raise_for(state, @"%s has %lu matrices, expected %lu.", name, (unsigned long)[matrices count], (unsigned long)next);
  return weights;
}

}  // namespace openmps
