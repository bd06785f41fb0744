// SPDX-License-Identifier: Apache-2.0
// Reads and writes of arrays by the CPU, and copies to and from buffers and images on a command buffer [MPSNDArray.h].

#import "mps/MPSNDArray+Engine.hh"

#include <algorithm>

#include "engine/problem/problem.hpp"
#include "engine/shared/strided.hpp"
#import "mps/ImageState.hh"
#import "mps/MPSCNNKernel+Engine.hh"
#import "mps/MPSMatrix+Engine.hh"

namespace openmps {

namespace {

/// Return the axes of a copy, without those along which the elements of dst have one place: the last one stays there.
/// `src_offset` is advanced to it.
std::vector<CopyAxis> axes_of(const ArrayLayout &src, const ArrayLayout &dst, std::int64_t *src_offset) {
  std::vector<CopyAxis> axes;
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) {
    const auto length = static_cast<std::int64_t>(src.lengths[i]);
    if (dst.strides[i] == 0)
      *src_offset += (length - 1) * src.strides[i];
    else if (length > 1)
      axes.push_back({length, src.strides[i], dst.strides[i]});
  }
  return axes;
}

void check_types(ElementType a, ElementType b) {
  if (a != b && (is_complex(a) || is_complex(b)))
    raise_argument(@"MPSNDArray: complex numbers are not converted to another type.");
}

/// Return the same elements as bytes of the caller: packed, or with these strides in bytes from dimension `first` on.
ArrayLayout outside(const ArrayLayout &array, MPSDataType type, const NSInteger *strides, NSUInteger first) {
  ArrayLayout layout = array;
  layout.type = type;
  layout.offset = 0;
  auto stride = static_cast<std::int64_t>(element_size(type));
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) {
    layout.strides[i] = strides != nullptr && i >= first && i < array.count ? strides[i - first] : stride;
    stride *= static_cast<std::int64_t>(array.lengths[i]);
  }
  return layout;
}

/// Return an image as an array of channels, columns, rows and images, from a pixel and a channel on.
ArrayLayout layout_of(const ImageView &view, const ArrayLayout &array, MPSImageCoordinate offset, NSUInteger images) {
  ArrayLayout layout = array;
  const auto element = static_cast<std::int64_t>(size_of(view.format));
  layout.lengths[3] = images;
  layout.strides[0] = element;
  layout.strides[1] = view.w_stride * element;
  layout.strides[2] = view.h_stride * element;
  layout.strides[3] = view.n_stride * element;
  layout.offset = static_cast<std::int64_t>(view.offset) + static_cast<std::int64_t>(offset.channel) * element +
                  static_cast<std::int64_t>(offset.x) * layout.strides[1] +
                  static_cast<std::int64_t>(offset.y) * layout.strides[2];
  return layout;
}

/// Return the type of an image's channels. Integers of the same size as unorm channels are copied as they are stored,
/// as by MPSImageCopyToMatrix.
ElementType channel_type(Format format, ElementType of_array) {
  switch (format) {
    case Format::unorm8: return of_array == ElementType::uint8 ? ElementType::uint8 : ElementType::unorm8;
    case Format::unorm16: return of_array == ElementType::uint16 ? ElementType::uint16 : ElementType::unorm16;
    case Format::float16: return ElementType::float16;
    case Format::float32: return ElementType::float32;
    case Format::bfloat16: return ElementType::bfloat16;
  }
  return ElementType::float32;
}

StridedCopyProblem problem_of(const std::shared_ptr<Memory> &src, const ArrayLayout &src_layout, ElementType src_type,
                              const std::shared_ptr<Memory> &dst, const ArrayLayout &dst_layout, ElementType dst_type) {
  check_types(src_type, dst_type);
  StridedCopyProblem problem;
  std::int64_t src_offset = src_layout.offset;
  problem.axes = axes_of(src_layout, dst_layout, &src_offset);
  problem.src = src, problem.dst = dst;
  problem.src_offset = static_cast<std::size_t>(src_offset);
  problem.dst_offset = static_cast<std::size_t>(dst_layout.offset);
  problem.src_type = src_type, problem.dst_type = dst_type;
  return problem;
}

}  // namespace

void check_conversion(MPSDataType from, MPSDataType to) {
  check_types(element_type("MPSNDArray", from), element_type("MPSNDArray", to));
}

StridedCopyProblem copy_problem(const std::shared_ptr<Memory> &src, const ArrayLayout &src_layout,
                                const std::shared_ptr<Memory> &dst, const ArrayLayout &dst_layout) {
  return problem_of(src, src_layout, element_type("MPSNDArray", src_layout.type), dst, dst_layout,
                    element_type("MPSNDArray", dst_layout.type));
}

void transfer(MPSNDArray *array, void *bytes, const NSInteger *strides, bool to_array) {
  const ArrayState &state = [array openmps_state];
  const std::shared_ptr<Memory> &memory = memory_of(array);
  if (state.temporary)
    raise_usage(@"%@ is temporary: its storage is private and the CPU has no access.", describe(array));
  if ([state.buffer.get() storageMode] == MTLStorageModePrivate)
    raise_usage(@"%@ is on a buffer whose storageMode is private (2): the CPU has no access.", describe(array));
  if (bytes == nullptr) raise_argument(@"MPSNDArray: buffer is NULL.");
  const ArrayLayout &layout = state.layout;
  const ArrayLayout caller = outside(layout, layout.type, strides, 0);
  range_of("MPSNDArray: strideBytes", caller);
  const ElementType type = element_type("MPSNDArray", layout.type);
  auto *const theirs = static_cast<std::byte *>(bytes);
  // `ours`: the byte at layout.offset.
  const auto move = [&](std::byte *ours) {
    std::int64_t skipped = 0;
    if (to_array) {
      const auto axes = axes_of(caller, layout, &skipped);
      copy_strided(ours, type, theirs + skipped, type, axes);
    } else {
      const auto axes = axes_of(layout, caller, &skipped);
      copy_strided(theirs, type, ours + skipped, type, axes);
    }
  };
  if (to_array)
    check_cpu_may_write(*state.usage, describe(array));
  else
    check_cpu_may_read(*state.usage, describe(array));
  if (memory->has_cpu_copy()) move(touch_cpu(memory, @"MPSNDArray") + layout.offset);
  // Writes update both copies, reads only use the CPU's, as for images.
  if (memory->has_cpu_copy() && !to_array) return;
  const ByteRange range = range_of("MPSNDArray", layout);
  const auto first = static_cast<std::size_t>(layout.offset + range.begin);
  const HostAccess access(memory, first, static_cast<std::size_t>(range.end - range.begin),
                          to_array ? HostAccess::Mode::update : HostAccess::Mode::read);
  move(checked_data(access, memory, @"MPSNDArray") - range.begin);
}

void encode_transfer(MPSNDArray *array, id<MTLCommandBuffer> commands, id<MTLBuffer> buffer, MPSDataType type,
                     NSUInteger offset, const NSInteger *row_strides, bool to_array) {
  Recorder &recorder = recorder_for(array, commands);
  const ArrayState &state = [array openmps_state];
  id<OpenMPSBuffer> own = buffer_of(buffer, "MPSNDArray: buffer");
  element_type("MPSNDArray", type);
  ArrayLayout theirs = outside(state.layout, type, row_strides, 1);
  const ByteRange range = range_of("MPSNDArray: rowStrides", theirs);
  const auto length = static_cast<std::int64_t>([own length]);
  if (offset > static_cast<NSUInteger>(length) || range.begin < -static_cast<std::int64_t>(offset) ||
      range.end > length - static_cast<std::int64_t>(offset))
    raise_argument(@"MPSNDArray: the elements take bytes %ld to %ld of the buffer, from offset %lu; its length is %ld.",
                   (long)(range.begin + static_cast<std::int64_t>(offset)),
                   (long)(range.end + static_cast<std::int64_t>(offset)), (unsigned long)offset, (long)length);
  theirs.offset = static_cast<std::int64_t>(offset);
  const std::shared_ptr<Memory> &memory = memory_of(array), &other = [own openmps_memory];
  const ByteRange ours = range_of("MPSNDArray", state.layout);
  if (memory == other && theirs.offset + range.begin < state.layout.offset + ours.end &&
      state.layout.offset + ours.begin < theirs.offset + range.end)
    raise_argument(@"MPSNDArray: bytes %ld to %ld of the buffer are in use by %@ itself.",
                   (long)(theirs.offset + range.begin), (long)(theirs.offset + range.end), describe(array));
  if (to_array) {
    recorder.append(copy_problem(other, theirs, memory, state.layout), "MPSNDArray importData");
    state.usage->written_by(recorder.completion());
  } else {
    recorder.append(copy_problem(memory, state.layout, other, theirs), "MPSNDArray exportData");
    state.usage->read_by(recorder.completion());
    [array openmps_didRead];
  }
}

void encode_transfer(MPSNDArray *array, id<MTLCommandBuffer> commands, MPSImageBatch *images, MPSImageCoordinate offset,
                     bool to_array) {
  Recorder &recorder = recorder_for(array, commands);
  const ArrayState &state = [array openmps_state];
  const ArrayLayout &layout = state.layout;
  for (NSUInteger i = 4; i < layout.count; ++i)
    if (layout.lengths[i] != 1)
      raise_argument(
          @"MPSNDArray: dimension %lu of %@ has the length %lu, not 1: images have four dimensions (channels, "
          @"width, height, images).",
          (unsigned long)i, describe(array), (unsigned long)layout.lengths[i]);
  if (offset.channel % 4 != 0)
    raise_argument(@"MPSNDArray: offset.channel (%lu) is not a multiple of 4.", (unsigned long)offset.channel);
  const auto &lengths = layout.lengths;
  const ElementType type = element_type("MPSNDArray", layout.type);
  std::vector<Problem> problems;
  std::vector<MPSImage *> read;
  NSUInteger done = 0;
  for (MPSImage *image in images) {
    const ImageView view = [image openmps_view];
    const auto check = [&](const char *name, NSUInteger first, NSUInteger length, std::int64_t of_image) {
      const auto limit = static_cast<NSUInteger>(of_image);
      if (first > limit || length > limit - first)
        raise_argument(@"MPSNDArray: %lu %s of %@ from offset %lu on end beyond the %lu of %@.", (unsigned long)length,
                       name, describe(array), (unsigned long)first, (unsigned long)limit, describe(image));
    };
    check("channels", offset.channel, lengths[0], view.c);
    check("columns", offset.x, lengths[1], view.w);
    check("rows", offset.y, lengths[2], view.h);
    const auto count = static_cast<NSUInteger>(view.n);
    ArrayLayout part = layout;
    part.lengths[3] = count;
    part.offset += static_cast<std::int64_t>(done) * layout.strides[3];
    done += count;
    if (done > lengths[3]) break;
    const ArrayLayout of_image = layout_of(view, layout, offset, count);
    const ElementType channel = channel_type(view.format, type);
    const std::shared_ptr<Memory> &memory = memory_of(array);
    problems.push_back(to_array ? problem_of(view.memory, of_image, channel, memory, part, type)
                                : problem_of(memory, part, type, view.memory, of_image, channel));
  }
  if (done != lengths[3])
    raise_argument(@"MPSNDArray: images has %lu images%s, %@ has %lu in dimension 3.", (unsigned long)done,
                   done > lengths[3] ? " or more" : "", describe(array), (unsigned long)lengths[3]);
  for (MPSImage *image in images) {
    if (to_array)
      [image openmps_willReadOn:commands], read.push_back(image);
    else
      [image openmps_willWriteOn:commands];
  }
  for (Problem &problem : problems)
    recorder.append(std::move(problem), to_array ? "MPSNDArray importData" : "MPSNDArray exportData");
  if (to_array) {
    state.usage->written_by(recorder.completion());
    each_distinct(std::move(read), [](MPSImage *image) { [image openmps_didRead]; });
  } else {
    state.usage->read_by(recorder.completion());
    [array openmps_didRead];
  }
}

}  // namespace openmps
