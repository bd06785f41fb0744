// SPDX-License-Identifier: Apache-2.0
// Stacks of recurrent layers on matrices, for inference [MPSRNNLayer.h].

#import "mps/MPSRNNLayer+Engine.hh"
#import "mps/MPSRNNMatrices+Engine.hh"

namespace openmps {
namespace {

/// Weights by role, with rows of factors.
using RoleMatrices = std::array<ImageView, kWeightRoles>;

RoleMatrices new_matrices(const KernelState &state, const Cell &cell) {
  RoleMatrices made;
  for (std::size_t index = 0; index < kWeightRoles; ++index) {
    const auto role = static_cast<WeightRole>(index);
    if (!cell.has(role)) continue;
    const std::vector<float> &values = cell.of(role).values;
    const std::int64_t rows = cell.rows(role), columns = cell.columns(role);
    if (cell.is_row(role)) {
      made[index] = new_matrix(state, rows, columns, values);
      continue;
    }
    std::vector<float> transposed(values.size());
    for (std::int64_t y = 0; y < rows; ++y)
      for (std::int64_t x = 0; x < columns; ++x)
        transposed[static_cast<std::size_t>(x * rows + y)] = values[static_cast<std::size_t>(y * columns + x)];
    made[index] = new_matrix(state, columns, rows, transposed);
  }
  return made;
}

struct MatrixInferenceState : Extends<MatrixInferenceState, KernelState> {
  LayerStack stack;
  std::vector<RoleMatrices> matrices;  ///< of each layer; shared by copies, never written

  bool read(NSArray<const MPSRNNDescriptor *> *descriptors) {
    if (!stack.read(*this, descriptors, CellKernels::one_by_one, /*always_half=*/false)) return false;
    make_matrices();
    return true;
  }

  void make_matrices() {
    matrices.clear();
    for (const Cell &cell : stack.cells) matrices.push_back(new_matrices(*this, cell));
  }

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    stack.archive(archive);
  }
  void did_read(MPSKernel *) override {
    stack.did_read(*this);
    make_matrices();
  }
  void did_copy(id<OpenMPSDevice> new_device) override {
    const bool moves = new_device != device.get();
    KernelState::did_copy(new_device);
    if (moves) make_matrices();
  }
};

/// Weights of some layers, and references to them.
struct MatrixStack {
  std::vector<std::unique_ptr<MatrixWeights>> weights;
  std::vector<StackLayer> layers;

  MatrixStack(const MatrixInferenceState &state, const LayerIndices &indices) {
    for (const std::size_t index : indices) {
      const Cell &cell = state.stack.cells[index];
      weights.push_back(std::make_unique<MatrixWeights>(cell, WeightRows::factors));
      weights.back()->all = state.matrices[index];
      layers.push_back({&cell, weights.back().get()});
    }
  }
};

void encode(const MatrixInferenceState &state, id<MTLCommandBuffer> buffer, const MatrixSequence &sources,
            const MatrixSequence &results, MPSRNNRecurrentMatrixState *input,
            NSMutableArray<MPSRNNRecurrentMatrixState *> *outputs) {
  Recorder &recorder = begin_encode(state, buffer);
  const LayerIndices indices = state.stack.all_layers();
  state.stack.check_chain(state, indices);
  UsedMatrices used(buffer);
  used.read(sources.matrices);
  used.write(results.matrices);
  const auto src = sequence_views(state, sources, state.stack.cells.front().inputs, nullptr);
  const StepRows rows(row_counts(src));
  const auto dst = sequence_views(state, results, state.stack.cells.back().outputs, &rows.count);
  check_apart(state, sources.name, src, results.name, dst);
  const std::vector<const Cell *> cells = state.stack.cells_of(indices);
  const RecurrentData *initial = initial_state(state, buffer, input, Pass::forward, cells);
  check_initial_rows(state, initial, rows);

  const CellCommands commands(state, recorder);
  const MatrixStack stack(state, indices);
  const StackResult result = encode_stack(commands, stack.layers, rows, joined(commands, rows, src), false, initial);
  for (std::size_t i = 0; i < dst.size(); ++i) commands.copy(rows.of(result.outputs, i), dst[i]);
  if (outputs != nil)
    for (const std::size_t index : stored_steps(state.stack.stores_all, rows.steps()))
      [outputs addObject:encode_new_state(commands, state, state.stack.recurrent_is_temporary ? buffer : nil, cells,
                                          result.steps, index, initial)];
  used.did_read();
  [input openmps_didRead];
}

void encode_bidirectional(const MatrixInferenceState &state, id<MTLCommandBuffer> buffer, NSArray *sources,
                          NSArray *forward, NSArray *backward) {
  Recorder &recorder = begin_encode(state, buffer);
  const auto [ahead, back] = state.stack.directions(state);
  const bool is_separate = state.stack.combine_mode == MPSRNNBidirectionalCombineModeNone;
  UsedMatrices used(buffer);
  used.read(sources);
  used.write(forward);
  if (is_separate) used.write(backward);
  const auto src =
      sequence_views(state, {sources, nullptr, "sourceSequence"}, state.stack.cells[ahead.front()].inputs, nullptr);
  const StepRows rows(row_counts(src));
  const auto results = [&](NSArray *matrices, const char *name, std::int64_t columns) {
    const auto dst = sequence_views(state, {matrices, nullptr, name}, columns, &rows.count);
    check_apart(state, "sourceSequence", src, name, dst);
    return dst;
  };
  const auto dst = results(forward, "destinationForwardMatrices", state.stack.forward_columns(ahead, back));
  std::vector<ImageView> back_dst;
  if (is_separate) back_dst = results(backward, "destinationBackwardMatrices", state.stack.cells[back.back()].outputs);

  const CellCommands commands(state, recorder);
  const MatrixStack ahead_stack(state, ahead), back_stack(state, back);
  const ImageView all = joined(commands, rows, src);
  const ImageView a = encode_stack(commands, ahead_stack.layers, rows, all, false, nullptr).outputs;
  const ImageView b = encode_stack(commands, back_stack.layers, rows, all, true, nullptr).outputs;
  for (std::size_t i = 0; i < dst.size(); ++i)
    combine_directions(commands, state.stack.combine_mode, rows.of(a, i), rows.of(b, i), dst[i],
                       is_separate ? back_dst[i] : ImageView());
  used.did_read();
}

}  // namespace
}  // namespace openmps

using openmps::MatrixInferenceState;

@implementation MPSRNNMatrixInferenceLayer

+ (openmps::KernelState *)openmps_newState {
  return new MatrixInferenceState();
}

OPENMPS_RNN_STACK(MatrixInferenceState)

- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
                        sourceOffsets:(NSUInteger *)sourceOffsets
                  destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
                   destinationOffsets:(NSUInteger *)destinationOffsets
                  recurrentInputState:(MPSRNNRecurrentMatrixState *)recurrentInputState
                recurrentOutputStates:(NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates {
  openmps::encode(
      openmps::state_of<MatrixInferenceState>(self), commandBuffer, {sourceMatrices, sourceOffsets, "sourceMatrices"},
      {destinationMatrices, destinationOffsets, "destinationMatrices"}, recurrentInputState, recurrentOutputStates);
}

- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                       sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
                  destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
                  recurrentInputState:(MPSRNNRecurrentMatrixState *)recurrentInputState
                recurrentOutputStates:(NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates {
  [self encodeSequenceToCommandBuffer:commandBuffer
                       sourceMatrices:sourceMatrices
                        sourceOffsets:NULL
                  destinationMatrices:destinationMatrices
                   destinationOffsets:NULL
                  recurrentInputState:recurrentInputState
                recurrentOutputStates:recurrentOutputStates];
}

- (void)encodeBidirectionalSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                    sourceSequence:(NSArray<MPSMatrix *> *)sourceSequence
                        destinationForwardMatrices:(NSArray<MPSMatrix *> *)destinationForwardMatrices
                       destinationBackwardMatrices:(NSArray<MPSMatrix *> *)destinationBackwardMatrices {
  openmps::encode_bidirectional(openmps::state_of<MatrixInferenceState>(self), commandBuffer, sourceSequence,
                                destinationForwardMatrices, destinationBackwardMatrices);
}

@end
