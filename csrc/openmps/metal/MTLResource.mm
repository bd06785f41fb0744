// SPDX-License-Identifier: Apache-2.0
// Properties that buffers and textures share [MTLResource.h].

#import "metal/MTLResourceOnEngine.hh"

namespace openmps {

void check_options(const char *what, MTLResourceOptions options) {
  const NSUInteger storage = (options >> MTLResourceStorageModeShift) & 0xf;
  if (storage > MTLStorageModePrivate)
    raise_argument(@"%s: options (0x%lx) ask for storage mode %lu, which this device does not have (it has 0 to 2).",
                   what, (unsigned long)options, (unsigned long)storage);
}

bool is_copied(MTLResourceOptions options) {
  return device_rules().copies_managed_storage &&
         ((options >> MTLResourceStorageModeShift) & 0xf) == MTLStorageModeManaged;
}

}  // namespace openmps

@implementation MTLResourceOnEngine

- (id<MTLDevice>)device {
  return _device.get();
}

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (MTLCPUCacheMode)cpuCacheMode {
  return static_cast<MTLCPUCacheMode>(_options & 0xf);
}

- (MTLStorageMode)storageMode {
  return static_cast<MTLStorageMode>((_options >> MTLResourceStorageModeShift) & 0xf);
}

- (MTLHazardTrackingMode)hazardTrackingMode {
  const NSUInteger mode = (_options >> MTLResourceHazardTrackingModeShift) & 0x3;
  if (mode != MTLHazardTrackingModeDefault) return static_cast<MTLHazardTrackingMode>(mode);
  // Metal's default: tracked, on heaps untracked [MTLResource.h].
  return _heap ? MTLHazardTrackingModeUntracked : MTLHazardTrackingModeTracked;
}

- (MTLResourceOptions)resourceOptions {
  return _options;
}

- (id<MTLHeap>)heap {
  return _heap.get();
}

- (NSUInteger)heapOffset {
  return _heapOffset;
}

- (NSUInteger)allocatedSize {
  return _memory->size();
}

- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  if (state < MTLPurgeableStateKeepCurrent || state > MTLPurgeableStateEmpty)
    openmps::raise_argument(@"%@: state (%lu) is not one of 1 to 4.", [self class], (unsigned long)state);
  const MTLPurgeableState before = _purgeable;
  // Contents are never discarded; the volatile states permit it, but do not require it.
  if (state != MTLPurgeableStateKeepCurrent) _purgeable = state;
  return before;
}

- (void)makeAliasable {
  if (!_makeAliasable) openmps::raise_usage(@"%@: makeAliasable is for resources of a heap.", [self class]);
  if (!_aliasable) _makeAliasable();
  _aliasable = YES;
}

- (BOOL)isAliasable {
  return _aliasable;
}

@end
