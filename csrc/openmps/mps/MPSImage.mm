// SPDX-License-Identifier: Apache-2.0
// Images: N x H x W x C in the engine's or the program's memory, allocated on first use [MPSImage.h].

#import "mps/ImageState.hh"

#include <algorithm>

#import "metal/MTLResourceOnEngine.hh"

namespace openmps {

NSString *describe(MPSImage *image) {
  const ImageState &state = [image openmps_state];
  NSString *label = state.label.get();
  return [NSString stringWithFormat:@"%@%s%@%s (%ld x %ld x %ld x %ld)", [image class], label ? " '" : "",
                                    label ? label : @"", label ? "'" : "", (long)state.view.n, (long)state.view.h,
                                    (long)state.view.w, (long)state.view.c];
}

ImageState *new_image_state(const char *who, id<OpenMPSDevice> device, const MPSImageDescriptor *descriptor) {
  ImageShape shape = check_image_descriptor(who, device, descriptor);
  auto *state = new ImageState;
  state->device = Ref<id<OpenMPSDevice>>(device);
  state->view = std::move(shape.view);
  state->view.memory = Memory::lazy_image([device openmps_engine], shape.bytes);
  state->format = shape.format;
  state->pixel_format = shape.pixel_format;
  state->texture_usage = shape.usage;
  state->storage_mode = shape.storage_mode;
  state->has_no_slice_limit = shape.has_no_slice_limit;
  if (is_copied(static_cast<MTLResourceOptions>(shape.storage_mode) << MTLResourceStorageModeShift))
    state->view.memory->separate_cpu_copy(kUnsynchronized);
  return state;
}

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
  state->has_no_slice_limit = from.has_no_slice_limit;
  return state;
}

}  // namespace openmps

@implementation MPSImage

OPENMPS_UNKNOWN_SELECTORS

+ (id<MPSImageAllocator>)defaultAllocator {
  return openmps::permanent_image_allocator();
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
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:imageDescriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device imageDescriptor:(const MPSImageDescriptor *)imageDescriptor {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSImage: device");
  openmps::ImageState *state = openmps::new_image_state("MPSImage", own, imageDescriptor);
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
  // The images of a view have the parent's stride, so they start where the parent's start.
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
    case openmps::Format::bfloat16: return 8;
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
  // A range that is too long is shortened [MPSImage.h].
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
  // Contents are never discarded; the volatile states permit it, but do not require it.
  if (state != MPSPurgeableStateKeepCurrent && state != MPSPurgeableStateAllocationDeferred) own.purgeable = state;
  return before;
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
  openmps::transfer(self, dataBytes, dataLayout, {0, bytesPerRow, 0}, region, featureChannelInfo, imageIndex, false);
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  openmps::transfer(self, const_cast<void *>(dataBytes), dataLayout, {0, bytesPerRow, 0}, region, featureChannelInfo,
                    imageIndex, true);
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
        bytesPerColumn:(NSUInteger)bytesPerColumn
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  openmps::transfer(self, const_cast<void *>(dataBytes), dataLayout, {bytesPerColumn, bytesPerRow, bytesPerImage},
                    region, featureChannelInfo, imageIndex, true);
}

- (void)readBytes:(void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  openmps::transfer(self, dataBytes, dataLayout, {0, bytesPerRow, bytesPerImage}, region, featureChannelInfo,
                    imageIndex, false);
}

- (void)writeBytes:(const void *)dataBytes
            dataLayout:(MPSDataLayout)dataLayout
           bytesPerRow:(NSUInteger)bytesPerRow
         bytesPerImage:(NSUInteger)bytesPerImage
                region:(MTLRegion)region
    featureChannelInfo:(MPSImageReadWriteParams)featureChannelInfo
            imageIndex:(NSUInteger)imageIndex {
  openmps::transfer(self, const_cast<void *>(dataBytes), dataLayout, {0, bytesPerRow, bytesPerImage}, region,
                    featureChannelInfo, imageIndex, true);
}

- (void)readBytes:(void *)dataBytes dataLayout:(MPSDataLayout)dataLayout imageIndex:(NSUInteger)imageIndex {
  const MPSImageReadWriteParams all = {0, [self featureChannels]};
  openmps::transfer(self, dataBytes, dataLayout, {}, [self openmps_bounds], all, imageIndex, false);
}

- (void)writeBytes:(const void *)dataBytes dataLayout:(MPSDataLayout)dataLayout imageIndex:(NSUInteger)imageIndex {
  const MPSImageReadWriteParams all = {0, [self featureChannels]};
  openmps::transfer(self, const_cast<void *>(dataBytes), dataLayout, {}, [self openmps_bounds], all, imageIndex, true);
}

- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  openmps::Recorder &recorder = [openmps::command_buffer_of(commandBuffer, "MPSImage: commandBuffer") openmps_recorder];
  if (const auto &memory = [self openmps_state].view.memory) openmps::synchronize(recorder, memory, @"MPSImage");
}

@end

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
