// SPDX-License-Identifier: Apache-2.0
// MPSNNOptimizerDescriptor: settings of all optimizers [MPSNNOptimizers.h].

#import "mps/MPSNNOptimizer+Engine.hh"

namespace openmps {
namespace {

OptimizerSettings &settings_of(void *opaque) { return *static_cast<OptimizerSettings *>(opaque); }

}  // namespace
}  // namespace openmps

@implementation MPSNNOptimizerDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::OptimizerSettings;
  return self;
}

- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale {
  if ((self = [self init])) {
    openmps::UnwindRelease unwind(self);
    [self setLearningRate:learningRate];
    [self setGradientRescale:gradientRescale];
    [self setRegularizationType:regularizationType];
    [self setRegularizationScale:regularizationScale];
    unwind.done();
  }
  return self;
}

- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
               applyGradientClipping:(BOOL)applyGradientClipping
                     gradientClipMax:(float)gradientClipMax
                     gradientClipMin:(float)gradientClipMin
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale {
  if ((self = [self initWithLearningRate:learningRate
                         gradientRescale:gradientRescale
                      regularizationType:regularizationType
                     regularizationScale:regularizationScale])) {
    [self setApplyGradientClipping:applyGradientClipping];
    [self setGradientClipMax:gradientClipMax];
    [self setGradientClipMin:gradientClipMin];
  }
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::OptimizerSettings *>(_openmps);
  [super dealloc];
}

+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale {
  return [[[self alloc] initWithLearningRate:learningRate
                             gradientRescale:gradientRescale
                          regularizationType:regularizationType
                         regularizationScale:regularizationScale] autorelease];
}

+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                              applyGradientClipping:(BOOL)applyGradientClipping
                                    gradientClipMax:(float)gradientClipMax
                                    gradientClipMin:(float)gradientClipMin
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale {
  return [[[self alloc] initWithLearningRate:learningRate
                             gradientRescale:gradientRescale
                       applyGradientClipping:applyGradientClipping
                             gradientClipMax:gradientClipMax
                             gradientClipMin:gradientClipMin
                          regularizationType:regularizationType
                         regularizationScale:regularizationScale] autorelease];
}

#define OPENMPS_SETTING(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                    \
    return openmps::settings_of(_openmps).FIELD;   \
  }                                                \
  -(void)SETTER : (TYPE)value {                    \
    openmps::settings_of(_openmps).FIELD = value;  \
  }
OPENMPS_SETTING(float, learningRate, setLearningRate, rate)
OPENMPS_SETTING(float, gradientRescale, setGradientRescale, rescale)
OPENMPS_SETTING(BOOL, applyGradientClipping, setApplyGradientClipping, clips)
OPENMPS_SETTING(float, gradientClipMax, setGradientClipMax, clip_max)
OPENMPS_SETTING(float, gradientClipMin, setGradientClipMin, clip_min)
OPENMPS_SETTING(float, regularizationScale, setRegularizationScale, regularization_scale)
#undef OPENMPS_SETTING

- (MPSNNRegularizationType)regularizationType {
  return openmps::settings_of(_openmps).regularization;
}

- (void)setRegularizationType:(MPSNNRegularizationType)regularizationType {
  if (regularizationType > MPSNNRegularizationTypeL2)
    openmps::raise_argument(@"MPSNNOptimizerDescriptor: regularizationType (%lu) is not between 0 and 2.",
                            (unsigned long)regularizationType);
  openmps::settings_of(_openmps).regularization = regularizationType;
}

- (const openmps::OptimizerSettings &)openmps_settings {
  return openmps::settings_of(_openmps);
}

@end
