// SPDX-License-Identifier: Apache-2.0
// Vectors over buffers, and those that live on one command buffer [MPSMatrix.h].

#import "mps/MPSMatrixDescriptor+Engine.hh"

using openmps::kVectorNames;
using openmps::RowState;

static const openmps::RowLayout &layout_of(MPSVectorDescriptor *descriptor) {
  if (descriptor == nil) openmps::raise_argument(@"MPSVector: descriptor is nil.");
  return [descriptor openmps_layout];
}

@implementation MPSVector

OPENMPS_UNKNOWN_SELECTORS

- (RowState &)openmps_own {
  return *static_cast<RowState *>(_openmps);
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

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSVectorDescriptor *)descriptor {
  return [self initWithBuffer:buffer offset:0 descriptor:descriptor];
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSVectorDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  RowState *state = openmps::new_row_state(kVectorNames, buffer, offset, layout_of(descriptor));
  return [half.done() openmps_initWithState:state];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSVectorDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  RowState *state = openmps::new_row_state(kVectorNames, device, layout_of(descriptor));
  return [half.done() openmps_initWithState:state];
}

- (void)dealloc {
  delete static_cast<RowState *>(_openmps);
  [super dealloc];
}

- (id<MTLDevice>)device {
  return [self openmps_own].device.get();
}

- (NSUInteger)length {
  return [self openmps_own].layout.columns;
}

- (NSUInteger)vectors {
  return [self openmps_own].layout.rows;
}

- (MPSDataType)dataType {
  return [self openmps_own].layout.type;
}

- (NSUInteger)vectorBytes {
  return [self openmps_own].layout.row_bytes;
}

- (NSUInteger)offset {
  return [self openmps_own].offset;
}

- (id<MTLBuffer>)data {
  return openmps::buffer_of(kVectorNames, [self openmps_own]);
}

// Memory is shared between CPU and engine: nothing to copy.
- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  [openmps::command_buffer_of(commandBuffer, "MPSVector: commandBuffer") openmps_recorder];
}

- (NSUInteger)resourceSize {
  return [[self openmps_own].buffer.get() allocatedSize];
}

@end

[[noreturn]] static void raise_unavailable(SEL selector) {
  openmps::raise_argument(
      @"-[MPSTemporaryVector %@] is unavailable; use +temporaryVectorWithCommandBuffer:descriptor:.",
      NSStringFromSelector(selector));
}

@implementation MPSTemporaryVector

+ (instancetype)temporaryVectorWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      descriptor:(MPSVectorDescriptor *)descriptor {
  RowState *state = openmps::new_temporary_row_state(kVectorNames, commandBuffer, layout_of(descriptor));
  return [[[self alloc] openmps_initWithState:state] autorelease];
}

+ (void)prefetchStorageWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                          descriptorList:(NSArray<MPSVectorDescriptor *> *)descriptorList {
  std::vector<openmps::RowLayout> layouts;
  for (MPSVectorDescriptor *descriptor in descriptorList) layouts.push_back([descriptor openmps_layout]);
  openmps::check_row_prefetch(kVectorNames, commandBuffer, layouts);
}

- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSVectorDescriptor *)descriptor {
  (void)buffer, (void)offset, (void)descriptor;
  const openmps::UnwindRelease half(self);
  raise_unavailable(_cmd);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device descriptor:(MPSVectorDescriptor *)descriptor {
  (void)device, (void)descriptor;
  const openmps::UnwindRelease half(self);
  raise_unavailable(_cmd);
}

- (NSUInteger)readCount {
  return openmps::read_count([self openmps_own]);
}

- (void)setReadCount:(NSUInteger)readCount {
  openmps::set_read_count(kVectorNames, [self openmps_own], readCount);
}

@end
