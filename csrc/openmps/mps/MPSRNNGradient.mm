// SPDX-License-Identifier: Apache-2.0
// Gradients of the steps of recurrent layers on matrices: derivatives of the formulas in MPSRNNForward.mm.

#import "mps/MPSRNNSteps+Engine.hh"

namespace openmps {

bool MatrixWeights::factors_gradient(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count,
                                     const ImageView &diff_sums, const ImageView &dst, bool accumulates) const {
  const std::vector<GateRun> runs = cell.runs(role, gate, count);
  for (const GateRun &run : runs) {
    const ImageView diff = gate_of(cell, diff_sums, run.gate, run.count);
    commands.product(diff, false, matrix(role, run), false, dst, accumulates);
    accumulates = true;
  }
  return !runs.empty();
}

namespace {

/// The gradient of one step.
class StepGradient {
 public:
  StepGradient(const CellCommands &commands, const MatrixWeights &weights, const CellStep &step,
               const ImageView &carried_h, const ImageView &carried_c, const ImageView &diff_sums)
      : commands_(commands),
        weights_(weights),
        cell_(weights.cell),
        step_(step),
        carried_h_(carried_h),
        carried_c_(carried_c),
        diff_sums_(diff_sums) {}

  void encode(const ImageView &diff_h) const {
    const ImageView diff = matrix();
    commands_.combine(BinaryOperation::add, diff_h, carried_h_, diff);
    switch (cell_.kind) {
      case CellKind::lstm: return lstm(diff);
      case CellKind::gru: return gru(diff);
      default: return single_gate(diff);
    }
  }

 private:
  ImageView matrix() const { return commands_.matrix(step_.rows(), cell_.outputs); }
  ImageView product(const ImageView &a, const ImageView &b) const {
    const ImageView result = matrix();
    commands_.multiply(a, b, result);
    return result;
  }
  ImageView gate(std::size_t index) const { return gate_of(cell_, step_.gates, index); }

  /// From the gradient of a gate to that of its sum.
  void through_gate(std::size_t index, const ImageView &diff) const {
    commands_.activate_gradient(cell_.neurons[index].neuron, diff, gate_of(cell_, step_.sums, index),
                                gate_of(cell_, diff_sums_, index));
  }

  /// The gradient of h0 by way of the recurrent weights becomes `carried_h`, or is added to it.
  void carry_h(std::size_t gate, std::size_t count, bool accumulates) const {
    const bool has_weights =
        weights_.factors_gradient(commands_, WeightRole::recurrent, gate, count, diff_sums_, carried_h_, accumulates);
    if (!has_weights && !accumulates) commands_.fill_with_zeros(carried_h_);
  }

  /// dst += gradient of the memory cell by way of its weights.
  void add_memory(std::size_t gate, std::size_t count, const ImageView &dst) const {
    if (!cell_.diagonal_memory) {
      weights_.factors_gradient(commands_, WeightRole::memory, gate, count, diff_sums_, dst, true);
      return;
    }
    for (std::size_t i = gate; i < gate + count; ++i)
      for (const GateRun &run : cell_.runs(WeightRole::memory, i, 1))
        commands_.add_product(gate_of(cell_, diff_sums_, i), weights_.row(WeightRole::memory, run), dst);
  }

  void single_gate(const ImageView &diff) const {
    through_gate(gates::single, diff);
    carry_h(0, 1, false);
  }

  void lstm(const ImageView &diff) const {
    using namespace gates;
    through_gate(lstm_output, product(diff, step_.squashed));
    const ImageView diff_c = matrix();
    commands_.activate_gradient(cell_.cell_neuron.neuron, product(diff, gate(lstm_output)), step_.c1, diff_c);
    commands_.add(carried_c_, diff_c);
    add_memory(lstm_output, 1, diff_c);
    through_gate(lstm_input, product(diff_c, gate(lstm_cell)));
    through_gate(lstm_forget, product(diff_c, step_.c0));
    through_gate(lstm_cell, product(diff_c, gate(lstm_input)));
    commands_.multiply(diff_c, gate(lstm_forget), carried_c_);
    add_memory(lstm_input, 2, carried_c_);
    add_memory(lstm_cell, 1, carried_c_);
    carry_h(0, lstm_count, false);
  }

  void gru(const ImageView &diff) const {
    using namespace gates;
    const ImageView z = gate(gru_input), r = gate(gru_recurrent), h = gate(gru_output);
    // h1 = keep * kept + z * passed
    const ImageView &kept = cell_.flips_output ? step_.h0 : h, &passed = cell_.flips_output ? h : step_.h0;
    const ImageView diff_kept = product(diff, step_.keep), diff_passed = product(diff, z);
    const ImageView diff_z = product(diff, passed), diff_keep = product(diff, kept);
    through_gate(gru_output, cell_.flips_output ? diff_passed : diff_kept);
    commands_.copy(cell_.flips_output ? diff_kept : diff_passed, carried_h_);
    add_keep(diff_keep, z, diff_z);

    const ImageView diff_factors = matrix();
    if (weights_.factors_gradient(commands_, WeightRole::recurrent, gru_output, 1, diff_sums_, diff_factors, false)) {
      through_gate(gru_recurrent, product(diff_factors, step_.h0));
      commands_.add_product(diff_factors, r, carried_h_);
    } else {
      through_gate(gru_recurrent, commands_.zeros(step_.rows(), cell_.outputs));
    }
    const ImageView diff_memory = matrix();
    if (weights_.factors_gradient(commands_, WeightRole::memory, gru_output, 1, diff_sums_, diff_memory, false)) {
      commands_.add_product(diff_memory, step_.h0, diff_z);
      commands_.add_product(diff_memory, z, carried_h_);
    }
    through_gate(gru_input, diff_z);
    carry_h(gru_input, 2, true);
  }

  /// diff_z += gradient of z by way of keep.
  void add_keep(const ImageView &diff_keep, const ImageView &z, const ImageView &diff_z) const {
    if (cell_.p_norm == 1) return commands_.combine(BinaryOperation::subtract, diff_z, diff_keep, diff_z);
    const ImageView power = matrix(), diff_power = matrix(), diff = matrix();
    // At 1 the derivative is infinite, and that of the gate, which goes to 0 faster, would not be multiplied by it.
    commands_.limit(step_.power, 1 - 0x1p-24f, power);
    commands_.activate_gradient(keep_neuron(cell_), diff_keep, power, diff_power);
    commands_.activate_gradient(power_neuron(cell_), diff_power, z, diff);
    commands_.add(diff, diff_z);
  }

  const CellCommands &commands_;
  const MatrixWeights &weights_;
  const Cell &cell_;
  const CellStep &step_;
  const ImageView &carried_h_, &carried_c_, &diff_sums_;
};

}  // namespace

void encode_step_gradient(const CellCommands &commands, const MatrixWeights &weights, const CellStep &step,
                          const ImageView &diff_h, const ImageView &carried_h, const ImageView &carried_c,
                          const ImageView &diff_sums) {
  StepGradient(commands, weights, step, carried_h, carried_c, diff_sums).encode(diff_h);
}

void encode_inputs_gradient(const CellCommands &commands, const MatrixWeights &weights, const ImageView &diff_sums,
                            const ImageView &dst) {
  const Cell &cell = weights.cell;
  if (!cell.is_input_added) {
    if (!weights.factors_gradient(commands, WeightRole::input, 0, cell.gate_count(), diff_sums, dst, false))
      commands.fill_with_zeros(dst);
    return;
  }
  commands.copy(gate_of(cell, diff_sums, 0), dst);
  for (std::size_t gate = 1; gate < cell.gate_count(); ++gate) commands.add(gate_of(cell, diff_sums, gate), dst);
}

void encode_weight_gradients(const CellCommands &commands, const MatrixWeights &gradients, const ImageView &diff_sums,
                             const StepFactors &factors, bool accumulates) {
  const Cell &cell = gradients.cell;
  const auto encode = [&](WeightRole role, std::size_t gate, std::size_t count, const ImageView &factor) {
    if (cell.is_row(role)) {
      const std::size_t at_once = role == WeightRole::bias ? count : 1;  // a diagonal's factor is that of one gate
      for (std::size_t i = gate; i < gate + count; i += at_once)
        for (const GateRun &run : cell.runs(role, i, at_once))
          commands.sum_rows(gate_of(cell, diff_sums, run.gate, run.count), factor, gradients.row(role, run),
                            accumulates);
      return;
    }
    for (const GateRun &run : cell.runs(role, gate, count))
      commands.product(gate_of(cell, diff_sums, run.gate, run.count), true, factor, false, gradients.matrix(role, run),
                       accumulates);
  };
  const std::size_t count = cell.gate_count();
  encode(WeightRole::bias, 0, count, {});
  encode(WeightRole::input, 0, count, factors.x);
  if (cell.kind == CellKind::gru) {
    encode(WeightRole::recurrent, gates::gru_input, 2, factors.h0);
    encode(WeightRole::recurrent, gates::gru_output, 1, factors.recurrent);
    encode(WeightRole::memory, gates::gru_output, 1, factors.kept);
    return;
  }
  encode(WeightRole::recurrent, 0, count, factors.h0);
  if (cell.kind == CellKind::single_gate) return;
  encode(WeightRole::memory, gates::lstm_input, 2, factors.c0);
  encode(WeightRole::memory, gates::lstm_output, 1, factors.c1);
  encode(WeightRole::memory, gates::lstm_cell, 1, factors.c0);
}

}  // namespace openmps
