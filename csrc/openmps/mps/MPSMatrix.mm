// SPDX-License-Identifier: Apache-2.0
// Matrices over buffers, and temporary matrices of one command buffer [MPSMatrix.h].

#import "mps/MPSMatrix+Rows.hh"

using openmps::kMatrixNames;
using openmps::RowState;

@implementation MPSMatrix

OPENMPS_UNKNOWN_SELECTORS

OPENMPS_ROWS_LIFE
OPENMPS_ROWS_INIT(kMatrixNames, MPSMatrixDescriptor)
OPENMPS_ROWS_MEMORY(kMatrixNames)
OPENMPS_ROWS_GETTER(NSUInteger, rows, layout.rows)
OPENMPS_ROWS_GETTER(NSUInteger, columns, layout.columns)
OPENMPS_ROWS_GETTER(NSUInteger, matrices, layout.matrices)
OPENMPS_ROWS_GETTER(NSUInteger, rowBytes, layout.row_bytes)
OPENMPS_ROWS_GETTER(NSUInteger, matrixBytes, layout.matrix_bytes)
OPENMPS_ROWS_GETTER(MPSDataType, dataType, layout.type)

OPENMPS_ROWS_USE(kMatrixNames)

@end

@implementation MPSTemporaryMatrix

OPENMPS_TEMPORARY_ROWS(kMatrixNames, MPSMatrixDescriptor, "+temporaryMatrixWithCommandBuffer:matrixDescriptor:")

+ (instancetype)temporaryMatrixWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                matrixDescriptor:(MPSMatrixDescriptor *)matrixDescriptor {
  RowState *state =
      openmps::new_temporary_row_state(kMatrixNames, commandBuffer, openmps::layout_of(kMatrixNames, matrixDescriptor));
  return [[[self alloc] openmps_initWithState:state] autorelease];
}

+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                    matrixDescriptorList:(NSArray<MPSMatrixDescriptor *> *)descriptorList {
  openmps::check_row_prefetch(kMatrixNames, commandBuffer, openmps::layouts_of<MPSMatrixDescriptor>(descriptorList));
}

@end
