// SPDX-License-Identifier: Apache-2.0
// Common parts of the stacks of recurrent layers [MPSRNNLayer.h].

#import "mps/MPSRNNLayer+Engine.hh"

namespace openmps {

bool LayerStack::read(const KernelState &state, NSArray<const MPSRNNDescriptor *> *descriptors, CellKernels kernels,
                      bool always_half) {
  if ([descriptors count] == 0) raise_for(state, @"There is no rnnDescriptor.");
  for (const MPSRNNDescriptor *descriptor in descriptors) {
    if (![descriptor isKindOfClass:[MPSRNNDescriptor class]])
      raise_for(state, @"An rnnDescriptor is of class %@.", [descriptor class]);
    std::optional<Cell> cell = read_cell(state, descriptor, kernels, always_half || ![descriptor useFloat32Weights]);
    if (!cell) return false;
    cells.push_back(std::move(*cell));
  }
  return true;
}

void LayerStack::archive(Archive &archive) {
  archive.field(@"MPSRNNLayer.recurrentOutputIsTemporary", recurrent_is_temporary);
  archive.field(@"MPSRNNLayer.storeAllIntermediateStates", stores_all);
  archive.field(@"MPSRNNLayer.bidirectionalCombineMode", combine_mode);
  NSUInteger count = cells.size();
  archive.field(@"MPSRNNLayer.numberOfLayers", count);
  if (archive.is_reading()) cells.resize(std::min(count, kMaxLayers));
  for (std::size_t i = 0; i < cells.size(); ++i)
    cells[i].archive(archive, [NSString stringWithFormat:@"MPSRNNLayer.layer%lu", (unsigned long)i]);
}

void LayerStack::did_read(const KernelState &state) {
  if (cells.empty()) raise_for(state, @"The archive holds no layers.");
  for (Cell &cell : cells) cell.did_read(state, /*has_values=*/true);
}

LayerIndices LayerStack::all_layers() const {
  LayerIndices all(cells.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

std::pair<LayerIndices, LayerIndices> LayerStack::directions(const KernelState &state) const {
  if (combine_mode > MPSRNNBidirectionalCombineModeConcatenate)
    raise_for(state, @"bidirectionalCombineMode (%lu) is not None (0), Add (1) or Concatenate (2).",
              (unsigned long)combine_mode);
  LayerIndices ahead, back;
  for (std::size_t i = 0; i < cells.size(); ++i) (cells[i].is_backward ? back : ahead).push_back(i);
  if (ahead.empty() || back.empty())
    raise_for(state, @"The kernel has no layer with layerSequenceDirection %s.",
              ahead.empty() ? "Forward" : "Backward");
  check_chain(state, ahead);
  check_chain(state, back);
  if (cells[ahead.front()].inputs != cells[back.front()].inputs)
    raise_for(state, @"The first forward layer has %ld inputFeatureChannels and the first backward layer %ld.",
              (long)cells[ahead.front()].inputs, (long)cells[back.front()].inputs);
  if (combine_mode == MPSRNNBidirectionalCombineModeAdd && cells[ahead.back()].outputs != cells[back.back()].outputs)
    raise_for(state,
              @"The last forward layer has %ld outputFeatureChannels and the last backward layer %ld, which "
              @"bidirectionalCombineMode Add cannot add.",
              (long)cells[ahead.back()].outputs, (long)cells[back.back()].outputs);
  return {ahead, back};
}

void LayerStack::check_chain(const KernelState &state, const LayerIndices &layers) const {
  for (std::size_t i = 1; i < layers.size(); ++i)
    if (cells[layers[i]].inputs != cells[layers[i - 1]].outputs)
      raise_for(state, @"Layer %lu has %ld inputFeatureChannels, and the layer before it has %ld outputs.",
                (unsigned long)layers[i], (long)cells[layers[i]].inputs, (long)cells[layers[i - 1]].outputs);
}

std::vector<const Cell *> LayerStack::cells_of(const LayerIndices &layers) const {
  std::vector<const Cell *> all;
  for (const std::size_t index : layers) all.push_back(&cells[index]);
  return all;
}

std::int64_t LayerStack::forward_columns(const LayerIndices &ahead, const LayerIndices &back) const {
  const bool is_wide = combine_mode == MPSRNNBidirectionalCombineModeConcatenate;
  return cells[ahead.back()].outputs + (is_wide ? cells[back.back()].outputs : 0);
}

std::vector<std::size_t> stored_steps(bool all, std::size_t steps) {
  std::vector<std::size_t> stored;
  for (std::size_t i = all ? 0 : steps - 1; i < steps; ++i) stored.push_back(i);
  return stored;
}

const RecurrentData *initial_state(const KernelState &state, id<MTLCommandBuffer> buffer, MPSState *input, Pass pass,
                                   const std::vector<const Cell *> &cells) {
  const RecurrentData *data = recurrent_data(state, input, "recurrentInputState", pass, cells);
  [input openmps_willUseOn:buffer];
  return data;
}

void combine_directions(const CellCommands &commands, MPSRNNBidirectionalCombineMode mode, const ImageView &ahead,
                        const ImageView &back, const ImageView &dst, const ImageView &back_dst) {
  switch (mode) {
    case MPSRNNBidirectionalCombineModeAdd: return commands.combine(BinaryOperation::add, ahead, back, dst);
    case MPSRNNBidirectionalCombineModeConcatenate:
      commands.copy(ahead, dst.channels(0, ahead.c));
      return commands.copy(back, dst.channels(ahead.c, back.c));
    default: commands.copy(ahead, dst); return commands.copy(back, back_dst);
  }
}

}  // namespace openmps
