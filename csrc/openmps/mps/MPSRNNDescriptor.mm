// SPDX-License-Identifier: Apache-2.0
// Descriptors of recurrent layers and their defaults [MPSRNNLayer.h]. Values are checked when a layer is made.

#import "mps/MPSRNNDescriptor+Engine.hh"

using openmps::CellKind;
using openmps::RNNDescription;
using openmps::WeightRole;

#define OPENMPS_RNN_PROPERTY(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                         \
    return [self openmps_description].FIELD;            \
  }                                                     \
  -(void)SETTER : (TYPE)value {                         \
    [self openmps_description].FIELD = value;           \
  }

#define OPENMPS_RNN_SOURCE(NAME, SETTER, ROLE, GATE)                                       \
  -(id<MPSCNNConvolutionDataSource>)NAME {                                                 \
    return [self openmps_description].sources[static_cast<std::size_t>(ROLE)][GATE].get(); \
  }                                                                                        \
  -(void)SETTER : (id<MPSCNNConvolutionDataSource>)value {                                 \
    [self openmps_description].sources[static_cast<std::size_t>(ROLE)][GATE] =             \
        openmps::Ref<id<MPSCNNConvolutionDataSource>>(value);                              \
  }

static id described(Class cls, NSUInteger inputs, NSUInteger outputs) {
  MPSRNNDescriptor *descriptor = [[[cls alloc] init] autorelease];
  [descriptor setInputFeatureChannels:inputs];
  [descriptor setOutputFeatureChannels:outputs];
  return descriptor;
}

@implementation MPSRNNDescriptor

OPENMPS_UNKNOWN_SELECTORS

+ (CellKind)openmps_kind {
  return CellKind::none;
}

- (instancetype)init {
  if (!(self = [super init])) return nil;
  auto *description = new RNNDescription;
  description->kind = [[self class] openmps_kind];
  _openmps = description;
  return self;
}

- (void)dealloc {
  delete static_cast<RNNDescription *>(_openmps);
  [super dealloc];
}

- (RNNDescription &)openmps_description {
  return *static_cast<RNNDescription *>(_openmps);
}

OPENMPS_RNN_PROPERTY(NSUInteger, inputFeatureChannels, setInputFeatureChannels, inputs)
OPENMPS_RNN_PROPERTY(NSUInteger, outputFeatureChannels, setOutputFeatureChannels, outputs)
OPENMPS_RNN_PROPERTY(BOOL, useLayerInputUnitTransformMode, setUseLayerInputUnitTransformMode, is_input_added)
OPENMPS_RNN_PROPERTY(BOOL, useFloat32Weights, setUseFloat32Weights, float_weights)
OPENMPS_RNN_PROPERTY(MPSRNNSequenceDirection, layerSequenceDirection, setLayerSequenceDirection, direction)

@end

@implementation MPSRNNSingleGateDescriptor

+ (CellKind)openmps_kind {
  return CellKind::single_gate;
}

+ (instancetype)createRNNSingleGateDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                                outputFeatureChannels:(NSUInteger)outputFeatureChannels {
  return described(self, inputFeatureChannels, outputFeatureChannels);
}

OPENMPS_RNN_SOURCE(inputWeights, setInputWeights, WeightRole::input, openmps::gates::single)
OPENMPS_RNN_SOURCE(recurrentWeights, setRecurrentWeights, WeightRole::recurrent, openmps::gates::single)

@end

@implementation MPSGRUDescriptor

+ (CellKind)openmps_kind {
  return CellKind::gru;
}

+ (instancetype)createGRUDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                      outputFeatureChannels:(NSUInteger)outputFeatureChannels {
  return described(self, inputFeatureChannels, outputFeatureChannels);
}

OPENMPS_RNN_SOURCE(inputGateInputWeights, setInputGateInputWeights, WeightRole::input, openmps::gates::gru_input)
OPENMPS_RNN_SOURCE(inputGateRecurrentWeights, setInputGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::gru_input)
OPENMPS_RNN_SOURCE(recurrentGateInputWeights, setRecurrentGateInputWeights, WeightRole::input,
                   openmps::gates::gru_recurrent)
OPENMPS_RNN_SOURCE(recurrentGateRecurrentWeights, setRecurrentGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::gru_recurrent)
OPENMPS_RNN_SOURCE(outputGateInputWeights, setOutputGateInputWeights, WeightRole::input, openmps::gates::gru_output)
OPENMPS_RNN_SOURCE(outputGateRecurrentWeights, setOutputGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::gru_output)
OPENMPS_RNN_SOURCE(outputGateInputGateWeights, setOutputGateInputGateWeights, WeightRole::memory,
                   openmps::gates::gru_output)
OPENMPS_RNN_PROPERTY(float, gatePnormValue, setGatePnormValue, p_norm)
OPENMPS_RNN_PROPERTY(BOOL, flipOutputGates, setFlipOutputGates, flips_output)

@end

@implementation MPSLSTMDescriptor

+ (CellKind)openmps_kind {
  return CellKind::lstm;
}

+ (instancetype)createLSTMDescriptorWithInputFeatureChannels:(NSUInteger)inputFeatureChannels
                                       outputFeatureChannels:(NSUInteger)outputFeatureChannels {
  return described(self, inputFeatureChannels, outputFeatureChannels);
}

OPENMPS_RNN_PROPERTY(BOOL, memoryWeightsAreDiagonal, setMemoryWeightsAreDiagonal, diagonal_memory)
OPENMPS_RNN_SOURCE(inputGateInputWeights, setInputGateInputWeights, WeightRole::input, openmps::gates::lstm_input)
OPENMPS_RNN_SOURCE(inputGateRecurrentWeights, setInputGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::lstm_input)
OPENMPS_RNN_SOURCE(inputGateMemoryWeights, setInputGateMemoryWeights, WeightRole::memory, openmps::gates::lstm_input)
OPENMPS_RNN_SOURCE(forgetGateInputWeights, setForgetGateInputWeights, WeightRole::input, openmps::gates::lstm_forget)
OPENMPS_RNN_SOURCE(forgetGateRecurrentWeights, setForgetGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::lstm_forget)
OPENMPS_RNN_SOURCE(forgetGateMemoryWeights, setForgetGateMemoryWeights, WeightRole::memory, openmps::gates::lstm_forget)
OPENMPS_RNN_SOURCE(outputGateInputWeights, setOutputGateInputWeights, WeightRole::input, openmps::gates::lstm_output)
OPENMPS_RNN_SOURCE(outputGateRecurrentWeights, setOutputGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::lstm_output)
OPENMPS_RNN_SOURCE(outputGateMemoryWeights, setOutputGateMemoryWeights, WeightRole::memory, openmps::gates::lstm_output)
OPENMPS_RNN_SOURCE(cellGateInputWeights, setCellGateInputWeights, WeightRole::input, openmps::gates::lstm_cell)
OPENMPS_RNN_SOURCE(cellGateRecurrentWeights, setCellGateRecurrentWeights, WeightRole::recurrent,
                   openmps::gates::lstm_cell)
OPENMPS_RNN_SOURCE(cellGateMemoryWeights, setCellGateMemoryWeights, WeightRole::memory, openmps::gates::lstm_cell)
OPENMPS_RNN_PROPERTY(MPSCNNNeuronType, cellToOutputNeuronType, setCellToOutputNeuronType, cell_neuron_type)
OPENMPS_RNN_PROPERTY(float, cellToOutputNeuronParamA, setCellToOutputNeuronParamA, cell_neuron_a)
OPENMPS_RNN_PROPERTY(float, cellToOutputNeuronParamB, setCellToOutputNeuronParamB, cell_neuron_b)
OPENMPS_RNN_PROPERTY(float, cellToOutputNeuronParamC, setCellToOutputNeuronParamC, cell_neuron_c)

@end
