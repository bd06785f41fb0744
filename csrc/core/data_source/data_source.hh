// SPDX-License-Identifier: Apache-2.0
// Objective-C data sources that MPS calls, over guarded sources.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include "core/data_source/guarded_source.hpp"
#include "core/data_source/sharing.hh"
#include "core/device/objc_ref.hh"

@interface PyMPSArrayDataSource : NSObject <MPSCNNConvolutionDataSource, WeightsOwner> {
 @private
  std::shared_ptr<mpscnn::GuardedSource> source_;
}
- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source;
@end

@interface PyMPSNormalizationValues : NSObject <MPSCNNBatchNormalizationDataSource,
                                                MPSCNNInstanceNormalizationDataSource,
                                                MPSCNNGroupNormalizationDataSource> {
 @private
  std::shared_ptr<mpscnn::GuardedNormalization> source_;
}
- (instancetype)initWithGuardedNormalization:(std::shared_ptr<mpscnn::GuardedNormalization>)source;
@end

namespace mpscnn {
MPSCNNConvolutionDescriptor *objc_descriptor(const ConvolutionDescriptor &descriptor);
MPSNNNeuronDescriptor *objc_neuron(const NeuronDescriptor &neuron);
}  // namespace mpscnn
