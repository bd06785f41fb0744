// SPDX-License-Identifier: Apache-2.0
// Instance normalization: by the mean and variance of each channel of each image [MPSCNNInstanceNormalization.h].

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

namespace openmps {
namespace {

struct InstanceNormalizationState : Extends<InstanceNormalizationState, ImageNormalizationState> {
  NSUInteger read_groups(id) const override { return channels; }
  bool groups_fit() const override { return groups == channels; }
  Class state_class() const override { return [MPSCNNInstanceNormalizationGradientState class]; }
};

struct InstanceNormalizationGradientState
    : Extends<InstanceNormalizationGradientState, ImageNormalizationGradientState> {
  Class state_class() const override { return [MPSCNNInstanceNormalizationGradientState class]; }
};

}  // namespace
}  // namespace openmps

using openmps::InstanceNormalizationState;

@implementation MPSCNNInstanceNormalization

+ (openmps::KernelState *)openmps_newState {
  return new InstanceNormalizationState();
}

OPENMPS_IMAGE_NORMALIZATION_KERNEL(MPSCNNInstanceNormalizationGradientState)
OPENMPS_GETTER(InstanceNormalizationState, id<MPSCNNInstanceNormalizationDataSource>, dataSource, data_source.get())

- (instancetype)initWithDevice:(id<MTLDevice>)device dataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource {
  return openmps::init_normalization(self, device, dataSource, nil);
}

- (void)reloadDataSource:(id<MPSCNNInstanceNormalizationDataSource>)dataSource {
  openmps::reload_normalization(self, dataSource, openmps::SourceParts::all);
}

@end

@implementation MPSCNNInstanceNormalizationGradientState
OPENMPS_IMAGE_NORMALIZATION_STATE(MPSCNNInstanceNormalization, instanceNormalization)
@end

@implementation MPSCNNInstanceNormalizationGradient
OPENMPS_IMAGE_NORMALIZATION_GRADIENT(openmps::InstanceNormalizationGradientState)
@end
