// SPDX-License-Identifier: Apache-2.0
// Problem and Command as incomplete types, for headers that only name them.
#pragma once

#include <variant>

namespace openmps {

/// Work that MPS classes pass to an engine; this is the only list of its kinds.
using Problem =
    std::variant<struct LoadWeightsProblem, struct ConvProblem, struct ConvGradientProblem, struct TransposeProblem,
                 struct TransposeGradientProblem, struct BinaryConvProblem, struct ConvPoolProblem,
                 struct QuantizedConvProblem, struct QuantizedSumProblem, struct QuantizedProductProblem,
                 struct QuantizedPixelSumProblem, struct QuantizedMapProblem, struct PoolProblem,
                 struct PoolGradientProblem, struct NeuronProblem, struct NeuronGradientProblem, struct BinaryProblem,
                 struct BinaryGradientProblem, struct NormalizeAddProblem, struct MaskedSumProblem,
                 struct MaskedSumMomentsProblem, struct LRNProblem, struct NormalizeProblem, struct BatchMomentsProblem,
                 struct LRNGradientProblem, struct BatchMomentsGradientProblem, struct NormalizeGradientProblem,
                 struct SoftmaxProblem, struct SoftmaxGradientProblem, struct ReduceProblem, struct CorrelationProblem,
                 struct ResampleProblem, struct ResampleGradientProblem, struct LanczosProblem,
                 struct GridSampleProblem, struct ProductProblem, struct RandomProblem, struct ReshapeProblem,
                 struct PadProblem, struct PadGradientProblem, struct DropoutProblem, struct LossProblem,
                 struct OptimizeProblem, struct CopyProblem, struct BufferCopyProblem, struct BufferFillProblem,
                 struct PixelCopyProblem, struct StridedCopyProblem, struct FunctionProblem, struct HostTask>;

struct Command;

}  // namespace openmps
