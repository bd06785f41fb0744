// SPDX-License-Identifier: Apache-2.0
// The one place where Apple calls us: MPSCNNConvolutionDataSource over a GuardedSource.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include "guarded_source.hpp"
#include "objc_ref.hh"

@interface MPSCNNArrayDataSource : NSObject <MPSCNNConvolutionDataSource> {
 @private
  std::shared_ptr<mpscnn::GuardedSource> source_;
}
- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source;
@end

namespace mpscnn {
MPSCNNConvolutionDescriptor *objc_descriptor(const ConvolutionDescriptor &descriptor);
MPSNNNeuronDescriptor *objc_neuron(const NeuronDescriptor &neuron);
}  // namespace mpscnn
