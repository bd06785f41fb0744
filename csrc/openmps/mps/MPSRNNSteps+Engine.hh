// SPDX-License-Identifier: Apache-2.0
// Steps of a recurrent layer: formulas of the cells [MPSRNNLayer.h] as commands.
#pragma once

#import "mps/MPSRNNCell+Engine.hh"
#import "mps/MPSRNNCommands+Engine.hh"

namespace openmps {

/// Products with a layer's weights, which matrices and images compute differently.
struct CellWeights {
  virtual ~CellWeights() = default;
  /// Add the products of `src` and the weights of `count` gates from `gate` on to these gates' columns of `sums`.
  virtual void add(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count,
                   const ImageView &src, const ImageView &sums) const = 0;
  /// Return the biases or the diagonals of a run of gates, one row.
  virtual ImageView row(WeightRole role, const GateRun &run) const = 0;
};

/// The values of a step. Matrices with a row for each sequence; those of all gates have gate_count() * outputs columns.
struct CellStep {
  ImageView h0, c0;        ///< recurrent input; c0 of an LSTM
  ImageView sums, gates;   ///< of all gates: before and after activation; that of a single gate is h1
  ImageView h1;            ///< output
  ImageView c1, squashed;  ///< LSTM: new memory cell, and after cell_neuron
  // GRU: z ^ p if p is not 1, (1 - z ^ p) ^ (1 / p), r h0, z h0
  ImageView power, keep, recurrent, kept;

  std::int64_t rows() const { return sums.w; }
};

/// Return the columns of a gate, or of `count` gates.
ImageView gate_of(const Cell &cell, const ImageView &all, std::size_t gate, std::size_t count = 1);

/// Functions of a GRU's input gate z: 1 - z; z ^ p; (1 - u) ^ (1 / p), of u = z ^ p.
inline Neuron complement_neuron() { return {NeuronType::linear, -1, 1, 0, nullptr}; }
inline Neuron power_neuron(const Cell &cell) { return {NeuronType::power, 1, 0, cell.p_norm, nullptr}; }
inline Neuron keep_neuron(const Cell &cell) { return {NeuronType::power, -1, 1, 1 / cell.p_norm, nullptr}; }

/// Return a step whose results are in the memory, step_floats() floats for each row.
CellStep step_in(const Cell &cell, const std::shared_ptr<Memory> &memory, std::int64_t rows);
std::int64_t step_floats(const Cell &cell);
/// Return a step whose results only commands refer to; `sums` is overwritten by the gates.
CellStep new_step(const CellCommands &commands, const Cell &cell, const ImageView &sums);

/// sums = biases + products of the input of any number of steps.
void encode_inputs(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const ImageView &src,
                   const ImageView &sums);
/// Compute the step from h0, c0 and the sums of encode_inputs().
void encode_step(const CellCommands &commands, const Cell &cell, const CellWeights &weights, const CellStep &step);

/// Rows of the matrices that hold weights: outputs, as gradients need them, or factors, with which oneDNN multiplies a
/// few rows three times as fast.
enum class WeightRows : std::uint8_t { outputs, factors };

/// Weights of 1 x 1 kernels as matrices. A role without weights has no memory.
struct MatrixWeights : CellWeights {
  MatrixWeights(const Cell &cell, WeightRows rows) : cell(cell), rows(rows) {}
  void add(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count, const ImageView &src,
           const ImageView &sums) const override;
  ImageView row(WeightRole role, const GateRun &run) const override;
  ImageView matrix(WeightRole role, const GateRun &run) const;
  /// With rows of outputs: dst = gradient of the factors of these gates' weights, plus dst if `accumulates`. Return
  /// whether there are weights; without, dst does not change.
  bool factors_gradient(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count,
                        const ImageView &diff_sums, const ImageView &dst, bool accumulates) const;

  const Cell &cell;
  const WeightRows rows;
  std::array<ImageView, kWeightRoles> all;
};

/// Gradients of a step from those of its results: diff_h of h1 alone, and `carried_h`, `carried_c` of the later steps,
/// which become those of h0 and c0. diff_sums is written.
void encode_step_gradient(const CellCommands &commands, const MatrixWeights &weights, const CellStep &step,
                          const ImageView &diff_h, const ImageView &carried_h, const ImageView &carried_c,
                          const ImageView &diff_sums);
/// dst = gradient of the input of any number of steps.
void encode_inputs_gradient(const CellCommands &commands, const MatrixWeights &weights, const ImageView &diff_sums,
                            const ImageView &dst);
/// Factors of the weights in all steps, whose rows follow each other.
struct StepFactors {
  ImageView x, h0, c0, c1, recurrent, kept;
};
void encode_weight_gradients(const CellCommands &commands, const MatrixWeights &gradients, const ImageView &diff_sums,
                             const StepFactors &factors, bool accumulates);

}  // namespace openmps
