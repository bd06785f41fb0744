// SPDX-License-Identifier: Apache-2.0
// Images: N x H x W x C in the engine's or the program's memory, allocated on first use [MPSImage.h].

#import "mps/ImageState.hh"

#include <algorithm>
#include <array>
#include <cstring>

#import "metal/MTLResourceOnEngine.hh"
#include "metal/pixels.hpp"

namespace openmps {

NSString *describe(MPSImage *image) {
  const ImageState &state = [image openmps_state];
  NSString *label = state.label.get();
  return [NSString stringWithFormat:@"%@%s%@%s (%ld x %ld x %ld x %ld)", [image class], label ? " '" : "",
                                    label ? label : @"", label ? "'" : "", (long)state.view.n, (long)state.view.h,
                                    (long)state.view.w, (long)state.view.c];
}

namespace {

/// A transfer between an image and the program's buffer, checked and resolved.
struct Transfer {
  std::int64_t first_image = 0, images = 1, y = 0, x = 0, height = 0, width = 0;
  std::int64_t first_channel = 0, channels = 0;             ///< in the buffer; the image may have fewer
  std::size_t element = 0, column = 0, row = 0, image = 0;  ///< steps in the buffer, bytes
  bool planes = false;                                      ///< C x H x W
};

struct Strides {
  NSUInteger column = 0, row = 0, image = 0;  ///< as given; 0: dense
};

void check_layout(NSUInteger layout) {
  if (layout > MPSDataLayoutFeatureChannelsxHeightxWidth)
    raise_argument(@"MPSImage: dataLayout (%lu) is not 0 or 1.", (unsigned long)layout);
}

void check_step(const char *name, NSUInteger given, NSUInteger least, NSUInteger element, bool is_used) {
  if (is_used && given < least)
    raise_argument(@"MPSImage: %s (%lu) is less than what one takes (%lu).", name, (unsigned long)given,
                   (unsigned long)least);
  if (is_used && given % element != 0)
    raise_argument(@"MPSImage: %s (%lu) is not a multiple of the size of an element (%lu).", name, (unsigned long)given,
                   (unsigned long)element);
}

Transfer resolve(MPSImage *image, MPSDataLayout layout, Strides strides, MTLRegion region, MPSImageReadWriteParams info,
                 NSUInteger image_index) {
  const ImageView &view = [image openmps_state].view;
  check_layout(layout);
  const auto images = static_cast<NSUInteger>(view.n), width = static_cast<NSUInteger>(view.w);
  const auto height = static_cast<NSUInteger>(view.h), channels = static_cast<NSUInteger>(view.c);
  if (region.size.width == 0 || region.size.height == 0 || region.size.depth == 0)
    raise_argument(@"MPSImage: region.size (%lu x %lu x %lu) has an extent of 0.", (unsigned long)region.size.width,
                   (unsigned long)region.size.height, (unsigned long)region.size.depth);
  if (region.origin.x > width || region.size.width > width - region.origin.x || region.origin.y > height ||
      region.size.height > height - region.origin.y)
    raise_argument(@"MPSImage: region (%lu x %lu pixels at (%lu, %lu)) ends beyond width and height (%lu x %lu).",
                   (unsigned long)region.size.width, (unsigned long)region.size.height, (unsigned long)region.origin.x,
                   (unsigned long)region.origin.y, (unsigned long)width, (unsigned long)height);
  // unverified: imageIndex and origin.z both say where to start; they are added, as one of them is 0 in every program
  // seen.
  if (image_index >= images)
    raise_argument(@"MPSImage: imageIndex (%lu) is not less than numberOfImages (%lu).", (unsigned long)image_index,
                   (unsigned long)images);
  const NSUInteger left = images - image_index;
  if (region.origin.z > left || region.size.depth > left - region.origin.z)
    raise_argument(@"MPSImage: %lu images from imageIndex %lu + region.origin.z %lu end beyond numberOfImages (%lu).",
                   (unsigned long)region.size.depth, (unsigned long)image_index, (unsigned long)region.origin.z,
                   (unsigned long)images);
  const NSUInteger offset = info.featureChannelOffset, count = info.numberOfFeatureChannelsToReadWrite;
  const NSUInteger padded = (channels + 3) / 4 * 4;
  if (offset % 4 != 0)
    raise_argument(@"MPSImage: featureChannelOffset (%lu) is not a multiple of 4.", (unsigned long)offset);
  if (count == 0) raise_argument(@"MPSImage: numberOfFeatureChannelsToReadWrite (0) is less than the minimum (1).");
  if (offset != 0 && count % 4 != 0)
    raise_argument(@"MPSImage: numberOfFeatureChannelsToReadWrite (%lu) is not a multiple of 4, as it must be when "
                   @"featureChannelOffset (%lu) is not 0.",
                   (unsigned long)count, (unsigned long)offset);
  if (offset > padded || count > padded - offset)
    raise_argument(@"MPSImage: channels %lu to %lu end beyond featureChannels (%lu, padded to %lu).",
                   (unsigned long)offset, (unsigned long)(offset + count), (unsigned long)channels,
                   (unsigned long)padded);

  Transfer transfer;
  transfer.first_image = static_cast<std::int64_t>(image_index + region.origin.z);
  transfer.images = static_cast<std::int64_t>(region.size.depth);
  transfer.y = static_cast<std::int64_t>(region.origin.y);
  transfer.x = static_cast<std::int64_t>(region.origin.x);
  transfer.height = static_cast<std::int64_t>(region.size.height);
  transfer.width = static_cast<std::int64_t>(region.size.width);
  transfer.first_channel = static_cast<std::int64_t>(offset);
  transfer.channels = static_cast<std::int64_t>(count);
  transfer.element = size_of(view.format);
  transfer.planes = layout == MPSDataLayoutFeatureChannelsxHeightxWidth;

  const NSUInteger element = transfer.element, dense_column = transfer.planes ? element : count * element;
  transfer.column = strides.column ? strides.column : dense_column;
  check_step("bytesPerColumn", transfer.column, dense_column, element, region.size.width > 1);
  const auto columns = product({region.size.width - 1, transfer.column});
  const NSUInteger dense_row = columns ? *columns + dense_column : 0;
  if (!columns) raise_argument(@"MPSImage: bytesPerColumn (%lu) is too large.", (unsigned long)transfer.column);
  transfer.row = strides.row ? strides.row : dense_row;
  // One row moved: whatever bytesPerRow says does not matter [turicreate].
  const bool has_rows = region.size.height > 1 || (transfer.planes && count > 1);
  check_step("bytesPerRow", transfer.row, dense_row, element, has_rows);
  if (!has_rows) transfer.row = std::max<NSUInteger>(dense_row, element);
  const auto dense_image = product({transfer.row, region.size.height, transfer.planes ? count : 1});
  if (!dense_image) raise_argument(@"MPSImage: bytesPerRow (%lu) is too large.", (unsigned long)transfer.row);
  transfer.image = strides.image ? strides.image : *dense_image;
  const NSUInteger least_image = *dense_image - transfer.row + dense_row;
  check_step("bytesPerImage", transfer.image, least_image, element, region.size.depth > 1);
  if (region.size.depth > 1 && !product({transfer.image, region.size.depth}))
    raise_argument(@"MPSImage: bytesPerImage (%lu) is too large.", (unsigned long)transfer.image);
  return transfer;
}

/// 1 in the element's own format.
std::uint32_t one_of(Format format) {
  switch (format) {
    case Format::unorm8: return 0xff;
    case Format::unorm16: return 0xffff;
    case Format::float16: return 0x3c00;
    case Format::float32: return 0x3f800000;
  }
  return 0;
}

/// Moves the channels that the image has; `to_image` tells the direction.
void move(const Transfer &transfer, const ImageView &view, std::byte *data, std::byte *buffer, bool to_image) {
  const std::size_t element = transfer.element;
  const std::int64_t present = std::min(transfer.channels, view.c - transfer.first_channel);
  const auto height = static_cast<std::size_t>(transfer.height), width = static_cast<std::size_t>(transfer.width);
  for (std::int64_t i = 0; i < transfer.images; ++i) {
    const std::int64_t first = (transfer.first_image + i) * view.n_stride + transfer.y * view.h_stride +
                               transfer.x * view.w_stride + transfer.first_channel;
    const Pixels inside{data + view.offset + static_cast<std::size_t>(first) * element,
                        static_cast<std::size_t>(view.w_stride) * element,
                        static_cast<std::size_t>(view.h_stride) * element};
    std::byte *const outside = buffer + static_cast<std::size_t>(i) * transfer.image;
    if (transfer.planes) {
      const Planes planes{outside, transfer.column, transfer.row, transfer.row * height};
      const auto channels = static_cast<std::size_t>(present);
      if (to_image)
        planes_to_pixels(inside, planes, height, width, channels, element);
      else
        pixels_to_planes(planes, inside, height, width, channels, element);
    } else {
      const Pixels pixels{outside, transfer.column, transfer.row};
      const std::size_t bytes = static_cast<std::size_t>(present) * element;
      if (to_image)
        copy_pixels(inside, pixels, height, width, bytes);
      else
        copy_pixels(pixels, inside, height, width, bytes);
    }
    if (to_image || present == transfer.channels) continue;
    // Lanes beyond the channels: 0, but images of one and two channels show Metal's default texel (0, 0, 0, 1).
    for (std::int64_t lane = present; lane < transfer.channels; ++lane) {
      const std::uint32_t value = view.c <= 2 && lane == 3 ? one_of(view.format) : 0;
      if (transfer.planes) {
        std::byte *plane = outside + static_cast<std::size_t>(lane) * transfer.row * height;
        fill_elements({plane, transfer.column, transfer.row}, height, width, 0, 1, &value, element);
      } else {
        fill_elements({outside, transfer.column, transfer.row}, height, width, static_cast<std::size_t>(lane), 1,
                      &value, element);
      }
    }
  }
}

}  // namespace

ImageState *new_view_state(MPSImage *parent, const ImageView &view) {
  const ImageState &from = [parent openmps_state];
  auto *state = new ImageState;
  state->device = from.device;
  state->parent = Ref<MPSImage *>(parent);
  state->view = view;
  state->usage = from.usage;
  state->format = from.format;
  state->pixel_format = pixel_format_of(from.format, static_cast<NSUInteger>(view.c));
  state->texture_usage = from.texture_usage;
  state->storage_mode = from.storage_mode;
  state->read_only = from.read_only;
  return state;
}

}  // namespace openmps

/// The permanent images' allocator.
@interface MPSImageAllocatorOnEngine : NSObject<MPSImageAllocator>
@end

@implementation MPSImage

OPENMPS_UNKNOWN_SELECTORS

+ (id<MPSImageAllocator>)defaultAllocator {
  static MPSImageAllocatorOnEngine *const allocator = [[MPSImageAllocatorOnEngine alloc] init];
  return allocator;
}

- (openmps::ImageState &)openmps_state {
  return *static_cast<openmps::ImageState *>(_openmps);
}

- (instancetype)openmps_initWithState:(openmps::ImageState *)state {
  if ((self = [super init]))
    _openmps = state;
  else
    delete state;
  return self;
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_argument(@"-[%@ init] is unavailable; use -initWithDevice:imageDescriptor:.", [self class]);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device imageDescriptor:(const MPSImageDescriptor *)imageDescriptor {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSImage: device");
  openmps::ImageShape shape = openmps::check_image_descriptor("MPSImage", own, imageDescriptor);
  auto *state = new openmps::ImageState;
  state->device = openmps::Ref<id<OpenMPSDevice>>(own);
  state->view = std::move(shape.view);
  state->view.memory = openmps::Memory::lazy([own openmps_engine], shape.bytes);
  state->format = shape.format;
  state->pixel_format = shape.pixel_format;
  state->texture_usage = shape.usage;
  state->storage_mode = shape.storage_mode;
  return [half.done() openmps_initWithState:state];
}

- (instancetype)initWithTexture:(id<MTLTexture>)texture featureChannels:(NSUInteger)featureChannels {
  openmps::UnwindRelease half(self);
  id<OpenMPSTexture> own = openmps::texture_of(texture, "MPSImage: texture");
  if (featureChannels == 0) openmps::raise_argument(@"MPSImage: featureChannels (0) is less than the minimum (1).");
  const MPSImageFeatureChannelFormat format = openmps::channel_format_of([own pixelFormat]);
  const NSUInteger slices = featureChannels / 4 + (featureChannels % 4 != 0);
  if (slices > [own arrayLength])
    openmps::raise_argument(@"MPSImage: featureChannels (%lu) needs %lu slices, the texture's arrayLength is %lu.",
                            (unsigned long)featureChannels, (unsigned long)slices, (unsigned long)[own arrayLength]);
  const openmps::ImageView view = [own openmps_viewWithImages:[own arrayLength] / slices channels:featureChannels];
  auto *state = new openmps::ImageState;
  state->device = openmps::Ref<id<OpenMPSDevice>>(openmps::device_of([own device], "MPSImage: texture.device"));
  state->texture = openmps::Ref<id<MTLTexture>>(own);
  state->view = view;
  state->usage = [own openmps_usage];
  state->format = format;
  state->pixel_format = [own pixelFormat];
  state->texture_usage = [own usage];
  state->storage_mode = [own storageMode];
  state->read_only = ((MTLTextureOnEngine *)own)->_readOnly;
  return [half.done() openmps_initWithState:state];
}

- (instancetype)initWithParentImage:(MPSImage *)parent
                         sliceRange:(NSRange)sliceRange
                    featureChannels:(NSUInteger)featureChannels {
  openmps::UnwindRelease half(self);
  if (parent == nil) openmps::raise_argument(@"MPSImage: parent is nil.");
  if ([parent openmps_state].temporary)
    openmps::raise_argument(
        @"MPSImage: parent is temporary; -subImageWithFeatureChannelRange: and -batchRepresentation make "
        @"temporary views.");
  if (featureChannels == 0) openmps::raise_argument(@"MPSImage: featureChannels (0) is less than the minimum (1).");
  const openmps::ImageView view = [parent openmps_view];
  const auto per_image = static_cast<NSUInteger>((view.c + 3) / 4), total = per_image * static_cast<NSUInteger>(view.n);
  const NSUInteger needed = featureChannels / 4 + (featureChannels % 4 != 0);
  if (sliceRange.length == 0 || sliceRange.location > total || sliceRange.length > total - sliceRange.location)
    openmps::raise_argument(@"MPSImage: sliceRange (%lu, %lu) is empty or ends beyond the parent's slices (%lu).",
                            (unsigned long)sliceRange.location, (unsigned long)sliceRange.length, (unsigned long)total);
  if (sliceRange.length % needed != 0)
    openmps::raise_argument(
        @"MPSImage: sliceRange.length (%lu) is not a multiple of the slices of %lu featureChannels (%lu).",
        (unsigned long)sliceRange.length, (unsigned long)featureChannels, (unsigned long)needed);
  const auto image = static_cast<std::int64_t>(sliceRange.location / per_image);
  const auto first = static_cast<std::int64_t>(sliceRange.location % per_image * 4);
  const auto images = static_cast<std::int64_t>(sliceRange.length / needed);
  const auto channels = static_cast<std::int64_t>(featureChannels);
  // Several images of a view follow each other as the parent's do, so they start where the parent's start.
  if (images > 1 && (first != 0 || needed != per_image))
    openmps::raise_argument(
        @"MPSImage: sliceRange (%lu, %lu) is not made of whole images of the parent (%lu slices each).",
        (unsigned long)sliceRange.location, (unsigned long)sliceRange.length, (unsigned long)per_image);
  if (first + channels > view.c)
    openmps::raise_argument(@"MPSImage: featureChannels (%lu) from channel %ld on end beyond the parent's (%ld).",
                            (unsigned long)featureChannels, (long)first, (long)view.c);
  auto *state = openmps::new_view_state(parent, view.images(image, images).channels(first, channels));
  return [half.done() openmps_initWithState:state];
}

- (void)dealloc {
  delete static_cast<openmps::ImageState *>(_openmps);
  [super dealloc];
}

- (id<MTLDevice>)device {
  return [self openmps_state].device.get();
}

- (NSUInteger)width {
  return static_cast<NSUInteger>([self openmps_state].view.w);
}

- (NSUInteger)height {
  return static_cast<NSUInteger>([self openmps_state].view.h);
}

- (NSUInteger)featureChannels {
  return static_cast<NSUInteger>([self openmps_state].view.c);
}

- (NSUInteger)numberOfImages {
  return static_cast<NSUInteger>([self openmps_state].view.n);
}

- (MTLTextureType)textureType {
  const openmps::ImageView &view = [self openmps_state].view;
  return view.n == 1 && view.c <= 4 ? MTLTextureType2D : MTLTextureType2DArray;
}

- (MTLPixelFormat)pixelFormat {
  return [self openmps_state].pixel_format;
}

- (MPSImageFeatureChannelFormat)featureChannelFormat {
  return [self openmps_state].format;
}

- (NSUInteger)precision {
  switch ([self openmps_state].view.format) {
    case openmps::Format::unorm8: return 8;
    case openmps::Format::unorm16: return 16;
    case openmps::Format::float16: return 11;
    case openmps::Format::float32: return 24;
  }
  return 0;
}

- (MTLTextureUsage)usage {
  return [self openmps_state].texture_usage;
}

- (size_t)pixelSize {
  const openmps::ImageView &view = [self openmps_state].view;
  return openmps::lanes_of(static_cast<NSUInteger>(view.c)) * openmps::size_of(view.format);
}

- (id<MTLTexture>)texture {
  openmps::ImageState &state = [self openmps_state];
  if (!state.texture) {
    const openmps::ImageView view = [self openmps_view];
    state.texture = openmps::Ref<id<MTLTexture>>::adopt(
        openmps::new_texture(state.device.get(), view, state.pixel_format, state.texture_usage, state.usage));
    MTLTextureOnEngine *own = (MTLTextureOnEngine *)state.texture.get();
    own->_options = static_cast<MTLResourceOptions>(state.storage_mode) << MTLResourceStorageModeShift;
    own->_readOnly = state.read_only;
  }
  return state.texture.get();
}

- (NSString *)label {
  return [self openmps_state].label.get();
}

- (void)setLabel:(NSString *)label {
  openmps::ImageState &state = [self openmps_state];
  state.label.set(label);
  if (state.temporary) state.temporary->label = label ? [[NSString stringWithFormat:@"'%@'", label] UTF8String] : "";
}

- (MPSImage *)parent {
  return [self openmps_state].parent.get();
}

- (MPSImage *)openmps_imageWithView:(const openmps::ImageView &)view {
  return [[[MPSImage alloc] openmps_initWithState:openmps::new_view_state(self, view)] autorelease];
}

- (MPSImageBatch *)batchRepresentationWithSubRange:(NSRange)subRange {
  const openmps::ImageView view = [self openmps_view];
  const auto images = static_cast<NSUInteger>(view.n);
  if (subRange.length == 0 || subRange.location > images || subRange.length > images - subRange.location)
    openmps::raise_argument(@"MPSImage: subRange (%lu, %lu) is empty or ends beyond numberOfImages (%lu).",
                            (unsigned long)subRange.location, (unsigned long)subRange.length, (unsigned long)images);
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:subRange.length];
  for (NSUInteger i = 0; i < subRange.length; ++i)
    [batch addObject:[self openmps_imageWithView:view.images(static_cast<std::int64_t>(subRange.location + i), 1)]];
  return batch;
}

- (MPSImageBatch *)batchRepresentation {
  return [self batchRepresentationWithSubRange:NSMakeRange(0, [self numberOfImages])];
}

- (MPSImage *)subImageWithFeatureChannelRange:(NSRange)range {
  const openmps::ImageView view = [self openmps_view];
  const auto channels = static_cast<NSUInteger>(view.c);
  if (range.location % 4 != 0)
    openmps::raise_argument(@"MPSImage: range.location (%lu) is not a multiple of 4.", (unsigned long)range.location);
  if (range.length == 0 || range.length % 4 != 0)
    openmps::raise_argument(@"MPSImage: range.length (%lu) is not a multiple of 4 that is at least 4.",
                            (unsigned long)range.length);
  if (range.location >= channels)
    openmps::raise_argument(@"MPSImage: range.location (%lu) is not less than featureChannels (%lu).",
                            (unsigned long)range.location, (unsigned long)channels);
  // Too long is shortened [MPSImage.h].
  const NSUInteger length = std::min(range.length, channels - range.location);
  return [self openmps_imageWithView:view.channels(static_cast<std::int64_t>(range.location),
                                                   static_cast<std::int64_t>(length))];
}

- (NSUInteger)resourceSize {
  const openmps::ImageState &state = [self openmps_state];
  return state.view.memory ? state.view.memory->size() : 0;
}

- (MPSPurgeableState)setPurgeableState:(MPSPurgeableState)state {
  if (state > MPSPurgeableStateEmpty)
    openmps::raise_argument(@"MPSImage: state (%lu) is more than the maximum (4).", (unsigned long)state);
  openmps::ImageState &own = [self openmps_state];
  if (!own.view.memory || !own.view.memory->is_allocated()) return MPSPurgeableStateAllocationDeferred;
  const MPSPurgeableState before = own.purgeable;
  // Contents are never discarded, which the volatile states permit.
  if (state != MPSPurgeableStateKeepCurrent && state != MPSPurgeableStateAllocationDeferred) own.purgeable = state;
  return before;
}

- (void)openmps_transfer:(void *)bytes
                  layout:(MPSDataLayout)layout
                 strides:(openmps::Strides)strides
                  region:(MTLRegion)region
                    info:(MPSImageReadWriteParams)info
                   index:(NSUInteger)index
                 toImage:(BOOL)toImage {
  const openmps::ImageState &state = [self openmps_state];
  if (state.temporary)
    openmps::raise_usage(@"%@ is temporary: its storage is private and the CPU has no access.",
                         openmps::describe(self));
  if (state.storage_mode == MTLStorageModePrivate)
    openmps::raise_usage(@"%@ has storageMode private (2): the CPU has no access.", openmps::describe(self));
  if (bytes == nullptr) openmps::raise_argument(@"MPSImage: dataBytes is NULL.");
  const openmps::Transfer transfer = openmps::resolve(self, layout, strides, region, info, index);
  if (toImage) {
    if (state.read_only) openmps::raise_usage(@"%@ is read-only and cannot be written.", openmps::describe(self));
    if (state.usage->before_writing() != openmps::Usage::Blocker::none)
      openmps::check_cpu_may_write(*state.usage, openmps::describe(self));
  } else if (state.usage->before_reading() != openmps::Usage::Blocker::none) {
    openmps::check_cpu_may_read(*state.usage, openmps::describe(self));
  }
  std::byte *data = openmps::touch(state.view.memory, @"MPSImage");
  openmps::move(transfer, state.view, data, static_cast<std::byte *>(bytes), toImage);
}

- (MTLRegion)openmps_bounds {
  return MTLRegionMake3D(0, 0, 0, [self width], [self height], 1);
}

- (void)readBytes:(void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:dataBytes
                  layout:dataLayout
                 strides:{0, bytesPerRow, 0}
                  region:region
                    info:featureChannelInfo
                   index:imageIndex
                 toImage:NO];
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:const_cast<void *>(dataBytes)
                  layout:dataLayout
                 strides:{0, bytesPerRow, 0}
                  region:region
                    info:featureChannelInfo
                   index:imageIndex
                 toImage:YES];
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
        bytesPerColumn:(NSUInteger)bytesPerColumn
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:const_cast<void *>(dataBytes)
                  layout:dataLayout
                 strides:{bytesPerColumn, bytesPerRow, bytesPerImage}
                  region:region
                    info:featureChannelInfo
                   index:imageIndex
                 toImage:YES];
}

- (void)readBytes:(void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:dataBytes
                  layout:dataLayout
                 strides:{0, bytesPerRow, bytesPerImage}
                  region:region
                    info:featureChannelInfo
                   index:imageIndex
                 toImage:NO];
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:const_cast<void *>(dataBytes)
                  layout:dataLayout
                 strides:{0, bytesPerRow, bytesPerImage}
                  region:region
                    info:featureChannelInfo
                   index:imageIndex
                 toImage:YES];
}

- (void)readBytes:(void *)dataBytes dataLayout:(MPSDataLayout)dataLayout imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:dataBytes
                  layout:dataLayout
                 strides:{}
                  region:[self openmps_bounds]
                    info:{0, [self featureChannels]}
                   index:imageIndex
                 toImage:NO];
}

- (void)writeBytes:(const void *)dataBytes dataLayout:(MPSDataLayout)dataLayout imageIndex:(NSUInteger)imageIndex {
  [self openmps_transfer:const_cast<void *>(dataBytes)
                  layout:dataLayout
                 strides:{}
                  region:[self openmps_bounds]
                    info:{0, [self featureChannels]}
                   index:imageIndex
                 toImage:YES];
}

// Memory is shared between CPU and engine: nothing to copy.
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  [openmps::command_buffer_of(commandBuffer, "MPSImage: commandBuffer") openmps_recorder];
}

@end

@implementation MPSImage (Engine)

- (openmps::ImageView)openmps_view {
  const openmps::ImageState &state = [self openmps_state];
  if (!state.view.memory)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", openmps::describe(self));
  return state.view;
}

- (id<OpenMPSCommandBuffer>)openmps_willUseOn:(id<MTLCommandBuffer>)buffer {
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(buffer, "MPSImage: commandBuffer");
  const openmps::ImageState &state = [self openmps_state];
  [own openmps_recorder];  // raises when it may not be encoded to
  if (state.temporary) {
    if (state.temporary->read_count == 0)
      openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", openmps::describe(self));
    if (state.scope != [own openmps_temporaries])
      openmps::raise_usage(
          @"%@ belongs to another command buffer: a temporary image lives on the one that it was made for.",
          openmps::describe(self));
  }
  if ([own device] != state.device.get())
    openmps::raise_argument(@"%@ belongs to another device than the command buffer.", openmps::describe(self));
  return own;
}

- (void)openmps_willReadOn:(id<MTLCommandBuffer>)buffer {
  id<OpenMPSCommandBuffer> own = [self openmps_willUseOn:buffer];
  const openmps::ImageState &state = [self openmps_state];
  if (!(state.texture_usage & MTLTextureUsageShaderRead) && state.texture_usage != MTLTextureUsageUnknown)
    openmps::raise_argument(@"%@: usage (%lu) lacks MTLTextureUsageShaderRead (1), so no kernel may read it.",
                            openmps::describe(self), (unsigned long)state.texture_usage);
  if (!state.temporary) state.usage->read_by([own openmps_completion]);
}

- (void)openmps_willWriteOn:(id<MTLCommandBuffer>)buffer {
  id<OpenMPSCommandBuffer> own = [self openmps_willUseOn:buffer];
  const openmps::ImageState &state = [self openmps_state];
  if (state.read_only) openmps::raise_usage(@"%@ is read-only and cannot be written.", openmps::describe(self));
  if (!(state.texture_usage & MTLTextureUsageShaderWrite) && state.texture_usage != MTLTextureUsageUnknown)
    openmps::raise_argument(@"%@: usage (%lu) lacks MTLTextureUsageShaderWrite (2), so no kernel may write it.",
                            openmps::describe(self), (unsigned long)state.texture_usage);
  if (!state.temporary) state.usage->written_by([own openmps_completion]);
}

- (void)openmps_didRead {
}

@end

namespace openmps {
namespace {

/// Bytes from the first to behind the last element of the view; raises for strides that do not fit.
std::size_t check_shared_strides(const ImageView &view, NSUInteger per_pixel, NSUInteger per_row, NSUInteger per_image,
                                 bool read_only) {
  const NSUInteger element = size_of(view.format);
  struct Axis {
    const char *name;
    NSUInteger step, extent;
  };
  std::array<Axis, 3> axes = {{{"bytesPerPixel", per_pixel, static_cast<NSUInteger>(view.w)},
                               {"bytesPerRow", per_row, static_cast<NSUInteger>(view.h)},
                               {"bytesPerImage", per_image, static_cast<NSUInteger>(view.n)}}};
  std::uint64_t end = static_cast<NSUInteger>(view.c) * element;
  for (const Axis &axis : axes) {
    if (axis.extent == 1) continue;
    if (axis.step == 0 || axis.step % element != 0)
      raise_argument(@"MPSImage: %s (%lu) is not a positive multiple of the size of an element (%lu).", axis.name,
                     (unsigned long)axis.step, (unsigned long)element);
    const auto reach = product({axis.step, axis.extent - 1});
    if (!reach || __builtin_add_overflow(end, *reach, &end) || end > static_cast<std::uint64_t>(INT64_MAX))
      raise_argument(@"MPSImage: %s (%lu) x %lu is too large.", axis.name, (unsigned long)axis.step,
                     (unsigned long)axis.extent);
  }
  // Rows may be closer than columns (a transposed array), but what can be written may not overlap.
  if (!read_only) {
    std::sort(axes.begin(), axes.end(), [](const Axis &a, const Axis &b) { return a.step < b.step; });
    NSUInteger least = static_cast<NSUInteger>(view.c) * element;
    for (const Axis &axis : axes) {
      if (axis.extent == 1) continue;
      if (axis.step < least)
        raise_argument(@"MPSImage: %s (%lu) is less than %lu, so pixels overlap in memory that can be written.",
                       axis.name, (unsigned long)axis.step, (unsigned long)least);
      least += axis.step * (axis.extent - 1);  // the last row ends with its last pixel
    }
  }
  return end;
}

}  // namespace
}  // namespace openmps

@implementation MPSImage (OpenMPSSharing)

- (instancetype)initWithDevice:(id<MTLDevice>)device
               imageDescriptor:(const MPSImageDescriptor *)imageDescriptor
                   bytesNoCopy:(void *)bytes
                 bytesPerPixel:(NSUInteger)bytesPerPixel
                   bytesPerRow:(NSUInteger)bytesPerRow
                 bytesPerImage:(NSUInteger)bytesPerImage
                      readOnly:(BOOL)readOnly
                   deallocator:(void (^)(void))deallocator {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSImage: device");
  openmps::ImageShape shape = openmps::check_image_descriptor("MPSImage", own, imageDescriptor);
  openmps::ImageView &view = shape.view;
  const NSUInteger element = openmps::size_of(view.format);
  if (bytes == nullptr) openmps::raise_argument(@"MPSImage: bytes is NULL.");
  if (reinterpret_cast<uintptr_t>(bytes) % element != 0)
    openmps::raise_argument(@"MPSImage: bytes (%p) is not aligned to an element (%lu bytes).", bytes,
                            (unsigned long)element);
  const std::size_t size = openmps::check_shared_strides(view, bytesPerPixel, bytesPerRow, bytesPerImage, readOnly);
  // Strides of single pixels, rows and images are never used, but must not look like gaps.
  view.w_stride = view.w == 1 ? view.c : static_cast<std::int64_t>(bytesPerPixel / element);
  view.h_stride = view.h == 1 ? view.w * view.w_stride : static_cast<std::int64_t>(bytesPerRow / element);
  view.n_stride = view.n == 1 ? view.h * view.h_stride : static_cast<std::int64_t>(bytesPerImage / element);
  auto *state = new openmps::ImageState;
  state->device = openmps::Ref<id<OpenMPSDevice>>(own);
  state->view = std::move(view);
  const openmps::Block<void (^)(void)> copy(deallocator);
  state->view.memory = openmps::Memory::wrap(bytes, size, [copy] {
    if (copy.get()) copy.get()();
  });
  state->format = shape.format;
  state->pixel_format = shape.pixel_format;
  state->texture_usage = shape.usage;
  state->read_only = readOnly;
  return [half.done() openmps_initWithState:state];
}

@end

@implementation MPSImageAllocatorOnEngine

OPENMPS_UNKNOWN_SELECTORS

+ (BOOL)supportsSecureCoding {
  return YES;
}

// One object without properties: an archive holds its class only.
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}

- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}

- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel {
  (void)kernel;
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(cmdBuf, "MPSImageAllocator: cmdBuf");
  return [[[MPSImage alloc] initWithDevice:[own device] imageDescriptor:descriptor] autorelease];
}

- (MPSImageBatch *)imageBatchForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              imageDescriptor:(MPSImageDescriptor *)descriptor
                                       kernel:(MPSKernel *)kernel
                                        count:(NSUInteger)count {
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i)
    [batch addObject:[self imageForCommandBuffer:cmdBuf imageDescriptor:descriptor kernel:kernel]];
  return batch;
}

@end

NSInteger MPSImageBatchIterate(MPSImageBatch *batch, NSInteger (^iteratorBlock)(MPSImage *, NSUInteger)) {
  if (iteratorBlock == nil) openmps::raise_argument(@"MPSImageBatchIterate: iteratorBlock is nil.");
  // Stops at the first answer other than 0 and passes it on.
  const NSUInteger count = [batch count];
  for (NSUInteger i = 0; i < count; ++i) {
    const NSInteger answer = iteratorBlock([batch objectAtIndex:i], i);
    if (answer != 0) return answer;
  }
  return 0;
}

void MPSImageBatchSynchronize(MPSImageBatch *batch, id<MTLCommandBuffer> cmdBuf) {
  for (MPSImage *image in batch) [image synchronizeOnCommandBuffer:cmdBuf];
}

NSUInteger MPSImageBatchResourceSize(MPSImageBatch *batch) {
  NSUInteger sum = 0;
  for (MPSImage *image in [NSSet setWithArray:batch]) sum += [image resourceSize];
  return sum;
}

MPSImageType MPSGetImageType(MPSImage *image) {
  if (image == nil) openmps::raise_argument(@"MPSGetImageType: image is nil.");
  uint32_t type = 0;
  if ([image featureChannels] > 4) type |= MPSImageType_ArrayMask;
  if ([image numberOfImages] > 1) type |= MPSImageType_BatchMask;
  if (openmps::lanes_of([image featureChannels]) < 4) type |= MPSImageType_noAlpha;
  switch ([image featureChannelFormat]) {
    case MPSImageFeatureChannelFormatUnorm8: type |= MPSImageType_texelFormatUnorm8; break;
    case MPSImageFeatureChannelFormatFloat16: type |= MPSImageType_texelFormatFloat16; break;
    default: type |= MPSImageType_texelFormatStandard; break;
  }
  return static_cast<MPSImageType>(type);
}
