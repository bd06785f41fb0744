// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/MTLResourceOnEngine.hh"
#include "metal/heap_space.hpp"

namespace openmps {
/// Where a resource of that many bytes may start on a heap, and how many it takes there.
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
