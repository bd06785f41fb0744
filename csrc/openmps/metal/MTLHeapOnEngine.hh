// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/MTLResourceOnEngine.hh"
#include "metal/heap_space.hpp"

namespace openmps {
/// Alignment of resources on a heap; their sizes are rounded up to it.
constexpr NSUInteger kHeapAlignment = 256;
id<MTLHeap> new_heap(id<OpenMPSDevice> device, MTLHeapDescriptor *descriptor);
}  // namespace openmps

@interface MTLHeapOnEngine : NSObject <MTLHeap> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Label _label;
  std::shared_ptr<openmps::Memory> _memory;
  std::shared_ptr<openmps::HeapSpace> _space;
  MTLResourceOptions _options;
  MTLHeapType _type;
  MTLPurgeableState _purgeable;
}
@end
