// SPDX-License-Identifier: Apache-2.0
// Vectors over buffers, and temporary vectors of one command buffer [MPSMatrix.h].

#import "mps/MPSMatrix+Rows.hh"

using openmps::kVectorNames;
using openmps::RowState;

@implementation MPSVector

OPENMPS_UNKNOWN_SELECTORS

OPENMPS_ROWS_LIFE
OPENMPS_ROWS_INIT(kVectorNames, MPSVectorDescriptor)
OPENMPS_ROWS_MEMORY(kVectorNames)
OPENMPS_ROWS_GETTER(NSUInteger, length, layout.columns)
OPENMPS_ROWS_GETTER(NSUInteger, vectors, layout.rows)
OPENMPS_ROWS_GETTER(NSUInteger, vectorBytes, layout.row_bytes)
OPENMPS_ROWS_GETTER(MPSDataType, dataType, layout.type)

OPENMPS_ROWS_USE(kVectorNames)

@end

@implementation MPSTemporaryVector

OPENMPS_TEMPORARY_ROWS(kVectorNames, MPSVectorDescriptor, "+temporaryVectorWithCommandBuffer:descriptor:")

+ (instancetype)temporaryVectorWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      descriptor:(MPSVectorDescriptor *)descriptor {
  RowState *state =
      openmps::new_temporary_row_state(kVectorNames, commandBuffer, openmps::layout_of(kVectorNames, descriptor));
  return [[[self alloc] openmps_initWithState:state] autorelease];
}

+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          descriptorList:(NSArray<MPSVectorDescriptor *> *)descriptorList {
  openmps::check_row_prefetch(kVectorNames, commandBuffer, openmps::layouts_of<MPSVectorDescriptor>(descriptorList));
}

@end
