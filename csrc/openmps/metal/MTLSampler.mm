// SPDX-License-Identifier: Apache-2.0
// Samplers and their descriptors [MTLSampler.h]. Textures have one level: filters of mipmaps and levels change nothing,
// and a sampler always magnifies.

#import "metal/MTLSamplerOnEngine.hh"

#include <cfloat>

namespace openmps {
namespace {

struct SamplerValues {
  MTLSamplerMinMagFilter min_filter = MTLSamplerMinMagFilterNearest, mag_filter = MTLSamplerMinMagFilterNearest;
  MTLSamplerMipFilter mip_filter = MTLSamplerMipFilterNotMipmapped;
  MTLSamplerAddressMode s = MTLSamplerAddressModeClampToEdge, t = s, r = s;
  MTLSamplerBorderColor border = MTLSamplerBorderColorTransparentBlack;
  NSUInteger max_anisotropy = 1;
  BOOL is_normalized = YES, supports_argument_buffers = NO;
  float lod_min = 0, lod_max = FLT_MAX;
};
struct SamplerState {
  Label label;
  SamplerValues values;
};

SamplerState &sampler_in(void *openmps) { return *static_cast<SamplerState *>(openmps); }

void check_value(const char *name, NSUInteger value, NSUInteger max) {
  if (value > max)
    raise_argument(@"MTLSamplerDescriptor: %s (%lu) is more than the maximum (%lu).", name, (unsigned long)value,
                   (unsigned long)max);
}

/// Samplers of pixel coordinates [MTLSampler.h, normalizedCoordinates].
void check_pixels(MTLSamplerDescriptor *descriptor) {
  for (const MTLSamplerAddressMode mode : {[descriptor sAddressMode], [descriptor tAddressMode]})
    if (mode != MTLSamplerAddressModeClampToEdge && mode != MTLSamplerAddressModeClampToZero &&
        mode != MTLSamplerAddressModeClampToBorderColor)
      raise_argument(@"MTLSamplerDescriptor: an address mode (%lu) repeats the texture, without normalizedCoordinates.",
                     (unsigned long)mode);
  if ([descriptor minFilter] != [descriptor magFilter])
    raise_argument(@"MTLSamplerDescriptor: minFilter (%lu) is not magFilter (%lu), without normalizedCoordinates.",
                   (unsigned long)[descriptor minFilter], (unsigned long)[descriptor magFilter]);
  if ([descriptor mipFilter] != MTLSamplerMipFilterNotMipmapped)
    raise_argument(@"MTLSamplerDescriptor: mipFilter (%lu) is not 0, without normalizedCoordinates.",
                   (unsigned long)[descriptor mipFilter]);
}

}  // namespace

id<MTLSamplerState> new_sampler(id<MTLDevice> device, MTLSamplerDescriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"MTLDevice: descriptor of a sampler is nil.");
  check_value("minFilter", [descriptor minFilter], MTLSamplerMinMagFilterLinear);
  check_value("magFilter", [descriptor magFilter], MTLSamplerMinMagFilterLinear);
  check_value("mipFilter", [descriptor mipFilter], MTLSamplerMipFilterLinear);
  check_value("sAddressMode", [descriptor sAddressMode], MTLSamplerAddressModeClampToBorderColor);
  check_value("tAddressMode", [descriptor tAddressMode], MTLSamplerAddressModeClampToBorderColor);
  check_value("borderColor", [descriptor borderColor], MTLSamplerBorderColorOpaqueWhite);
  if ([descriptor maxAnisotropy] < 1 || [descriptor maxAnisotropy] > 16)
    raise_argument(@"MTLSamplerDescriptor: maxAnisotropy (%lu) is not from 1 to 16.",
                   (unsigned long)[descriptor maxAnisotropy]);
  if (![descriptor normalizedCoordinates]) check_pixels(descriptor);
  MTLSamplerStateOnEngine *sampler = [[MTLSamplerStateOnEngine alloc] init];
  sampler->_device = Ref<id<MTLDevice>>(device);
  sampler->_label = Ref<NSString *>([descriptor label]);
  sampler->_sampler.is_pixel = ![descriptor normalizedCoordinates];
  sampler->_sampler.is_linear = [descriptor magFilter] == MTLSamplerMinMagFilterLinear;
  sampler->_sampler.across = static_cast<std::uint8_t>([descriptor sAddressMode]);
  sampler->_sampler.down = static_cast<std::uint8_t>([descriptor tAddressMode]);
  sampler->_sampler.border = static_cast<std::uint8_t>([descriptor borderColor]);
  return sampler;
}

}  // namespace openmps

@implementation MTLSamplerStateOnEngine

OPENMPS_UNKNOWN_SELECTORS

- (id<MTLDevice>)device {
  return _device.get();
}

- (NSString *)label {
  return _label.get();
}

@end

#define OPENMPS_SAMPLER_PROPERTY(TYPE, GETTER, SETTER, MEMBER) \
  -(TYPE)GETTER {                                              \
    return openmps::sampler_in(_openmps).values.MEMBER;        \
  }                                                            \
  -(void)SETTER : (TYPE)value {                                \
    openmps::sampler_in(_openmps).values.MEMBER = value;       \
  }

@implementation MTLSamplerDescriptor

OPENMPS_UNKNOWN_SELECTORS
OPENMPS_SAMPLER_PROPERTY(MTLSamplerMinMagFilter, minFilter, setMinFilter, min_filter)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerMinMagFilter, magFilter, setMagFilter, mag_filter)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerMipFilter, mipFilter, setMipFilter, mip_filter)
OPENMPS_SAMPLER_PROPERTY(NSUInteger, maxAnisotropy, setMaxAnisotropy, max_anisotropy)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerAddressMode, sAddressMode, setSAddressMode, s)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerAddressMode, tAddressMode, setTAddressMode, t)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerAddressMode, rAddressMode, setRAddressMode, r)
OPENMPS_SAMPLER_PROPERTY(MTLSamplerBorderColor, borderColor, setBorderColor, border)
OPENMPS_SAMPLER_PROPERTY(BOOL, normalizedCoordinates, setNormalizedCoordinates, is_normalized)
OPENMPS_SAMPLER_PROPERTY(float, lodMinClamp, setLodMinClamp, lod_min)
OPENMPS_SAMPLER_PROPERTY(float, lodMaxClamp, setLodMaxClamp, lod_max)
OPENMPS_SAMPLER_PROPERTY(BOOL, supportArgumentBuffers, setSupportArgumentBuffers, supports_argument_buffers)

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::SamplerState;
  return self;
}

- (void)dealloc {
  delete &openmps::sampler_in(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLSamplerDescriptor *copy = [[[self class] allocWithZone:zone] init];
  openmps::sampler_in(copy->_openmps).values = openmps::sampler_in(_openmps).values;
  [copy setLabel:[self label]];
  return copy;
}

- (NSString *)label {
  return openmps::sampler_in(_openmps).label.get();
}

- (void)setLabel:(NSString *)label {
  openmps::sampler_in(_openmps).label.set(label);
}

@end
