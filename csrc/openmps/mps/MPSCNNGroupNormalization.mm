// SPDX-License-Identifier: Apache-2.0
// Group normalization: by the mean and variance of each group of neighbouring channels of each image
// [MPSCNNGroupNormalization.h].

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

namespace openmps {
namespace {

struct GroupNormalizationState : Extends<GroupNormalizationState, ImageNormalizationState> {
  NSUInteger read_groups(id source) const override {
    const NSUInteger asked = [(id<MPSCNNGroupNormalizationDataSource>)source numberOfGroups];
    if (asked < 1 || channels % asked != 0)
      raise_for(*this, @"The data source's numberOfGroups (%lu) does not divide its numberOfFeatureChannels (%lu).",
                (unsigned long)asked, (unsigned long)channels);
    return asked;
  }
  bool groups_fit() const override { return groups >= 1 && channels % groups == 0; }
  Class state_class() const override { return [MPSCNNGroupNormalizationGradientState class]; }
};

struct GroupNormalizationGradientState : Extends<GroupNormalizationGradientState, ImageNormalizationGradientState> {
  Class state_class() const override { return [MPSCNNGroupNormalizationGradientState class]; }
};

}  // namespace
}  // namespace openmps

using openmps::GroupNormalizationState;

@implementation MPSCNNGroupNormalization

+ (openmps::KernelState *)openmps_newState {
  return new GroupNormalizationState();
}

OPENMPS_IMAGE_NORMALIZATION_KERNEL(MPSCNNGroupNormalizationGradientState)
OPENMPS_GETTER(GroupNormalizationState, id<MPSCNNGroupNormalizationDataSource>, dataSource, data_source.get())

- (instancetype)initWithDevice:(id<MTLDevice>)device dataSource:(id<MPSCNNGroupNormalizationDataSource>)dataSource {
  return openmps::init_normalization(self, device, dataSource, nil);
}

@end

@implementation MPSCNNGroupNormalizationGradientState
OPENMPS_IMAGE_NORMALIZATION_STATE(MPSCNNGroupNormalization, groupNormalization)
@end

@implementation MPSCNNGroupNormalizationGradient
OPENMPS_IMAGE_NORMALIZATION_GRADIENT(openmps::GroupNormalizationGradientState)
@end
