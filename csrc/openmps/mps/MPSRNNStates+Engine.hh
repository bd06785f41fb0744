// SPDX-License-Identifier: Apache-2.0
// States of recurrent layers: recurrent inputs and outputs, and the values that a gradient needs.
#pragma once

#include <functional>

#import "mps/MPSRNNSteps+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {

/// Sequences are rows, or the pixels of an image.
struct RecurrentLayer {
  ImageView output, memory;  ///< memory: of an LSTM
};

/// Pass of the encode that made a state.
enum class Pass : std::uint8_t { forward, gradient };

struct RecurrentData : StateData {
  Pass pass = Pass::forward;
  std::int64_t rows = 0;
  std::int64_t h = 0, w = 0;  ///< of images, whose pixels are the rows
  std::vector<RecurrentLayer> layers;
  std::vector<Ref<id>> outputs, memories;  ///< MPSMatrix or MPSImage; nil where there is no memory
};

/// Make the object over the buffer, which holds `rows` rows of the cell's outputs; owned by the caller.
using NewOverBuffer = std::function<id(id<MTLBuffer> buffer, const Cell &cell)>;
/// Make a state of `rows` rows for these layers, temporary if `temporary_on` is not nil. Its memory is not filled.
/// `made_over` makes the objects that the program gets.
template <class State>
State *new_recurrent_state(const KernelState &state, id<MTLCommandBuffer> temporary_on, Pass pass, std::int64_t rows,
                           const std::vector<const Cell *> &cells, const NewOverBuffer &made_over);
MPSRNNRecurrentMatrixState *new_recurrent_state(const KernelState &state, id<MTLCommandBuffer> temporary_on, Pass pass,
                                                std::int64_t rows, const std::vector<const Cell *> &cells);
/// Return the data of a state for these layers, null if it is nil; raise unless a layer like this one made it, in this
/// pass, and it has not been released.
const RecurrentData *recurrent_data(const KernelState &state, MPSState *recurrent, const char *name, Pass pass,
                                    const std::vector<const Cell *> &cells);

struct TrainingData : StateData {
  CellKind kind = CellKind::none;
  CellStep step;
};

MPSRNNMatrixTrainingState *new_training_state(const KernelState &state, id<MTLCommandBuffer> temporary_on,
                                              const Cell &cell, std::int64_t rows);
/// Return the data of a state that a layer like this one made; raise otherwise.
TrainingData &training_data(const KernelState &state, MPSRNNMatrixTrainingState *training, const Cell &cell);

}  // namespace openmps
