// SPDX-License-Identifier: Apache-2.0
// Forward steps of recurrent layers [MPSRNNLayer.h, MPSRNNSingleGateDescriptor, MPSLSTMDescriptor, MPSGRUDescriptor].

#import "mps/MPSRNNSteps+Engine.hh"

namespace openmps {

ImageView gate_of(const Cell &cell, const ImageView &all, std::size_t gate, std::size_t count) {
  return all.channels(static_cast<std::int64_t>(gate) * cell.outputs, static_cast<std::int64_t>(count) * cell.outputs);
}

namespace {

/// Call visit(matrix, columns) for each matrix of a step that is a result.
template <class Visit>
void for_each_result(const Cell &cell, CellStep &step, const Visit &visit) {
  const std::int64_t gates = static_cast<std::int64_t>(cell.gate_count()) * cell.outputs;
  visit(step.sums, gates);
  if (cell.kind != CellKind::single_gate) visit(step.gates, gates);
  visit(step.h1, cell.outputs);
  if (cell.kind == CellKind::lstm)
    for (ImageView *view : {&step.c1, &step.squashed}) visit(*view, cell.outputs);
  if (cell.kind == CellKind::gru)
    for (ImageView *view : {&step.keep, &step.recurrent, &step.kept}) visit(*view, cell.outputs);
  if (cell.kind == CellKind::gru && cell.p_norm != 1) visit(step.power, cell.outputs);
}

/// Activate `count` gates from `gate` on; neighbours with one function at once. (No two gates share slopes of a PReLU.)
void activate(const CellCommands &commands, const Cell &cell, const CellStep &step, std::size_t gate,
              std::size_t count) {
  for (const std::size_t end = gate + count; gate < end;) {
    const Neuron &neuron = cell.neurons[gate].neuron;
    std::size_t same = 1;
    while (gate + same < end && cell.neurons[gate + same].neuron == neuron) ++same;
    commands.activate(neuron, gate_of(cell, step.sums, gate, same), gate_of(cell, step.gates, gate, same));
    gate += same;
  }
}

/// Add the products of the memory cell and its weights.
void add_memory(const CellCommands &commands, const Cell &cell, const CellWeights &weights, std::size_t gate,
                std::size_t count, const ImageView &memory, const ImageView &sums) {
  if (!cell.diagonal_memory) return weights.add(commands, WeightRole::memory, gate, count, memory, sums);
  for (std::size_t i = gate; i < gate + count; ++i)
    for (const GateRun &run : cell.runs(WeightRole::memory, i, 1))
      commands.add_product(memory, weights.row(WeightRole::memory, run), gate_of(cell, sums, i));
}

void encode_single_gate(const CellCommands &commands, const Cell &cell, const CellWeights &weights,
                        const CellStep &step) {
  weights.add(commands, WeightRole::recurrent, 0, 1, step.h0, step.sums);
  commands.activate(cell.neurons[0].neuron, step.sums, step.h1);
}

/// Gates I, F, O, C: c1 = F c0 + I C, h1 = O gh(c1).
void encode_lstm(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const CellStep &step) {
  using namespace gates;
  const auto gate = [&](std::size_t index) { return gate_of(cell, step.gates, index); };
  weights.add(commands, WeightRole::recurrent, 0, lstm_count, step.h0, step.sums);
  add_memory(commands, cell, weights, lstm_input, 2, step.c0, step.sums);
  add_memory(commands, cell, weights, lstm_cell, 1, step.c0, step.sums);
  // The output gate's memory cell is the new one.
  const bool output_is_late = cell.has(WeightRole::memory, lstm_output);
  activate(commands, cell, step, 0, output_is_late ? 2 : 3);
  activate(commands, cell, step, lstm_cell, 1);
  commands.multiply(gate(lstm_input), gate(lstm_cell), step.c1);
  commands.add_product(gate(lstm_forget), step.c0, step.c1);
  if (output_is_late) {
    add_memory(commands, cell, weights, lstm_output, 1, step.c1, step.sums);
    activate(commands, cell, step, lstm_output, 1);
  }
  commands.activate(cell.cell_neuron.neuron, step.c1, step.squashed);
  commands.multiply(gate(lstm_output), step.squashed, step.h1);
}

/// Gates z, r, h: h1 = (1 - z ^ p) ^ (1 / p) h + z h0, or with h0 and h exchanged.
void encode_gru(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const CellStep &step) {
  using namespace gates;
  const ImageView z = gate_of(cell, step.gates, gru_input), r = gate_of(cell, step.gates, gru_recurrent),
                  h = gate_of(cell, step.gates, gru_output);
  weights.add(commands, WeightRole::recurrent, gru_input, 2, step.h0, step.sums);
  activate(commands, cell, step, gru_input, 2);
  if (cell.has(WeightRole::recurrent, gru_output)) {
    commands.multiply(r, step.h0, step.recurrent);
    weights.add(commands, WeightRole::recurrent, gru_output, 1, step.recurrent, step.sums);
  }
  if (cell.has(WeightRole::memory, gru_output) || !cell.flips_output) commands.multiply(z, step.h0, step.kept);
  weights.add(commands, WeightRole::memory, gru_output, 1, step.kept, step.sums);
  activate(commands, cell, step, gru_output, 1);
  if (cell.p_norm == 1) {
    commands.activate(complement_neuron(), z, step.keep);
  } else {
    commands.activate(power_neuron(cell), z, step.power);
    commands.activate(keep_neuron(cell), step.power, step.keep);
  }
  commands.multiply(step.keep, cell.flips_output ? step.h0 : h, step.h1);
  if (cell.flips_output)
    commands.add_product(z, h, step.h1);
  else
    commands.add(step.kept, step.h1);
}

}  // namespace

std::int64_t step_floats(const Cell &cell) {
  CellStep step;
  std::int64_t floats = 0;
  for_each_result(cell, step, [&](ImageView &, std::int64_t columns) { floats += columns; });
  return floats;
}

CellStep step_in(const Cell &cell, const std::shared_ptr<Memory> &memory, std::int64_t rows) {
  CellStep step;
  std::size_t offset = 0;
  for_each_result(cell, step, [&](ImageView &view, std::int64_t columns) {
    view = matrix_in(memory, offset, rows, columns);
    offset += static_cast<std::size_t>(rows * columns) * sizeof(float);
  });
  return step;
}

CellStep new_step(const CellCommands &commands, const Cell &cell, const ImageView &sums) {
  CellStep step;
  step.sums = step.gates = sums;
  for_each_result(cell, step, [&](ImageView &view, std::int64_t columns) {
    if (!view.memory) view = commands.matrix(sums.w, columns);
  });
  return step;
}

void encode_inputs(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const ImageView &src,
                   const ImageView &sums) {
  const std::size_t count = cell.gate_count();
  const std::vector<GateRun> runs = cell.runs(WeightRole::bias, 0, count);
  if (runs.size() != 1 || runs[0].count != count) commands.fill_with_zeros(sums);
  for (const GateRun &run : runs)
    commands.repeat(weights.row(WeightRole::bias, run), gate_of(cell, sums, run.gate, run.count));
  if (!cell.is_input_added) return weights.add(commands, WeightRole::input, 0, count, src, sums);
  for (std::size_t gate = 0; gate < count; ++gate) commands.add(src, gate_of(cell, sums, gate));
}

void encode_step(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const CellStep &step) {
  switch (cell.kind) {
    case CellKind::lstm: return encode_lstm(commands, cell, weights, step);
    case CellKind::gru: return encode_gru(commands, cell, weights, step);
    default: return encode_single_gate(commands, cell, weights, step);
  }
}

// ------------------------------------------------------------------------------------------ weights of matrices

ImageView MatrixWeights::row(WeightRole role, const GateRun &run) const {
  return all[index_of(role)].channels(run.first, static_cast<std::int64_t>(run.count) * cell.outputs);
}

ImageView MatrixWeights::matrix(WeightRole role, const GateRun &run) const {
  const std::int64_t count = static_cast<std::int64_t>(run.count) * cell.outputs;
  const ImageView &matrix = all[index_of(role)];
  return rows == WeightRows::outputs ? rows_of(matrix, run.first, count) : matrix.channels(run.first, count);
}

/// y = x transposed(W) [MPSRNNLayer.h, MPSRNNMatrixInferenceLayer].
void MatrixWeights::add(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count,
                        const ImageView &src, const ImageView &sums) const {
  for (const GateRun &run : cell.runs(role, gate, count))
    commands.product(src, false, matrix(role, run), rows == WeightRows::outputs,
                     gate_of(cell, sums, run.gate, run.count), true);
}

}  // namespace openmps
