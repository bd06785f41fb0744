// SPDX-License-Identifier: Apache-2.0
// A recurrent layer on matrices, for training [MPSRNNLayer.h].

#import "mps/MPSMatrixKernel+Engine.hh"
#import "mps/MPSRNNLayer+Engine.hh"
#import "mps/MPSRNNMatrices+Engine.hh"

namespace openmps {
namespace {

struct MatrixTrainingState : Extends<MatrixTrainingState, KernelState> {
  Cell cell;  ///< without values, which are in the program's matrices
  bool stores_all = false, recurrent_is_temporary = false, training_is_temporary = false;
  bool accumulates = false;

  /// unverified: which weights are halves.
  MPSDataType weight_type() const { return cell.float_weights ? MPSDataTypeFloat32 : MPSDataTypeFloat16; }

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    cell.archive(archive, @"MPSRNNMatrixTrainingLayer.layer");
    archive.field(@"MPSRNNMatrixTrainingLayer.storeAllIntermediateStates", stores_all);
    archive.field(@"MPSRNNMatrixTrainingLayer.recurrentOutputIsTemporary", recurrent_is_temporary);
    archive.field(@"MPSRNNMatrixTrainingLayer.trainingStateIsTemporary", training_is_temporary);
    archive.field(@"MPSRNNMatrixTrainingLayer.accumulateWeightGradients", accumulates);
  }
  void did_read(MPSKernel *) override { cell.did_read(*this, /*has_values=*/false); }
};

/// Return false if a data source does not load.
bool init(MatrixTrainingState &state, const MPSRNNDescriptor *descriptor, NSMutableArray<MPSMatrix *> *weights) {
  std::optional<Cell> cell = read_cell(state, descriptor, CellKernels::one_by_one, /*round_to_half=*/false);
  if (!cell) return false;
  state.cell = std::move(*cell);
  NSMutableArray<MPSMatrix *> *made = [NSMutableArray array];
  if (weights == nil) raise_for(state, @"trainableWeights is nil.");
  add_weight_matrices(state, state.cell, state.weight_type(), nil, made);
  fill_weight_matrices(state.cell, made);
  [weights addObjectsFromArray:made];
  for (RoleWeights &role : state.cell.weights) role.values = {};
  return true;
}

// -------------------------------------------------------------------------------------------- copies of weights

struct MatrixPlace {
  CellKind kind;
  std::size_t gate;
  WeightRole role;
};

/// By MPSRNNMatrixId.
constexpr MatrixPlace kPlaces[] = {
    {CellKind::single_gate, gates::single, WeightRole::input},
    {CellKind::single_gate, gates::single, WeightRole::recurrent},
    {CellKind::single_gate, gates::single, WeightRole::bias},
    {CellKind::lstm, gates::lstm_input, WeightRole::input},
    {CellKind::lstm, gates::lstm_input, WeightRole::recurrent},
    {CellKind::lstm, gates::lstm_input, WeightRole::memory},
    {CellKind::lstm, gates::lstm_input, WeightRole::bias},
    {CellKind::lstm, gates::lstm_forget, WeightRole::input},
    {CellKind::lstm, gates::lstm_forget, WeightRole::recurrent},
    {CellKind::lstm, gates::lstm_forget, WeightRole::memory},
    {CellKind::lstm, gates::lstm_forget, WeightRole::bias},
    {CellKind::lstm, gates::lstm_cell, WeightRole::input},
    {CellKind::lstm, gates::lstm_cell, WeightRole::recurrent},
    {CellKind::lstm, gates::lstm_cell, WeightRole::memory},
    {CellKind::lstm, gates::lstm_cell, WeightRole::bias},
    {CellKind::lstm, gates::lstm_output, WeightRole::input},
    {CellKind::lstm, gates::lstm_output, WeightRole::recurrent},
    {CellKind::lstm, gates::lstm_output, WeightRole::memory},
    {CellKind::lstm, gates::lstm_output, WeightRole::bias},
    {CellKind::gru, gates::gru_input, WeightRole::input},
    {CellKind::gru, gates::gru_input, WeightRole::recurrent},
    {CellKind::gru, gates::gru_input, WeightRole::bias},
    {CellKind::gru, gates::gru_recurrent, WeightRole::input},
    {CellKind::gru, gates::gru_recurrent, WeightRole::recurrent},
    {CellKind::gru, gates::gru_recurrent, WeightRole::bias},
    {CellKind::gru, gates::gru_output, WeightRole::input},
    {CellKind::gru, gates::gru_output, WeightRole::recurrent},
    {CellKind::gru, gates::gru_output, WeightRole::memory},
    {CellKind::gru, gates::gru_output, WeightRole::bias},
};
static_assert(std::size(kPlaces) == MPSRNNMatrixId_count);

/// Return a row as a column.
ImageView column(const ImageView &row) {
  ImageView view = row;
  view.w = row.c, view.c = view.w_stride = 1;
  view.h_stride = view.n_stride = view.w;
  return view;
}

void encode_copy(const MatrixTrainingState &state, id<MTLCommandBuffer> buffer, NSArray<MPSMatrix *> *weights,
                 MPSRNNMatrixId identifier, MPSMatrix *matrix, bool from_weights, const MTLOrigin &origin) {
  Recorder &recorder = begin_encode(state, buffer);
  const Cell &cell = state.cell;
  if (identifier >= MPSRNNMatrixId_count || kPlaces[identifier].kind != cell.kind ||
      !cell.has(kPlaces[identifier].role, kPlaces[identifier].gate))
    raise_for(state, @"matrixId (%lu) is not that of weights of the layer.", (unsigned long)identifier);
  if (matrix == nil) raise_for(state, @"matrix is nil.");
  const MatrixPlace &place = kPlaces[identifier];
  const MatrixWeights all = weights_of(state, cell, weights, "weights");
  const GateRun run = cell.runs(place.role, place.gate, 1).front();
  const bool is_row = cell.is_row(place.role);
  const ImageView stored = is_row ? column(all.row(place.role, run)) : all.matrix(place.role, run);
  // The rows of a matrix are outputs [MPSRNNLayer.h]; unverified: a row of a matrix with too few rows will do.
  const bool lies = is_row && cell.outputs > 1 && [matrix rows] - std::min(origin.x, [matrix rows]) == 1;
  ImageView given =
      matrices_view(state, {matrix, "matrix", "matrixOffset"}, origin, lies ? 1 : static_cast<NSUInteger>(stored.w),
                    lies ? static_cast<NSUInteger>(stored.w) : static_cast<NSUInteger>(stored.c), {}, 1);
  if (lies) given = column(given);
  UsedMatrices used(buffer);
  NSArray *matrices = [NSArray arrayWithObject:matrix];
  from_weights ? used.read(weights) : used.write(weights);
  from_weights ? used.write(matrices) : used.read(matrices);
  CellCommands(state, recorder).copy(from_weights ? stored : given, from_weights ? given : stored);
  used.did_read();
}

// ----------------------------------------------------------------------------------------------------- forward

/// Return the weights as floats: the product of every step would convert halves.
MatrixWeights in_floats(const CellCommands &commands, MatrixWeights weights) {
  for (ImageView &view : weights.all) {
    if (!view.memory || view.format == Format::float32) continue;
    const ImageView floats = commands.matrix(view.w, view.c);
    commands.copy(std::exchange(view, floats), floats);
  }
  return weights;
}

void encode_forward(const MatrixTrainingState &state, id<MTLCommandBuffer> buffer, const MatrixSequence &sources,
                    const MatrixSequence &results, NSMutableArray<MPSRNNMatrixTrainingState *> *training,
                    MPSRNNRecurrentMatrixState *input, NSMutableArray<MPSRNNRecurrentMatrixState *> *outputs,
                    NSArray<MPSMatrix *> *weights) {
  Recorder &recorder = begin_encode(state, buffer);
  const Cell &cell = state.cell;
  if (training == nil) raise_for(state, @"trainingStates is nil.");
  UsedMatrices used(buffer);
  used.read(sources.matrices);
  used.read(weights);
  used.write(results.matrices);
  const auto src = sequence_views(state, sources, cell.inputs, nullptr);
  const StepRows rows(row_counts(src));
  const auto dst = sequence_views(state, results, cell.outputs, &rows.count);
  check_apart(state, sources.name, src, results.name, dst);
  const MatrixWeights given_weights = weights_of(state, cell, weights, "weights");
  const RecurrentData *initial = initial_state(state, buffer, input, Pass::forward, {&cell});
  check_initial_rows(state, initial, rows);

  const CellCommands commands(state, recorder);
  const MatrixWeights matrices = in_floats(commands, given_weights);
  std::vector<MPSRNNMatrixTrainingState *> states(rows.steps());
  const auto make = [&](std::size_t index, const ImageView &) {
    states[index] = new_training_state(state, state.training_is_temporary ? buffer : nil, cell, rows.count[index]);
    return training_data(state, states[index], cell).step;
  };
  const std::vector<CellStep> steps = encode_sequence(commands, cell, matrices, rows, joined(commands, rows, src),
                                                      false, initial == nullptr ? nullptr : &initial->layers[0], make);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    training_data(state, states[i], cell).step = steps[i];
    commands.copy(steps[i].h1, dst[i]);
    [training addObject:states[i]];
  }
  if (outputs != nil)
    for (const std::size_t index : stored_steps(state.stores_all, steps.size()))
      [outputs addObject:encode_new_state(commands, state, state.recurrent_is_temporary ? buffer : nil, {&cell},
                                          {steps}, index, initial)];
  used.did_read();
  [input openmps_didRead];
}

// ---------------------------------------------------------------------------------------------------- gradient

/// The arguments of a gradient encode.
struct GradientArguments {
  MatrixSequence forward_sources, sources, results;  ///< no results: their matrices are nil
  NSArray<MPSMatrix *> *weight_gradients;            ///< nil: none
  NSArray<MPSRNNMatrixTrainingState *> *training;
  MPSRNNRecurrentMatrixState *input;
  NSMutableArray<MPSRNNRecurrentMatrixState *> *outputs;
  NSArray<MPSMatrix *> *weights;
};

/// Return the values of all steps that `member` names, behind each other.
ImageView joined(const CellCommands &commands, const StepRows &rows, const std::vector<CellStep> &steps,
                 ImageView CellStep::*member) {
  if (!(steps[0].*member).memory) return {};
  std::vector<ImageView> views;
  for (const CellStep &step : steps) views.push_back(step.*member);
  return joined(commands, rows, views);
}

void encode_weights(const CellCommands &commands, const MatrixTrainingState &state, const StepRows &rows,
                    const std::vector<ImageView> &sources, const std::vector<CellStep> &steps,
                    const ImageView &diff_sums, const MatrixWeights &gradients) {
  const Cell &cell = state.cell;
  StepFactors factors;
  factors.x = joined(commands, rows, sources);
  if (cell.has(WeightRole::recurrent)) factors.h0 = joined(commands, rows, steps, &CellStep::h0);
  if (cell.kind == CellKind::gru && cell.has(WeightRole::recurrent, gates::gru_output))
    factors.recurrent = joined(commands, rows, steps, &CellStep::recurrent);
  if (cell.has(WeightRole::memory)) {
    factors.c0 = joined(commands, rows, steps, &CellStep::c0);
    factors.c1 = joined(commands, rows, steps, &CellStep::c1);
    factors.kept = joined(commands, rows, steps, &CellStep::kept);
  }
  encode_weight_gradients(commands, gradients, diff_sums, factors, state.accumulates);
}

void encode_gradient(const MatrixTrainingState &state, id<MTLCommandBuffer> buffer, const GradientArguments &given) {
  Recorder &recorder = begin_encode(state, buffer);
  const Cell &cell = state.cell;
  UsedMatrices used(buffer);
  used.read(given.forward_sources.matrices);
  used.read(given.sources.matrices);
  used.read(given.weights);
  used.write(given.results.matrices);
  used.write(given.weight_gradients);
  std::vector<CellStep> steps;
  std::vector<std::int64_t> counts;
  for (MPSRNNMatrixTrainingState *training in given.training) {
    [training openmps_willUseOn:buffer];
    steps.push_back(training_data(state, training, cell).step);
    counts.push_back(steps.back().rows());
    if (counts.size() > 1 && counts.back() > counts[counts.size() - 2])
      raise_for(state, @"trainingStates[%lu] is that of %ld rows, more than the %ld rows before.",
                (unsigned long)counts.size() - 1, (long)counts.back(), (long)counts[counts.size() - 2]);
  }
  if (steps.empty()) raise_for(state, @"trainingStates has no states.");
  const StepRows rows(counts);
  const auto src = sequence_views(state, given.forward_sources, cell.inputs, &rows.count);
  const auto diff = sequence_views(state, given.sources, cell.outputs, &rows.count);
  std::vector<ImageView> dst;
  if (given.results.matrices != nil) dst = sequence_views(state, given.results, cell.inputs, &rows.count);
  check_apart(state, given.forward_sources.name, src, given.results.name, dst);
  check_apart(state, given.sources.name, diff, given.results.name, dst);
  const MatrixWeights given_weights = weights_of(state, cell, given.weights, "weights");
  const RecurrentData *initial = initial_state(state, buffer, given.input, Pass::gradient, {&cell});

  const CellCommands commands(state, recorder);
  const MatrixWeights weights = in_floats(commands, given_weights);
  std::optional<MatrixWeights> gradients;
  if (given.weight_gradients != nil)
    gradients.emplace(weights_of(state, cell, given.weight_gradients, "weightGradients"));
  const std::int64_t carried_rows = std::max(rows.count.front(), initial == nullptr ? 0 : initial->rows);
  const auto carried = [&](ImageView RecurrentLayer::*member) {
    const ImageView matrix = commands.zeros(carried_rows, cell.outputs);
    if (initial != nullptr) commands.copy(initial->layers[0].*member, rows_of(matrix, 0, initial->rows));
    return matrix;
  };
  const ImageView carried_h = carried(&RecurrentLayer::output);
  const ImageView carried_c = cell.kind == CellKind::lstm ? carried(&RecurrentLayer::memory) : ImageView();
  const ImageView diff_sums = commands.matrix(rows.total, static_cast<std::int64_t>(cell.gate_count()) * cell.outputs);
  NSMutableArray *made = [NSMutableArray array];  // from the last step on
  for (std::size_t i = steps.size(); i-- > 0;) {
    const std::int64_t count = rows.count[i];
    encode_step_gradient(commands, weights, steps[i], diff[i], rows_of(carried_h, 0, count),
                         carried_c.memory ? rows_of(carried_c, 0, count) : carried_c, rows.of(diff_sums, i));
    if (given.outputs == nil || (i > 0 && !state.stores_all)) continue;
    MPSRNNRecurrentMatrixState *output =
        new_recurrent_state(state, state.recurrent_is_temporary ? buffer : nil, Pass::gradient, carried_rows, {&cell});
    const RecurrentLayer &to = static_cast<RecurrentData &>(*[output openmps_data]).layers[0];
    commands.copy(carried_h, to.output);
    if (to.memory.memory) commands.copy(carried_c, to.memory);
    [made addObject:output];
  }
  // unverified: in the order of the sequence, as the states of a forward encode.
  for (MPSRNNRecurrentMatrixState *output in [made reverseObjectEnumerator]) [given.outputs addObject:output];
  if (!dst.empty()) {
    const ImageView diff_x = commands.matrix(rows.total, cell.inputs);
    encode_inputs_gradient(commands, weights, diff_sums, diff_x);
    for (std::size_t i = 0; i < dst.size(); ++i) commands.copy(rows.of(diff_x, i), dst[i]);
  }
  if (gradients) encode_weights(commands, state, rows, src, steps, diff_sums, *gradients);
  used.did_read();
  for (MPSRNNMatrixTrainingState *training in given.training) [training openmps_didRead];
  [given.input openmps_didRead];
}

}  // namespace
}  // namespace openmps

using openmps::MatrixTrainingState;

@implementation MPSRNNMatrixTrainingLayer

+ (openmps::KernelState *)openmps_newState {
  return new MatrixTrainingState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  const openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:rnnDescriptor:trainableWeights:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 rnnDescriptor:(const MPSRNNDescriptor *)rnnDescriptor
              trainableWeights:(NSMutableArray<MPSMatrix *> *)trainableWeights {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<MatrixTrainingState>(self);
  if (!openmps::init(state, rnnDescriptor, trainableWeights)) return nil;  // unwind releases the kernel
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(MatrixTrainingState, NSUInteger, inputFeatureChannels, cell.inputs)
OPENMPS_GETTER(MatrixTrainingState, NSUInteger, outputFeatureChannels, cell.outputs)
OPENMPS_PROPERTY(MatrixTrainingState, BOOL, storeAllIntermediateStates, setStoreAllIntermediateStates, stores_all)
OPENMPS_PROPERTY(MatrixTrainingState, BOOL, recurrentOutputIsTemporary, setRecurrentOutputIsTemporary,
                 recurrent_is_temporary)
OPENMPS_PROPERTY(MatrixTrainingState, BOOL, trainingStateIsTemporary, setTrainingStateIsTemporary,
                 training_is_temporary)
OPENMPS_PROPERTY(MatrixTrainingState, BOOL, accumulateWeightGradients, setAccumulateWeightGradients, accumulates)

- (instancetype)copyWithZone:(NSZone *)zone device:(id<MTLDevice>)device {
  return [super copyWithZone:zone device:device];
}

- (void)createWeightGradientMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut dataType:(MPSDataType)dataType {
  const auto &state = openmps::state_of<MatrixTrainingState>(self);
  openmps::add_weight_matrices(state, state.cell, dataType, nil, matricesOut);
}

- (void)createTemporaryWeightGradientMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut
                                     dataType:(MPSDataType)dataType
                                commandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  const auto &state = openmps::state_of<MatrixTrainingState>(self);
  openmps::begin_encode(state, commandBuffer);
  openmps::add_weight_matrices(state, state.cell, dataType, commandBuffer, matricesOut);
}

- (void)createWeightMatrices:(NSMutableArray<MPSMatrix *> *)matricesOut {
  const auto &state = openmps::state_of<MatrixTrainingState>(self);
  openmps::add_weight_matrices(state, state.cell, state.weight_type(), nil, matricesOut);
}

- (void)encodeCopyWeightsToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 weights:(NSArray<MPSMatrix *> *)weights
                                matrixId:(MPSRNNMatrixId)matrixId
                                  matrix:(MPSMatrix *)matrix
                 copyFromWeightsToMatrix:(BOOL)copyFromWeightsToMatrix
                            matrixOffset:(MTLOrigin)matrixOffset {
  openmps::encode_copy(openmps::state_of<MatrixTrainingState>(self), commandBuffer, weights, matrixId, matrix,
                       copyFromWeightsToMatrix, matrixOffset);
}

- (void)encodeForwardSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
                               sourceOffsets:(NSUInteger *)sourceOffsets
                         destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
                          destinationOffsets:(NSUInteger *)destinationOffsets
                              trainingStates:(NSMutableArray<MPSRNNMatrixTrainingState *> *)trainingStates
                         recurrentInputState:(MPSRNNRecurrentMatrixState *)recurrentInputState
                       recurrentOutputStates:(NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates
                                     weights:(NSArray<MPSMatrix *> *)weights {
  openmps::encode_forward(openmps::state_of<MatrixTrainingState>(self), commandBuffer,
                          {sourceMatrices, sourceOffsets, "sourceMatrices"},
                          {destinationMatrices, destinationOffsets, "destinationMatrices"}, trainingStates,
                          recurrentInputState, recurrentOutputStates, weights);
}

- (void)encodeForwardSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              sourceMatrices:(NSArray<MPSMatrix *> *)sourceMatrices
                         destinationMatrices:(NSArray<MPSMatrix *> *)destinationMatrices
                              trainingStates:(NSMutableArray<MPSRNNMatrixTrainingState *> *)trainingStates
                                     weights:(NSArray<MPSMatrix *> *)weights {
  [self encodeForwardSequenceToCommandBuffer:commandBuffer
                              sourceMatrices:sourceMatrices
                               sourceOffsets:NULL
                         destinationMatrices:destinationMatrices
                          destinationOffsets:NULL
                              trainingStates:trainingStates
                         recurrentInputState:nil
                       recurrentOutputStates:nil
                                     weights:weights];
}

- (void)encodeGradientSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               forwardSources:(NSArray<MPSMatrix *> *)forwardSources
                         forwardSourceOffsets:(NSUInteger *)forwardSourceOffsets
                              sourceGradients:(NSArray<MPSMatrix *> *)sourceGradients
                        sourceGradientOffsets:(NSUInteger *)sourceGradientOffsets
                         destinationGradients:(NSArray<MPSMatrix *> *)destinationGradients
                           destinationOffsets:(NSUInteger *)destinationOffsets
                              weightGradients:(NSArray<MPSMatrix *> *)weightGradients
                               trainingStates:(NSArray<MPSRNNMatrixTrainingState *> *)trainingStates
                          recurrentInputState:(MPSRNNRecurrentMatrixState *)recurrentInputState
                        recurrentOutputStates:(NSMutableArray<MPSRNNRecurrentMatrixState *> *)recurrentOutputStates
                                      weights:(NSArray<MPSMatrix *> *)weights {
  openmps::encode_gradient(openmps::state_of<MatrixTrainingState>(self), commandBuffer,
                           {.forward_sources = {forwardSources, forwardSourceOffsets, "forwardSources"},
                            .sources = {sourceGradients, sourceGradientOffsets, "sourceGradients"},
                            .results = {destinationGradients, destinationOffsets, "destinationGradients"},
                            .weight_gradients = weightGradients,
                            .training = trainingStates,
                            .input = recurrentInputState,
                            .outputs = recurrentOutputStates,
                            .weights = weights});
}

- (void)encodeGradientSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               forwardSources:(NSArray<MPSMatrix *> *)forwardSources
                              sourceGradients:(NSArray<MPSMatrix *> *)sourceGradients
                         destinationGradients:(NSArray<MPSMatrix *> *)destinationGradients
                              weightGradients:(NSArray<MPSMatrix *> *)weightGradients
                               trainingStates:(NSArray<MPSRNNMatrixTrainingState *> *)trainingStates
                                      weights:(NSArray<MPSMatrix *> *)weights {
  [self encodeGradientSequenceToCommandBuffer:commandBuffer
                               forwardSources:forwardSources
                         forwardSourceOffsets:NULL
                              sourceGradients:sourceGradients
                        sourceGradientOffsets:NULL
                         destinationGradients:destinationGradients
                           destinationOffsets:NULL
                              weightGradients:weightGradients
                               trainingStates:trainingStates
                          recurrentInputState:nil
                        recurrentOutputStates:nil
                                      weights:weights];
}

@end
