// SPDX-License-Identifier: Apache-2.0
// Heaps: one block of memory for many buffers and textures [MTLHeap.h].

#import "metal/MTLHeapOnEngine.hh"

#include <atomic>

namespace openmps {
namespace {

/// State of an MTLHeapDescriptor.
struct HeapDescriptorState {
  NSUInteger size = 0;
  MTLResourceOptions options = MTLResourceStorageModePrivate;
  MTLHeapType type = MTLHeapTypeAutomatic;
};

HeapDescriptorState &descriptor_state_of(void *pointer) { return *static_cast<HeapDescriptorState *>(pointer); }

/// A range of the heap, freed once: by makeAliasable or with its last user.
struct Place {
  Place(std::shared_ptr<HeapSpace> in, std::uint64_t at) : space(std::move(in)), offset(at) {}
  ~Place() { give_back(); }
  void give_back() {
    if (!given_back.exchange(true)) space->give_back(offset);
  }
  std::shared_ptr<HeapSpace> space;
  std::uint64_t offset;
  std::atomic<bool> given_back{false};
};

struct Piece {
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Place> place;  ///< automatic heaps only
  NSUInteger offset = 0;
  bool found = false;
};

}  // namespace

id<MTLHeap> new_heap(id<OpenMPSDevice> device, MTLHeapDescriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"MTLDevice: descriptor of a heap is nil.");
  if ([descriptor size] == 0) raise_argument(@"MTLHeapDescriptor: size (0) is less than the minimum (1).");
  if ([descriptor type] != MTLHeapTypeAutomatic && [descriptor type] != MTLHeapTypePlacement)
    raise_argument(@"MTLHeapDescriptor: type (%ld) is not automatic (0) or placement (1).", (long)[descriptor type]);
  check_options("MTLHeapDescriptor", [descriptor resourceOptions]);
  if ([descriptor size] > [device maxBufferLength]) return nil;
  const NSUInteger size = ([descriptor size] + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment;
  const std::shared_ptr<Engine> &engine = [device openmps_engine];
  const auto mode = static_cast<MTLStorageMode>(([descriptor resourceOptions] >> MTLResourceStorageModeShift) & 0xf);
  // Blocks with parts cannot move, so the host's storage has to be chosen now.
  std::shared_ptr<Memory> memory =
      mode == MTLStorageModePrivate ? Memory::lazy_image(engine, size) : Memory::lazy(engine, size);
  if (!try_allocate(memory)) return nil;
  MTLHeapOnEngine *heap = [[MTLHeapOnEngine alloc] init];
  heap->_device = Ref<id<OpenMPSDevice>>(device);
  heap->_memory = std::move(memory);
  heap->_space = std::make_shared<HeapSpace>(size);
  heap->_options = [descriptor resourceOptions];
  heap->_type = [descriptor type];
  heap->_purgeable = MTLPurgeableStateNonVolatile;
  return heap;
}

}  // namespace openmps

@implementation MTLHeapOnEngine

- (id<MTLDevice>)device {
  return _device.get();
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (MTLStorageMode)storageMode {
  return static_cast<MTLStorageMode>((_options >> MTLResourceStorageModeShift) & 0xf);
}

- (MTLCPUCacheMode)cpuCacheMode {
  return static_cast<MTLCPUCacheMode>(_options & 0xf);
}

- (MTLHazardTrackingMode)hazardTrackingMode {
  const NSUInteger mode = (_options >> MTLResourceHazardTrackingModeShift) & 0x3;
  return mode == MTLHazardTrackingModeDefault ? MTLHazardTrackingModeUntracked
                                              : static_cast<MTLHazardTrackingMode>(mode);
}

- (MTLResourceOptions)resourceOptions {
  return _options;
}

- (NSUInteger)size {
  return _space->size();
}

- (NSUInteger)usedSize {
  return _space->used();
}

- (NSUInteger)currentAllocatedSize {
  return _space->size();
}

- (MTLHeapType)type {
  return _type;
}

- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    openmps::raise_argument(@"MTLHeap: alignment (%lu) is not a power of two.", (unsigned long)alignment);
  return _space->largest(std::max(alignment, openmps::kHeapAlignment));
}

- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  const MTLPurgeableState before = _purgeable;
  if (state != MTLPurgeableStateKeepCurrent) _purgeable = state;
  return before;
}

- (void)openmps_checkOptions:(MTLResourceOptions)options {
  const NSUInteger mask = 0xff;  // storage and cache mode
  if ((options & mask) != (_options & mask))
    openmps::raise_argument(@"MTLHeap: options (0x%lx) of a resource differ from the heap's (0x%lx).",
                            (unsigned long)options, (unsigned long)_options);
}

- (openmps::Piece)openmps_place:(NSUInteger)bytes offset:(const NSUInteger *)offset {
  using namespace openmps;
  Piece piece;
  if (offset == nullptr) {
    if (_type != MTLHeapTypeAutomatic) raise_usage(@"MTLHeap: a heap of type placement (1) needs an offset.");
    const NSUInteger rounded = (std::min(bytes, [self size]) + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment;
    const auto at = bytes > [self size] ? std::nullopt : _space->take(rounded, kHeapAlignment);
    if (!at) return piece;
    piece.offset = *at;
    piece.place = std::make_shared<Place>(_space, *at);
  } else {
    if (_type != MTLHeapTypePlacement) raise_usage(@"MTLHeap: an offset is for heaps of type placement (1) only.");
    if (*offset % kHeapAlignment != 0)
      raise_argument(@"MTLHeap: offset (%lu) is not a multiple of %lu.", (unsigned long)*offset,
                     (unsigned long)kHeapAlignment);
    if (*offset > [self size] || bytes > [self size] - *offset)
      raise_argument(@"MTLHeap: %lu bytes from offset %lu end beyond size (%lu).", (unsigned long)bytes,
                     (unsigned long)*offset, (unsigned long)[self size]);
    piece.offset = *offset;
  }
  piece.found = true;
  piece.memory = Memory::part(_memory, piece.offset, bytes, [place = piece.place]() mutable { place.reset(); });
  return piece;
}

- (id)openmps_finish:(MTLResourceOnEngine *)resource piece:(const openmps::Piece &)piece {
  resource->_heap = openmps::Ref<id<MTLHeap>>(self);
  resource->_heapOffset = piece.offset;
  std::weak_ptr<openmps::Place> place = piece.place;
  resource->_makeAliasable = [place] {
    if (const auto taken = place.lock()) taken->give_back();
  };
  return resource;
}

- (id)openmps_newBuffer:(NSUInteger)length options:(MTLResourceOptions)options offset:(const NSUInteger *)offset {
  if (length == 0) openmps::raise_argument(@"MTLHeap: length (0) of a buffer is less than the minimum (1).");
  [self openmps_checkOptions:options];
  const openmps::Piece piece = [self openmps_place:length offset:offset];
  if (!piece.found) return nil;
  return [self openmps_finish:openmps::new_buffer(_device.get(), piece.memory, options, false) piece:piece];
}

- (id)openmps_newTexture:(MTLTextureDescriptor *)descriptor offset:(const NSUInteger *)offset {
  openmps::ImageView view;
  const auto bytes = openmps::check_texture_descriptor(descriptor, &view);
  [self openmps_checkOptions:[descriptor resourceOptions]];
  const openmps::Piece piece = [self openmps_place:bytes offset:offset];
  if (!piece.found) return nil;
  view.memory = piece.memory;
  return [self openmps_finish:openmps::new_texture(_device.get(), descriptor, view, [descriptor resourceOptions])
                        piece:piece];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  return [self openmps_newBuffer:length options:options offset:nullptr];
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor {
  return [self openmps_newTexture:descriptor offset:nullptr];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options offset:(NSUInteger)offset {
  return [self openmps_newBuffer:length options:options offset:&offset];
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor offset:(NSUInteger)offset {
  return [self openmps_newTexture:descriptor offset:&offset];
}

@end

@implementation MTLHeapDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::HeapDescriptorState;
  return self;
}

- (void)dealloc {
  delete &openmps::descriptor_state_of(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLHeapDescriptor *copy = [[[self class] allocWithZone:zone] init];
  openmps::descriptor_state_of(copy->_openmps) = openmps::descriptor_state_of(_openmps);
  return copy;
}

- (NSUInteger)size {
  return openmps::descriptor_state_of(_openmps).size;
}

- (void)setSize:(NSUInteger)size {
  openmps::descriptor_state_of(_openmps).size = size;
}

- (MTLResourceOptions)resourceOptions {
  return openmps::descriptor_state_of(_openmps).options;
}

- (void)setResourceOptions:(MTLResourceOptions)options {
  openmps::descriptor_state_of(_openmps).options = options;
}

- (MTLHeapType)type {
  return openmps::descriptor_state_of(_openmps).type;
}

- (void)setType:(MTLHeapType)type {
  openmps::descriptor_state_of(_openmps).type = type;
}

#define OPTION(TYPE, NAME, SETTER, SHIFT, MASK)                                                     \
  -(TYPE)NAME {                                                                                     \
    return static_cast<TYPE>((openmps::descriptor_state_of(_openmps).options >> (SHIFT)) & (MASK)); \
  }                                                                                                 \
  -(void)SETTER : (TYPE)value {                                                                     \
    MTLResourceOptions &options = openmps::descriptor_state_of(_openmps).options;                   \
    options = (options & ~(static_cast<NSUInteger>(MASK) << (SHIFT))) |                             \
              ((static_cast<NSUInteger>(value) & (MASK)) << (SHIFT));                               \
  }

OPTION(MTLCPUCacheMode, cpuCacheMode, setCpuCacheMode, MTLResourceCPUCacheModeShift, 0xf)
OPTION(MTLStorageMode, storageMode, setStorageMode, MTLResourceStorageModeShift, 0xf)
OPTION(MTLHazardTrackingMode, hazardTrackingMode, setHazardTrackingMode, MTLResourceHazardTrackingModeShift, 0x3)
#undef OPTION

@end
