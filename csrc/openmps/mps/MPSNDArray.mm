// SPDX-License-Identifier: Apache-2.0
// Arrays in buffers, their views, and arrays of one command buffer [MPSNDArray.h]. A view is a layout of strides on its
// parent's buffer, so slices, transposes and most reshapes move nothing.

#import "mps/MPSNDArray+Engine.hh"

#include <algorithm>

#include "engine/problem/problem.hpp"
#import "metal/MTLResourceOnEngine.hh"
#import "mps/MPSMatrix+Engine.hh"

using openmps::ArrayLayout;
using openmps::ArrayShape;
using openmps::ArrayState;

/// Allocator of temporary arrays.
@interface MPSTemporaryNDArrayAllocatorOnEngine : MPSNDArrayAllocatorOnEngine
@end

namespace openmps {

ArrayLayout::ArrayLayout() {
  lengths.fill(1);
  strides.fill(0);
}

NSUInteger ArrayLayout::size() const {
  NSUInteger elements = 1;  // less than 2^31: the descriptors have checked it
  for (const NSUInteger length : lengths) elements *= length;
  return elements;
}

bool ArrayLayout::has_packed_rows() const {
  const auto element = static_cast<std::int64_t>(element_size(type));
  return count < 2 || strides[1] == static_cast<std::int64_t>(lengths[0]) * element;
}

ElementType element_type(const char *who, MPSDataType type) {
  switch (type) {
    case MPSDataTypeUInt8: return ElementType::uint8;
    case MPSDataTypeUInt16: return ElementType::uint16;
    case MPSDataTypeUInt32: return ElementType::uint32;
    case MPSDataTypeUInt64: return ElementType::uint64;
    case MPSDataTypeInt8: return ElementType::int8;
    case MPSDataTypeInt16: return ElementType::int16;
    case MPSDataTypeInt32: return ElementType::int32;
    case MPSDataTypeInt64: return ElementType::int64;
    case MPSDataTypeBool: return ElementType::boolean;
    case MPSDataTypeUnorm8: return ElementType::unorm8;
    case MPSDataTypeFloat16: return ElementType::float16;
    case MPSDataTypeBFloat16: return ElementType::bfloat16;
    case MPSDataTypeFloat32: return ElementType::float32;
    case MPSDataTypeComplexFloat16: return ElementType::complex_float16;
    case MPSDataTypeComplexBFloat16: return ElementType::complex_bfloat16;
    case MPSDataTypeComplexFloat32: return ElementType::complex_float32;
    default:
      raise_argument(@"%s: dataType (0x%lx) is not one of whole bytes that openmps knows.", who, (unsigned long)type);
  }
}

ArrayLayout new_layout(const ArrayShape &shape) {
  ArrayLayout layout;
  layout.type = shape.type;
  layout.count = shape.count;
  for (NSUInteger i = 0; i < shape.count; ++i) layout.lengths[i] = shape.dimensions[i].slice.length;
  const NSUInteger row = layout.lengths[0] * element_size(shape.type);
  std::int64_t stride = static_cast<std::int64_t>(element_size(shape.type));
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) {
    layout.strides[i] = stride;
    if (i == 0)
      stride = static_cast<std::int64_t>(
          shape.packs_rows || shape.count < 2 ? row : recommended_bytes("MPSNDArray", layout.lengths[0], shape.type));
    else
      stride *= static_cast<std::int64_t>(layout.lengths[i]);
  }
  return layout;
}

namespace {

/// Set the strides of an array whose elements, in the order of their indices, get other lengths. Return false if that
/// order has no strides.
bool reshape(const ArrayLayout &of, ArrayLayout *to) {
  // Runs of dimensions of both with the same number of elements; those of `of` must continue each other.
  NSUInteger i = 0, j = 0;
  while (i < kMaxDimensions || j < kMaxDimensions) {
    const NSUInteger first = i, first_to = j;
    NSUInteger elements = i < kMaxDimensions ? of.lengths[i++] : 1, wanted = j < kMaxDimensions ? to->lengths[j++] : 1;
    while (elements != wanted) {
      if (elements < wanted)
        elements *= of.lengths[i++];
      else
        wanted *= to->lengths[j++];
    }
    std::int64_t stride = 0, end = 0;
    bool is_first = true;
    for (NSUInteger k = first; k < i; ++k) {
      if (of.lengths[k] == 1) continue;
      if (!is_first && of.strides[k] != end) return false;
      if (std::exchange(is_first, false)) stride = of.strides[k];
      end = of.strides[k] * static_cast<std::int64_t>(of.lengths[k]);
    }
    for (NSUInteger k = first_to; k < j; ++k) {
      to->strides[k] = stride;
      stride *= static_cast<std::int64_t>(to->lengths[k]);
    }
  }
  return true;
}

}  // namespace

std::optional<ArrayLayout> view_layout(const ArrayLayout &of, const ArrayShape &shape) {
  ArrayLayout base;  // before slices and transposes
  base.type = of.type;
  base.offset = of.offset;
  for (const ArrayDimension &dimension : shape.dimensions) base.lengths[dimension.source] = dimension.length;
  if (base.size() != of.size())
    raise_argument(@"MPSNDArray: the descriptor has %lu elements before slices, the array has %lu.",
                   (unsigned long)base.size(), (unsigned long)of.size());
  if (base.lengths == of.lengths)
    base.strides = of.strides;
  else if (!reshape(of, &base))
    return std::nullopt;
  ArrayLayout view;
  view.type = of.type;
  view.count = shape.count;
  view.offset = base.offset;
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) {
    const ArrayDimension &dimension = shape.dimensions[i];
    view.lengths[i] = dimension.slice.length;
    view.strides[i] = base.strides[dimension.source];
    view.offset += static_cast<std::int64_t>(dimension.slice.start) * view.strides[i];
  }
  return view;
}

ArrayShape shape_of(const ArrayLayout &layout) {
  ArrayShape shape;
  shape.type = layout.type;
  shape.reshape(layout.count, layout.lengths.data());
  shape.packs_rows = layout.has_packed_rows();
  return shape;
}

ByteRange range_of(const char *who, const ArrayLayout &layout) {
  ByteRange range;
  range.end = static_cast<std::int64_t>(element_size(layout.type));
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) {
    std::int64_t reach = 0;
    const auto steps = static_cast<std::int64_t>(layout.lengths[i]) - 1;
    std::int64_t &end = layout.strides[i] < 0 ? range.begin : range.end;
    if (__builtin_mul_overflow(layout.strides[i], steps, &reach) || __builtin_add_overflow(end, reach, &end))
      raise_argument(@"%s: the stride of dimension %lu (%ld bytes) is too large.", who, (unsigned long)i,
                     (long)layout.strides[i]);
  }
  return range;
}

namespace {

/// "2 x 3 x 4", the slowest dimension first.
std::string lengths_text(const ArrayLayout &layout) {
  std::string text;
  for (NSUInteger i = layout.count; i-- > 0;) text += std::to_string(layout.lengths[i]) + (i > 0 ? " x " : "");
  return text;
}

}  // namespace

NSString *describe(MPSNDArray *array) {
  const ArrayState &state = [array openmps_state];
  NSString *label = state.label.get();
  return [NSString stringWithFormat:@"%@%s%@%s (%s)", [array class], label ? " '" : "", label ? label : @"",
                                    label ? "'" : "", lengths_text(state.layout).c_str()];
}

Recorder &recorder_for(MPSNDArray *array, id<MTLCommandBuffer> buffer) {
  id<OpenMPSCommandBuffer> own = command_buffer_of(buffer, "MPSNDArray: cmdBuf");
  Recorder &recorder = [own openmps_recorder];
  const ArrayState &state = [array openmps_state];
  memory_of(array);
  if (state.temporary && state.scope != [own openmps_temporaries])
    raise_usage(@"%@ belongs to another command buffer: a temporary array lives on the one that it was made for.",
                describe(array));
  if ([own device] != state.device.get())
    raise_argument(@"%@ belongs to another device than the command buffer.", describe(array));
  return recorder;
}

const std::shared_ptr<Memory> &memory_of(MPSNDArray *array) {
  const ArrayState &state = [array openmps_state];
  if (!state.buffer) raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", describe(array));
  return [state.buffer.get() openmps_memory];
}

namespace {

const ArrayShape &checked_shape(MPSNDArrayDescriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"MPSNDArray: descriptor is nil.");
  return [descriptor openmps_shape];
}

/// Return the bytes of a new array; raise if the device cannot have them.
NSUInteger check_memory(id<OpenMPSDevice> device, const ArrayLayout &layout) {
  const NSUInteger last = std::max<NSUInteger>(layout.count, 1) - 1;
  const auto bytes = product({layout.lengths[last], static_cast<std::uint64_t>(layout.strides[last])});  // whole rows
  const NSUInteger limit = [device maxBufferLength];
  if (!bytes || *bytes > limit)
    raise_argument(@"MPSNDArray: %lu elements need %lu bytes, more than the device's maxBufferLength (%lu).",
                   (unsigned long)layout.size(), (unsigned long)bytes.value_or(0), (unsigned long)limit);
  return *bytes;
}

ArrayState *new_state(id<MTLDevice> device, const ArrayShape &shape) {
  id<OpenMPSDevice> own = device_of(device, "MPSNDArray: device");
  const ArrayLayout layout = new_layout(shape);
  const NSUInteger bytes = check_memory(own, layout);
  auto *state = new ArrayState;
  state->device = Ref<id<OpenMPSDevice>>(own);
  state->layout = layout;
  state->buffer = Ref<id<OpenMPSBuffer>>::adopt(new_buffer_of_mps(own, bytes));
  return state;
}

ArrayState *new_state(id<MTLBuffer> buffer, NSUInteger offset, const ArrayShape &shape) {
  id<OpenMPSBuffer> own = buffer_of(buffer, "MPSNDArray: buffer");
  ArrayLayout layout = new_layout(shape);
  const NSUInteger element = element_size(layout.type), length = [own length];
  const auto bytes = static_cast<NSUInteger>(range_of("MPSNDArray", layout).end);
  if (offset % element != 0)
    raise_argument(@"MPSNDArray: offset (%lu) is not a multiple of the size of an element (%lu).",
                   (unsigned long)offset, (unsigned long)element);
  if (offset > length || bytes > length - offset)
    raise_argument(@"MPSNDArray: %lu bytes from offset %lu end beyond the buffer's length (%lu).", (unsigned long)bytes,
                   (unsigned long)offset, (unsigned long)length);
  layout.offset = static_cast<std::int64_t>(offset);
  auto *state = new ArrayState;
  state->device = Ref<id<OpenMPSDevice>>(device_of([own device], "MPSNDArray: buffer.device"));
  state->layout = layout;
  state->buffer = Ref<id<OpenMPSBuffer>>(own);
  state->is_of_program = true;
  return state;
}

/// Make the state temporary, on the command buffers of `scope`.
void be_temporary(ArrayState &state, const std::shared_ptr<TemporaryScope> &scope) {
  state.scope = scope;
  state.temporary = scope->add("MPSTemporaryNDArray (" + lengths_text(state.layout) + ")");
}

/// unverified: the alignment of strides that Apple's MPS needs; openmps takes any.
MPSNDArray *strided_view(MPSNDArray *array, NSUInteger count, const NSUInteger *lengths, const NSUInteger *strides) {
  const ArrayState &state = [array openmps_state];
  ArrayShape shape;
  shape.type = state.layout.type;
  shape.reshape(count, lengths);
  if (strides == nullptr && count > 0) raise_argument(@"MPSNDArray: strides is NULL.");
  ArrayLayout layout;
  layout.type = shape.type;
  layout.count = count;
  layout.offset = state.layout.offset;
  const NSUInteger element = element_size(layout.type);
  for (NSUInteger i = 0; i < count; ++i) {
    layout.lengths[i] = lengths[i];
    if (strides[i] == 0 && lengths[i] > 1)
      raise_argument(@"MPSNDArray: the stride of dimension %lu (0) is less than the minimum (1).", (unsigned long)i);
    const auto bytes = product({strides[i], element});
    if (!bytes) raise_argument(@"MPSNDArray: the stride of dimension %lu is too large.", (unsigned long)i);
    layout.strides[i] = static_cast<std::int64_t>(*bytes);
  }
  const auto end = static_cast<NSUInteger>(layout.offset + range_of("MPSNDArray", layout).end);
  const NSUInteger length = memory_of(array)->size();
  if (end > length)
    raise_argument(@"MPSNDArray: the view ends at byte %lu, beyond those of %@ (%lu).", (unsigned long)end,
                   describe(array), (unsigned long)length);
  return [array openmps_viewWithLayout:layout];
}

}  // namespace

MPSNDArray *copy_of(MPSNDArray *array, id<MTLCommandBuffer> buffer, const ArrayShape &shape,
                    MPSAliasingStrategy aliasing) {
  Recorder &recorder = recorder_for(array, buffer);
  const ArrayState &state = [array openmps_state];
  check_conversion(state.layout.type, shape.type);  // before anything is encoded
  ArrayLayout source = state.layout;
  std::shared_ptr<Memory> memory = memory_of(array);
  std::optional<ArrayLayout> view = view_layout(source, shape);
  if (!view) {
    // A reshape without strides: its elements are packed first.
    ArrayShape before = openmps::shape_of(source);
    before.packs_rows = true;
    const ArrayLayout packed = new_layout(before);
    const NSUInteger bytes = check_memory(state.device.get(), packed);
    const auto between = Memory::lazy_image([state.device.get() openmps_engine], bytes);
    recorder.append(copy_problem(memory, source, between, packed), "MPSNDArray arrayView");
    memory = between;
    source = packed;
    view = view_layout(packed, shape);
  }
  ArrayShape wanted;
  wanted.type = shape.type;
  wanted.reshape(shape.count, view->lengths.data());
  wanted.packs_rows = shape.packs_rows;
  MPSNDArrayDescriptor *descriptor = [MPSNDArrayDescriptor openmps_descriptorWithShape:wanted];
  const bool is_temporary = (aliasing & MPSAliasingStrategyPreferTemporaryMemory) ||
                            (state.temporary && !(aliasing & MPSAliasingStrategyPreferNonTemporaryMemory));
  MPSNDArray *copy = is_temporary
                         ? [MPSTemporaryNDArray temporaryNDArrayWithCommandBuffer:buffer descriptor:descriptor]
                         : [[[MPSNDArray alloc] initWithDevice:state.device.get() descriptor:descriptor] autorelease];
  const ArrayState &to = [copy openmps_state];
  recorder.append(copy_problem(memory, *view, memory_of(copy), to.layout), "MPSNDArray arrayView");
  state.usage->read_by(recorder.completion());
  to.usage->written_by(recorder.completion());
  [array openmps_didRead];
  return copy;
}

}  // namespace openmps

@implementation MPSNDArray

OPENMPS_UNKNOWN_SELECTORS

+ (id<MPSNDArrayAllocator>)defaultAllocator {
  static MPSNDArrayAllocatorOnEngine *const allocator = [[MPSNDArrayAllocatorOnEngine alloc] init];
  return allocator;
}

- (ArrayState &)openmps_state {
  return *static_cast<ArrayState *>(_openmps);
}

- (instancetype)openmps_initWithState:(ArrayState *)state {
  if ((self = [super init]))
    _openmps = state;
  else
    delete state;
  return self;
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:descriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSNDArrayDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  ArrayState *state = openmps::new_state(device, openmps::checked_shape(descriptor));
  return [half.done() openmps_initWithState:state];
}

/// unverified: the type of the element; float32 keeps the numbers that MPS's kernels can use.
- (instancetype)initWithDevice:(id<MTLDevice>)device scalar:(double)value {
  openmps::UnwindRelease half(self);
  NSUInteger length = 1;
  ArrayShape shape;
  shape.type = MPSDataTypeFloat32;
  shape.reshape(1, &length);
  ArrayState *state = openmps::new_state(device, shape);
  MPSNDArray *array = [half.done() openmps_initWithState:state];
  float number = static_cast<float>(value);
  [array writeBytes:&number strideBytes:nullptr];
  return array;
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSNDArrayDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  ArrayState *state = openmps::new_state(buffer, offset, openmps::checked_shape(descriptor));
  return [half.done() openmps_initWithState:state];
}

- (void)dealloc {
  delete static_cast<ArrayState *>(_openmps);
  [super dealloc];
}

- (NSString *)label {
  return [self openmps_state].label.get();
}

- (void)setLabel:(NSString *)label {
  [self openmps_state].label.set(label);
}

- (MPSDataType)dataType {
  return [self openmps_state].layout.type;
}

- (size_t)dataTypeSize {
  return openmps::element_size([self dataType]);
}

- (NSUInteger)numberOfDimensions {
  return [self openmps_state].layout.count;
}

- (NSUInteger)lengthOfDimension:(NSUInteger)dimensionIndex {
  return dimensionIndex < openmps::kMaxDimensions ? [self openmps_state].layout.lengths[dimensionIndex] : 1;
}

- (id<MTLDevice>)device {
  return [self openmps_state].device.get();
}

- (MPSNDArray *)parent {
  return [self openmps_state].parent.get();
}

- (MPSNDArrayDescriptor *)descriptor {
  return [MPSNDArrayDescriptor openmps_descriptorWithShape:openmps::shape_of([self openmps_state].layout)];
}

- (id<MTLBuffer>)userBuffer {
  const ArrayState &state = [self openmps_state];
  return state.is_of_program ? state.buffer.get() : nil;
}

- (NSUInteger)resourceSize {
  return [[self openmps_state].buffer.get() allocatedSize];
}

- (MPSNDArray *)openmps_viewWithLayout:(const ArrayLayout &)layout {
  const ArrayState &from = [self openmps_state];
  auto *state = new ArrayState;
  state->device = from.device;
  state->layout = layout;
  state->buffer = from.buffer;
  state->is_of_program = from.is_of_program;
  state->usage = from.usage;
  state->parent = openmps::Ref<MPSNDArray *>(self);
  Class kind = from.temporary ? [MPSTemporaryNDArray class] : [MPSNDArray class];
  if (from.temporary) {
    openmps::be_temporary(*state, from.scope);
    // A view holds one readCount of the parent until its own is 0.
    MPSTemporaryNDArray *temporary = (MPSTemporaryNDArray *)self;
    [temporary setReadCount:[temporary readCount] + 1];
  }
  return [[[kind alloc] openmps_initWithState:state] autorelease];
}

- (MPSNDArray *)arrayViewWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                                descriptor:(MPSNDArrayDescriptor *)descriptor
                                  aliasing:(MPSAliasingStrategy)aliasing {
  const ArrayShape shape = openmps::checked_shape(descriptor);
  const NSUInteger which = aliasing & MPSAliasingStrategyAliasingReserved;
  if (which == MPSAliasingStrategyAliasingReserved)
    openmps::raise_argument(@"MPSNDArray: aliasing (%lu) has both ShallAlias (1) and ShallNotAlias (2).",
                            (unsigned long)aliasing);
  openmps::memory_of(self);
  const ArrayLayout &layout = [self openmps_state].layout;
  const auto view = openmps::view_layout(layout, shape);
  const bool can_alias = view.has_value() && shape.type == layout.type;
  if (can_alias && which != MPSAliasingStrategyShallNotAlias) return [self openmps_viewWithLayout:*view];
  if (which == MPSAliasingStrategyShallAlias) return nil;
  return openmps::copy_of(self, cmdBuf, shape, aliasing);
}

- (MPSNDArray *)arrayViewWithDescriptor:(MPSNDArrayDescriptor *)descriptor {
  const ArrayShape shape = openmps::checked_shape(descriptor);
  openmps::memory_of(self);
  const ArrayLayout &layout = [self openmps_state].layout;
  const auto view = openmps::view_layout(layout, shape);
  return view && shape.type == layout.type ? [self openmps_viewWithLayout:*view] : nil;
}

- (MPSNDArray *)arrayViewWithShape:(MPSShape *)shape strides:(MPSShape *)strides {
  if (strides == nil) openmps::raise_argument(@"MPSNDArray: strides is nil.");
  if (shape == nil) shape = [[self descriptor] getShape];
  if ([shape count] != [strides count])
    openmps::raise_argument(@"MPSNDArray: strides has %lu numbers, shape has %lu.", (unsigned long)[strides count],
                            (unsigned long)[shape count]);
  std::vector<NSUInteger> lengths, steps;
  for (NSUInteger i = [shape count]; i-- > 0;) {
    lengths.push_back([[shape objectAtIndex:i] unsignedIntegerValue]);
    steps.push_back([[strides objectAtIndex:i] unsignedIntegerValue]);
  }
  return openmps::strided_view(self, lengths.size(), lengths.data(), steps.data());
}

- (MPSNDArray *)arrayViewWithDimensionCount:(NSUInteger)numberOfDimensions
                             dimensionSizes:(const NSUInteger *)dimensionSizes
                                    strides:(const NSUInteger *)dimStrides {
  return openmps::strided_view(self, numberOfDimensions, dimensionSizes, dimStrides);
}

- (void)exportDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                           toBuffer:(id<MTLBuffer>)buffer
                destinationDataType:(MPSDataType)destinationDataType
                             offset:(NSUInteger)offset
                         rowStrides:(NSInteger *)rowStrides {
  openmps::encode_transfer(self, cmdBuf, buffer, destinationDataType, offset, rowStrides, false);
}

- (void)importDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                         fromBuffer:(id<MTLBuffer>)buffer
                     sourceDataType:(MPSDataType)sourceDataType
                             offset:(NSUInteger)offset
                         rowStrides:(NSInteger *)rowStrides {
  openmps::encode_transfer(self, cmdBuf, buffer, sourceDataType, offset, rowStrides, true);
}

- (void)exportDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                           toImages:(MPSImageBatch *)images
                             offset:(MPSImageCoordinate)offset {
  openmps::encode_transfer(self, cmdBuf, images, offset, false);
}

- (void)importDataWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                         fromImages:(MPSImageBatch *)images
                             offset:(MPSImageCoordinate)offset {
  openmps::encode_transfer(self, cmdBuf, images, offset, true);
}

- (void)readBytes:(void *)buffer strideBytes:(NSInteger *)strideBytesPerDimension {
  openmps::transfer(self, buffer, strideBytesPerDimension, false);
}

- (void)writeBytes:(void *)buffer strideBytes:(NSInteger *)strideBytesPerDimension {
  openmps::transfer(self, buffer, strideBytesPerDimension, true);
}

- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  openmps::synchronize(openmps::recorder_for(self, commandBuffer), openmps::memory_of(self), @"MPSNDArray");
}

- (void)openmps_didRead {
}

@end

@implementation MPSTemporaryNDArray

+ (id<MPSNDArrayAllocator>)defaultAllocator {
  static MPSTemporaryNDArrayAllocatorOnEngine *const allocator = [[MPSTemporaryNDArrayAllocatorOnEngine alloc] init];
  return allocator;
}

+ (instancetype)temporaryNDArrayWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                       descriptor:(MPSNDArrayDescriptor *)descriptor {
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(commandBuffer, "MPSTemporaryNDArray: commandBuffer");
  [own openmps_recorder];
  id<OpenMPSDevice> device = openmps::device_of([own device], "MPSTemporaryNDArray: commandBuffer.device");
  const ArrayLayout layout = openmps::new_layout(openmps::checked_shape(descriptor));
  const NSUInteger bytes = openmps::check_memory(device, layout);
  auto *state = new ArrayState;
  state->device = openmps::Ref<id<OpenMPSDevice>>(device);
  state->layout = layout;
  // Only commands access the bytes, so they need not be zeros.
  const MTLResourceOptions options = MTLResourceStorageModePrivate;
  state->buffer = openmps::Ref<id<OpenMPSBuffer>>::adopt(
      openmps::new_buffer(device, openmps::new_buffer_memory([device openmps_engine], bytes, options), options, false));
  openmps::be_temporary(*state, [own openmps_temporaries]);
  return [[[self alloc] openmps_initWithState:state] autorelease];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSNDArrayDescriptor *)descriptor {
  (void)device, (void)descriptor;
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+temporaryNDArrayWithCommandBuffer:descriptor:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device scalar:(double)value {
  (void)device, (void)value;
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+temporaryNDArrayWithCommandBuffer:descriptor:");
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSNDArrayDescriptor *)descriptor {
  (void)buffer, (void)offset, (void)descriptor;
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+temporaryNDArrayWithCommandBuffer:descriptor:");
}

- (NSUInteger)readCount {
  return [self openmps_state].temporary->read_count;
}

- (void)setReadCount:(NSUInteger)readCount {
  ArrayState &state = [self openmps_state];
  openmps::Temporary &temporary = *state.temporary;
  if (temporary.read_count == readCount) return;
  if (temporary.read_count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled, so readCount cannot become %lu.",
                         openmps::describe(self), (unsigned long)readCount);
  temporary.read_count = readCount;
  if (readCount > 0) return;
  // From now on only recorded commands refer to the memory.
  state.buffer = {};
  MPSTemporaryNDArray *parent = (MPSTemporaryNDArray *)state.parent.get();
  if (parent == nil) return;
  const NSUInteger held = [parent readCount];
  if (held > 0) [parent setReadCount:held - 1];
}

- (void)openmps_didRead {
  const NSUInteger count = [self readCount];
  if (count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", openmps::describe(self));
  [self setReadCount:count - 1];
}

@end

@implementation MPSNDArrayAllocatorOnEngine

OPENMPS_UNKNOWN_SELECTORS

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  return [self retain];
}

- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}

- (MPSNDArray *)arrayForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                      arrayDescriptor:(MPSNDArrayDescriptor *)descriptor
                               kernel:(MPSKernel *)kernel {
  (void)kernel;
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(cmdBuf, "MPSNDArrayAllocator: cmdBuf");
  return [[[MPSNDArray alloc] initWithDevice:[own device] descriptor:descriptor] autorelease];
}

@end

@implementation MPSTemporaryNDArrayAllocatorOnEngine

- (MPSNDArray *)arrayForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                      arrayDescriptor:(MPSNDArrayDescriptor *)descriptor
                               kernel:(MPSKernel *)kernel {
  (void)kernel;
  return [MPSTemporaryNDArray temporaryNDArrayWithCommandBuffer:cmdBuf descriptor:descriptor];
}

@end
