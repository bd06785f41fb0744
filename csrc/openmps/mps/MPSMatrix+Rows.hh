// SPDX-License-Identifier: Apache-2.0
// Methods of both matrices and vectors, whose common base is NSObject [MPSMatrix.h]. NAMES: kMatrixNames or
// kVectorNames; DESCRIPTOR: the class of the descriptor.
#pragma once

#import "mps/MPSMatrixDescriptor+Engine.hh"

namespace openmps {

template <class Descriptor>
const RowLayout &layout_of(const RowNames &names, Descriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"%s: descriptor is nil.", names.who);
  return [descriptor openmps_layout];
}

template <class Descriptor>
std::vector<RowLayout> layouts_of(NSArray *descriptors) {
  std::vector<RowLayout> layouts;
  for (Descriptor *descriptor in descriptors) layouts.push_back([descriptor openmps_layout]);
  return layouts;
}

}  // namespace openmps

/// From the state to dealloc. openmps_initWithState: is the designated initialiser, and takes `state`.
#define OPENMPS_ROWS_LIFE                                                  \
  -(openmps::RowState &)openmps_own {                                      \
    return *static_cast<openmps::RowState *>(_openmps);                    \
  }                                                                        \
  -(instancetype)openmps_initWithState : (openmps::RowState *)state {      \
    if ((self = [super init]))                                             \
      _openmps = state;                                                    \
    else                                                                   \
      delete state;                                                        \
    return self;                                                           \
  }                                                                        \
  -(instancetype)init {                                                    \
    const openmps::UnwindRelease half(self);                               \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:descriptor:"); \
  }                                                                        \
  -(void)dealloc {                                                         \
    delete static_cast<openmps::RowState *>(_openmps);                     \
    [super dealloc];                                                       \
  }

#define OPENMPS_ROWS_INIT(NAMES, DESCRIPTOR)                                                            \
  -(instancetype)initWithBuffer : (id<MTLBuffer>)buffer descriptor : (DESCRIPTOR *)descriptor {         \
    return [self initWithBuffer:buffer offset:0 descriptor:descriptor];                                 \
  }                                                                                                     \
  -(instancetype)initWithBuffer : (id<MTLBuffer>)buffer offset : (NSUInteger)offset descriptor          \
      : (DESCRIPTOR *)descriptor {                                                                      \
    openmps::UnwindRelease half(self);                                                                  \
    auto *state = openmps::new_row_state(NAMES, buffer, offset, openmps::layout_of(NAMES, descriptor)); \
    return [half.done() openmps_initWithState:state];                                                   \
  }                                                                                                     \
  -(instancetype)initWithDevice : (id<MTLDevice>)device descriptor : (DESCRIPTOR *)descriptor {         \
    openmps::UnwindRelease half(self);                                                                  \
    auto *state = openmps::new_row_state(NAMES, device, openmps::layout_of(NAMES, descriptor));         \
    return [half.done() openmps_initWithState:state];                                                   \
  }

#define OPENMPS_ROWS_GETTER(TYPE, NAME, FIELD) \
  -(TYPE)NAME {                                \
    return [self openmps_own].FIELD;           \
  }

#define OPENMPS_ROWS_MEMORY(NAMES)                                          \
  OPENMPS_ROWS_GETTER(id<MTLDevice>, device, device.get())                  \
  OPENMPS_ROWS_GETTER(NSUInteger, offset, offset)                           \
  OPENMPS_ROWS_GETTER(NSUInteger, resourceSize, buffer.get().allocatedSize) \
  -(id<MTLBuffer>)data {                                                    \
    return openmps::buffer_of(NAMES, [self openmps_own]);                   \
  }                                                                         \
  -(void)synchronizeOnCommandBuffer : (id<MTLCommandBuffer>)commandBuffer { \
    openmps::synchronize_rows(NAMES, [self openmps_own], commandBuffer);    \
  }

/// The protocol OpenMPSRows.
#define OPENMPS_ROWS_USE(NAMES)                                      \
  -(const openmps::RowState &)openmps_state {                        \
    return [self openmps_own];                                       \
  }                                                                  \
  -(void)openmps_willUseOn : (id<MTLCommandBuffer>)buffer {          \
    openmps::will_use_rows(NAMES, self, [self openmps_own], buffer); \
  }                                                                  \
  -(void)openmps_didRead {                                           \
    openmps::did_read_rows(NAMES, [self openmps_own]);               \
  }

/// Methods of temporaries, which only INSTEAD makes.
#define OPENMPS_TEMPORARY_ROWS(NAMES, DESCRIPTOR, INSTEAD)                                      \
  -(instancetype)initWithBuffer : (id<MTLBuffer>)buffer offset : (NSUInteger)offset descriptor  \
      : (DESCRIPTOR *)descriptor {                                                              \
    (void)buffer, (void)offset, (void)descriptor;                                               \
    const openmps::UnwindRelease half(self);                                                    \
    openmps::raise_unavailable(self, _cmd, INSTEAD);                                            \
  }                                                                                             \
  -(instancetype)initWithDevice : (id<MTLDevice>)device descriptor : (DESCRIPTOR *)descriptor { \
    (void)device, (void)descriptor;                                                             \
    const openmps::UnwindRelease half(self);                                                    \
    openmps::raise_unavailable(self, _cmd, INSTEAD);                                            \
  }                                                                                             \
  -(NSUInteger)readCount {                                                                      \
    return openmps::read_count([self openmps_own]);                                             \
  }                                                                                             \
  -(void)setReadCount : (NSUInteger)readCount {                                                 \
    openmps::set_read_count(NAMES, [self openmps_own], readCount);                              \
  }
