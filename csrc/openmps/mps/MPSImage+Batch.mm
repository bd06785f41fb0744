// SPDX-License-Identifier: Apache-2.0
// Arrays of images, and the allocator of images that outlive their command buffer [MPSImage.h].

#import "mps/ImageState.hh"

@implementation MPSImageAllocatorOnEngine

OPENMPS_UNKNOWN_SELECTORS

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}

- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}

- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel {
  (void)kernel;
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(cmdBuf, "MPSImageAllocator: cmdBuf");
  return [[[MPSImage alloc] initWithDevice:[own device] imageDescriptor:descriptor] autorelease];
}

- (MPSImageBatch *)imageBatchForCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              imageDescriptor:(MPSImageDescriptor *)descriptor
                                       kernel:(MPSKernel *)kernel
                                        count:(NSUInteger)count {
  NSMutableArray *batch = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i)
    [batch addObject:[self imageForCommandBuffer:cmdBuf imageDescriptor:descriptor kernel:kernel]];
  return batch;
}

@end

namespace openmps {

id<MPSImageAllocator> permanent_image_allocator() {
  static MPSImageAllocatorOnEngine *const allocator = [[MPSImageAllocatorOnEngine alloc] init];
  return allocator;
}

}  // namespace openmps

NSInteger MPSImageBatchIterate(MPSImageBatch *batch, NSInteger (^iteratorBlock)(MPSImage *, NSUInteger)) {
  if (iteratorBlock == nil) openmps::raise_argument(@"MPSImageBatchIterate: iteratorBlock is nil.");
  // Stops at the first result other than 0 and returns it.
  const NSUInteger count = [batch count];
  for (NSUInteger i = 0; i < count; ++i) {
    const NSInteger answer = iteratorBlock([batch objectAtIndex:i], i);
    if (answer != 0) return answer;
  }
  return 0;
}

void MPSImageBatchSynchronize(MPSImageBatch *batch, id<MTLCommandBuffer> cmdBuf) {
  for (MPSImage *image in batch) [image synchronizeOnCommandBuffer:cmdBuf];
}

NSUInteger MPSImageBatchResourceSize(MPSImageBatch *batch) {
  NSUInteger sum = 0;
  for (MPSImage *image in [NSSet setWithArray:batch]) sum += [image resourceSize];
  return sum;
}
