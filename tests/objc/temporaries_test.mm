// SPDX-License-Identifier: Apache-2.0
// Objects that live on one command buffer: temporary images, and states. Prints "N passed, N failed".

#import "metal_test.hh"

namespace {

// ------------------------------------------------------------------------------------------- temporary images

void test_temporaries() {
  section = "temporary images";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  MPSTemporaryImage *image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                imageDescriptor:described(kFloat32, 2, 3, 8, 2)];
  CHECK([image readCount] == 1 && [image isKindOfClass:[MPSTemporaryImage class]] && [image numberOfImages] == 2);
  float bytes[96];
  CHECK_RAISES(kUsage, PARTS("temporary", "CPU"), [image readBytes:bytes dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kUsage, PARTS("temporary", "CPU"), [image writeBytes:bytes dataLayout:kHWC imageIndex:0]);
  [image setLabel:@"middle"];
  CHECK([[image texture] storageMode] == MTLStorageModePrivate);
  CHECK_RAISES(kUsage, PARTS("MPSTemporaryImage", "middle", "readCount 1", "must be 0"), [buffer commit]);
  CHECK([buffer status] == MTLCommandBufferStatusNotEnqueued);  // it can still be fixed
  CHECK(MPSImageBatchIncrementReadCount([NSArray arrayWithObjects:image, image, nil], 2) == 1 &&
        [image readCount] == 3);
  MPSImage *sub = [image subImageWithFeatureChannelRange:NSMakeRange(4, 4)];
  CHECK([sub isKindOfClass:[MPSTemporaryImage class]] && [(MPSTemporaryImage *)sub readCount] == 1 &&
        [image readCount] == 4);
  [(MPSTemporaryImage *)sub setReadCount:0];
  CHECK([image readCount] == 3);
  CHECK([[image batchRepresentation] count] == 2 && [image readCount] == 5);
  for (MPSTemporaryImage *one in [image batchRepresentation]) [one setReadCount:0];
  CHECK([image readCount] == 5);
  [image setReadCount:0];
  CHECK_RAISES(kUsage, PARTS("middle", "readCount of 0"), [image setReadCount:1]);
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [image texture]);
  CHECK(MPSImageBatchIncrementReadCount([NSArray arrayWithObject:image], 1) == 1 && [image readCount] == 0);
  // The two views of the first batchRepresentation were never read.
  CHECK_RAISES(kUsage, PARTS("readCount 1"), [buffer commit]);

  buffer = [queue commandBuffer];
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer imageDescriptor:described(kFloat32, 2, 3, 8)];
  [image setReadCount:0];
  [buffer commit];
  [buffer waitUntilCompleted];
  CHECK([buffer status] == MTLCommandBufferStatusCompleted);
  CHECK_RAISES(kUsage, PARTS("committed already"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer imageDescriptor:described(kFloat32, 2, 3, 8)]);
  CHECK_RAISES(kArgument, PARTS("MPSTemporaryImage: width (0)"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:[queue commandBuffer]
                                                  imageDescriptor:described(kFloat32, 2, 0, 8)]);
  CHECK_RAISES(kArgument, PARTS("commandBuffer is nil"),
               [MPSTemporaryImage temporaryImageWithCommandBuffer:nil imageDescriptor:described(kFloat32, 2, 3, 8)]);
  {
    // Deallocated with reads left: commit raises.
    id<MTLCommandBuffer> other = [queue commandBuffer];
    {
      const Pool inner;
      [MPSTemporaryImage temporaryImageWithCommandBuffer:other imageDescriptor:described(kFloat16, 9, 9, 8)];
    }
    CHECK_RAISES(kUsage, PARTS("(1 x 9 x 9 x 8)", "readCount 1"), [other commit]);
  }
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA16Float
                                                                                     width:6
                                                                                    height:5
                                                                                 mipmapped:NO];
  [texture setTextureType:MTLTextureType2DArray];
  [texture setArrayLength:6];
  [texture setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  buffer = [queue commandBuffer];
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer textureDescriptor:texture featureChannels:7];
  CHECK([image numberOfImages] == 3 && [image featureChannels] == 7 && [image width] == 6);
  image = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer textureDescriptor:texture];
  CHECK([image numberOfImages] == 1 && [image featureChannels] == 24);
  [MPSTemporaryImage prefetchStorageWithCommandBuffer:buffer
                                  imageDescriptorList:[NSArray arrayWithObject:described(kFloat16, 1, 1, 1)]];
  MPSImage *allocated = [[MPSTemporaryImage defaultAllocator] imageForCommandBuffer:buffer
                                                                    imageDescriptor:described(kFloat16, 1, 1, 1)
                                                                             kernel:(MPSKernel *)nil];
  CHECK([allocated isKindOfClass:[MPSTemporaryImage class]]);
}

// ---------------------------------------------------------------------------------------------------- states

void test_states() {
  section = "states";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                     width:6
                                                                                    height:5
                                                                                 mipmapped:NO];
  MPSStateResourceList *list = [MPSStateResourceList resourceListWithBufferSizes:16, (NSUInteger)32, (NSUInteger)0];
  [list appendTexture:texture];
  MPSState *state = [[[MPSState alloc] initWithDevice:device resourceList:list] autorelease];
  CHECK([state resourceCount] == 3 && ![state isTemporary] && [state readCount] == 0);
  CHECK([state bufferSizeAtIndex:1] == 32 && [state resourceTypeAtIndex:2] == MPSStateResourceTypeTexture);
  CHECK([state textureInfoAtIndex:2].width == 6 && [state textureInfoAtIndex:2].pixelFormat == MTLPixelFormatR32Float);
  CHECK([state resourceAtIndex:0 allocateMemory:NO] == nil && [state resourceSize] == 16 + 32 + 120);
  id<MTLBuffer> first = (id<MTLBuffer>)[state resourceAtIndex:0 allocateMemory:YES];
  CHECK([first length] == 16 && [state resource] == first && [first contents] != nullptr);
  [first didModifyRange:NSMakeRange(0, 16)];  // on a Mac it may be managed
  [state setReadCount:7];
  CHECK([state readCount] == 0);
  CHECK_RAISES(kArgument, PARTS("index (3)", "resourceCount (3)"), [state resourceAtIndex:3 allocateMemory:YES]);
  CHECK_RAISES(kArgument, PARTS("bufferSize (0)"), [[MPSState alloc] initWithDevice:device bufferSize:0]);
  CHECK([[MPSStateResourceList resourceListWithTextureDescriptors:texture, texture, nil]
      isKindOfClass:[MPSStateResourceList class]]);
  CHECK([[[[MPSState alloc] initWithResource:first] autorelease] resourceCount] == 1);
  CHECK([[[[MPSState alloc] initWithResources:nil] autorelease] resourceCount] == 0);
  CHECK([[[[MPSState alloc] initWithDevice:device
                         textureDescriptor:texture] autorelease] resourceTypeAtIndex:0] == MPSStateResourceTypeTexture);
  id<MTLCommandBuffer> buffer = [queue commandBuffer];
  MPSState *temporary = [MPSState temporaryStateWithCommandBuffer:buffer bufferSize:64];
  CHECK([temporary isTemporary] && [temporary readCount] == 1);
  CHECK([(id<MTLBuffer>)[temporary resourceAtIndex:0 allocateMemory:YES] contents] == nullptr);
  CHECK(![[MPSState temporaryStateWithCommandBuffer:buffer] isTemporary]);
  CHECK_RAISES(kUsage, PARTS("MPSState", "readCount 1"), [buffer commit]);
  NSArray *batch = [NSArray arrayWithObjects:temporary, temporary, state, nil];
  CHECK(MPSStateBatchIncrementReadCount(batch, 1) == 2 && [temporary readCount] == 2);
  CHECK(MPSStateBatchResourceSize(batch) == 64 + [state resourceSize]);
  MPSStateBatchSynchronize(batch, buffer);
  [temporary setReadCount:0];
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [temporary setReadCount:1]);
  CHECK_RAISES(kUsage, PARTS("readCount of 0"), [temporary resourceAtIndex:0 allocateMemory:YES]);
  [buffer commit];
  [buffer waitUntilCompleted];
  CHECK_RAISES(kMissing, PARTS("MPSState foo"), [(id<Unknown>)state foo]);
}

}  // namespace

int main() { return run_tests({test_temporaries, test_states}); }
