// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolutionDescriptor and its depth-wise and sub-pixel forms [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolutionDescriptor+Engine.hh"

using openmps::ConvolutionDescriptorState;
using openmps::raise_argument;
using openmps::Ref;

namespace {

/// Return the value; raise unless it is in 1 .. 2^31: beyond any image, and far from overflow in products of two.
NSUInteger checked(id descriptor, const char *name, NSUInteger value) {
  if (value < 1 || value > NSUInteger{1} << 31)
    raise_argument(@"%@: %s (%lu) is not between 1 and 2147483648.", [descriptor class], name, (unsigned long)value);
  return value;
}

std::vector<float> values_of(const float *first, NSUInteger count) {
  return first == NULL ? std::vector<float>() : std::vector<float>(first, first + count);
}

}  // namespace

namespace openmps {

void ConvolutionDescriptorState::archive(Archive &archive) {
  archive.field(@"kernelWidth", kernel_width);
  archive.field(@"kernelHeight", kernel_height);
  archive.field(@"inputFeatureChannels", inputs);
  archive.field(@"outputFeatureChannels", outputs);
  archive.field(@"strideInPixelsX", stride_x);
  archive.field(@"strideInPixelsY", stride_y);
  archive.field(@"dilationRateX", dilation_x);
  archive.field(@"dilationRateY", dilation_y);
  archive.field(@"groups", groups);
  archive.field(@"subPixelScaleFactor", subpixel);
  archive.object(@"fusedNeuronDescriptor", [MPSNNNeuronDescriptor class], neuron);
  bool has_norm = batch_norm != nullptr;
  archive.field(@"batchNormalization", has_norm);
  if (!has_norm) return;
  BatchNorm norm = batch_norm ? *batch_norm : BatchNorm();
  archive.field(@"batchNormalization.mean", norm.mean);
  archive.field(@"batchNormalization.variance", norm.variance);
  archive.field(@"batchNormalization.gamma", norm.gamma);
  archive.field(@"batchNormalization.beta", norm.beta);
  archive.field(@"batchNormalization.epsilon", norm.epsilon);
  batch_norm = std::make_shared<const BatchNorm>(std::move(norm));
}

}  // namespace openmps

#define OPENMPS_EXTENT(NAME, SETTER, FIELD)                   \
  -(NSUInteger)NAME {                                         \
    return [self openmps_state].FIELD;                        \
  }                                                           \
  -(void)SETTER : (NSUInteger)value {                         \
    [self openmps_state].FIELD = checked(self, #NAME, value); \
  }

@implementation MPSCNNConvolutionDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new ConvolutionDescriptorState();
  return self;
}

- (void)dealloc {
  delete static_cast<ConvolutionDescriptorState *>(_openmps);
  [super dealloc];
}

+ (instancetype)cnnConvolutionDescriptorWithKernelWidth:(NSUInteger)kernelWidth
                                           kernelHeight:(NSUInteger)kernelHeight
                                   inputFeatureChannels:(NSUInteger)inputFeatureChannels
                                  outputFeatureChannels:(NSUInteger)outputFeatureChannels {
  MPSCNNConvolutionDescriptor *descriptor = [[[self alloc] init] autorelease];
  [descriptor setKernelWidth:kernelWidth];
  [descriptor setKernelHeight:kernelHeight];
  [descriptor setInputFeatureChannels:inputFeatureChannels];
  [descriptor setOutputFeatureChannels:outputFeatureChannels];
  return descriptor;
}

+ (instancetype)cnnConvolutionDescriptorWithKernelWidth:(NSUInteger)kernelWidth
                                           kernelHeight:(NSUInteger)kernelHeight
                                   inputFeatureChannels:(NSUInteger)inputFeatureChannels
                                  outputFeatureChannels:(NSUInteger)outputFeatureChannels
                                           neuronFilter:(const MPSCNNNeuron *)neuronFilter {
  MPSCNNConvolutionDescriptor *descriptor = [self cnnConvolutionDescriptorWithKernelWidth:kernelWidth
                                                                             kernelHeight:kernelHeight
                                                                     inputFeatureChannels:inputFeatureChannels
                                                                    outputFeatureChannels:outputFeatureChannels];
  [descriptor setNeuron:neuronFilter];
  return descriptor;
}

- (ConvolutionDescriptorState &)openmps_state {
  return *static_cast<ConvolutionDescriptorState *>(_openmps);
}

- (NSUInteger)openmps_channelMultiplier {
  return 0;
}

OPENMPS_EXTENT(kernelWidth, setKernelWidth, kernel_width)
OPENMPS_EXTENT(kernelHeight, setKernelHeight, kernel_height)
OPENMPS_EXTENT(inputFeatureChannels, setInputFeatureChannels, inputs)
OPENMPS_EXTENT(outputFeatureChannels, setOutputFeatureChannels, outputs)
OPENMPS_EXTENT(strideInPixelsX, setStrideInPixelsX, stride_x)
OPENMPS_EXTENT(strideInPixelsY, setStrideInPixelsY, stride_y)
OPENMPS_EXTENT(dilationRateX, setDilationRateX, dilation_x)
OPENMPS_EXTENT(dilationRateY, setDilationRateY, dilation_y)
OPENMPS_EXTENT(groups, setGroups, groups)

// ---------------------------------------------------------------------------------------------- neuron

- (MPSNNNeuronDescriptor *)fusedNeuronDescriptor {
  ConvolutionDescriptorState &state = [self openmps_state];
  if (!state.neuron)
    state.neuron =
        Ref<MPSNNNeuronDescriptor *>([MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeNone]);
  return state.neuron.get();
}

- (void)setFusedNeuronDescriptor:(MPSNNNeuronDescriptor *)descriptor {
  ConvolutionDescriptorState &state = [self openmps_state];
  state.neuron = Ref<MPSNNNeuronDescriptor *>(descriptor);
  state.neuron_filter = Ref<MPSCNNNeuron *>();
}

- (const MPSCNNNeuron *)neuron {
  return [self openmps_state].neuron_filter.get();
}

- (void)setNeuron:(const MPSCNNNeuron *)neuron {
  MPSNNNeuronDescriptor *descriptor = nil;
  if ([neuron data] != nil)
    descriptor = [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[neuron data] noCopy:true];
  else if (neuron != nil)
    descriptor = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:[neuron neuronType]
                                                                  a:[neuron a]
                                                                  b:[neuron b]
                                                                  c:[neuron c]];
  [self setFusedNeuronDescriptor:descriptor];
  [self openmps_state].neuron_filter = Ref<MPSCNNNeuron *>(const_cast<MPSCNNNeuron *>(neuron));
}

- (void)setNeuronType:(MPSCNNNeuronType)neuronType parameterA:(float)parameterA parameterB:(float)parameterB {
  if (neuronType == MPSCNNNeuronTypePReLU)
    raise_argument(
        @"%@: setNeuronType:parameterA:parameterB: cannot make a PReLU; use setNeuronToPReLUWithParametersA:.",
        [self class]);
  [self setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:neuronType
                                                                                  a:parameterA
                                                                                  b:parameterB]];
}

- (void)setNeuronToPReLUWithParametersA:(NSData *)A {
  const NSUInteger expected = [self openmps_state].outputs * sizeof(float);
  if ([A length] != expected)
    raise_argument(
        @"%@: setNeuronToPReLUWithParametersA: has %lu bytes, expected %lu, a float for each output channel.",
        [self class], (unsigned long)[A length], (unsigned long)expected);
  [self setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:A noCopy:false]];
}

- (MPSCNNNeuronType)neuronType {
  return [[self fusedNeuronDescriptor] neuronType];
}

- (float)neuronParameterA {
  return [[self fusedNeuronDescriptor] a];
}

- (float)neuronParameterB {
  return [[self fusedNeuronDescriptor] b];
}

// ---------------------------------------------------------------------------------- batch normalization

/// If all arrays are NULL, remove the parameters.
- (void)setBatchNormalizationParametersForInferenceWithMean:(const float *)mean
                                                   variance:(const float *)variance
                                                      gamma:(const float *)gamma
                                                       beta:(const float *)beta
                                                    epsilon:(const float)epsilon {
  ConvolutionDescriptorState &state = [self openmps_state];
  state.batch_norm.reset();
  if (mean == NULL && variance == NULL && gamma == NULL && beta == NULL) return;
  const NSUInteger count = state.outputs;
  for (NSUInteger i = 0; i < count; ++i) {
    const float value = variance == NULL ? 1.0f : variance[i];
    if (!(value + epsilon > 0))
      raise_argument(@"%@: variance[%lu] (%g) + epsilon (%g) is not greater than 0.", [self class], (unsigned long)i,
                     (double)value, (double)epsilon);
  }
  openmps::BatchNorm norm{values_of(mean, count), values_of(variance, count), values_of(gamma, count),
                          values_of(beta, count), epsilon};
  state.batch_norm = std::make_shared<const openmps::BatchNorm>(std::move(norm));
}

// ------------------------------------------------------------------------------------ copying, archiving

- (instancetype)copyWithZone:(NSZone *)zone {
  MPSCNNConvolutionDescriptor *copy = [[[self class] allocWithZone:zone] init];
  ConvolutionDescriptorState &state = [copy openmps_state];
  state = [self openmps_state];
  state.neuron = Ref<MPSNNNeuronDescriptor *>::adopt([state.neuron.get() copy]);
  return copy;
}

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (void)encodeWithCoder:(NSCoder *)aCoder {
  openmps::Archive archive(aCoder, false);
  [self openmps_state].archive(archive);
}

- (instancetype)initWithCoder:(NSCoder *)aDecoder {
  if (!(self = [self init])) return nil;
  openmps::UnwindRelease unwind(self);
  ConvolutionDescriptorState &state = [self openmps_state];
  openmps::Archive archive(aDecoder, true);
  state.archive(archive);
  for (NSUInteger value : {state.kernel_width, state.kernel_height, state.inputs, state.outputs, state.stride_x,
                           state.stride_y, state.dilation_x, state.dilation_y, state.groups, state.subpixel})
    checked(self, "a value in the archive", value);
  return unwind.done();
}

@end

@implementation MPSCNNDepthWiseConvolutionDescriptor

- (NSUInteger)channelMultiplier {
  const ConvolutionDescriptorState &state = [self openmps_state];
  return state.outputs / state.inputs;
}

- (NSUInteger)openmps_channelMultiplier {
  return [self channelMultiplier];
}

@end

@implementation MPSCNNSubPixelConvolutionDescriptor

OPENMPS_EXTENT(subPixelScaleFactor, setSubPixelScaleFactor, subpixel)

@end
