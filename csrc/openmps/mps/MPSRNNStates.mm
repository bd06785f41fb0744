// SPDX-License-Identifier: Apache-2.0
// States of recurrent layers [MPSRNNLayer.h]. Only layers make them.

#import "mps/MPSRNNStates+Engine.hh"

#import "mps/MPSMatrix+Engine.hh"

namespace openmps {
namespace {

template <class State>
State *new_state(const KernelState &state, id<MTLCommandBuffer> temporary_on, MPSStateResourceList *resources) {
  return temporary_on != nil ? [State temporaryStateWithCommandBuffer:temporary_on resourceList:resources]
                             : [[[State alloc] initWithDevice:state.device.get() resourceList:resources] autorelease];
}

NSUInteger bytes_of(const KernelState &state, std::int64_t rows, std::int64_t columns) {
  const auto bytes = product({static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), sizeof(float)});
  if (!bytes) raise_for(state, @"A state of %ld x %ld floats is too large.", (long)rows, (long)columns);
  return static_cast<NSUInteger>(*bytes);
}

const std::shared_ptr<Memory> &memory_to_fill(MPSState *state, NSUInteger index) {
  return [static_cast<id<OpenMPSBuffer>>([state resourceAtIndex:index allocateMemory:YES]) openmps_memoryToFill];
}

}  // namespace

template <class State>
State *new_recurrent_state(const KernelState &state, id<MTLCommandBuffer> temporary_on, Pass pass, std::int64_t rows,
                           const std::vector<const Cell *> &cells, const NewOverBuffer &made_over) {
  MPSStateResourceList *buffers = [MPSStateResourceList resourceList];
  for (const Cell *cell : cells)
    for (int i = 0; i < (cell->kind == CellKind::lstm ? 2 : 1); ++i)
      [buffers appendBuffer:bytes_of(state, rows, cell->outputs)];
  State *made = new_state<State>(state, temporary_on, buffers);
  auto data = std::make_unique<RecurrentData>();
  data->pass = pass;
  data->rows = rows;
  NSUInteger next = 0;
  const auto add = [&](const Cell &cell, ImageView &view, std::vector<Ref<id>> &objects) {
    view = matrix_in(memory_to_fill(made, next), 0, rows, cell.outputs);
    id<MTLBuffer> buffer = static_cast<id<MTLBuffer>>([made resourceAtIndex:next++ allocateMemory:YES]);
    objects.push_back(Ref<id>::adopt(made_over(buffer, cell)));
  };
  for (const Cell *cell : cells) {
    RecurrentLayer layer;
    add(*cell, layer.output, data->outputs);
    if (cell->kind == CellKind::lstm)
      add(*cell, layer.memory, data->memories);
    else
      data->memories.push_back({});
    data->layers.push_back(layer);
  }
  [made openmps_setData:std::move(data)];
  return made;
}

template MPSRNNRecurrentImageState *new_recurrent_state(const KernelState &, id<MTLCommandBuffer>, Pass, std::int64_t,
                                                        const std::vector<const Cell *> &, const NewOverBuffer &);

MPSRNNRecurrentMatrixState *new_recurrent_state(const KernelState &state, id<MTLCommandBuffer> temporary_on, Pass pass,
                                                std::int64_t rows, const std::vector<const Cell *> &cells) {
  const auto matrix_over = [&](id<MTLBuffer> buffer, const Cell &cell) {
    const auto columns = static_cast<NSUInteger>(cell.outputs);
    MPSMatrixDescriptor *descriptor = [MPSMatrixDescriptor matrixDescriptorWithRows:static_cast<NSUInteger>(rows)
                                                                            columns:columns
                                                                           rowBytes:columns * sizeof(float)
                                                                           dataType:MPSDataTypeFloat32];
    return [[MPSMatrix alloc] initWithBuffer:buffer descriptor:descriptor];
  };
  return new_recurrent_state<MPSRNNRecurrentMatrixState>(state, temporary_on, pass, rows, cells, matrix_over);
}

const RecurrentData *recurrent_data(const KernelState &state, MPSState *recurrent, const char *name, Pass pass,
                                    const std::vector<const Cell *> &cells) {
  if (recurrent == nil) return nullptr;
  const auto *data = static_cast<const RecurrentData *>([recurrent openmps_data]);
  if (data == nullptr)
    raise_usage(@"%s: %s holds no values: only a layer can make it, and a temporary one is empty once it has been "
                @"read.",
                state.title.c_str(), name);
  if (data->pass != pass)
    raise_for(state, @"%s is that of a %s pass.", name, data->pass == Pass::forward ? "forward" : "gradient");
  if (data->layers.size() != cells.size())
    raise_for(state, @"%s has %lu layers, expected %lu.", name, (unsigned long)data->layers.size(),
              (unsigned long)cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool has_memory = data->layers[i].memory.memory != nullptr, expected = cells[i]->kind == CellKind::lstm;
    if (data->layers[i].output.c != cells[i]->outputs || has_memory != expected)
      raise_for(state, @"Layer %lu of %s has %ld channels and %s memory cell, expected %ld and %s.", (unsigned long)i,
                name, (long)data->layers[i].output.c, has_memory ? "a" : "no", (long)cells[i]->outputs,
                expected ? "one" : "none");
  }
  return data;
}

MPSRNNMatrixTrainingState *new_training_state(const KernelState &state, id<MTLCommandBuffer> temporary_on,
                                              const Cell &cell, std::int64_t rows) {
  MPSStateResourceList *buffers = [MPSStateResourceList resourceList];
  [buffers appendBuffer:bytes_of(state, rows, step_floats(cell))];
  MPSRNNMatrixTrainingState *made = new_state<MPSRNNMatrixTrainingState>(state, temporary_on, buffers);
  auto data = std::make_unique<TrainingData>();
  data->kind = cell.kind;
  data->step = step_in(cell, memory_to_fill(made, 0), rows);
  [made openmps_setData:std::move(data)];
  return made;
}

TrainingData &training_data(const KernelState &state, MPSRNNMatrixTrainingState *training, const Cell &cell) {
  if (![training isKindOfClass:[MPSRNNMatrixTrainingState class]])
    raise_for(state, @"trainingStates has an object of class %@.", [training class]);
  auto *data = static_cast<TrainingData *>([training openmps_data]);
  if (data == nullptr)
    raise_usage(@"%s: A training state holds no values: only a layer can make it, and a temporary one is empty once it "
                @"has been read.",
                state.title.c_str());
  if (data->kind != cell.kind || data->step.h1.c != cell.outputs)
    raise_for(state, @"A training state has %ld outputs of another kind of layer, or another number than %ld.",
              (long)data->step.h1.c, (long)cell.outputs);
  return *data;
}

namespace {

/// Return the matrix or image of a layer; nil if there is none.
id of_layer(MPSState *state, std::vector<Ref<id>> RecurrentData::*all, NSUInteger index) {
  const auto *data = static_cast<const RecurrentData *>([state openmps_data]);
  if (data == nullptr || index >= (data->*all).size()) return nil;
  return (data->*all)[index].get();
}

}  // namespace
}  // namespace openmps

using openmps::RecurrentData;

/// A temporary state releases its memory with the last read.
#define OPENMPS_RNN_STATE                                                     \
  -(void)setReadCount : (NSUInteger)readCount {                               \
    [super setReadCount:readCount];                                           \
    if ([self isTemporary] && readCount == 0) [self openmps_setData:nullptr]; \
  }

@implementation MPSRNNRecurrentMatrixState

OPENMPS_RNN_STATE

- (MPSMatrix *)getRecurrentOutputMatrixForLayerIndex:(NSUInteger)layerIndex {
  return openmps::of_layer(self, &RecurrentData::outputs, layerIndex);
}

- (MPSMatrix *)getMemoryCellMatrixForLayerIndex:(NSUInteger)layerIndex {
  return openmps::of_layer(self, &RecurrentData::memories, layerIndex);
}

@end

@implementation MPSRNNRecurrentImageState

OPENMPS_RNN_STATE

- (MPSImage *)getRecurrentOutputImageForLayerIndex:(NSUInteger)layerIndex {
  return openmps::of_layer(self, &RecurrentData::outputs, layerIndex);
}

- (MPSImage *)getMemoryCellImageForLayerIndex:(NSUInteger)layerIndex {
  return openmps::of_layer(self, &RecurrentData::memories, layerIndex);
}

@end

@implementation MPSRNNMatrixTrainingState

OPENMPS_RNN_STATE

@end
