// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(uint32_t, MPSCNNLossType) {
    MPSCNNLossTypeMeanAbsoluteError = 0,
    MPSCNNLossTypeMeanSquaredError = 1,
    MPSCNNLossTypeSoftMaxCrossEntropy = 2,
    MPSCNNLossTypeSigmoidCrossEntropy = 3,
    MPSCNNLossTypeCategoricalCrossEntropy = 4,
    MPSCNNLossTypeHinge = 5,
    MPSCNNLossTypeHuber = 6,
    MPSCNNLossTypeCosineDistance = 7,
    MPSCNNLossTypeLog = 8,
    MPSCNNLossTypeKullbackLeiblerDivergence = 9,
    MPSCNNLossTypeCount = 10,
};

typedef NS_ENUM(int32_t, MPSCNNReductionType) {
    MPSCNNReductionTypeNone = 0,
    MPSCNNReductionTypeSum = 1,
    MPSCNNReductionTypeMean = 2,
    MPSCNNReductionTypeSumByNonZeroWeights = 3,
    MPSCNNReductionTypeCount = 4,
};

NS_ASSUME_NONNULL_END
