// SPDX-License-Identifier: Apache-2.0
// MPSCNNNormalizationGammaAndBetaState [MPSCNNNormalizationWeights.h].

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

@implementation MPSCNNNormalizationGammaAndBetaState

- (instancetype)initWithGamma:(id<MTLBuffer>)gamma beta:(id<MTLBuffer>)beta {
  openmps::UnwindRelease unwind(self);
  NSArray *resources = openmps::two_resources([self class], gamma, "gamma", beta, "beta");
  return [unwind.done() initWithResources:resources];
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        numberOfFeatureChannels:(NSUInteger)numberOfFeatureChannels {
  return [self temporaryStateWithCommandBuffer:commandBuffer
                                  resourceList:openmps::two_buffers(self, numberOfFeatureChannels)];
}

- (id<MTLBuffer>)gamma {
  return (id<MTLBuffer>)[self resourceAtIndex:0 allocateMemory:YES];
}

- (id<MTLBuffer>)beta {
  return (id<MTLBuffer>)[self resourceAtIndex:1 allocateMemory:YES];
}

@end
