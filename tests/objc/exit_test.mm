// SPDX-License-Identifier: Apache-2.0
// A program may end while its command buffers are under way: the one below does, many times, as a child of itself.
#import <Foundation/Foundation.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

@interface ConstantWeights : NSObject<MPSCNNConvolutionDataSource> {
 @public
  std::vector<float> values;
  MPSCNNConvolutionDescriptor *descriptor;
}
@end

@implementation ConstantWeights
- (BOOL)load {
  return YES;
}
- (void)purge {
}
- (MPSDataType)dataType {
  return MPSDataTypeFloat32;
}
- (MPSCNNConvolutionDescriptor *)descriptor {
  return descriptor;
}
- (void *)weights {
  return values.data();
}
- (float *)biasTerms {
  return nullptr;
}
- (NSString *)label {
  return nil;
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  return [self retain];
}
- (void)dealloc {
  [descriptor release];
  [super dealloc];
}
@end

/// Commits twenty convolutions and returns after the first of them.
static int leave_work_behind() {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueue];
  ConstantWeights *weights = [[ConstantWeights alloc] init];
  weights->values.assign(64 * 64 * 9, 0.1f);
  weights->descriptor = [[MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:3
                                                                                 kernelHeight:3
                                                                         inputFeatureChannels:64
                                                                        outputFeatureChannels:64] retain];
  MPSCNNConvolution *kernel = [[MPSCNNConvolution alloc] initWithDevice:device weights:weights];
  MPSImageDescriptor *shape = [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                                             width:96
                                                                            height:96
                                                                   featureChannels:64];
  MPSImage *source = [[MPSImage alloc] initWithDevice:device imageDescriptor:shape];
  MPSImage *result = [[MPSImage alloc] initWithDevice:device imageDescriptor:shape];
  for (int i = 0; i < 20; ++i) {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [kernel encodeToCommandBuffer:commands sourceImage:source destinationImage:result];
    [commands commit];
    if (i == 0) [commands waitUntilCompleted];
  }
  [kernel release];
  [weights release];
  [pool release];
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return leave_work_behind();
  int passed = 0, failed = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      execl(argv[0], argv[0], "child", static_cast<char *>(nullptr));
      _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status == 0) {
      ++passed;
    } else {
      ++failed;
      std::printf("a child ended with status %#x\n", static_cast<unsigned>(status));
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
