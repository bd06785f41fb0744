// SPDX-License-Identifier: Apache-2.0
// Description of an image: extents, format, storage [MPSImage.h].

#include "engine/engine.hpp"
#import "metal/MTLResourceOnEngine.hh"
#import "mps/ImageState.hh"

namespace openmps {
namespace {

struct DescriptorState {
  NSUInteger width = 1, height = 1, channels = 1, images = 1;
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatNone;
  MTLCPUCacheMode cache_mode = MTLCPUCacheModeDefaultCache;
  MTLStorageMode storage_mode = default_storage_mode();
  MTLTextureUsage usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  BOOL has_no_slice_limit = NO;
};

DescriptorState &descriptor_of(void *pointer) { return *static_cast<DescriptorState *>(pointer); }

void check_extent(const char *who, const char *name, NSUInteger value, NSUInteger limit) {
  if (value < 1) raise_argument(@"%s: %s (0) is less than the minimum (1).", who, name);
  if (value > limit)
    raise_argument(@"%s: %s (%lu) is more than the maximum (%lu).", who, name, (unsigned long)value,
                   (unsigned long)limit);
}

}  // namespace

NSUInteger lanes_of(NSUInteger channels) { return channels <= 2 ? channels : 4; }

MTLPixelFormat pixel_format_of(MPSImageFeatureChannelFormat format, NSUInteger channels) {
  static constexpr MTLPixelFormat kTable[5][3] = {
      {MTLPixelFormatInvalid, MTLPixelFormatInvalid, MTLPixelFormatInvalid},
      {MTLPixelFormatR8Unorm, MTLPixelFormatRG8Unorm, MTLPixelFormatRGBA8Unorm},
      {MTLPixelFormatR16Unorm, MTLPixelFormatRG16Unorm, MTLPixelFormatRGBA16Unorm},
      {MTLPixelFormatR16Float, MTLPixelFormatRG16Float, MTLPixelFormatRGBA16Float},
      {MTLPixelFormatR32Float, MTLPixelFormatRG32Float, MTLPixelFormatRGBA32Float},
  };
  if (format > MPSImageFeatureChannelFormatFloat32 || channels == 0) return MTLPixelFormatInvalid;
  return kTable[format][channels <= 2 ? channels - 1 : 2];
}

Format format_of(MPSImageFeatureChannelFormat format) {
  switch (format) {
    case MPSImageFeatureChannelFormatUnorm8: return Format::unorm8;
    case MPSImageFeatureChannelFormatUnorm16: return Format::unorm16;
    case MPSImageFeatureChannelFormatFloat16: return Format::float16;
    default: return Format::float32;
  }
}

MPSImageFeatureChannelFormat channel_format_of(MTLPixelFormat pixel_format) {
  for (const auto format : {MPSImageFeatureChannelFormatUnorm8, MPSImageFeatureChannelFormatUnorm16,
                            MPSImageFeatureChannelFormatFloat16, MPSImageFeatureChannelFormatFloat32}) {
    for (const NSUInteger channels : {1, 2, 4}) {
      if (pixel_format_of(format, channels) == pixel_format) return format;
    }
  }
  return MPSImageFeatureChannelFormatNone;
}

ImageShape check_image_descriptor(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *given) {
  MPSImageDescriptor *descriptor = const_cast<MPSImageDescriptor *>(given);
  if (descriptor == nil) raise_argument(@"%s: imageDescriptor is nil.", who);
  ImageShape shape;
  shape.format = [descriptor channelFormat];
  if (shape.format == MPSImageFeatureChannelFormatNone)
    raise_argument(@"%s: channelFormat (0, MPSImageFeatureChannelFormatNone) is not one of 1 to 4.", who);
  if (shape.format > MPSImageFeatureChannelFormatFloat32)
    raise_argument(@"%s: channelFormat (%lu) is not one of 1 to 4.", who, (unsigned long)shape.format);
  const NSUInteger width = [descriptor width], height = [descriptor height];
  const NSUInteger channels = [descriptor featureChannels], images = [descriptor numberOfImages];
  check_extent(who, "width", width, kMaxExtent);
  check_extent(who, "height", height, kMaxExtent);
  check_extent(who, "featureChannels", channels, 4 * kMaxSlices);
  shape.has_no_slice_limit = [descriptor openmps_hasNoSliceLimit];
  check_extent(who, "numberOfImages", images, shape.has_no_slice_limit ? INT32_MAX : kMaxSlices);
  const NSUInteger slices = (channels + 3) / 4 * images;
  if (slices > kMaxSlices && !shape.has_no_slice_limit)
    raise_argument(
        @"%s: numberOfImages (%lu) x featureChannels (%lu) makes %lu slices of 4 channels, the maximum is %lu.", who,
        (unsigned long)images, (unsigned long)channels, (unsigned long)slices, (unsigned long)kMaxSlices);
  shape.storage_mode = [descriptor storageMode];
  if (shape.storage_mode > MTLStorageModePrivate)
    raise_argument(@"%s: storageMode (%lu) is more than the maximum (2).", who, (unsigned long)shape.storage_mode);
  shape.pixel_format = pixel_format_of(shape.format, channels);
  shape.usage = [descriptor usage];

  const std::shared_ptr<Engine> &engine = [device openmps_engine];
  ImageView &view = shape.view;
  view.format = format_of(shape.format);
  view.n = static_cast<std::int64_t>(images);
  view.h = static_cast<std::int64_t>(height);
  view.w = static_cast<std::int64_t>(width);
  view.c = static_cast<std::int64_t>(channels);
  view.w_stride = engine->channel_stride(view.format, view.c);
  const auto bytes = product({images, height, width, static_cast<std::uint64_t>(view.w_stride), size_of(view.format)});
  const std::uint64_t limit = engine->working_set_limit();
  if (!bytes || *bytes > limit)
    raise_argument(
        @"%s: %lu images of %lu x %lu pixels of %lu channels need more than recommendedMaxWorkingSetSize (%llu bytes).",
        who, (unsigned long)images, (unsigned long)height, (unsigned long)width, (unsigned long)channels,
        (unsigned long long)limit);
  view.h_stride = view.w * view.w_stride;
  view.n_stride = view.h * view.h_stride;
  shape.bytes = *bytes;
  return shape;
}

}  // namespace openmps

#define FIELD(TYPE, NAME, SETTER, MEMBER)            \
  -(TYPE)NAME {                                      \
    return openmps::descriptor_of(_openmps).MEMBER;  \
  }                                                  \
  -(void)SETTER : (TYPE)value {                      \
    openmps::descriptor_of(_openmps).MEMBER = value; \
  }

@implementation MPSImageDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::DescriptorState;
  return self;
}

- (void)dealloc {
  delete &openmps::descriptor_of(_openmps);
  [super dealloc];
}

- (instancetype)copyWithZone:(NSZone *)zone {
  MPSImageDescriptor *copy = [[[self class] allocWithZone:zone] init];
  openmps::descriptor_of(copy->_openmps) = openmps::descriptor_of(_openmps);
  return copy;
}

FIELD(NSUInteger, width, setWidth, width)
FIELD(NSUInteger, height, setHeight, height)
FIELD(NSUInteger, featureChannels, setFeatureChannels, channels)
FIELD(NSUInteger, numberOfImages, setNumberOfImages, images)
FIELD(MPSImageFeatureChannelFormat, channelFormat, setChannelFormat, format)
FIELD(MTLCPUCacheMode, cpuCacheMode, setCpuCacheMode, cache_mode)
FIELD(MTLStorageMode, storageMode, setStorageMode, storage_mode)
FIELD(MTLTextureUsage, usage, setUsage, usage)
#undef FIELD

- (BOOL)openmps_hasNoSliceLimit {
  return openmps::descriptor_of(_openmps).has_no_slice_limit;
}

- (void)setHasNoSliceLimit:(BOOL)value {
  openmps::descriptor_of(_openmps).has_no_slice_limit = value;
}

- (MTLPixelFormat)pixelFormat {
  const openmps::DescriptorState &state = openmps::descriptor_of(_openmps);
  return openmps::pixel_format_of(state.format, state.channels);
}

+ (instancetype)imageDescriptorWithChannelFormat:(MPSImageFeatureChannelFormat)channelFormat
                                           width:(NSUInteger)width
                                          height:(NSUInteger)height
                                 featureChannels:(NSUInteger)featureChannels {
  return [self imageDescriptorWithChannelFormat:channelFormat
                                          width:width
                                         height:height
                                featureChannels:featureChannels
                                 numberOfImages:1
                                          usage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
}

+ (instancetype)imageDescriptorWithChannelFormat:(MPSImageFeatureChannelFormat)channelFormat
                                           width:(NSUInteger)width
                                          height:(NSUInteger)height
                                 featureChannels:(NSUInteger)featureChannels
                                  numberOfImages:(NSUInteger)numberOfImages
                                           usage:(MTLTextureUsage)usage {
  MPSImageDescriptor *descriptor = [[[self alloc] init] autorelease];
  [descriptor setChannelFormat:channelFormat];
  [descriptor setWidth:width];
  [descriptor setHeight:height];
  [descriptor setFeatureChannels:featureChannels];
  [descriptor setNumberOfImages:numberOfImages];
  [descriptor setUsage:usage];
  return descriptor;
}

@end
