// SPDX-License-Identifier: Apache-2.0
// Sequences of matrices, and the weights of layers as matrices.
#pragma once

#import "mps/MPSMatrix+Engine.hh"
#import "mps/MPSRNNSequence+Engine.hh"

namespace openmps {

/// An array of matrices, one for each step, and the byte offsets of their first values; null: zeros.
struct MatrixSequence {
  NSArray<MPSMatrix *> *matrices;
  const NSUInteger *offsets;
  const char *name;
};

/// Return `columns` columns of the matrices; raise if they do not have them. `rows`: of each step, or null to take all
/// rows of the matrices, of which no one may have more than the one before.
std::vector<ImageView> sequence_views(const KernelState &state, const MatrixSequence &sequence, std::int64_t columns,
                                      const std::vector<std::int64_t> *rows);
std::vector<std::int64_t> row_counts(const std::vector<ImageView> &views);
/// Raise if a recurrent input has fewer sequences than the first step. Null: none.
void check_initial_rows(const KernelState &state, const RecurrentData *initial, const StepRows &rows);
/// Make the recurrent output of step `index`, and copy it there.
MPSRNNRecurrentMatrixState *encode_new_state(const CellCommands &commands, const KernelState &state,
                                             id<MTLCommandBuffer> temporary_on, const std::vector<const Cell *> &cells,
                                             const std::vector<std::vector<CellStep>> &steps, std::size_t index,
                                             const RecurrentData *initial);

/// The matrices of an encode. Raise if `buffer` may not use one.
class UsedMatrices {
 public:
  explicit UsedMatrices(id<MTLCommandBuffer> buffer) : buffer_(buffer) {}
  void read(NSArray<MPSMatrix *> *matrices);
  void write(NSArray<MPSMatrix *> *matrices);
  /// Decrement the read counts of the distinct matrices that are read.
  void did_read() const;

 private:
  id<MTLCommandBuffer> buffer_;
  std::vector<id<OpenMPSRows>> read_;
};

/// Append matrices for the weights of a layer, by role, of those roles that it has. Temporary if `temporary_on` is not
/// nil; filled with zeros.
void add_weight_matrices(const KernelState &state, const Cell &cell, MPSDataType type,
                         id<MTLCommandBuffer> temporary_on, NSMutableArray<MPSMatrix *> *matrices);
/// Copy the layer's values into such matrices, which no command buffer uses yet.
void fill_weight_matrices(const Cell &cell, NSArray<MPSMatrix *> *matrices);
/// Return the views of such matrices; raise if they are not those of this layer.
MatrixWeights weights_of(const KernelState &state, const Cell &cell, NSArray<MPSMatrix *> *matrices, const char *name);

}  // namespace openmps
