// SPDX-License-Identifier: Apache-2.0
// MPSCNNYOLOLoss: the loss of predictions of boxes [MPSCNNLoss.h].
//
// unverified: nearly everything beyond the names. The computation is described at BoxLoss in problem/loss.hpp and
// follows the TensorFlow twin of turicreate's MPS models (_tf_model_architecture.py).

#import "mps/MPSCNNLoss+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// The four losses, in the order of the properties.
enum Term : std::size_t { kXY, kWH, kConfidence, kClasses, kTerms };
constexpr const char *kTermNames[kTerms] = {"XYLossDescriptor", "WHLossDescriptor", "confidenceLossDescriptor",
                                            "classesLossDescriptor"};

/// Values of MPSCNNYOLOLossDescriptor besides the descriptors of the four losses.
struct BoxSettings {
  MPSCNNReductionType reduction = MPSCNNReductionTypeSum;
  BOOL across_batch = NO, rescore = YES;
  float scale_xy = 10, scale_wh = 10, scale_no_object = 5, scale_object = 100, scale_class = 2;
  float min_iou = 0.7f, max_iou = 0.3f;
  NSUInteger anchors = 0;
  Ref<NSData *> anchor_boxes;
};

struct BoxDescription : BoxSettings {
  Ref<MPSCNNLossDescriptor *> terms[kTerms];
};

BoxDescription &description_of(void *opaque) { return *static_cast<BoxDescription *>(opaque); }

struct BoxLossState : Extends<BoxLossState, CNNKernelState> {
  BoxSettings settings;
  LossSettings terms[kTerms];
  Ref<MPSCNNLoss *> losses[kTerms];
  std::shared_ptr<const BoxLoss> boxes;  ///< made from the settings

  NSUInteger output_channels(NSUInteger channels) const override {
    if (channels % settings.anchors != 0 || channels / settings.anchors < 5)
      raise_for(*this,
                @"The source has %lu feature channels (from sourceFeatureChannelOffset on, at most "
                @"sourceFeatureChannelMaxCount), which are not 5 and more for each of %lu anchor boxes.",
                (unsigned long)channels, (unsigned long)settings.anchors);
    return channels;
  }
  Problem problem(const ImageView &, const ImageView &, const Window &) const override {
    raise_for(*this, @"There is no loss without labels; use the encode forms that have them.");
  }

  void complete() {
    if (settings.reduction < MPSCNNReductionTypeNone || settings.reduction >= MPSCNNReductionTypeCount)
      raise_for(*this, @"reductionType (%d) is not between 0 and %d.", (int)settings.reduction,
                MPSCNNReductionTypeCount - 1);
    if (settings.anchors < 1 || settings.anchors > 1024)
      raise_for(*this, @"numberOfAnchorBoxes (%lu) is not between 1 and 1024.", (unsigned long)settings.anchors);
    const NSUInteger bytes = settings.anchors * 2 * sizeof(float);
    if ([settings.anchor_boxes.get() length] < bytes)
      raise_for(*this, @"anchorBoxes has %lu bytes, expected %lu, width and height of each of %lu boxes as floats.",
                (unsigned long)[settings.anchor_boxes.get() length], (unsigned long)bytes,
                (unsigned long)settings.anchors);
    auto made = std::make_shared<BoxLoss>();
    const auto *first = static_cast<const float *>([settings.anchor_boxes.get() bytes]);
    made->anchors.assign(first, first + 2 * settings.anchors);
    for (const float extent : made->anchors)
      if (!(extent > 0))
        raise_for(*this, @"anchorBoxes has an extent (%g) that is not greater than 0.", (double)extent);
    for (std::size_t i = 0; i < kTerms; ++i) {
      terms[i].reduction = settings.reduction, terms[i].across_batch = settings.across_batch;
      if (terms[i].type == MPSCNNLossTypeCosineDistance)
        raise_for(*this, @"%s has the cosine distance, which is a loss of whole images.", kTermNames[i]);
      terms[i].check(*this);
    }
    made->xy = terms[kXY].function(), made->wh = terms[kWH].function();
    made->confidence = terms[kConfidence].function(), made->classes = terms[kClasses].function();
    made->xy.weight *= settings.scale_xy, made->wh.weight *= settings.scale_wh;
    made->classes.weight *= settings.scale_class;
    made->scale_object = settings.scale_object, made->scale_no_object = settings.scale_no_object;
    made->min_iou = settings.min_iou, made->max_iou = settings.max_iou;
    made->rescore = settings.rescore;
    boxes = std::move(made);
    for (std::size_t i = 0; i < kTerms; ++i) losses[i] = new_loss(terms[i]);
  }

  Ref<MPSCNNLoss *> new_loss(const LossSettings &given) const {
    MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:given.type
                                                                         reductionType:given.reduction];
    [descriptor setReduceAcrossBatch:given.across_batch];
    [descriptor setWeight:given.weight];
    [descriptor setLabelSmoothing:given.smoothing];
    [descriptor setNumberOfClasses:given.classes];
    [descriptor setEpsilon:given.epsilon];
    [descriptor setDelta:given.delta];
    return Ref<MPSCNNLoss *>::adopt([[MPSCNNLoss alloc] initWithDevice:device.get() lossDescriptor:descriptor]);
  }

  LossProblem loss_problem() const {
    LossProblem problem;
    problem.boxes = boxes;
    problem.reduction = reduction_of(settings.reduction);
    problem.across_images = settings.across_batch;
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    archive.field(@"MPSCNNYOLOLoss.reductionType", settings.reduction);
    archive.field(@"MPSCNNYOLOLoss.reduceAcrossBatch", settings.across_batch);
    archive.field(@"MPSCNNYOLOLoss.rescore", settings.rescore);
    archive.field(@"MPSCNNYOLOLoss.scaleXY", settings.scale_xy);
    archive.field(@"MPSCNNYOLOLoss.scaleWH", settings.scale_wh);
    archive.field(@"MPSCNNYOLOLoss.scaleNoObject", settings.scale_no_object);
    archive.field(@"MPSCNNYOLOLoss.scaleObject", settings.scale_object);
    archive.field(@"MPSCNNYOLOLoss.scaleClass", settings.scale_class);
    archive.field(@"MPSCNNYOLOLoss.minIOUForObjectPresence", settings.min_iou);
    archive.field(@"MPSCNNYOLOLoss.maxIOUForObjectAbsence", settings.max_iou);
    archive.field(@"MPSCNNYOLOLoss.numberOfAnchorBoxes", settings.anchors);
    archive.object(@"MPSCNNYOLOLoss.anchorBoxes", [NSData class], settings.anchor_boxes);
    for (std::size_t i = 0; i < kTerms; ++i)
      terms[i].archive(archive, [NSString stringWithFormat:@"MPSCNNYOLOLoss.%s", kTermNames[i]]);
  }
  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    complete();
  }
  void did_copy(id<OpenMPSDevice> target) override {
    CNNKernelState::did_copy(target);
    complete();
  }
};

}  // namespace
}  // namespace openmps

using openmps::BoxDescription;
using openmps::BoxLossState;
using openmps::description_of;
using openmps::Ref;

@interface MPSCNNYOLOLossDescriptor (Engine)
- (const BoxDescription &)openmps_description;
@end

@implementation MPSCNNYOLOLossDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)openmps_initWithDescription:(const BoxDescription &)description {
  if ((self = [super init])) _openmps = new BoxDescription(description);
  return self;
}

- (instancetype)init {
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd,
                             "+cnnLossDescriptorWithXYLossType:WHLossType:confidenceLossType:classesLossType:"
                             "reductionType:anchorBoxes:numberOfAnchorBoxes:");
}

+ (MPSCNNYOLOLossDescriptor *)cnnLossDescriptorWithXYLossType:(MPSCNNLossType)XYLossType
                                                   WHLossType:(MPSCNNLossType)WHLossType
                                           confidenceLossType:(MPSCNNLossType)confidenceLossType
                                              classesLossType:(MPSCNNLossType)classesLossType
                                                reductionType:(MPSCNNReductionType)reductionType
                                                  anchorBoxes:(NSData *)anchorBoxes
                                          numberOfAnchorBoxes:(NSUInteger)numberOfAnchorBoxes {
  BoxDescription description;
  description.reduction = reductionType;
  description.anchors = numberOfAnchorBoxes;
  description.anchor_boxes = Ref<NSData *>(anchorBoxes);
  const MPSCNNLossType types[] = {XYLossType, WHLossType, confidenceLossType, classesLossType};
  for (std::size_t i = 0; i < openmps::kTerms; ++i)
    description.terms[i] = Ref<MPSCNNLossDescriptor *>([MPSCNNLossDescriptor cnnLossDescriptorWithType:types[i]
                                                                                         reductionType:reductionType]);
  return [[[self alloc] openmps_initWithDescription:description] autorelease];
}

- (void)dealloc {
  delete static_cast<BoxDescription *>(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  BoxDescription description = description_of(_openmps);
  for (auto &term : description.terms) term = Ref<MPSCNNLossDescriptor *>::adopt([term.get() copy]);
  return [[[self class] allocWithZone:zone] openmps_initWithDescription:description];
}

- (const BoxDescription &)openmps_description {
  return description_of(_openmps);
}

#define OPENMPS_TERM(NAME, SETTER, TERM)                                                \
  -(MPSCNNLossDescriptor *)NAME {                                                       \
    return description_of(_openmps).terms[openmps::TERM].get();                         \
  }                                                                                     \
  -(void)SETTER : (MPSCNNLossDescriptor *)value {                                       \
    description_of(_openmps).terms[openmps::TERM] = Ref<MPSCNNLossDescriptor *>(value); \
  }
OPENMPS_TERM(XYLossDescriptor, setXYLossDescriptor, kXY)
OPENMPS_TERM(WHLossDescriptor, setWHLossDescriptor, kWH)
OPENMPS_TERM(confidenceLossDescriptor, setConfidenceLossDescriptor, kConfidence)
OPENMPS_TERM(classesLossDescriptor, setClassesLossDescriptor, kClasses)

// The kernel checks these.
#define OPENMPS_SETTING(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                    \
    return description_of(_openmps).FIELD;         \
  }                                                \
  -(void)SETTER : (TYPE)value {                    \
    description_of(_openmps).FIELD = value;        \
  }
OPENMPS_SETTING(MPSCNNReductionType, reductionType, setReductionType, reduction)
OPENMPS_SETTING(BOOL, reduceAcrossBatch, setReduceAcrossBatch, across_batch)
OPENMPS_SETTING(BOOL, rescore, setRescore, rescore)
OPENMPS_SETTING(float, scaleXY, setScaleXY, scale_xy)
OPENMPS_SETTING(float, scaleWH, setScaleWH, scale_wh)
OPENMPS_SETTING(float, scaleNoObject, setScaleNoObject, scale_no_object)
OPENMPS_SETTING(float, scaleObject, setScaleObject, scale_object)
OPENMPS_SETTING(float, scaleClass, setScaleClass, scale_class)
OPENMPS_SETTING(float, minIOUForObjectPresence, setMinIOUForObjectPresence, min_iou)
OPENMPS_SETTING(float, maxIOUForObjectAbsence, setMaxIOUForObjectAbsence, max_iou)
OPENMPS_SETTING(NSUInteger, numberOfAnchorBoxes, setNumberOfAnchorBoxes, anchors)
#undef OPENMPS_SETTING

- (NSData *)anchorBoxes {
  return description_of(_openmps).anchor_boxes.get();
}

- (void)setAnchorBoxes:(NSData *)anchorBoxes {
  description_of(_openmps).anchor_boxes = Ref<NSData *>(anchorBoxes);
}

@end

@implementation MPSCNNYOLOLoss

+ (openmps::KernelState *)openmps_newState {
  return new BoxLossState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:lossDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNYOLOLossDescriptor *)lossDescriptor {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<BoxLossState>(self);
  if (lossDescriptor == nil) openmps::raise_for(state, @"lossDescriptor is nil.");
  const BoxDescription &description = [lossDescriptor openmps_description];
  state.settings = description;
  state.settings.anchor_boxes = Ref<NSData *>::adopt([description.anchor_boxes.get() copy]);
  for (std::size_t i = 0; i < openmps::kTerms; ++i) {
    if (!description.terms[i]) openmps::raise_for(state, @"%s is nil.", openmps::kTermNames[i]);
    state.terms[i] = [description.terms[i].get() openmps_settings];
  }
  state.complete();
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(BoxLossState, MPSCNNLoss *, lossXY, losses[openmps::kXY].get())
OPENMPS_GETTER(BoxLossState, MPSCNNLoss *, lossWH, losses[openmps::kWH].get())
OPENMPS_GETTER(BoxLossState, MPSCNNLoss *, lossConfidence, losses[openmps::kConfidence].get())
OPENMPS_GETTER(BoxLossState, MPSCNNLoss *, lossClasses, losses[openmps::kClasses].get())
OPENMPS_GETTER(BoxLossState, float, scaleXY, settings.scale_xy)
OPENMPS_GETTER(BoxLossState, float, scaleWH, settings.scale_wh)
OPENMPS_GETTER(BoxLossState, float, scaleNoObject, settings.scale_no_object)
OPENMPS_GETTER(BoxLossState, float, scaleObject, settings.scale_object)
OPENMPS_GETTER(BoxLossState, float, scaleClass, settings.scale_class)
OPENMPS_GETTER(BoxLossState, float, minIOUForObjectPresence, settings.min_iou)
OPENMPS_GETTER(BoxLossState, float, maxIOUForObjectAbsence, settings.max_iou)
OPENMPS_GETTER(BoxLossState, MPSCNNReductionType, reductionType, settings.reduction)
OPENMPS_GETTER(BoxLossState, NSUInteger, numberOfAnchorBoxes, settings.anchors)
OPENMPS_GETTER(BoxLossState, NSData *, anchorBoxes, settings.anchor_boxes.get())
OPENMPS_GETTER(BoxLossState, BOOL, reduceAcrossBatch, settings.across_batch)

OPENMPS_LOSS_ENCODE_FORMS(BoxLossState, state.loss_problem())

@end
