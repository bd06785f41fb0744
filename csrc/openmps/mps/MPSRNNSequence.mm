// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on sequences [MPSRNNLayer.h, MPSRNNMatrixInferenceLayer].

#import "mps/MPSRNNSequence+Engine.hh"

#include <algorithm>

#include "mps/Geometry.hpp"

namespace openmps {

StepRows::StepRows(std::vector<std::int64_t> counts) : count(std::move(counts)) {
  for (const std::int64_t rows : count) {
    first.push_back(total);
    total += rows;
  }
}

void check_apart(const KernelState &state, const char *source_name, const std::vector<ImageView> &sources,
                 const char *result_name, const std::vector<ImageView> &results) {
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (std::size_t j = 0; j < results.size(); ++j)
      if (overlap(sources[i], results[j]))
        raise_for(state, @"%s[%lu] and %s[%lu] share memory.", source_name, (unsigned long)i, result_name,
                  (unsigned long)j);
}

ImageView joined(const CellCommands &commands, const StepRows &rows, const std::vector<ImageView> &sources) {
  if (sources.size() == 1 && sources[0].format == Format::float32 && sources[0].is_dense()) return sources[0];
  const ImageView all = commands.matrix(rows.total, sources[0].c);
  for (std::size_t i = 0; i < sources.size(); ++i) commands.copy(sources[i], rows.of(all, i));
  return all;
}

namespace {

/// Return the first rows of a recurrent input, followed by zeros if it has fewer.
ImageView first_rows(const CellCommands &commands, const ImageView &matrix, std::int64_t rows) {
  if (matrix.w >= rows) return rows_of(matrix, 0, rows);
  const ImageView longer = commands.zeros(rows, matrix.c);
  commands.copy(matrix, rows_of(longer, 0, matrix.w));
  return longer;
}

}  // namespace

std::vector<CellStep> encode_sequence(const CellCommands &commands, const Cell &cell, const CellWeights &weights,
                                      const StepRows &rows, const ImageView &sources, bool is_backward,
                                      const RecurrentLayer *initial, const MakeStep &make) {
  const ImageView all_sums = commands.matrix(rows.total, static_cast<std::int64_t>(cell.gate_count()) * cell.outputs);
  encode_inputs(commands, cell, weights, sources, all_sums);
  const bool has_memory = cell.kind == CellKind::lstm;
  RecurrentLayer last;
  if (initial != nullptr)
    last = *initial;
  else
    last.output = last.memory = commands.zeros(is_backward ? rows.count.back() : rows.count.front(), cell.outputs);
  std::vector<CellStep> steps(rows.steps());
  for (std::size_t i = 0; i < rows.steps(); ++i) {
    const std::size_t index = is_backward ? rows.steps() - 1 - i : i;
    const ImageView sums = rows.of(all_sums, index);
    CellStep &step = steps[index] = make(index, sums);
    if (!(step.sums == sums)) commands.copy(sums, step.sums);
    step.h0 = first_rows(commands, last.output, sums.w);
    if (has_memory) step.c0 = first_rows(commands, last.memory, sums.w);
    encode_step(commands, cell, weights, step);
    last.output = step.h1;
    last.memory = step.c1;
  }
  return steps;
}

StackResult encode_stack(const CellCommands &commands, const std::vector<StackLayer> &layers, const StepRows &rows,
                         const ImageView &sources, bool is_backward, const RecurrentData *initial) {
  StackResult result;
  result.outputs = sources;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Cell &cell = *layers[i].cell;
    const ImageView outputs = commands.matrix(rows.total, cell.outputs);
    const auto make = [&](std::size_t index, const ImageView &sums) {
      CellStep step = new_step(commands, cell, sums);
      step.h1 = rows.of(outputs, index);
      return step;
    };
    result.steps.push_back(encode_sequence(commands, cell, *layers[i].weights, rows, result.outputs, is_backward,
                                           initial == nullptr ? nullptr : &initial->layers[i], make));
    result.outputs = outputs;
  }
  return result;
}

void encode_state(const CellCommands &commands, const std::vector<std::vector<CellStep>> &steps, std::size_t index,
                  const RecurrentData *initial, const RecurrentData &to) {
  for (std::size_t layer = 0; layer < steps.size(); ++layer) {
    std::int64_t done = 0;
    const auto copy_until = [&](std::int64_t end, const ImageView &output, const ImageView &memory) {
      if (end <= done) return;
      const RecurrentLayer &target = to.layers[layer];
      commands.copy(rows_of(output, done, end - done), rows_of(target.output, done, end - done));
      if (target.memory.memory)
        commands.copy(rows_of(memory, done, end - done), rows_of(target.memory, done, end - done));
      done = end;
    };
    for (std::size_t i = index + 1; i-- > 0;) {
      const CellStep &step = steps[layer][i];
      copy_until(step.rows(), step.h1, step.c1);
    }
    if (initial != nullptr) {
      const RecurrentLayer &first = initial->layers[layer];
      copy_until(first.output.w, first.output, first.memory);
    }
  }
}

}  // namespace openmps
