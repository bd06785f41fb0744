// SPDX-License-Identifier: Apache-2.0
// Matrices over buffers, and those that live on one command buffer [MPSMatrix.h].

#import "mps/MPSMatrixDescriptor+Engine.hh"

using openmps::kMatrixNames;
using openmps::RowState;

static const openmps::RowLayout &layout_of(MPSMatrixDescriptor *descriptor) {
  if (descriptor == nil) openmps::raise_argument(@"MPSMatrix: descriptor is nil.");
  return [descriptor openmps_layout];
}

@implementation MPSMatrix

OPENMPS_UNKNOWN_SELECTORS

- (RowState &)openmps_own {
  return *static_cast<RowState *>(_openmps);
}

- (const RowState &)openmps_state {
  return [self openmps_own];
}

/// The initialiser behind all others: takes `state`.
- (instancetype)openmps_initWithState:(RowState *)state {
  if ((self = [super init]))
    _openmps = state;
  else
    delete state;
  return self;
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_argument(@"-[%@ init] is unavailable; use -initWithDevice:descriptor:.", [self class]);
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSMatrixDescriptor *)descriptor {
  return [self initWithBuffer:buffer offset:0 descriptor:descriptor];
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  RowState *state = openmps::new_row_state(kMatrixNames, buffer, offset, layout_of(descriptor));
  return [half.done() openmps_initWithState:state];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSMatrixDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  RowState *state = openmps::new_row_state(kMatrixNames, device, layout_of(descriptor));
  return [half.done() openmps_initWithState:state];
}

- (void)dealloc {
  delete static_cast<RowState *>(_openmps);
  [super dealloc];
}

- (id<MTLDevice>)device {
  return [self openmps_own].device.get();
}

- (NSUInteger)rows {
  return [self openmps_own].layout.rows;
}

- (NSUInteger)columns {
  return [self openmps_own].layout.columns;
}

- (NSUInteger)matrices {
  return [self openmps_own].layout.matrices;
}

- (MPSDataType)dataType {
  return [self openmps_own].layout.type;
}

- (NSUInteger)rowBytes {
  return [self openmps_own].layout.row_bytes;
}

- (NSUInteger)matrixBytes {
  return [self openmps_own].layout.matrix_bytes;
}

- (NSUInteger)offset {
  return [self openmps_own].offset;
}

- (id<MTLBuffer>)data {
  return openmps::buffer_of(kMatrixNames, [self openmps_own]);
}

// Memory is shared between CPU and engine: nothing to copy.
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  [openmps::command_buffer_of(commandBuffer, "MPSMatrix: commandBuffer") openmps_recorder];
}

- (NSUInteger)resourceSize {
  return [[self openmps_own].buffer.get() allocatedSize];
}

- (void)openmps_willUseOn:(id<MTLCommandBuffer>)buffer {
  const RowState &state = [self openmps_own];
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(buffer, "MPSMatrix: commandBuffer");
  openmps::buffer_of(kMatrixNames, state);
  if (state.temporary && state.scope != [own openmps_temporaries])
    openmps::raise_usage(
        @"%@ belongs to another command buffer: a temporary matrix lives on the one that it was made for.",
        [self class]);
  if ([own device] != state.device.get())
    openmps::raise_argument(@"%@ belongs to another device than the command buffer.", [self class]);
}

- (void)openmps_didRead {
}

@end

[[noreturn]] static void raise_unavailable(SEL selector) {
  openmps::raise_argument(
      @"-[MPSTemporaryMatrix %@] is unavailable; use +temporaryMatrixWithCommandBuffer:matrixDescriptor:.",
      NSStringFromSelector(selector));
}

@implementation MPSTemporaryMatrix

+ (instancetype)temporaryMatrixWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                matrixDescriptor:(MPSMatrixDescriptor *)matrixDescriptor {
  RowState *state = openmps::new_temporary_row_state(kMatrixNames, commandBuffer, layout_of(matrixDescriptor));
  return [[[self alloc] openmps_initWithState:state] autorelease];
}

+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                    matrixDescriptorList:(NSArray<MPSMatrixDescriptor *> *)descriptorList {
  std::vector<openmps::RowLayout> layouts;
  for (MPSMatrixDescriptor *descriptor in descriptorList) layouts.push_back([descriptor openmps_layout]);
  openmps::check_row_prefetch(kMatrixNames, commandBuffer, layouts);
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor *)descriptor {
  (void)buffer, (void)offset, (void)descriptor;
  const openmps::UnwindRelease half(self);
  raise_unavailable(_cmd);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSMatrixDescriptor *)descriptor {
  (void)device, (void)descriptor;
  const openmps::UnwindRelease half(self);
  raise_unavailable(_cmd);
}

- (NSUInteger)readCount {
  return openmps::read_count([self openmps_own]);
}

- (void)setReadCount:(NSUInteger)readCount {
  openmps::set_read_count(kMatrixNames, [self openmps_own], readCount);
}

- (void)openmps_didRead {
  const NSUInteger count = [self readCount];
  openmps::buffer_of(kMatrixNames, [self openmps_own]);
  [self setReadCount:count - 1];
}

@end
