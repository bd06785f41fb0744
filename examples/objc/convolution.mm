// SPDX-License-Identifier: Apache-2.0
// A convolution that uses only Apple's interfaces: a data source, one input image, one output image. The result is
// printed and compared with plain loops. The same source builds on macOS and on Linux:
//
//   clang++-19 $(python -m mpscnn.config --objcflags) convolution.mm -o convolution $(python -m mpscnn.config --libs)
//
// (on macOS: clang++). Manual retain and release, as everywhere in this project.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <cmath>
#include <cstdio>
#include <vector>

enum { kHeight = 4, kWidth = 5, kIn = 3, kOut = 2, kKernel = 3 };

// Weights in MPS's order: [output channel][kernel row][kernel column][input channel].
@interface EdgeWeights : NSObject <MPSCNNConvolutionDataSource> {
  MPSCNNConvolutionDescriptor *_descriptor;
  float *_weights;
  float _bias[kOut];
}
@end

@implementation EdgeWeights

- (instancetype)init {
  self = [super init];
  if (self) {
    _descriptor = [[MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:kKernel
                                                                           kernelHeight:kKernel
                                                                   inputFeatureChannels:kIn
                                                                  outputFeatureChannels:kOut] retain];
    _bias[0] = 0.5f;
    _bias[1] = -1.0f;
  }
  return self;
}

- (void)dealloc {
  [self purge];
  [_descriptor release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  return [[[self class] allocWithZone:zone] init];
}

- (MPSDataType)dataType {
  return MPSDataTypeFloat32;
}

- (MPSCNNConvolutionDescriptor *)descriptor {
  return _descriptor;
}

// Called before weights and biasTerms are read; purge is called when they are no longer needed.
- (BOOL)load {
  if (!_weights) {
    const int count = kOut * kKernel * kKernel * kIn;
    _weights = new float[count];
    for (int i = 0; i < count; ++i) _weights[i] = static_cast<float>((i * 7) % 11 - 5) / 4;
  }
  return YES;
}

- (void)purge {
  delete[] _weights;
  _weights = nullptr;
}

- (void *)weights {
  return _weights;
}

- (float *)biasTerms {
  return _bias;
}

- (NSString *)label {
  return @"edges";
}

@end

// The expected value: zero padding of one pixel, the window centred on the output pixel.
static float expected(const std::vector<float> &x, const float *weights, const float *bias, int row, int column, int out) {
  float sum = bias[out];
  for (int i = 0; i < kKernel; ++i) {
    for (int j = 0; j < kKernel; ++j) {
      const int y = row + i - kKernel / 2, z = column + j - kKernel / 2;
      if (y < 0 || y >= kHeight || z < 0 || z >= kWidth) continue;
      for (int c = 0; c < kIn; ++c) {
        sum += x[(y * kWidth + z) * kIn + c] * weights[((out * kKernel + i) * kKernel + j) * kIn + c];
      }
    }
  }
  return sum;
}

static int run() {
  id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
  if (!device || !MPSSupportsMTLDevice(device)) {
    std::fprintf(stderr, "There is no device that supports Metal Performance Shaders.\n");
    return 1;
  }
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  EdgeWeights *source = [[[EdgeWeights alloc] init] autorelease];
  MPSCNNConvolution *convolution = [[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease];
  convolution.edgeMode = MPSImageEdgeModeZero;

  MPSImageDescriptor *form =
      [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                     width:kWidth
                                                    height:kHeight
                                           featureChannels:kIn];
  MPSImage *input = [[[MPSImage alloc] initWithDevice:device imageDescriptor:form] autorelease];
  form.featureChannels = kOut;
  MPSImage *output = [[[MPSImage alloc] initWithDevice:device imageDescriptor:form] autorelease];

  std::vector<float> x(kHeight * kWidth * kIn), y(kHeight * kWidth * kOut);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) / 8 - 0.75f;
  [input writeBytes:x.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];

  id<MTLCommandBuffer> commandBuffer = [queue commandBuffer];
  [convolution encodeToCommandBuffer:commandBuffer sourceImage:input destinationImage:output];
  [output synchronizeOnCommandBuffer:commandBuffer];
  [commandBuffer commit];
  [commandBuffer waitUntilCompleted];
  if (commandBuffer.status != MTLCommandBufferStatusCompleted) {
    std::fprintf(stderr, "The command buffer failed: %s\n", [[commandBuffer.error description] UTF8String]);
    return 1;
  }
  [output readBytes:y.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];

  [source load];
  const float *weights = static_cast<const float *>([source weights]);
  float worst = 0;
  for (int row = 0; row < kHeight; ++row) {
    for (int column = 0; column < kWidth; ++column) {
      std::printf("%s(", column ? "  " : "");
      for (int out = 0; out < kOut; ++out) {
        const float got = y[(row * kWidth + column) * kOut + out];
        const float error = std::fabs(got - expected(x, weights, [source biasTerms], row, column, out));
        worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
        std::printf("%s%7.3f", out ? ", " : "", got);
      }
      std::printf(")");
    }
    std::printf("\n");
  }
  std::printf("device %s, max difference from plain loops %g\n", [device.name UTF8String], worst);
  return worst <= 1e-5f ? 0 : 1;
}

int main() {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const int status = run();
  [pool drain];
  return status;
}
