// SPDX-License-Identifier: Apache-2.0
// What stands behind matrices and vectors, and what kernels ask of them beyond Apple's interface.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#import "metal/OnEngine.hh"

namespace openmps {

/// Rows of elements in a buffer. A vector is a row: its length are the columns, vectorBytes is the step of the rows.
struct RowLayout {
  NSUInteger matrices = 1, rows = 0, columns = 0;
  NSUInteger matrix_bytes = 0, row_bytes = 0;  ///< steps
  MPSDataType type = MPSDataTypeInvalid;
};

struct RowState {
  Ref<id<OpenMPSDevice>> device;
  RowLayout layout;
  NSUInteger offset = 0;          ///< bytes in the buffer
  Ref<id<OpenMPSBuffer>> buffer;  ///< none once a temporary one's readCount is 0
  // Temporary ones:
  std::shared_ptr<Temporary> temporary;
  std::shared_ptr<TemporaryScope> scope;
};

/// What one element takes, bytes; 0 for types that are no whole bytes or that nobody knows.
NSUInteger element_size(MPSDataType type);
/// The step of rows that the descriptors recommend.
NSUInteger recommended_bytes(const char *who, NSUInteger columns, MPSDataType type);

/// Apple's names of a layout's properties, for errors.
struct RowNames {
  const char *who, *columns, *rows, *row_bytes;
};
extern const RowNames kMatrixNames, kVectorNames;

// The initialisers of all four classes; owned by the caller. Raise for what a layout or a buffer cannot be.
RowState *new_row_state(const RowNames &names, id<MTLBuffer> buffer, NSUInteger offset, const RowLayout &layout);
RowState *new_row_state(const RowNames &names, id<MTLDevice> device, const RowLayout &layout);
RowState *new_temporary_row_state(const RowNames &names, id<MTLCommandBuffer> buffer, const RowLayout &layout);
/// Raises unless kernels may still be encoded on `buffer`.
id<OpenMPSCommandBuffer> open_command_buffer(const RowNames &names, id<MTLCommandBuffer> buffer);
/// Copies the memory to the CPU when the command buffer gets there, where memory is not one.
void synchronize_rows(const RowNames &names, const RowState &state, id<MTLCommandBuffer> buffer);
/// Raises for what no temporary matrix or vector of this command buffer can be.
void check_row_prefetch(const RowNames &names, id<MTLCommandBuffer> buffer, const std::vector<RowLayout> &layouts);

/// The buffer; raises MPSUsageException once it has been recycled.
id<OpenMPSBuffer> buffer_of(const RowNames &names, const RowState &state);
NSUInteger read_count(const RowState &state);
void set_read_count(const RowNames &names, RowState &state, NSUInteger count);

// The protocol OpenMPSRows of both classes.
void will_use_rows(const RowNames &names, id object, const RowState &state, id<MTLCommandBuffer> buffer);
void did_read_rows(const RowNames &names, RowState &state);

}  // namespace openmps

/// What kernels ask of matrices and vectors.
@protocol OpenMPSRows <NSObject>
- (const openmps::RowState &)openmps_state;
/// An encode on `buffer` is going to use it: raises when it may not (another command buffer's temporary one, readCount
/// 0, another device's). The caller appends its commands afterwards, and calls openmps_didRead once per encode that
/// read it.
- (void)openmps_willUseOn:(nonnull id<MTLCommandBuffer>)buffer;
/// Temporary ones: readCount - 1, storage recycled at 0. Others: nothing.
- (void)openmps_didRead;
@end

@interface MPSMatrix (Engine) <OpenMPSRows>
@end
@interface MPSVector (Engine) <OpenMPSRows>
@end
