// SPDX-License-Identifier: Apache-2.0
// The kernels' interface to images, and images over the program's own memory.

#import "mps/ImageState.hh"

#include <algorithm>
#include <array>

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
  [own openmps_recorder];  // raises if it is not open for encoding
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

/// Return the bytes from the first element to the end of the last one. Raise for strides that do not fit.
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
  // Strides may have any order (a transposed array), but writable pixels must not overlap.
  if (!read_only) {
    std::sort(axes.begin(), axes.end(), [](const Axis &a, const Axis &b) { return a.step < b.step; });
    NSUInteger min_step = static_cast<NSUInteger>(view.c) * element;
    for (const Axis &axis : axes) {
      if (axis.extent == 1) continue;
      if (axis.step < min_step)
        raise_argument(@"MPSImage: %s (%lu) is less than %lu, so pixels overlap in memory that can be written.",
                       axis.name, (unsigned long)axis.step, (unsigned long)min_step);
      min_step += axis.step * (axis.extent - 1);  // the last row ends with its last pixel
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
  openmps::check_offered(self, _cmd);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSImage: device");
  openmps::ImageShape shape = openmps::check_image_descriptor("MPSImage", own, imageDescriptor);
  openmps::ImageView &view = shape.view;
  const NSUInteger element = openmps::size_of(view.format);
  if (bytes == nullptr) openmps::raise_argument(@"MPSImage: bytes is NULL.");
  if (reinterpret_cast<uintptr_t>(bytes) % element != 0)
    openmps::raise_argument(@"MPSImage: bytes (%p) is not aligned to an element (%lu bytes).", bytes,
                            (unsigned long)element);
  const std::size_t size = openmps::check_shared_strides(view, bytesPerPixel, bytesPerRow, bytesPerImage, readOnly);
  // Strides of axes of extent 1 are never used, but must not make the image look strided.
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
  state->has_no_slice_limit = shape.has_no_slice_limit;
  return [half.done() openmps_initWithState:state];
}

@end
