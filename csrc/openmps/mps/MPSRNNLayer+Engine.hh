// SPDX-License-Identifier: Apache-2.0
// Common parts of the stacks of layers on matrices and on images: layers, properties, order of the layers.
#pragma once

#include <algorithm>
#include <utility>

#import "mps/MPSRNNSequence+Engine.hh"

namespace openmps {

/// Indices of layers, in the order of the stack.
using LayerIndices = std::vector<std::size_t>;

/// The layers of an inference kernel, and its properties.
struct LayerStack {
  static constexpr NSUInteger kMaxLayers = 1024;  ///< for archives, which may hold any number

  std::vector<Cell> cells;
  bool recurrent_is_temporary = false, stores_all = false;
  MPSRNNBidirectionalCombineMode combine_mode = MPSRNNBidirectionalCombineModeNone;

  /// Return false if a data source does not load.
  bool read(const KernelState &state, NSArray<const MPSRNNDescriptor *> *descriptors, CellKernels kernels,
            bool always_half);
  void archive(Archive &archive);
  void did_read(const KernelState &state);

  LayerIndices all_layers() const;
  /// Return the layers of both directions; raise if one has none, or their results cannot be combined.
  std::pair<LayerIndices, LayerIndices> directions(const KernelState &state) const;
  /// Raise unless each layer's inputs are the outputs of the one before.
  void check_chain(const KernelState &state, const LayerIndices &layers) const;
  std::vector<const Cell *> cells_of(const LayerIndices &layers) const;
  /// Return the columns of the forward results of a bidirectional encode.
  std::int64_t forward_columns(const LayerIndices &ahead, const LayerIndices &back) const;
};

/// Return the steps whose states an encode returns, in their order.
std::vector<std::size_t> stored_steps(bool all, std::size_t steps);
/// Return the data of a recurrent input, null if it is nil. Raise if `buffer` may not use it or it does not fit.
const RecurrentData *initial_state(const KernelState &state, id<MTLCommandBuffer> buffer, MPSState *input, Pass pass,
                                   const std::vector<const Cell *> &cells);
/// Write the results of both directions of a step; `back_dst` is that of the backward one, if they are separate.
void combine_directions(const CellCommands &commands, MPSRNNBidirectionalCombineMode mode, const ImageView &ahead,
                        const ImageView &back, const ImageView &dst, const ImageView &back_dst);

}  // namespace openmps

/// Initialisers and properties of a stack. STATE has a `stack`, and read(descriptors), which returns whether all data
/// sources loaded.
#define OPENMPS_RNN_STACK(STATE)                                                                                  \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                         \
    (void)device;                                                                                                 \
    const openmps::UnwindRelease unwind(self);                                                                    \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:rnnDescriptor:");                                     \
  }                                                                                                               \
  -(instancetype)initWithDevice : (id<MTLDevice>)device rnnDescriptor : (const MPSRNNDescriptor *)rnnDescriptor { \
    NSArray *one = rnnDescriptor == nil ? [NSArray array] : [NSArray arrayWithObject:rnnDescriptor];              \
    return [self initWithDevice:device rnnDescriptors:one];                                                       \
  }                                                                                                               \
  -(instancetype)initWithDevice : (id<MTLDevice>)device rnnDescriptors                                            \
      : (NSArray<const MPSRNNDescriptor *> *)rnnDescriptors {                                                     \
    if (!(self = [self openmps_initWithDevice:device])) return nil;                                               \
    openmps::UnwindRelease unwind(self);                                                                          \
    if (!openmps::state_of<STATE>(self).read(rnnDescriptors)) return nil; /* unwind releases the kernel */        \
    return unwind.done();                                                                                         \
  }                                                                                                               \
  OPENMPS_GETTER(STATE, NSUInteger, inputFeatureChannels, stack.cells.front().inputs)                             \
  OPENMPS_GETTER(STATE, NSUInteger, outputFeatureChannels, stack.cells.back().outputs)                            \
  OPENMPS_GETTER(STATE, NSUInteger, numberOfLayers, stack.cells.size())                                           \
  OPENMPS_PROPERTY(STATE, BOOL, recurrentOutputIsTemporary, setRecurrentOutputIsTemporary,                        \
                   stack.recurrent_is_temporary)                                                                  \
  OPENMPS_PROPERTY(STATE, BOOL, storeAllIntermediateStates, setStoreAllIntermediateStates, stack.stores_all)      \
  OPENMPS_PROPERTY(STATE, MPSRNNBidirectionalCombineMode, bidirectionalCombineMode, setBidirectionalCombineMode,  \
                   stack.combine_mode)                                                                            \
  OPENMPS_INIT_WITH_CODER                                                                                         \
  -(instancetype)copyWithZone : (NSZone *)zone device : (id<MTLDevice>)device {                                   \
    return [super copyWithZone:zone device:device];                                                               \
  }
