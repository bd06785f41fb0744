// SPDX-License-Identifier: Apache-2.0
// MPSCNNFullyConnected: a convolution whose kernel covers the whole source and whose result is one pixel
// [MPSCNNConvolution.h].

#import "mps/MPSCNNFullyConnected+Engine.hh"

namespace {

struct FullyConnectedState : openmps::CoversSource<FullyConnectedState, openmps::ConvolutionState> {};

}  // namespace

@implementation MPSCNNFullyConnected

+ (openmps::KernelState *)openmps_newState {
  return new FullyConnectedState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights {
  return [super initWithDevice:device weights:weights];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
         convolutionDescriptor:(const MPSCNNConvolutionDescriptor *)convolutionDescriptor
                 kernelWeights:(const float *)kernelWeights
                     biasTerms:(const float *)biasTerms
                         flags:(MPSCNNConvolutionFlags)flags {
  return [super initWithDevice:device
         convolutionDescriptor:convolutionDescriptor
                 kernelWeights:kernelWeights
                     biasTerms:biasTerms
                         flags:flags];
}

OPENMPS_INIT_WITH_CODER

@end
