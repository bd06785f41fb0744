// SPDX-License-Identifier: Apache-2.0
// The descriptors' interface for matrices and vectors.
#pragma once

#import "mps/MPSMatrix+Engine.hh"

@interface MPSMatrixDescriptor (Engine)
- (const openmps::RowLayout &)openmps_layout;
@end

@interface MPSVectorDescriptor (Engine)
- (const openmps::RowLayout &)openmps_layout;
@end
