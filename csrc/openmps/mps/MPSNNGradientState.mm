// SPDX-License-Identifier: Apache-2.0
// What forward kernels leave for their gradient kernels [MPSNNGradientState.h]: the kernels make them, nobody else
// does.

#import "mps/MPSState+Engine.hh"

@implementation MPSNNGradientState
@end

@implementation MPSNNBinaryGradientState
@end

@implementation MPSNNMultiaryGradientState
@end
