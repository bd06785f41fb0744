// SPDX-License-Identifier: Apache-2.0
// Rules of rows in buffers, for matrices and vectors [MPSMatrix.h].

#import "mps/MPSMatrix+Engine.hh"

#include <cstdio>

#import "metal/MTLResourceOnEngine.hh"

namespace openmps {

const RowNames kMatrixNames = {"MPSMatrix", "columns", "rows", "rowBytes"};
const RowNames kVectorNames = {"MPSVector", "length", "vectors", "vectorBytes"};

namespace {

/// unverified: the alignment that Apple recommends; 16 bytes is the size of a vector register.
constexpr NSUInteger kRecommendedAlignment = 16;

NSUInteger check_type(const char *who, MPSDataType type) {
  const NSUInteger element = element_size(type);
  if (element == 0)
    raise_argument(@"%s: dataType (0x%lx) is not one of whole bytes that openmps knows.", who, (unsigned long)type);
  return element;
}

void check_min(const RowNames &names, const char *name, NSUInteger value) {
  if (value == 0) raise_argument(@"%s: %s (0) is less than the minimum (1).", names.who, name);
}

void check_step(const RowNames &names, const char *name, NSUInteger value, NSUInteger min, NSUInteger step,
                const char *step_name) {
  if (value < min)
    raise_argument(@"%s: %s (%lu) is less than what one takes (%lu bytes).", names.who, name, (unsigned long)value,
                   (unsigned long)min);
  if (value % step != 0)
    raise_argument(@"%s: %s (%lu) is not a multiple of %s (%lu).", names.who, name, (unsigned long)value, step_name,
                   (unsigned long)step);
}

/// Return the bytes from the first element to the end of the last one. Strides of axes of extent 1 are ignored.
NSUInteger check_layout(const RowNames &names, const RowLayout &layout) {
  const NSUInteger element = check_type(names.who, layout.type);
  check_min(names, names.rows, layout.rows);
  check_min(names, names.columns, layout.columns);
  check_min(names, "matrices", layout.matrices);
  const auto row = product({layout.columns, element});
  if (!row) raise_argument(@"%s: %s (%lu) is too large.", names.who, names.columns, (unsigned long)layout.columns);
  std::uint64_t end = *row;
  const auto add = [&](const char *name, NSUInteger step, NSUInteger steps) {
    const auto reach = product({step, steps});
    if (!reach || __builtin_add_overflow(end, *reach, &end) || end > static_cast<std::uint64_t>(INT64_MAX))
      raise_argument(@"%s: %s (%lu) x %lu is too large.", names.who, name, (unsigned long)step,
                     (unsigned long)steps + 1);
  };
  if (layout.rows > 1) {
    check_step(names, names.row_bytes, layout.row_bytes, *row, element, "the size of an element");
    add(names.row_bytes, layout.row_bytes, layout.rows - 1);
  }
  if (layout.matrices > 1) {
    check_step(names, names.row_bytes, layout.row_bytes, *row, element, "the size of an element");
    check_step(names, "matrixBytes", layout.matrix_bytes, end, layout.row_bytes, "rowBytes");
    add("matrixBytes", layout.matrix_bytes, layout.matrices - 1);
  }
  return end;
}

/// Return the size of an own buffer: whole rows and matrices with their strides.
NSUInteger whole_bytes(const RowNames &names, const RowLayout &layout) {
  const NSUInteger min_bytes = check_layout(names, layout);
  if (layout.rows == 1 && layout.matrices == 1) return std::max(min_bytes, layout.row_bytes);
  const auto matrix = product({layout.rows, layout.row_bytes});
  const auto whole = layout.matrices == 1 ? matrix : product({layout.matrices, layout.matrix_bytes});
  return whole ? *whole : min_bytes;
}

NSUInteger check_memory(const RowNames &names, id<OpenMPSDevice> device, const RowLayout &layout) {
  const NSUInteger bytes = whole_bytes(names, layout), limit = [device maxBufferLength];
  if (bytes > limit)
    raise_argument(@"%s: %lu x %lu elements (%s x %s) need %lu bytes, more than the device's maxBufferLength (%lu).",
                   names.who, (unsigned long)(layout.matrices * layout.rows), (unsigned long)layout.columns, names.rows,
                   names.columns, (unsigned long)bytes, (unsigned long)limit);
  return bytes;
}

}  // namespace

NSUInteger element_size(MPSDataType type) {
  switch (type) {
    case MPSDataTypeUInt8:
    case MPSDataTypeInt8:
    case MPSDataTypeUnorm8:
    case MPSDataTypeBool: return 1;
    case MPSDataTypeUInt16:
    case MPSDataTypeInt16:
    case MPSDataTypeFloat16:
    case MPSDataTypeBFloat16: return 2;
    case MPSDataTypeUInt32:
    case MPSDataTypeInt32:
    case MPSDataTypeFloat32:
    case MPSDataTypeComplexFloat16:
    case MPSDataTypeComplexBFloat16: return 4;
    case MPSDataTypeUInt64:
    case MPSDataTypeInt64:
    case MPSDataTypeComplexFloat32: return 8;
    default: return 0;
  }
}

NSUInteger recommended_bytes(const char *who, NSUInteger columns, MPSDataType type) {
  const auto bytes = product({columns, check_type(who, type)});
  if (!bytes || *bytes > static_cast<std::uint64_t>(INT64_MAX) - kRecommendedAlignment)
    raise_argument(@"%s: %lu elements are too many.", who, (unsigned long)columns);
  return (*bytes + kRecommendedAlignment - 1) / kRecommendedAlignment * kRecommendedAlignment;
}

RowState *new_row_state(const RowNames &names, id<MTLBuffer> buffer, NSUInteger offset, const RowLayout &layout) {
  id<OpenMPSBuffer> own = buffer_of(buffer, (std::string(names.who) + ": buffer").c_str());
  const NSUInteger bytes = check_layout(names, layout), element = element_size(layout.type), length = [own length];
  if (offset % element != 0)
    raise_argument(@"%s: offset (%lu) is not a multiple of the size of an element (%lu).", names.who,
                   (unsigned long)offset, (unsigned long)element);
  if (offset > length || bytes > length - offset)
    raise_argument(@"%s: %lu bytes from offset %lu end beyond the buffer's length (%lu).", names.who,
                   (unsigned long)bytes, (unsigned long)offset, (unsigned long)length);
  auto *state = new RowState;
  state->device = Ref<id<OpenMPSDevice>>(device_of([own device], names.who));
  state->layout = layout;
  state->offset = offset;
  state->buffer = Ref<id<OpenMPSBuffer>>(own);
  return state;
}

RowState *new_row_state(const RowNames &names, id<MTLDevice> device, const RowLayout &layout) {
  id<OpenMPSDevice> own = device_of(device, (std::string(names.who) + ": device").c_str());
  const NSUInteger bytes = check_memory(names, own, layout);
  auto *state = new RowState;
  state->device = Ref<id<OpenMPSDevice>>(own);
  state->layout = layout;
  state->buffer = Ref<id<OpenMPSBuffer>>::adopt(new_buffer_of_mps(own, bytes));
  return state;
}

id<OpenMPSCommandBuffer> open_command_buffer(const RowNames &names, id<MTLCommandBuffer> buffer) {
  id<OpenMPSCommandBuffer> own = command_buffer_of(buffer, (std::string(names.who) + ": commandBuffer").c_str());
  [own openmps_recorder];
  return own;
}

void synchronize_rows(const RowNames &names, const RowState &state, id<MTLCommandBuffer> buffer) {
  Recorder &recorder = [open_command_buffer(names, buffer) openmps_recorder];
  if (state.buffer) synchronize(recorder, [state.buffer.get() openmps_memory], @"MPSMatrix");
}

RowState *new_temporary_row_state(const RowNames &names, id<MTLCommandBuffer> buffer, const RowLayout &layout) {
  id<OpenMPSCommandBuffer> own = open_command_buffer(names, buffer);
  id<OpenMPSDevice> device = device_of([own device], names.who);
  const NSUInteger bytes = check_memory(names, device, layout);
  auto *state = new RowState;
  state->device = Ref<id<OpenMPSDevice>>(device);
  state->layout = layout;
  // Only kernels access the bytes, so they need not be zeros.
  const MTLResourceOptions options = MTLResourceStorageModePrivate;
  state->buffer = Ref<id<OpenMPSBuffer>>::adopt(
      new_buffer(device, new_buffer_memory([device openmps_engine], bytes, options), options, false));
  state->scope = [own openmps_temporaries];
  char name[128];
  std::snprintf(name, sizeof name, "MPSTemporary%s (%lu x %lu)", names.who + 3,
                (unsigned long)(layout.matrices * layout.rows), (unsigned long)layout.columns);
  state->temporary = state->scope->add(name);
  return state;
}

void check_row_prefetch(const RowNames &names, id<MTLCommandBuffer> buffer, const std::vector<RowLayout> &layouts) {
  id<OpenMPSCommandBuffer> own = open_command_buffer(names, buffer);
  id<OpenMPSDevice> device = device_of([own device], names.who);
  for (const RowLayout &layout : layouts) check_memory(names, device, layout);
}

id<OpenMPSBuffer> buffer_of(const RowNames &names, const RowState &state) {
  if (!state.buffer)
    raise_usage(@"MPSTemporary%s (%lu x %lu) has a readCount of 0: its storage has been recycled.", names.who + 3,
                (unsigned long)(state.layout.matrices * state.layout.rows), (unsigned long)state.layout.columns);
  return state.buffer.get();
}

NSUInteger read_count(const RowState &state) { return state.temporary ? state.temporary->read_count : 0; }

void set_read_count(const RowNames &names, RowState &state, NSUInteger count) {
  if (state.temporary->read_count == count) return;
  buffer_of(names, state);
  state.temporary->read_count = count;
  // From now on only recorded commands refer to the memory.
  if (count == 0) state.buffer = {};
}

void will_use_rows(const RowNames &names, id object, const RowState &state, id<MTLCommandBuffer> buffer) {
  id<OpenMPSCommandBuffer> own = command_buffer_of(buffer, (std::string(names.who) + ": commandBuffer").c_str());
  buffer_of(names, state);
  if (state.temporary && state.scope != [own openmps_temporaries])
    raise_usage(@"%@ belongs to another command buffer: a temporary %s lives on the one that it was made for.",
                [object class], &names == &kMatrixNames ? "matrix" : "vector");
  if ([own device] != state.device.get())
    raise_argument(@"%@ belongs to another device than the command buffer.", [object class]);
}

void did_read_rows(const RowNames &names, RowState &state) {
  if (!state.temporary) return;
  buffer_of(names, state);
  set_read_count(names, state, state.temporary->read_count - 1);
}

}  // namespace openmps
