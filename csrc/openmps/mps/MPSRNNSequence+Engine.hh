// SPDX-License-Identifier: Apache-2.0
// Layers on sequences. The rows of a step are its sequences, of which some may have ended in an earlier step: a step
// has no more rows than the one before.
#pragma once

#include <functional>

#import "mps/MPSRNNStates+Engine.hh"

namespace openmps {

/// The rows of all steps behind each other.
struct StepRows {
  std::vector<std::int64_t> count, first;
  std::int64_t total = 0;

  explicit StepRows(std::vector<std::int64_t> counts);
  std::size_t steps() const { return count.size(); }
  ImageView of(const ImageView &all, std::size_t step) const { return rows_of(all, first[step], count[step]); }
};

/// Raise if a result shares memory with a source.
void check_apart(const KernelState &state, const char *source_name, const std::vector<ImageView> &sources,
                 const char *result_name, const std::vector<ImageView> &results);

/// Return the sources of all steps as one matrix of floats.
ImageView joined(const CellCommands &commands, const StepRows &rows, const std::vector<ImageView> &sources);

/// Make the step `index`, whose sums are in `sums` or will be copied from there.
using MakeStep = std::function<CellStep(std::size_t index, const ImageView &sums)>;

/// Encode a layer on a sequence, from the first step on or, backwards, from the last one. `initial`: zeros if null.
/// Return the steps in the order of the sequence.
std::vector<CellStep> encode_sequence(const CellCommands &commands, const Cell &cell, const CellWeights &weights,
                                      const StepRows &rows, const ImageView &sources, bool is_backward,
                                      const RecurrentLayer *initial, const MakeStep &make);

/// A stack of layers for inference: each has the outputs of the one before as sources.
struct StackLayer {
  const Cell *cell;
  const CellWeights *weights;
};
struct StackResult {
  std::vector<std::vector<CellStep>> steps;  ///< by layer
  ImageView outputs;                         ///< of the last layer, all steps
};
StackResult encode_stack(const CellCommands &commands, const std::vector<StackLayer> &layers, const StepRows &rows,
                         const ImageView &sources, bool is_backward, const RecurrentData *initial);

/// Copy the state after step `index` to a state of as many rows as there are sequences: a sequence that has ended keeps
/// the state of its last step, or the initial one.
void encode_state(const CellCommands &commands, const std::vector<std::vector<CellStep>> &steps, std::size_t index,
                  const RecurrentData *initial, const RecurrentData &to);

}  // namespace openmps
