// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels on matrices and vectors.
#pragma once

#import "mps/MPSKernel+Engine.hh"
#import "mps/MPSMatrix+Engine.hh"

namespace openmps {

/// A matrix or a vector that a kernel uses.
struct MatrixArgument {
  id<OpenMPSRows> object;  ///< MPSMatrix or MPSVector
  const char *name;
  const char *origin_name;  ///< "leftMatrixOrigin"
  bool is_vector = false;
};

/// Matrices from batchStart on: as many as there are, at most batchSize.
struct MatrixBatch {
  NSUInteger start = 0, size = NSUIntegerMax;

  void archive(Archive &archive);
};

/// Return the number of matrices of the batch that all arguments have; raise if there is none, or an argument is nil.
NSUInteger batch_count(const KernelState &state, const MatrixBatch &batch,
                       std::initializer_list<const MatrixArgument *> arguments);

/// Return rows x columns values of `count` matrices from `origin` on (x: row, y: column), as images whose pixels are
/// the rows. A vector is one column, and has an origin along x. Raise if they are not inside, or not of floats.
ImageView matrices_view(const KernelState &state, const MatrixArgument &argument, const MTLOrigin &origin,
                        NSUInteger rows, NSUInteger columns, const MatrixBatch &batch, NSUInteger count);

void archive_origin(Archive &archive, NSString *key, MTLOrigin &origin);

/// Append the problem. The distinct sources are read, the result is written.
void encode_matrices(const KernelState &state, Recorder &recorder, id<MTLCommandBuffer> buffer,
                     std::initializer_list<const MatrixArgument *> sources, const MatrixArgument &result,
                     Problem problem);

}  // namespace openmps
