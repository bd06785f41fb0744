// SPDX-License-Identifier: Apache-2.0
// Functions of the umbrella header [MetalPerformanceShaders.h].

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#import "metal/OnEngine.hh"

BOOL MPSSupportsMTLDevice(id<MTLDevice> device) { return [(id)device respondsToSelector:@selector(openmps_engine)]; }

id<MTLDevice> MPSGetPreferredDevice(MPSDeviceOptions options) {
  (void)options;                          // no device of openmps is low-power or removable
  return MTLCreateSystemDefaultDevice();  // devices ignore retain and release
}

// Hints, which are checked and not used: the engine plans temporaries' memory for a whole command buffer.
void MPSHintTemporaryMemoryHighWaterMark(id<MTLCommandBuffer> cmdBuf, NSUInteger bytes) {
  (void)bytes;
  openmps::command_buffer_of(cmdBuf, "MPSHintTemporaryMemoryHighWaterMark: cmdBuf");
}

void MPSSetHeapCacheDuration(id<MTLCommandBuffer> cmdBuf, double seconds) {
  (void)seconds;
  openmps::command_buffer_of(cmdBuf, "MPSSetHeapCacheDuration: cmdBuf");
}
