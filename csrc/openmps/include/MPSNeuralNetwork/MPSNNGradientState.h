// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSState.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSNNBinaryGradientState, MPSNNGradientState, MPSNNMultiaryGradientState;

typedef NSArray<MPSNNBinaryGradientState *> MPSNNBinaryGradientStateBatch;
typedef NSArray<MPSNNGradientState *> MPSNNGradientStateBatch;
typedef NSArray<MPSNNMultiaryGradientState *> MPSNNMultiaryGradientStateBatch;

@interface MPSNNBinaryGradientState : MPSState  // macOS 10.13.4
@end

@interface MPSNNGradientState : MPSState  // macOS 10.13.4
@end

@interface MPSNNMultiaryGradientState : MPSState
@end

NS_ASSUME_NONNULL_END
