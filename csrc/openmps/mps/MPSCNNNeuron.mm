// SPDX-License-Identifier: Apache-2.0
// Activation functions as kernels: MPSCNNNeuron and its shorthands [MPSCNNNeuron.h].

#import "mps/MPSCNNNeuron+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {

void NeuronFunction::set(const KernelState &state, MPSNNNeuronDescriptor *given) {
  if (given == nil) raise_for(state, @"neuronDescriptor is nil.");
  descriptor = Ref<MPSNNNeuronDescriptor *>::adopt([given copy]);
  neuron = [given openmps_neuron];
}

void NeuronFunction::check_channels(const KernelState &state, NSUInteger channels) const {
  if (!descriptor) raise_for(state, @"The kernel has no neuron.");
  if (neuron.a_per_channel && neuron.a_per_channel->size() != channels)
    raise_for(state, @"data has %lu values, and the source has %lu feature channels.",
              (unsigned long)neuron.a_per_channel->size(), (unsigned long)channels);
}

void NeuronFunction::archive(Archive &archive, NSString *key) {
  archive.object(key, [MPSNNNeuronDescriptor class], descriptor);
}

void NeuronFunction::did_read(const KernelState &state) {
  if (!descriptor) raise_for(state, @"The archive holds no neuronDescriptor.");
  neuron = [descriptor.get() openmps_neuron];
}

namespace {

struct NeuronState : Extends<NeuronState, CNNKernelState> {
  NeuronFunction function;

  /// Weights of 1 for a convolution, which can read outside the source; a pointwise problem cannot.
  mutable std::shared_ptr<const ConvWeights> ones;

  Class result_state_class() const override { return [MPSNNGradientState class]; }
  bool may_overwrite(std::size_t) const override { return true; }

  NSUInteger output_channels(NSUInteger channels) const override {
    function.check_channels(*this, channels);
    return channels;
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    if (is_inside(window, src, dst))
      return NeuronProblem{src.region(window.start_h, window.start_w, dst.h, dst.w), dst, function.neuron};
    return outside(src, dst, window);
  }

  /// Pixels outside the source follow edgeMode, and the function applies to them: y = f(0) for Zero. unverified:
  /// Apple's text gives only y[clip + (j, i)] = f(x[offset + (j, i)]).
  Problem outside(const ImageView &src, const ImageView &dst, const Window &window) const {
    if (!ones || ones->out_channels != dst.c) {
      auto weights = std::make_shared<ConvWeights>();
      weights->out_channels = weights->groups = dst.c;
      weights->kernel_h = weights->kernel_w = weights->in_channels_per_group = 1;
      weights->values.own().assign(static_cast<std::size_t>(dst.c), 1.0f);
      ones = std::move(weights);
    }
    ConvProblem problem;
    problem.src = src, problem.dst = dst;
    problem.weights = ones;
    problem.window = window;
    problem.neuron = function.neuron;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    function.archive(archive, @"MPSCNNNeuron.neuronDescriptor");
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    function.did_read(*this);
  }
};

NeuronState &neuron_state(MPSCNNNeuron *kernel) { return state_of<NeuronState>(kernel); }

id init_neuron(MPSCNNNeuron *kernel, id<MTLDevice> device, MPSNNNeuronDescriptor *descriptor) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  neuron_state(kernel).function.set(neuron_state(kernel), descriptor);
  return unwind.done();
}

id init_neuron(MPSCNNNeuron *kernel, id<MTLDevice> device, MPSCNNNeuronType type, float a = 0, float b = 0,
               float c = 0) {
  return init_neuron(kernel, device, [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:type a:a b:b c:c]);
}

}  // namespace
}  // namespace openmps

using openmps::init_neuron;
using openmps::neuron_state;
using openmps::NeuronState;

@implementation MPSCNNNeuron

+ (openmps::KernelState *)openmps_newState {
  return new NeuronState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:neuronDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device neuronDescriptor:(MPSNNNeuronDescriptor *)neuronDescriptor {
  return init_neuron(self, device, neuronDescriptor);
}

OPENMPS_INIT_WITH_CODER

OPENMPS_GETTER(NeuronState, MPSCNNNeuronType, neuronType, function.descriptor.get().neuronType)
OPENMPS_GETTER(NeuronState, float, a, function.neuron.a)
OPENMPS_GETTER(NeuronState, float, b, function.neuron.b)
OPENMPS_GETTER(NeuronState, float, c, function.neuron.c)
OPENMPS_GETTER(NeuronState, NSData *, data, function.descriptor.get().data)

@end

// The shorthands differ in the type and in the parameters they take.

#define OPENMPS_NEURON_OF_X(NAME, TYPE)                   \
  @implementation NAME                                    \
  -(instancetype)initWithDevice : (id<MTLDevice>)device { \
    return init_neuron(self, device, TYPE);               \
  }                                                       \
  @end
#define OPENMPS_NEURON_OF_A(NAME, TYPE)                                \
  @implementation NAME                                                 \
  -(instancetype)initWithDevice : (id<MTLDevice>)device a : (float)a { \
    return init_neuron(self, device, TYPE, a);                         \
  }                                                                    \
  @end
#define OPENMPS_NEURON_OF_AB(NAME, TYPE)                                            \
  @implementation NAME                                                              \
  -(instancetype)initWithDevice : (id<MTLDevice>)device a : (float)a b : (float)b { \
    return init_neuron(self, device, TYPE, a, b);                                   \
  }                                                                                 \
  @end
#define OPENMPS_NEURON_OF_ABC(NAME, TYPE)                                                        \
  @implementation NAME                                                                           \
  -(instancetype)initWithDevice : (id<MTLDevice>)device a : (float)a b : (float)b c : (float)c { \
    return init_neuron(self, device, TYPE, a, b, c);                                             \
  }                                                                                              \
  @end

OPENMPS_NEURON_OF_X(MPSCNNNeuronAbsolute, MPSCNNNeuronTypeAbsolute)
OPENMPS_NEURON_OF_A(MPSCNNNeuronELU, MPSCNNNeuronTypeELU)
OPENMPS_NEURON_OF_ABC(MPSCNNNeuronExponential, MPSCNNNeuronTypeExponential)
OPENMPS_NEURON_OF_AB(MPSCNNNeuronHardSigmoid, MPSCNNNeuronTypeHardSigmoid)
OPENMPS_NEURON_OF_AB(MPSCNNNeuronLinear, MPSCNNNeuronTypeLinear)
OPENMPS_NEURON_OF_ABC(MPSCNNNeuronLogarithm, MPSCNNNeuronTypeLogarithm)
OPENMPS_NEURON_OF_ABC(MPSCNNNeuronPower, MPSCNNNeuronTypePower)
OPENMPS_NEURON_OF_A(MPSCNNNeuronReLU, MPSCNNNeuronTypeReLU)
OPENMPS_NEURON_OF_AB(MPSCNNNeuronReLUN, MPSCNNNeuronTypeReLUN)
OPENMPS_NEURON_OF_X(MPSCNNNeuronSigmoid, MPSCNNNeuronTypeSigmoid)
OPENMPS_NEURON_OF_AB(MPSCNNNeuronSoftPlus, MPSCNNNeuronTypeSoftPlus)
OPENMPS_NEURON_OF_X(MPSCNNNeuronSoftSign, MPSCNNNeuronTypeSoftSign)
OPENMPS_NEURON_OF_AB(MPSCNNNeuronTanH, MPSCNNNeuronTypeTanH)

@implementation MPSCNNNeuronPReLU

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(const float *)a count:(NSUInteger)count {
  openmps::UnwindRelease unwind(self);
  if (a == NULL) openmps::raise_argument(@"MPSCNNNeuronPReLU: a is NULL.");
  NSData *data = [NSData dataWithBytes:a length:count * sizeof(float)];
  MPSNNNeuronDescriptor *descriptor = [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:data noCopy:true];
  return init_neuron(unwind.done(), device, descriptor);
}

@end
