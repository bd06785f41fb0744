// SPDX-License-Identifier: Apache-2.0
// State of matrices and vectors, and the kernels' interface to them.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#import "metal/OnEngine.hh"

namespace openmps {

/// Rows of elements in a buffer. A vector is a row: `columns` is its length, `row_bytes` its vectorBytes.
struct RowLayout {
  NSUInteger matrices = 1, rows = 0, columns = 0;
  NSUInteger matrix_bytes = 0, row_bytes = 0;  ///< strides
  MPSDataType type = MPSDataTypeInvalid;
};

struct RowState {
  Ref<id<OpenMPSDevice>> device;
  RowLayout layout;
  NSUInteger offset = 0;          ///< bytes in the buffer
  Ref<id<OpenMPSBuffer>> buffer;  ///< none once a temporary's readCount is 0
  // Only of temporaries:
  std::shared_ptr<Temporary> temporary;
  std::shared_ptr<TemporaryScope> scope;
};

/// Return the bytes of an element; 0 for unknown types and those of partial bytes.
NSUInteger element_size(MPSDataType type);
/// Return the row stride that the descriptors recommend.
NSUInteger recommended_bytes(const char *who, NSUInteger columns, MPSDataType type);

/// Apple's names of a layout's properties, for errors.
struct RowNames {
  const char *who, *columns, *rows, *row_bytes;
};
extern const RowNames kMatrixNames, kVectorNames;

// Make the state of an object of the four classes; owned by the caller. Raise for an invalid layout or buffer.
RowState *new_row_state(const RowNames &names, id<MTLBuffer> buffer, NSUInteger offset, const RowLayout &layout);
RowState *new_row_state(const RowNames &names, id<MTLDevice> device, const RowLayout &layout);
RowState *new_temporary_row_state(const RowNames &names, id<MTLCommandBuffer> buffer, const RowLayout &layout);
/// Return the command buffer; raise unless kernels may still be encoded on it.
id<OpenMPSCommandBuffer> open_command_buffer(const RowNames &names, id<MTLCommandBuffer> buffer);
/// Record a copy of the memory to the CPU; no-op if the memory is unified.
void synchronize_rows(const RowNames &names, const RowState &state, id<MTLCommandBuffer> buffer);
/// Raise for layouts that no temporary matrix or vector of this command buffer can have.
void check_row_prefetch(const RowNames &names, id<MTLCommandBuffer> buffer, const std::vector<RowLayout> &layouts);

/// Return the buffer; raise MPSUsageException once it has been recycled.
id<OpenMPSBuffer> buffer_of(const RowNames &names, const RowState &state);
NSUInteger read_count(const RowState &state);
void set_read_count(const RowNames &names, RowState &state, NSUInteger count);

// Implement the protocol OpenMPSRows of both classes.
void will_use_rows(const RowNames &names, id object, const RowState &state, id<MTLCommandBuffer> buffer);
void did_read_rows(const RowNames &names, RowState &state);

}  // namespace openmps

/// The kernels' interface to matrices and vectors.
@protocol OpenMPSRows <NSObject>
- (const openmps::RowState &)openmps_state;
/// Call before an encode on `buffer`. Raise if the receiver may not be used (another command buffer's temporary,
/// readCount 0, another device's). The caller appends its commands afterwards, and calls openmps_didRead once per
/// encode that read it.
- (void)openmps_willUseOn:(nonnull id<MTLCommandBuffer>)buffer;
/// Decrement a temporary's readCount; recycle its storage at 0. No-op for others.
- (void)openmps_didRead;
@end

@interface MPSMatrix (Engine) <OpenMPSRows>
@end
@interface MPSVector (Engine) <OpenMPSRows>
@end
