// SPDX-License-Identifier: Apache-2.0
// Textures and their descriptors [MTLTexture.h]. The slices of a pixel are contiguous in memory (rows, columns, slices,
// lanes), so that the slices of a texture can be viewed as the feature channels of an image.

#import "metal/MTLResourceOnEngine.hh"

#include <cstring>

#include "engine/shared/pixels.hpp"

namespace openmps {
namespace {

/// State of an MTLTextureDescriptor.
struct TextureDescriptorState {
  MTLTextureType type = MTLTextureType2D;
  MTLPixelFormat format = MTLPixelFormatRGBA8Unorm;
  NSUInteger width = 1, height = 1, depth = 1, levels = 1, samples = 1, array_length = 1;
  MTLResourceOptions options = static_cast<MTLResourceOptions>(default_storage_mode()) << MTLResourceStorageModeShift;
  MTLTextureUsage usage = MTLTextureUsageShaderRead;
  bool optimized = true;
  MTLTextureSwizzleChannels swizzle = {MTLTextureSwizzleRed, MTLTextureSwizzleGreen, MTLTextureSwizzleBlue,
                                       MTLTextureSwizzleAlpha};
};

struct FormatRow {
  MTLPixelFormat pixel_format;
  Format format;
  NSUInteger lanes;
};

constexpr FormatRow kFormats[] = {
    {MTLPixelFormatR8Unorm, Format::unorm8, 1},      {MTLPixelFormatRG8Unorm, Format::unorm8, 2},
    {MTLPixelFormatRGBA8Unorm, Format::unorm8, 4},   {MTLPixelFormatR16Unorm, Format::unorm16, 1},
    {MTLPixelFormatRG16Unorm, Format::unorm16, 2},   {MTLPixelFormatRGBA16Unorm, Format::unorm16, 4},
    {MTLPixelFormatR16Float, Format::float16, 1},    {MTLPixelFormatRG16Float, Format::float16, 2},
    {MTLPixelFormatRGBA16Float, Format::float16, 4}, {MTLPixelFormatR32Float, Format::float32, 1},
    {MTLPixelFormatRG32Float, Format::float32, 2},   {MTLPixelFormatRGBA32Float, Format::float32, 4},
};

void check_extent(const char *name, NSUInteger value, NSUInteger limit) {
  if (value < 1) raise_argument(@"MTLTextureDescriptor: %s (0) is less than the minimum (1).", name);
  if (value > limit)
    raise_argument(@"MTLTextureDescriptor: %s (%lu) is more than the maximum (%lu).", name, (unsigned long)value,
                   (unsigned long)limit);
}

bool is_plain(MTLTextureSwizzleChannels swizzle) {
  return swizzle.red == MTLTextureSwizzleRed && swizzle.green == MTLTextureSwizzleGreen &&
         swizzle.blue == MTLTextureSwizzleBlue && swizzle.alpha == MTLTextureSwizzleAlpha;
}

}  // namespace

bool texture_format(MTLPixelFormat pixel_format, Format *format, NSUInteger *lanes) {
  for (const FormatRow &row : kFormats) {
    if (row.pixel_format != pixel_format) continue;
    *format = row.format;
    *lanes = row.lanes;
    return true;
  }
  return false;
}

std::uint64_t check_texture_descriptor(MTLTextureDescriptor *descriptor, ImageView *view) {
  if (descriptor == nil) raise_argument(@"MTLTexture: descriptor is nil.");
  const MTLTextureType type = [descriptor textureType];
  if (type != MTLTextureType2D && type != MTLTextureType2DArray)
    raise_argument(
        @"MTLTextureDescriptor: textureType (%lu) is not 2D (2) or 2DArray (3), which is all that openmps has.",
        (unsigned long)type);
  NSUInteger lanes = 0;
  if (!texture_format([descriptor pixelFormat], &view->format, &lanes))
    raise_argument(
        @"MTLTextureDescriptor: pixelFormat (%lu) is not R, RG or RGBA of 8Unorm, 16Unorm, 16Float or 32Float.",
        (unsigned long)[descriptor pixelFormat]);
  check_extent("width", [descriptor width], kMaxExtent);
  check_extent("height", [descriptor height], kMaxExtent);
  check_extent("depth", [descriptor depth], 1);
  check_extent("sampleCount", [descriptor sampleCount], 1);
  check_extent("mipmapLevelCount", [descriptor mipmapLevelCount], 1);
  check_extent("arrayLength", [descriptor arrayLength], type == MTLTextureType2D ? 1 : kMaxSlices);
  if (!is_plain([descriptor swizzle]))
    raise_argument(@"MTLTextureDescriptor: swizzle is not (red, green, blue, alpha), which is all that openmps has.");
  check_options("MTLTextureDescriptor", [descriptor resourceOptions]);
  view->n = 1;
  view->h = static_cast<std::int64_t>([descriptor height]);
  view->w = static_cast<std::int64_t>([descriptor width]);
  view->c = static_cast<std::int64_t>(lanes * [descriptor arrayLength]);
  view->w_stride = view->c;
  view->h_stride = view->w * view->c;
  view->n_stride = view->h * view->h_stride;
  return static_cast<std::uint64_t>(view->n_stride) * size_of(view->format);  // < 2^47
}

MTLResourceOptions options_of(MTLTextureDescriptor *descriptor) { return [descriptor resourceOptions]; }

MTLTextureOnEngine *new_texture(id<OpenMPSDevice> device, MTLTextureDescriptor *descriptor, const ImageView &view,
                                MTLResourceOptions options) {
  MTLTextureOnEngine *texture = [[MTLTextureOnEngine alloc] init];
  texture->_device = Ref<id<OpenMPSDevice>>(device);
  texture->_memory = view.memory;
  texture->_options = options;
  texture->_purgeable = MTLPurgeableStateNonVolatile;
  texture->_usage = std::make_shared<Usage>();
  texture->_view = view;
  texture->_arrayLength = texture->_slices = [descriptor arrayLength];
  Format format;
  texture_format([descriptor pixelFormat], &format, &texture->_lanes);
  texture->_type = [descriptor textureType];
  texture->_pixelFormat = [descriptor pixelFormat];
  texture->_textureUsage = [descriptor usage];
  texture->_swizzle = [descriptor swizzle];
  texture->_optimized = [descriptor allowGPUOptimizedContents];
  return texture;
}

id<MTLTexture> new_texture(id<MTLDevice> device, const ImageView &view, MTLPixelFormat pixel_format,
                           MTLTextureUsage usage, std::shared_ptr<Usage> in_use) {
  MTLTextureOnEngine *texture = [[MTLTextureOnEngine alloc] init];
  texture->_device = Ref<id<OpenMPSDevice>>(device_of(device, "MTLTexture: device"));
  texture->_memory = view.memory;
  texture->_purgeable = MTLPurgeableStateNonVolatile;
  texture->_usage = std::move(in_use);
  texture->_view = view;
  Format format;
  texture_format(pixel_format, &format, &texture->_lanes);
  const auto channels = static_cast<NSUInteger>(view.c);
  texture->_slices = (channels + 3) / 4;
  texture->_arrayLength = texture->_slices * static_cast<NSUInteger>(view.n);
  texture->_type = texture->_arrayLength == 1 ? MTLTextureType2D : MTLTextureType2DArray;
  texture->_pixelFormat = pixel_format;
  texture->_textureUsage = usage;
  texture->_swizzle = TextureDescriptorState().swizzle;
  texture->_optimized = YES;
  return texture;
}

void check_region(const char *what, MTLTextureOnEngine *texture, MTLRegion region, NSUInteger level, NSUInteger slice) {
  const NSUInteger width = [texture width], height = [texture height];
  if (level != 0) raise_argument(@"%s: level (%lu) is not 0, the only one.", what, (unsigned long)level);
  if (slice >= [texture arrayLength])
    raise_argument(@"%s: slice (%lu) is not less than arrayLength (%lu).", what, (unsigned long)slice,
                   (unsigned long)[texture arrayLength]);
  if (region.size.width == 0 || region.size.height == 0)
    raise_argument(@"%s: size (%lu x %lu) has an extent of 0.", what, (unsigned long)region.size.width,
                   (unsigned long)region.size.height);
  if (region.origin.x > width || region.size.width > width - region.origin.x || region.origin.y > height ||
      region.size.height > height - region.origin.y)
    raise_argument(@"%s: region (%lu x %lu pixels at (%lu, %lu)) ends beyond width and height (%lu x %lu).", what,
                   (unsigned long)region.size.width, (unsigned long)region.size.height, (unsigned long)region.origin.x,
                   (unsigned long)region.origin.y, (unsigned long)width, (unsigned long)height);
  if (region.origin.z != 0 || region.size.depth != 1)
    raise_argument(@"%s: region has depth %lu from z %lu, a 2D texture has 1 from 0.", what,
                   (unsigned long)region.size.depth, (unsigned long)region.origin.z);
}

void check_writable(const char *what, MTLTextureOnEngine *texture) {
  if (texture->_readOnly) raise_usage(@"%s is on read-only memory and cannot be written.", what);
}

SlicePixels slice_of(MTLTextureOnEngine *texture, NSUInteger slice, MTLOrigin origin) {
  const ImageView &view = texture->_view;
  const auto image = static_cast<std::int64_t>(slice / texture->_slices);
  const auto channel = static_cast<std::int64_t>(slice % texture->_slices * texture->_lanes);
  const std::size_t element = size_of(view.format);
  const auto elements =
      static_cast<std::size_t>(image * view.n_stride + static_cast<std::int64_t>(origin.y) * view.h_stride +
                               static_cast<std::int64_t>(origin.x) * view.w_stride + channel);
  SlicePixels pixels;
  pixels.memory = view.memory;
  pixels.offset = view.offset + elements * element;
  pixels.pixel = static_cast<std::size_t>(view.w_stride) * element;
  pixels.row = static_cast<std::size_t>(view.h_stride) * element;
  pixels.element = element;
  pixels.lanes = texture->_lanes;
  pixels.present = std::min<std::size_t>(texture->_lanes, static_cast<std::size_t>(view.c - channel));
  return pixels;
}

void read_texels(const SlicePixels &slice, const std::byte *memory, std::byte *to, std::size_t bytes_per_row,
                 MTLSize size) {
  auto *data = const_cast<std::byte *>(memory);
  const Pixels texels{to, slice.lanes * slice.element, bytes_per_row};
  copy_pixels(texels, {data + slice.offset, slice.pixel, slice.row}, size.height, size.width,
              slice.present * slice.element);
  if (slice.present == slice.lanes) return;
  constexpr std::uint32_t kZero = 0;
  fill_elements(texels, size.height, size.width, slice.present, slice.lanes - slice.present, &kZero, slice.element);
}

void write_texels(const SlicePixels &slice, std::byte *data, const std::byte *from, std::size_t bytes_per_row,
                  MTLSize size) {
  const Pixels texels{const_cast<std::byte *>(from), slice.lanes * slice.element, bytes_per_row};
  copy_pixels({data + slice.offset, slice.pixel, slice.row}, texels, size.height, size.width,
              slice.present * slice.element);
}

}  // namespace openmps

@implementation MTLTextureOnEngine

- (openmps::ImageView)openmps_viewWithImages:(NSUInteger)images channels:(NSUInteger)channels {
  if (images == 0 || channels == 0)
    openmps::raise_argument(@"MTLTexture: %lu images of %lu channels cannot be seen on it.", (unsigned long)images,
                            (unsigned long)channels);
  const NSUInteger slices = (channels + 3) / 4;
  const auto needed = openmps::product({slices, images});
  if (channels > _lanes && _lanes < 4)
    openmps::raise_argument(@"MTLTexture: featureChannels (%lu) is more than the lanes of pixelFormat %lu (%lu).",
                            (unsigned long)channels, (unsigned long)_pixelFormat, (unsigned long)_lanes);
  if (!needed || *needed > _arrayLength)
    openmps::raise_argument(@"MTLTexture: %lu images of %lu channels need %lu slices, arrayLength is %lu.",
                            (unsigned long)images, (unsigned long)channels, (unsigned long)(needed ? *needed : 0),
                            (unsigned long)_arrayLength);
  openmps::ImageView view = _view;
  if (_view.n == 1) {
    // The slices are contiguous: any number of them makes an image.
    view.n = static_cast<std::int64_t>(images);
    view.c = static_cast<std::int64_t>(channels);
    view.n_stride = static_cast<std::int64_t>(slices * _lanes);
    if (images == 1) view.n_stride = _view.n_stride;
    const auto last = static_cast<std::int64_t>((images - 1) * slices * _lanes + channels);
    if (last > _view.c)
      openmps::raise_argument(@"MTLTexture: featureChannels (%lu) is more than the %lu of the image that it shows.",
                              (unsigned long)channels, (unsigned long)_view.c);
    return view;
  }
  if (slices != _slices || channels > static_cast<NSUInteger>(_view.c))
    openmps::raise_argument(@"MTLTexture: it shows %lu images of %lu channels and cannot be seen as %lu of %lu.",
                            (unsigned long)_view.n, (unsigned long)_view.c, (unsigned long)images,
                            (unsigned long)channels);
  return _view.images(0, static_cast<std::int64_t>(images)).channels(0, static_cast<std::int64_t>(channels));
}

- (const std::shared_ptr<openmps::Usage> &)openmps_usage {
  return _usage;
}

- (id<MTLTexture>)parentTexture {
  return _parent.get();
}

- (NSUInteger)parentRelativeLevel {
  return 0;
}

- (NSUInteger)parentRelativeSlice {
  return _parentSlice;
}

- (id<MTLBuffer>)buffer {
  return _buffer.get();
}

- (NSUInteger)bufferOffset {
  return _bufferOffset;
}

- (NSUInteger)bufferBytesPerRow {
  return _bufferBytesPerRow;
}

- (NSUInteger)iosurfacePlane {
  return 0;
}

- (MTLTextureType)textureType {
  return _type;
}

- (MTLPixelFormat)pixelFormat {
  return _pixelFormat;
}

- (NSUInteger)width {
  return static_cast<NSUInteger>(_view.w);
}

- (NSUInteger)height {
  return static_cast<NSUInteger>(_view.h);
}

- (NSUInteger)depth {
  return 1;
}

- (NSUInteger)mipmapLevelCount {
  return 1;
}

- (NSUInteger)sampleCount {
  return 1;
}

- (NSUInteger)arrayLength {
  return _arrayLength;
}

- (MTLTextureUsage)usage {
  return _textureUsage;
}

- (BOOL)isShareable {
  return NO;
}

- (BOOL)isFramebufferOnly {
  return NO;
}

- (BOOL)allowGPUOptimizedContents {
  return _optimized;
}

- (MTLTextureSwizzleChannels)swizzle {
  return _swizzle;
}

- (NSUInteger)openmps_rowBytesFor:(MTLSize)size {
  return size.width * _lanes * openmps::size_of(_view.format);
}

- (void)openmps_checkTransfer:(const void *)bytes
                         rows:(NSUInteger)bytesPerRow
                       region:(MTLRegion)region
                        level:(NSUInteger)level
                        slice:(NSUInteger)slice {
  if ([self storageMode] == MTLStorageModePrivate)
    openmps::raise_usage(@"MTLTexture: storageMode is private (2), the CPU has no access.");
  if (bytes == nullptr) openmps::raise_argument(@"MTLTexture: pixelBytes is NULL.");
  openmps::check_region("MTLTexture", self, region, level, slice);
  const NSUInteger row = [self openmps_rowBytesFor:region.size];
  if (region.size.height > 1 && bytesPerRow < row)
    openmps::raise_argument(@"MTLTexture: bytesPerRow (%lu) is less than a row of the region (%lu).",
                            (unsigned long)bytesPerRow, (unsigned long)row);
}

- (void)getBytes:(void *)pixelBytes
      bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
       fromRegion:(MTLRegion)region
      mipmapLevel:(NSUInteger)level
            slice:(NSUInteger)slice {
  (void)bytesPerImage;  // a region has one image [MTLTexture.h: for 3D textures]
  [self openmps_checkTransfer:pixelBytes rows:bytesPerRow region:region level:level slice:slice];
  openmps::check_cpu_may_read(*_usage, @"MTLTexture");
  const openmps::SlicePixels from = openmps::slice_of(self, slice, region.origin);
  auto *const to = static_cast<std::byte *>(pixelBytes);
  if (_memory->has_cpu_copy()) {
    openmps::read_texels(from, openmps::touch_cpu(_memory, @"MTLTexture"), to, bytesPerRow, region.size);
  } else {
    const openmps::HostAccess access(_memory, openmps::HostAccess::Mode::read);
    openmps::read_texels(from, openmps::checked_data(access, _memory, @"MTLTexture"), to, bytesPerRow, region.size);
  }
}

- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
                slice:(NSUInteger)slice
            withBytes:(const void *)pixelBytes
          bytesPerRow:(NSUInteger)bytesPerRow
        bytesPerImage:(NSUInteger)bytesPerImage {
  (void)bytesPerImage;
  [self openmps_checkTransfer:pixelBytes rows:bytesPerRow region:region level:level slice:slice];
  openmps::check_writable("MTLTexture", self);
  openmps::check_cpu_may_write(*_usage, @"MTLTexture");
  const auto *from = static_cast<const std::byte *>(pixelBytes);
  const openmps::SlicePixels to = openmps::slice_of(self, slice, region.origin);
  {
    const openmps::HostAccess access(_memory, openmps::HostAccess::Mode::update);
    openmps::write_texels(to, openmps::checked_data(access, _memory, @"MTLTexture"), from, bytesPerRow, region.size);
  }
  // replaceRegion: updates both copies [MTLTexture.h].
  if (_memory->has_cpu_copy())
    openmps::write_texels(to, openmps::touch_cpu(_memory, @"MTLTexture"), from, bytesPerRow, region.size);
}

- (void)getBytes:(void *)pixelBytes
     bytesPerRow:(NSUInteger)bytesPerRow
      fromRegion:(MTLRegion)region
     mipmapLevel:(NSUInteger)level {
  [self getBytes:pixelBytes bytesPerRow:bytesPerRow bytesPerImage:0 fromRegion:region mipmapLevel:level slice:0];
}

- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
            withBytes:(const void *)pixelBytes
          bytesPerRow:(NSUInteger)bytesPerRow {
  [self replaceRegion:region mipmapLevel:level slice:0 withBytes:pixelBytes bytesPerRow:bytesPerRow bytesPerImage:0];
}

- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat {
  return [self newTextureViewWithPixelFormat:pixelFormat
                                 textureType:_type
                                      levels:NSMakeRange(0, 1)
                                      slices:NSMakeRange(0, _arrayLength)];
}

- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                    textureType:(MTLTextureType)textureType
                                         levels:(NSRange)levelRange
                                         slices:(NSRange)sliceRange {
  if (pixelFormat != _pixelFormat)
    openmps::raise_argument(@"MTLTexture: pixelFormat (%lu) of a view differs from the texture's (%lu).",
                            (unsigned long)pixelFormat, (unsigned long)_pixelFormat);
  if (levelRange.location != 0 || levelRange.length != 1)
    openmps::raise_argument(@"MTLTexture: levelRange (%lu, %lu) is not (0, 1).", (unsigned long)levelRange.location,
                            (unsigned long)levelRange.length);
  if (sliceRange.length == 0 || sliceRange.location > _arrayLength ||
      sliceRange.length > _arrayLength - sliceRange.location)
    openmps::raise_argument(@"MTLTexture: sliceRange (%lu, %lu) is empty or ends beyond arrayLength (%lu).",
                            (unsigned long)sliceRange.location, (unsigned long)sliceRange.length,
                            (unsigned long)_arrayLength);
  if (textureType != MTLTextureType2DArray && !(textureType == MTLTextureType2D && sliceRange.length == 1))
    openmps::raise_argument(@"MTLTexture: textureType (%lu) cannot show %lu slices.", (unsigned long)textureType,
                            (unsigned long)sliceRange.length);
  const bool whole_images = sliceRange.location % _slices == 0 && sliceRange.length % _slices == 0;
  const bool one_image = sliceRange.location / _slices == (sliceRange.location + sliceRange.length - 1) / _slices;
  if (!whole_images && !one_image) openmps::raise_not_implemented(self, _cmd);

  MTLTextureOnEngine *view = [[MTLTextureOnEngine alloc] init];
  view->_device = _device;
  view->_memory = _memory;
  view->_options = _options;
  view->_purgeable = MTLPurgeableStateNonVolatile;
  view->_parent = openmps::Ref<id<MTLTexture>>(self);
  view->_parentSlice = sliceRange.location;
  view->_usage = _usage;
  view->_lanes = _lanes;
  view->_arrayLength = sliceRange.length;
  view->_type = textureType;
  view->_pixelFormat = pixelFormat;
  view->_textureUsage = _textureUsage;
  view->_swizzle = _swizzle;
  view->_optimized = _optimized;
  view->_readOnly = _readOnly;
  const auto image = static_cast<std::int64_t>(sliceRange.location / _slices);
  if (whole_images) {
    view->_slices = _slices;
    view->_view = _view.images(image, static_cast<std::int64_t>(sliceRange.length / _slices));
  } else {
    const auto first = static_cast<std::int64_t>(sliceRange.location % _slices * _lanes);
    const auto count = std::min(static_cast<std::int64_t>(sliceRange.length * _lanes), _view.c - first);
    view->_slices = sliceRange.length;
    view->_view = _view.images(image, 1).channels(first, count);
  }
  return view;
}

- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                    textureType:(MTLTextureType)textureType
                                         levels:(NSRange)levelRange
                                         slices:(NSRange)sliceRange
                                        swizzle:(MTLTextureSwizzleChannels)swizzle {
  if (!openmps::is_plain(swizzle)) openmps::raise_not_implemented(self, _cmd);
  return [self newTextureViewWithPixelFormat:pixelFormat textureType:textureType levels:levelRange slices:sliceRange];
}

@end

#define FIELD(TYPE, NAME, SETTER, MEMBER)                                     \
  -(TYPE)NAME {                                                               \
    return static_cast<openmps::TextureDescriptorState *>(_openmps)->MEMBER;  \
  }                                                                           \
  -(void)SETTER : (TYPE)value {                                               \
    static_cast<openmps::TextureDescriptorState *>(_openmps)->MEMBER = value; \
  }
// A field of resourceOptions.
#define OPTION(TYPE, NAME, SETTER, SHIFT, MASK)                                                     \
  -(TYPE)NAME {                                                                                     \
    return static_cast<TYPE>(([self resourceOptions] >> (SHIFT)) & (MASK));                         \
  }                                                                                                 \
  -(void)SETTER : (TYPE)value {                                                                     \
    const NSUInteger others = [self resourceOptions] & ~(static_cast<NSUInteger>(MASK) << (SHIFT)); \
    [self setResourceOptions:others | ((static_cast<NSUInteger>(value) & (MASK)) << (SHIFT))];      \
  }

@implementation MTLTextureDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::TextureDescriptorState;
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::TextureDescriptorState *>(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLTextureDescriptor *copy = [[[self class] allocWithZone:zone] init];
  *static_cast<openmps::TextureDescriptorState *>(copy->_openmps) =
      *static_cast<openmps::TextureDescriptorState *>(_openmps);
  return copy;
}

FIELD(MTLTextureType, textureType, setTextureType, type)
FIELD(MTLPixelFormat, pixelFormat, setPixelFormat, format)
FIELD(NSUInteger, width, setWidth, width)
FIELD(NSUInteger, height, setHeight, height)
FIELD(NSUInteger, depth, setDepth, depth)
FIELD(NSUInteger, mipmapLevelCount, setMipmapLevelCount, levels)
FIELD(NSUInteger, sampleCount, setSampleCount, samples)
FIELD(NSUInteger, arrayLength, setArrayLength, array_length)
FIELD(MTLResourceOptions, resourceOptions, setResourceOptions, options)
FIELD(MTLTextureUsage, usage, setUsage, usage)
FIELD(BOOL, allowGPUOptimizedContents, setAllowGPUOptimizedContents, optimized)
FIELD(MTLTextureSwizzleChannels, swizzle, setSwizzle, swizzle)
#undef FIELD
OPTION(MTLCPUCacheMode, cpuCacheMode, setCpuCacheMode, MTLResourceCPUCacheModeShift, 0xf)
OPTION(MTLStorageMode, storageMode, setStorageMode, MTLResourceStorageModeShift, 0xf)
OPTION(MTLHazardTrackingMode, hazardTrackingMode, setHazardTrackingMode, MTLResourceHazardTrackingModeShift, 0x3)
#undef OPTION

+ (MTLTextureDescriptor *)texture2DDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                       width:(NSUInteger)width
                                                      height:(NSUInteger)height
                                                   mipmapped:(BOOL)mipmapped {
  MTLTextureDescriptor *descriptor = [[[self alloc] init] autorelease];
  [descriptor setPixelFormat:pixelFormat];
  [descriptor setWidth:width];
  [descriptor setHeight:height];
  if (mipmapped) {
    NSUInteger levels = 1;
    for (NSUInteger extent = std::max(width, height); extent > 1; extent /= 2) ++levels;
    [descriptor setMipmapLevelCount:levels];
  }
  return descriptor;
}

+ (MTLTextureDescriptor *)textureCubeDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                          size:(NSUInteger)size
                                                     mipmapped:(BOOL)mipmapped {
  MTLTextureDescriptor *descriptor = [self texture2DDescriptorWithPixelFormat:pixelFormat
                                                                        width:size
                                                                       height:size
                                                                    mipmapped:mipmapped];
  [descriptor setTextureType:MTLTextureTypeCube];
  return descriptor;
}

+ (MTLTextureDescriptor *)textureBufferDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                           width:(NSUInteger)width
                                                 resourceOptions:(MTLResourceOptions)resourceOptions
                                                           usage:(MTLTextureUsage)usage {
  MTLTextureDescriptor *descriptor = [self texture2DDescriptorWithPixelFormat:pixelFormat
                                                                        width:width
                                                                       height:1
                                                                    mipmapped:NO];
  [descriptor setTextureType:MTLTextureTypeTextureBuffer];
  [descriptor setResourceOptions:resourceOptions];
  [descriptor setUsage:usage];
  return descriptor;
}

@end
