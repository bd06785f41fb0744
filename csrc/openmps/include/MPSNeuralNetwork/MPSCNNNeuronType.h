// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(int32_t, MPSCNNNeuronType) {
    MPSCNNNeuronTypeNone = 0,
    MPSCNNNeuronTypeReLU = 1,
    MPSCNNNeuronTypeLinear = 2,
    MPSCNNNeuronTypeSigmoid = 3,
    MPSCNNNeuronTypeHardSigmoid = 4,
    MPSCNNNeuronTypeTanH = 5,
    MPSCNNNeuronTypeAbsolute = 6,
    MPSCNNNeuronTypeSoftPlus = 7,
    MPSCNNNeuronTypeSoftSign = 8,
    MPSCNNNeuronTypeELU = 9,
    MPSCNNNeuronTypePReLU = 10,
    MPSCNNNeuronTypeReLUN = 11,
    MPSCNNNeuronTypePower = 12,
    MPSCNNNeuronTypeExponential = 13,
    MPSCNNNeuronTypeLogarithm = 14,
    MPSCNNNeuronTypeGeLU = 15,
    MPSCNNNeuronTypeCount = 16,
};

NS_ASSUME_NONNULL_END
