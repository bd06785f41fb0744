// SPDX-License-Identifier: Apache-2.0
// The kernels' interface to images, and images over the program's own memory.

#import "mps/ImageState.hh"

#include <algorithm>
#include <array>

#include "engine/engine.hpp"
#include "engine/plan/strided_copy.hpp"

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
  const auto release = [copy] {
    if (copy.get()) copy.get()();
  };
  const auto &engine = [own openmps_engine];
  state->view.memory = engine->image_storage() == openmps::Storage::device
                           ? openmps::Memory::wrap_device(engine, static_cast<std::byte *>(bytes), size, release)
                           : openmps::Memory::wrap(bytes, size, release);
  state->format = shape.format;
  state->pixel_format = shape.pixel_format;
  state->texture_usage = shape.usage;
  state->read_only = readOnly;
  state->has_no_slice_limit = shape.has_no_slice_limit;
  return [half.done() openmps_initWithState:state];
}

- (void *)deviceBytesWithStrides:(NSInteger *)strides {
  openmps::check_offered(self, _cmd);
  const openmps::ImageState &state = [self openmps_state];
  const openmps::ImageView view = [self openmps_view];
  if (state.usage->before_reading() != openmps::Usage::Blocker::none)
    openmps::check_cpu_may_read(*state.usage, openmps::describe(self));
  openmps::touch(view.memory, openmps::describe(self));
  const auto element = static_cast<std::int64_t>(openmps::size_of(view.format));
  strides[0] = view.n_stride * element;
  strides[1] = view.h_stride * element;
  strides[2] = view.w_stride * element;
  const auto &engine = [state.device.get() openmps_engine];
  openmps::raise_failure("MPSImage", openmps::failure_of([&] { engine->synchronize(); }));  // uploads
  openmps::wait_at_release(*view.memory, engine);
  return view.memory->address() + view.offset;
}

/// Check that the image can be copied now; return its pixels.
- (openmps::ImageView)openmps_viewForCopyIntoImage:(BOOL)intoImage {
  const openmps::ImageState &state = [self openmps_state];
  const openmps::ImageView view = [self openmps_view];
  if (intoImage && state.read_only)
    openmps::raise_usage(@"%@ is read-only and cannot be written.", openmps::describe(self));
  if (intoImage && state.usage->before_writing() != openmps::Usage::Blocker::none)
    openmps::check_cpu_may_write(*state.usage, openmps::describe(self));
  if (!intoImage && state.usage->before_reading() != openmps::Usage::Blocker::none)
    openmps::check_cpu_may_read(*state.usage, openmps::describe(self));
  return view;
}

- (void)copyDeviceBytes:(void *)bytes strides:(const NSInteger *)strides intoImage:(BOOL)intoImage {
  openmps::check_offered(self, _cmd);
  const openmps::ImageView view = [self openmps_viewForCopyIntoImage:intoImage];
  const auto element = static_cast<NSInteger>(openmps::size_of(view.format));
  const std::array<std::int64_t, 4> extents = {view.n, view.h, view.w, view.c};
  std::array<std::int64_t, 4> steps = {};
  std::int64_t reach = element;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (extents[axis] == 1) continue;
    if (strides[axis] <= 0 || strides[axis] % element != 0)
      openmps::raise_argument(@"%@: stride %ld of the array along axis %lu (N, H, W, C) is not a positive multiple of "
                              @"%ld bytes: pass a contiguous copy.",
                              openmps::describe(self), (long)strides[axis], (unsigned long)axis, (long)element);
    steps[axis] = strides[axis] / element;
    reach += strides[axis] * (extents[axis] - 1);
  }
  const auto &engine = [[self openmps_state].device.get() openmps_engine];
  const auto memory =
      openmps::Memory::wrap_device(engine, static_cast<std::byte *>(bytes), static_cast<std::size_t>(reach), [] {});
  openmps::raise_failure("MPSImage", openmps::copy_strided(*engine, view, memory, steps, intoImage));
}

- (BOOL)copyHostBytes:(void *)bytes strides:(const NSInteger *)strides intoImage:(BOOL)intoImage {
  openmps::check_offered(self, _cmd);
  const openmps::ImageState &state = [self openmps_state];
  if (state.temporary || state.storage_mode == MTLStorageModePrivate || state.view.memory->has_cpu_copy()) return NO;
  const openmps::ImageView view = [self openmps_viewForCopyIntoImage:intoImage];
  const auto element = static_cast<std::int64_t>(openmps::size_of(view.format));
  const std::array<std::int64_t, 4> extents = {view.n, view.h, view.w, view.c};
  std::array<std::size_t, 4> axes = {0, 1, 2, 3};
  std::sort(axes.begin(), axes.end(), [&](auto a, auto b) { return strides[a] < strides[b]; });
  std::array<std::int64_t, 4> steps = {};
  std::int64_t size = 1;
  for (const std::size_t axis : axes) {
    if (extents[axis] == 1) continue;
    if (strides[axis] != size * element) return NO;
    steps[axis] = size;
    size *= extents[axis];
  }
  const auto total = static_cast<std::size_t>(size * element);
  const auto &engine = [state.device.get() openmps_engine];
  const auto has_order_of = [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    const std::array<std::int64_t, 4> own = {n, h, w, c};
    return std::equal(own.begin(), own.end(), steps.begin(), [](auto a, auto b) { return b == 0 || a == b; });
  };
  const bool is_like = view.is_dense() && has_order_of(view.n_stride, view.h_stride, view.w_stride, 1);
  const auto memory = is_like ? view.memory : openmps::Memory::lazy_image(engine, total);
  const std::size_t offset = is_like ? view.offset : 0;
  const auto permute = [&] {
    if (!is_like) openmps::raise_failure("MPSImage", openmps::copy_strided(*engine, view, memory, steps, intoImage));
  };
  if (!intoImage) permute();
  openmps::raise_failure("MPSImage", openmps::failure_of([&] {
                           if (intoImage)
                             memory->upload(offset, total, bytes);
                           else
                             memory->download(offset, total, bytes);
                         }));
  if (intoImage) permute();
  return YES;
}

@end
