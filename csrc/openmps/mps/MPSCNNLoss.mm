// SPDX-License-Identifier: Apache-2.0
// MPSCNNLoss, which computes loss and gradient in one encode; its descriptors and labels [MPSCNNLoss.h].

#include <cstring>

#include "engine/problem/problem.hpp"

#import "mps/MPSCNNLoss+Engine.hh"

using openmps::LossSettings;
using openmps::LossState;
using openmps::raise_argument;
using openmps::Ref;

// -------------------------------------------------------------------------------------------------- descriptors

static LossSettings &settings_of(void *opaque) { return *static_cast<LossSettings *>(opaque); }

@implementation MPSCNNLossDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)openmps_initWithSettings:(const LossSettings &)settings {
  if ((self = [super init])) _openmps = new LossSettings(settings);
  return self;
}

- (instancetype)init {
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "+cnnLossDescriptorWithType:reductionType:");
}

+ (MPSCNNLossDescriptor *)cnnLossDescriptorWithType:(MPSCNNLossType)lossType
                                      reductionType:(MPSCNNReductionType)reductionType {
  MPSCNNLossDescriptor *descriptor = [[[self alloc] openmps_initWithSettings:LossSettings()] autorelease];
  [descriptor setLossType:lossType];
  [descriptor setReductionType:reductionType];
  return descriptor;
}

- (void)dealloc {
  delete static_cast<LossSettings *>(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  return [[[self class] allocWithZone:zone] openmps_initWithSettings:settings_of(_openmps)];
}

- (const LossSettings &)openmps_settings {
  return settings_of(_openmps);
}

- (MPSCNNLossType)lossType {
  return settings_of(_openmps).type;
}

- (void)setLossType:(MPSCNNLossType)lossType {
  if (static_cast<unsigned>(lossType) >= MPSCNNLossTypeCount)
    raise_argument(@"MPSCNNLossDescriptor: lossType (%d) is not between 0 and %d.", (int)lossType,
                   MPSCNNLossTypeCount - 1);
  settings_of(_openmps).type = lossType;
}

- (MPSCNNReductionType)reductionType {
  return settings_of(_openmps).reduction;
}

- (void)setReductionType:(MPSCNNReductionType)reductionType {
  if (reductionType < MPSCNNReductionTypeNone || reductionType >= MPSCNNReductionTypeCount)
    raise_argument(@"MPSCNNLossDescriptor: reductionType (%d) is not between 0 and %d.", (int)reductionType,
                   MPSCNNReductionTypeCount - 1);
  settings_of(_openmps).reduction = reductionType;
}

// The kernels check these.
#define OPENMPS_SETTING(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                    \
    return settings_of(_openmps).FIELD;            \
  }                                                \
  -(void)SETTER : (TYPE)value {                    \
    settings_of(_openmps).FIELD = value;           \
  }
OPENMPS_SETTING(BOOL, reduceAcrossBatch, setReduceAcrossBatch, across_batch)
OPENMPS_SETTING(float, weight, setWeight, weight)
OPENMPS_SETTING(float, labelSmoothing, setLabelSmoothing, smoothing)
OPENMPS_SETTING(NSUInteger, numberOfClasses, setNumberOfClasses, classes)
OPENMPS_SETTING(float, epsilon, setEpsilon, epsilon)
OPENMPS_SETTING(float, delta, setDelta, delta)
#undef OPENMPS_SETTING

@end

namespace {

/// The program's floats. HWC: rows of W * C floats; CHW: planes ("images") of rows of W floats.
struct LossData {
  Ref<NSData *> data;
  MPSDataLayout layout = MPSDataLayoutHeightxWidthxFeatureChannels;
  MTLSize size = {0, 0, 0};
  NSUInteger bytes_per_row = 0, bytes_per_image = 0;

  bool planes() const { return layout == MPSDataLayoutFeatureChannelsxHeightxWidth; }
  /// Return H x W x C values, dense. Raise if the data are too short.
  std::vector<float> values() const;
};

LossData &loss_data(void *opaque) { return *static_cast<LossData *>(opaque); }

std::vector<float> LossData::values() const {
  const NSUInteger row = (planes() ? size.width : size.width * size.depth) * sizeof(float);
  if (bytes_per_row < row || bytes_per_row % sizeof(float) != 0)
    raise_argument(@"MPSCNNLossDataDescriptor: bytesPerRow (%lu) is no multiple of 4 of at least %lu.",
                   (unsigned long)bytes_per_row, (unsigned long)row);
  const NSUInteger images = planes() ? size.depth : 1;
  NSUInteger end = 0, last = 0;
  const bool too_large = __builtin_mul_overflow(bytes_per_row, size.height - 1, &end) ||
                         __builtin_add_overflow(end, row, &end) ||
                         __builtin_mul_overflow(bytes_per_image, images - 1, &last);
  if (images > 1 && (bytes_per_image < end || bytes_per_image % sizeof(float) != 0))
    raise_argument(@"MPSCNNLossDataDescriptor: bytesPerImage (%lu) is no multiple of 4 of at least %lu.",
                   (unsigned long)bytes_per_image, (unsigned long)end);
  if (too_large || __builtin_add_overflow(end, last, &end) || end > [data.get() length])
    raise_argument(@"MPSCNNLossDataDescriptor: data has %lu bytes, expected %lu for %lu x %lu x %lu floats (width x "
                   @"height x channels).",
                   (unsigned long)[data.get() length], (unsigned long)end, (unsigned long)size.width,
                   (unsigned long)size.height, (unsigned long)size.depth);
  std::vector<float> values(size.width * size.height * size.depth);
  const auto *bytes = static_cast<const std::byte *>([data.get() bytes]);
  float *to = values.data();
  for (NSUInteger y = 0; y < size.height; ++y) {
    if (!planes()) {
      std::memcpy(to, bytes + y * bytes_per_row, row);
      to += size.width * size.depth;
      continue;
    }
    for (NSUInteger x = 0; x < size.width; ++x)
      for (NSUInteger c = 0; c < size.depth; ++c)
        std::memcpy(to++, bytes + c * bytes_per_image + y * bytes_per_row + x * sizeof(float), sizeof(float));
  }
  return values;
}

}  // namespace

@interface MPSCNNLossDataDescriptor (Engine)
- (const LossData &)openmps_data;
@end

@implementation MPSCNNLossDataDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)openmps_initWithData:(const LossData &)data {
  if ((self = [super init])) _openmps = new LossData(data);
  return self;
}

- (instancetype)init {
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "+cnnLossDataDescriptorWithData:layout:size:");
}

+ (MPSCNNLossDataDescriptor *)cnnLossDataDescriptorWithData:(NSData *)data
                                                     layout:(MPSDataLayout)layout
                                                       size:(MTLSize)size {
  if (data == nil) raise_argument(@"MPSCNNLossDataDescriptor: data is nil.");
  if (layout > MPSDataLayoutFeatureChannelsxHeightxWidth)
    raise_argument(@"MPSCNNLossDataDescriptor: layout (%lu) is not 0 or 1.", (unsigned long)layout);
  constexpr NSUInteger kLargest = NSUInteger{1} << 31;
  NSUInteger bytes = sizeof(float);
  bool too_large = false;
  for (NSUInteger extent : {size.width, size.height, size.depth}) {
    if (extent < 1 || extent > kLargest)
      raise_argument(@"MPSCNNLossDataDescriptor: size (%lu x %lu x %lu) has an extent that is not between 1 and %lu.",
                     (unsigned long)size.width, (unsigned long)size.height, (unsigned long)size.depth,
                     (unsigned long)kLargest);
    too_large |= __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (too_large || bytes > [data length])
    raise_argument(@"MPSCNNLossDataDescriptor: data has %lu bytes, too few for %lu x %lu x %lu floats.",
                   (unsigned long)[data length], (unsigned long)size.width, (unsigned long)size.height,
                   (unsigned long)size.depth);
  LossData description;
  description.data = Ref<NSData *>(data);
  description.layout = layout;
  description.size = size;
  description.bytes_per_row = (description.planes() ? size.width : size.width * size.depth) * sizeof(float);
  description.bytes_per_image = description.bytes_per_row * size.height;
  return [[[self alloc] openmps_initWithData:description] autorelease];
}

- (void)dealloc {
  delete static_cast<LossData *>(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  return [[[self class] allocWithZone:zone] openmps_initWithData:loss_data(_openmps)];
}

- (const LossData &)openmps_data {
  return loss_data(_openmps);
}

- (MPSDataLayout)layout {
  return loss_data(_openmps).layout;
}

- (MTLSize)size {
  return loss_data(_openmps).size;
}

- (NSUInteger)bytesPerRow {
  return loss_data(_openmps).bytes_per_row;
}

- (void)setBytesPerRow:(NSUInteger)bytesPerRow {
  loss_data(_openmps).bytes_per_row = bytesPerRow;
}

- (NSUInteger)bytesPerImage {
  return loss_data(_openmps).bytes_per_image;
}

- (void)setBytesPerImage:(NSUInteger)bytesPerImage {
  loss_data(_openmps).bytes_per_image = bytesPerImage;
}

@end

// -------------------------------------------------------------------------------------------------------- labels

namespace {

struct LabelsData : openmps::StateData {
  Ref<MPSImage *> labels, weights, loss;
};

Ref<MPSImage *> new_image(id<MTLDevice> device, MTLSize size, NSUInteger images) {
  MPSImageDescriptor *descriptor =
      [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                     width:size.width
                                                    height:size.height
                                           featureChannels:size.depth
                                            numberOfImages:images
                                                     usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  return Ref<MPSImage *>::adopt([[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor]);
}

Ref<MPSImage *> image_with(id<MTLDevice> device, const LossData &data) {
  const std::vector<float> values = data.values();
  Ref<MPSImage *> image = new_image(device, data.size, 1);
  [image.get() writeBytes:values.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];
  return image;
}

bool are_equal(MTLSize a, MTLSize b) { return a.width == b.width && a.height == b.height && a.depth == b.depth; }

MTLSize size_of(MPSImage *image) { return {[image width], [image height], [image featureChannels]}; }

/// Check the labels and weights, and make the loss image.
void complete(LabelsData &data, id<MTLDevice> device, MTLSize loss_size) {
  const MTLSize size = size_of(data.labels.get());
  const NSUInteger images = [data.labels.get() numberOfImages];
  if (MPSImage *weights = data.weights.get();
      weights != nil && (!are_equal(size_of(weights), size) || [weights numberOfImages] != images)) {
    const MTLSize given = size_of(weights);
    raise_argument(
        @"MPSCNNLossLabels: weights have %lu x %lu x %lu (width x height x channels) and %lu images, and the "
        @"labels %lu x %lu x %lu and %lu.",
        (unsigned long)given.width, (unsigned long)given.height, (unsigned long)given.depth,
        (unsigned long)[weights numberOfImages], (unsigned long)size.width, (unsigned long)size.height,
        (unsigned long)size.depth, (unsigned long)images);
  }
  if (!are_equal(loss_size, {1, 1, 1}) && !are_equal(loss_size, size))
    raise_argument(@"MPSCNNLossLabels: lossImageSize (%lu x %lu x %lu, width x height x channels) is neither 1 x 1 x 1 "
                   @"nor that of the labels (%lu x %lu x %lu).",
                   (unsigned long)loss_size.width, (unsigned long)loss_size.height, (unsigned long)loss_size.depth,
                   (unsigned long)size.width, (unsigned long)size.height, (unsigned long)size.depth);
  data.loss = new_image(device, loss_size, images);
}

}  // namespace

@implementation MPSCNNLossLabels

- (const LabelsData &)openmps_labels {
  const auto *data = static_cast<const LabelsData *>([self openmps_data]);
  if (data == nullptr)
    openmps::raise_usage(@"%@ was made without labels; use -initWithDevice:labelsDescriptor:.", [self class]);
  return *data;
}

- (instancetype)initWithDevice:(id<MTLDevice>)device labelsDescriptor:(MPSCNNLossDataDescriptor *)labelsDescriptor {
  return [self initWithDevice:device
                lossImageSize:MTLSizeMake(1, 1, 1)
             labelsDescriptor:labelsDescriptor
            weightsDescriptor:nil];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 lossImageSize:(MTLSize)lossImageSize
              labelsDescriptor:(MPSCNNLossDataDescriptor *)labelsDescriptor
             weightsDescriptor:(MPSCNNLossDataDescriptor *)weightsDescriptor {
  if (!(self = [self initWithDevice:device resourceList:[MPSStateResourceList resourceList]])) return nil;
  openmps::UnwindRelease unwind(self);
  if (labelsDescriptor == nil) raise_argument(@"MPSCNNLossLabels: labelsDescriptor is nil.");
  auto data = std::make_unique<LabelsData>();
  data->labels = image_with(device, [labelsDescriptor openmps_data]);
  if (weightsDescriptor != nil) data->weights = image_with(device, [weightsDescriptor openmps_data]);
  complete(*data, device, lossImageSize);
  [self openmps_setData:std::move(data)];
  return unwind.done();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 lossImageSize:(MTLSize)lossImageSize
                   labelsImage:(MPSImage *)labelsImage
                  weightsImage:(MPSImage *)weightsImage {
  if (!(self = [self initWithDevice:device resourceList:[MPSStateResourceList resourceList]])) return nil;
  openmps::UnwindRelease unwind(self);
  if (labelsImage == nil) raise_argument(@"MPSCNNLossLabels: labelsImage is nil.");
  for (MPSImage *image : {labelsImage, weightsImage})
    if (image != nil && [image device] != device)
      raise_argument(@"MPSCNNLossLabels: %s belongs to another device.",
                     image == labelsImage ? "labelsImage" : "weightsImage");
  auto data = std::make_unique<LabelsData>();
  data->labels = Ref<MPSImage *>(labelsImage);
  data->weights = Ref<MPSImage *>(weightsImage);
  complete(*data, device, lossImageSize);
  [self openmps_setData:std::move(data)];
  return unwind.done();
}

- (MPSImage *)lossImage {
  return [self openmps_labels].loss.get();
}

- (MPSImage *)labelsImage {
  return [self openmps_labels].labels.get();
}

/// nil if there are none.
- (MPSImage *)weightsImage {
  return [self openmps_labels].weights.get();
}

- (NSUInteger)resourceSize {
  return [[self lossImage] resourceSize] + [[self labelsImage] resourceSize] + [[self weightsImage] resourceSize];
}

@end

// -------------------------------------------------------------------------------------------------------- kernel

@implementation MPSCNNLoss

+ (openmps::KernelState *)openmps_newState {
  return new LossState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:lossDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device lossDescriptor:(MPSCNNLossDescriptor *)lossDescriptor {
  return openmps::init_loss<LossState>(self, device, lossDescriptor);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_LOSS_PROPERTIES(LossState)

static openmps::LossProblem problem_of(const LossState &state) {
  openmps::LossProblem problem;
  problem.function = state.settings.function();
  problem.reduction = openmps::reduction_of(state.settings.reduction);
  problem.across_images = state.settings.across_batch;
  return problem;
}
OPENMPS_LOSS_ENCODE_FORMS(LossState, problem_of(state))

@end
