// SPDX-License-Identifier: Apache-2.0
// MPSNNNeuronDescriptor: type and parameters of an activation function [MPSCNNNeuron.h].

#import "mps/MPSCNNNeuron+Engine.hh"

namespace {

struct NeuronDescriptorState {
  MPSCNNNeuronType type = MPSCNNNeuronTypeNone;
  float a = 0, b = 0, c = 0;
  openmps::Ref<NSData *> data;
};

NeuronDescriptorState &data_of(void *opaque) { return *static_cast<NeuronDescriptorState *>(opaque); }

MPSCNNNeuronType checked(MPSCNNNeuronType type) {
  if (type < MPSCNNNeuronTypeNone || type >= MPSCNNNeuronTypeCount)
    openmps::raise_argument(@"MPSNNNeuronDescriptor: neuronType (%d) is not between 0 and %d.", (int)type,
                            MPSCNNNeuronTypeCount - 1);
  return type;
}

}  // namespace

namespace openmps {

// unverified: Power, Exponential and Logarithm, whose defaults are not documented; see docs/differences_from_apple.md.
Neuron default_neuron(MPSCNNNeuronType type) {
  Neuron neuron;
  neuron.type = static_cast<NeuronType>(type);
  switch (neuron.type) {
    case NeuronType::linear: neuron.a = 1; break;
    case NeuronType::hard_sigmoid: neuron.a = 0.2f, neuron.b = 0.5f; break;
    case NeuronType::tanh:
    case NeuronType::softplus: neuron.a = 1, neuron.b = 1; break;
    case NeuronType::elu: neuron.a = 1; break;
    case NeuronType::relun: neuron.a = 1, neuron.b = 6; break;
    case NeuronType::power: neuron.a = 1, neuron.c = 1; break;
    case NeuronType::exponential:
    case NeuronType::logarithm: neuron.a = 1, neuron.c = -1; break;
    default: break;
  }
  return neuron;
}

}  // namespace openmps

@implementation MPSNNNeuronDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new NeuronDescriptorState();
  return self;
}

- (void)dealloc {
  delete static_cast<NeuronDescriptorState *>(_openmps);
  [super dealloc];
}

static MPSNNNeuronDescriptor *make(Class cls, const openmps::Neuron &neuron) {
  MPSNNNeuronDescriptor *descriptor = [[[cls alloc] init] autorelease];
  [descriptor setNeuronType:static_cast<MPSCNNNeuronType>(neuron.type)];
  [descriptor setA:neuron.a];
  [descriptor setB:neuron.b];
  [descriptor setC:neuron.c];
  return descriptor;
}

+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType {
  return make(self, openmps::default_neuron(checked(neuronType)));
}

+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType a:(float)a {
  openmps::Neuron neuron = openmps::default_neuron(checked(neuronType));
  neuron.a = a;
  return make(self, neuron);
}

+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType a:(float)a b:(float)b {
  openmps::Neuron neuron = openmps::default_neuron(checked(neuronType));
  neuron.a = a, neuron.b = b;
  return make(self, neuron);
}

+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType a:(float)a b:(float)b c:(float)c {
  openmps::Neuron neuron = openmps::default_neuron(checked(neuronType));
  neuron.a = a, neuron.b = b, neuron.c = c;
  return make(self, neuron);
}

+ (MPSNNNeuronDescriptor *)cnnNeuronPReLUDescriptorWithData:(NSData *)data noCopy:(bool)noCopy {
  if ([data length] == 0 || [data length] % sizeof(float) != 0)
    openmps::raise_argument(
        @"MPSNNNeuronDescriptor: data has %lu bytes, expected one float (4 bytes) for each channel.",
        (unsigned long)[data length]);
  MPSNNNeuronDescriptor *descriptor = make(self, openmps::default_neuron(MPSCNNNeuronTypePReLU));
  [descriptor setData:noCopy ? data : [NSData dataWithData:data]];
  return descriptor;
}

- (MPSCNNNeuronType)neuronType {
  return data_of(_openmps).type;
}
- (void)setNeuronType:(MPSCNNNeuronType)neuronType {
  data_of(_openmps).type = checked(neuronType);
}
- (float)a {
  return data_of(_openmps).a;
}
- (void)setA:(float)a {
  data_of(_openmps).a = a;
}
- (float)b {
  return data_of(_openmps).b;
}
- (void)setB:(float)b {
  data_of(_openmps).b = b;
}
- (float)c {
  return data_of(_openmps).c;
}
- (void)setC:(float)c {
  data_of(_openmps).c = c;
}
- (NSData *)data {
  return data_of(_openmps).data.get();
}
- (void)setData:(NSData *)data {
  data_of(_openmps).data = openmps::Ref<NSData *>(data);
}

- (openmps::Neuron)openmps_neuron {
  const NeuronDescriptorState &state = data_of(_openmps);
  openmps::Neuron neuron;
  neuron.type = static_cast<openmps::NeuronType>(state.type);
  neuron.a = state.a, neuron.b = state.b, neuron.c = state.c;
  if (state.type == MPSCNNNeuronTypePReLU) {
    NSData *data = state.data.get();
    if ([data length] < sizeof(float) || [data length] % sizeof(float) != 0)
      openmps::raise_argument(
          @"MPSNNNeuronDescriptor: data of a PReLU has %lu bytes, expected one float (4 bytes) for each "
          @"channel.",
          (unsigned long)[data length]);
    const float *first = static_cast<const float *>([data bytes]);
    neuron.a_per_channel = std::make_shared<const std::vector<float>>(first, first + [data length] / sizeof(float));
  }
  return neuron;
}

- (instancetype)copyWithZone:(NSZone *)zone {
  MPSNNNeuronDescriptor *copy = [[[self class] allocWithZone:zone] init];
  data_of(copy->_openmps) = data_of(_openmps);
  return copy;
}

+ (BOOL)supportsSecureCoding {
  return YES;
}

static void archive_fields(NeuronDescriptorState &state, NSCoder *coder, bool reading) {
  openmps::Archive archive(coder, reading);
  archive.field(@"MPSNNNeuronDescriptor.neuronType", state.type);
  archive.field(@"MPSNNNeuronDescriptor.a", state.a);
  archive.field(@"MPSNNNeuronDescriptor.b", state.b);
  archive.field(@"MPSNNNeuronDescriptor.c", state.c);
  archive.object(@"MPSNNNeuronDescriptor.data", [NSData class], state.data);
}

- (void)encodeWithCoder:(NSCoder *)coder {
  archive_fields(data_of(_openmps), coder, false);
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  if (!(self = [self init])) return nil;
  openmps::UnwindRelease unwind(self);
  archive_fields(data_of(_openmps), coder, true);
  checked(data_of(_openmps).type);
  return unwind.done();
}

@end
