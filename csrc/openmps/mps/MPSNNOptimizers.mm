// SPDX-License-Identifier: Apache-2.0
// Optimizers: from values, gradients and their moments to the next values [MPSNNOptimizers.h]. Rates and the time step
// are those at the time of the encode.

#import "mps/MPSNNOptimizer+Engine.hh"

namespace openmps {
namespace {

Lists momentum_list(NSArray<MPSVector *> *vectors, bool is_optional = false) {
  return {vectors, "inputMomentumVectors", is_optional};
}
const Lists kNoList = {nil, "", true};

std::array<Lists, 3> adam_lists(NSArray<MPSVector *> *momentum, NSArray<MPSVector *> *velocity,
                                NSArray<MPSVector *> *maximum) {
  return {momentum_list(momentum), Lists{velocity, "inputVelocityVectors"},
          Lists{maximum, "maximumVelocityVectors", true}};
}

std::array<Lists, 3> second_moment_lists(NSArray<MPSVector *> *vectors) {
  return {kNoList, Lists{vectors, "inputSumOfSquaresVectors"}, kNoList};
}

/// The initialiser of all optimizers; `set` puts their own settings into the state.
template <class State, class Set>
id init_optimizer(MPSNNOptimizer *kernel, id<MTLDevice> device, const OptimizerSettings &settings, const Set &set) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<State>(kernel);
  state.settings = settings;
  set(state);
  state.check_settings();
  return unwind.done();
}

OptimizerSettings settings_with(float learning_rate) {
  OptimizerSettings settings;
  settings.rate = learning_rate;
  return settings;
}

const OptimizerSettings &settings_of(MPSNNOptimizer *kernel, MPSNNOptimizerDescriptor *descriptor) {
  if (descriptor == nil) {
    UnwindRelease unwind(kernel);
    raise_argument(@"%@: optimizerDescriptor is nil.", [kernel class]);
  }
  return [descriptor openmps_settings];
}

}  // namespace
}  // namespace openmps

using openmps::AdamState;
using openmps::DescentState;
using openmps::kMatrixNames;
using openmps::kVectorNames;
using openmps::OptimizerState;
using openmps::RMSPropState;

@implementation MPSNNOptimizer

+ (openmps::KernelState *)openmps_newState {
  return new OptimizerState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:learningRate: of a subclass");
}

OPENMPS_GETTER(OptimizerState, float, learningRate, settings.rate)
OPENMPS_GETTER(OptimizerState, float, gradientRescale, settings.rescale)
OPENMPS_PROPERTY(OptimizerState, BOOL, applyGradientClipping, setApplyGradientClipping, settings.clips)
OPENMPS_GETTER(OptimizerState, float, gradientClipMax, settings.clip_max)
OPENMPS_GETTER(OptimizerState, float, gradientClipMin, settings.clip_min)
OPENMPS_GETTER(OptimizerState, float, regularizationScale, settings.regularization_scale)
OPENMPS_GETTER(OptimizerState, MPSNNRegularizationType, regularizationType, settings.regularization)

- (void)setLearningRate:(float)newLearningRate {
  auto &state = openmps::state_of<OptimizerState>(self);
  state.check_finite("learningRate", newLearningRate);
  state.settings.rate = newLearningRate;
}

@end

// ------------------------------------------------------------------------------------------------------- descent

@implementation MPSNNOptimizerStochasticGradientDescent

+ (openmps::KernelState *)openmps_newState {
  return new DescentState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<DescentState>(self, device, openmps::settings_with(learningRate),
                                               [](DescentState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
           useNesterovMomentum:(BOOL)useNesterovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<DescentState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                               [&](DescentState &state) {
                                                 state.momentum_scale = momentumScale;
                                                 state.nesterov = useNesterovMomentum;
                                               });
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
            useNestrovMomentum:(BOOL)useNestrovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return [self initWithDevice:device
                momentumScale:momentumScale
          useNesterovMomentum:useNestrovMomentum
          optimizerDescriptor:optimizerDescriptor];
}

OPENMPS_GETTER(DescentState, float, momentumScale, momentum_scale)
OPENMPS_GETTER(DescentState, BOOL, useNesterovMomentum, nesterov)
OPENMPS_GETTER(DescentState, BOOL, useNestrovMomentum, nesterov)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {inputMomentumVector, "inputMomentumVector", true},
                         {nil, "", true},
                         {nil, "", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {inputMomentumMatrix, "inputMomentumMatrix", true},
                         {nil, "", true},
                         {nil, "", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationState, "batchNormalizationState", batchNormalizationState,
      "batchNormalizationState", resultState,
      {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
      batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
      {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

@end

// ------------------------------------------------------------------------------------------------------- RMSProp

@implementation MPSNNOptimizerRMSProp

+ (openmps::KernelState *)openmps_newState {
  return new RMSPropState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<RMSPropState>(self, device, openmps::settings_with(learningRate),
                                               [](RMSPropState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                         decay:(double)decay
                       epsilon:(float)epsilon
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<RMSPropState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                               [&](RMSPropState &state) {
                                                 state.decay = decay;
                                                 state.epsilon = epsilon;
                                               });
}

OPENMPS_GETTER(RMSPropState, double, decay, decay)
OPENMPS_GETTER(RMSPropState, float, epsilon, epsilon)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
      inputSumOfSquaresVector:(MPSVector *)inputSumOfSquaresVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {nil, "", true},
                         {inputSumOfSquaresVector, "inputSumOfSquaresVector"},
                         {nil, "", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
      inputSumOfSquaresMatrix:(MPSMatrix *)inputSumOfSquaresMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {nil, "", true},
                         {inputSumOfSquaresMatrix, "inputSumOfSquaresMatrix"},
                         {nil, "", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
     inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::second_moment_lists(inputSumOfSquaresVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
     inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationState, "batchNormalizationState",
                                batchNormalizationState, "batchNormalizationState", resultState,
                                openmps::second_moment_lists(inputSumOfSquaresVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
           inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
                                batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
                                openmps::second_moment_lists(inputSumOfSquaresVectors));
}

@end

// ---------------------------------------------------------------------------------------------------------- Adam

@implementation MPSNNOptimizerAdam

+ (openmps::KernelState *)openmps_newState {
  return new AdamState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<AdamState>(self, device, openmps::settings_with(learningRate), [](AdamState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                         beta1:(double)beta1
                         beta2:(double)beta2
                       epsilon:(float)epsilon
                      timeStep:(NSUInteger)timeStep
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<AdamState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                            [&](AdamState &state) {
                                              state.beta1 = beta1, state.beta2 = beta2;
                                              state.epsilon = epsilon;
                                              state.time_step = timeStep;
                                            });
}

OPENMPS_GETTER(AdamState, double, beta1, beta1)
OPENMPS_GETTER(AdamState, double, beta2, beta2)
OPENMPS_GETTER(AdamState, float, epsilon, epsilon)
OPENMPS_PROPERTY(AdamState, NSUInteger, timeStep, setTimeStep, time_step)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  [self encodeToCommandBuffer:commandBuffer
          inputGradientVector:inputGradientVector
            inputValuesVector:inputValuesVector
          inputMomentumVector:inputMomentumVector
          inputVelocityVector:inputVelocityVector
        maximumVelocityVector:nil
           resultValuesVector:resultValuesVector];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
        maximumVelocityVector:(MPSVector *)maximumVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {inputMomentumVector, "inputMomentumVector"},
                         {inputVelocityVector, "inputVelocityVector"},
                         {maximumVelocityVector, "maximumVelocityVector", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  [self encodeToCommandBuffer:commandBuffer
          inputGradientMatrix:inputGradientMatrix
            inputValuesMatrix:inputValuesMatrix
          inputMomentumMatrix:inputMomentumMatrix
          inputVelocityMatrix:inputVelocityMatrix
        maximumVelocityMatrix:nil
           resultValuesMatrix:resultValuesMatrix];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
        maximumVelocityMatrix:(MPSMatrix *)maximumVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {inputMomentumMatrix, "inputMomentumMatrix"},
                         {inputVelocityMatrix, "inputVelocityMatrix"},
                         {maximumVelocityMatrix, "maximumVelocityMatrix", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationState, "batchNormalizationState",
                                batchNormalizationState, "batchNormalizationState", resultState,
                                openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationState, "batchNormalizationState", batchNormalizationState,
      "batchNormalizationState", resultState,
      openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
               inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
                                batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
                                openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
               inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
             maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
      batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
      openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

@end
