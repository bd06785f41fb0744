// SPDX-License-Identifier: Apache-2.0
// MPSCNNMultiaryKernel: properties by index, and the encode functions with three sources. Apple has no concrete
// subclass among the classes that openmps declares, so the test defines its own, as openmps does. Prints "N passed, N
// failed".

#include "engine/problem/problem.hpp"
#import "mps/MPSCNNKernel+Engine.hh"
#import "mps_test.hh"

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

/// Concatenation: the channels of the first source, then those of the second, and so on.
struct ConcatenationState : openmps::Extends<ConcatenationState, openmps::CNNMultiaryKernelState> {
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    NSUInteger sum = 0;
    for (const NSUInteger count : channels) sum += count;
    return sum;
  }
  openmps::Problem make_problem(const openmps::Encode &encode) const override {
    // No problem has three sources, so the host copies the sources. The views hold the memory.
    const auto sources = encode.src;
    std::vector<openmps::Window> windows;
    for (const auto &slot : const_slots()) windows.push_back(slot.window());
    return openmps::HostTask{[sources, windows, dst = encode.dst] {
      using openmps::HostAccess;
      const HostAccess of_dst(dst.memory, HostAccess::Mode::update);
      auto *const to = reinterpret_cast<float *>(of_dst.data() + dst.offset);
      std::int64_t first = 0;
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const auto &src = sources[i];
        const HostAccess of_src(src.memory, HostAccess::Mode::read);
        const auto *const from = reinterpret_cast<const float *>(of_src.data() + src.offset);
        for (std::int64_t n = 0; n < dst.n; ++n)
          for (std::int64_t y = 0; y < dst.h; ++y)
            for (std::int64_t x = 0; x < dst.w; ++x)
              for (std::int64_t k = 0; k < src.c; ++k) {
                const std::int64_t from_y = y * windows[i].stride_h + windows[i].start_h;
                const std::int64_t from_x = x * windows[i].stride_w + windows[i].start_w;
                const bool inside = from_y >= 0 && from_y < src.h && from_x >= 0 && from_x < src.w;
                to[n * dst.n_stride + y * dst.h_stride + x * dst.w_stride + first + k] =
                    inside ? from[n * src.n_stride + from_y * src.h_stride + from_x * src.w_stride + k] : 0;
              }
        first += src.c;
      }
    }};
  }
  Class result_state_class() const override { return [MPSNNGradientState class]; }
};

}  // namespace

@interface TestConcatenation : MPSCNNMultiaryKernel
@end

@implementation TestConcatenation
+ (openmps::KernelState *)openmps_newState {
  return new ConcatenationState();
}
@end

namespace {

TestConcatenation *make_kernel(NSUInteger count = 3) {
  TestConcatenation *kernel = [[[TestConcatenation alloc] initWithDevice:device sourceCount:count] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return kernel;
}

/// Three sources with different channels.
struct Sources {
  Tensor a = Tensor::random(2, 3, 4, 4, 1), b = Tensor::random(2, 3, 4, 8, 2), c = Tensor::random(2, 3, 4, 3, 3);
  NSArray *images() const { return [NSArray arrayWithObjects:make_image(a), make_image(b), make_image(c), nil]; }
  NSArray *batches() const { return [NSArray arrayWithObjects:make_batch(a), make_batch(b), make_batch(c), nil]; }
  Tensor expected() const {
    Tensor y(2, 3, 4, 15);
    for (long i = 0; i < 2; ++i)
      for (long row = 0; row < 3; ++row)
        for (long column = 0; column < 4; ++column)
          for (long k = 0; k < 15; ++k)
            y.at(i, row, column, k) = k < 4    ? a.at(i, row, column, k)
                                      : k < 12 ? b.at(i, row, column, k - 4)
                                               : c.at(i, row, column, k - 12);
    return y;
  }
};

void test_properties() {
  MPSCNNMultiaryKernel *kernel = [[[MPSCNNMultiaryKernel alloc] initWithDevice:device sourceCount:3] autorelease];
  check([kernel sourceCount] == 3, "sourceCount");
  const MPSOffset start = [kernel offsetAtIndex:2];
  check(start.x == 0 && start.y == 0 && start.z == 0 && [kernel kernelWidthAtIndex:2] == 1 &&
            [kernel strideInPixelsYatIndex:2] == 1 && [kernel dilationRateXatIndex:2] == 1 &&
            [kernel sourceFeatureChannelMaxCountAtIndex:2] == NSUIntegerMax &&
            [kernel edgeModeAtIndex:2] == MPSImageEdgeModeZero,
        "the properties of the start");
  const MPSOffset offset = {1, -2, 3};
  [kernel setOffset:offset atIndex:1];
  [kernel setSourceFeatureChannelOffset:4 atIndex:1];
  [kernel setSourceFeatureChannelMaxCount:8 atIndex:1];
  [kernel setEdgeMode:MPSImageEdgeModeClamp atIndex:1];
  [kernel setKernelWidth:2 atIndex:1];
  [kernel setKernelHeight:3 atIndex:1];
  [kernel setStrideInPixelsX:4 atIndex:1];
  [kernel setStrideInPixelsY:5 atIndex:1];
  [kernel setDilationRateX:6 atIndex:1];
  [kernel setDilationRateY:7 atIndex:1];
  [kernel setDestinationFeatureChannelOffset:8];
  for (MPSCNNMultiaryKernel *twin : {kernel, (MPSCNNMultiaryKernel *)[[kernel copy] autorelease], archived(kernel)}) {
    const MPSOffset got = [twin offsetAtIndex:1];
    check([twin sourceCount] == 3 && got.x == 1 && got.y == -2 && got.z == 3, "offset at index 1");
    check([twin sourceFeatureChannelOffsetAtIndex:1] == 4 && [twin sourceFeatureChannelMaxCountAtIndex:1] == 8 &&
              [twin edgeModeAtIndex:1] == MPSImageEdgeModeClamp && [twin kernelWidthAtIndex:1] == 2 &&
              [twin kernelHeightAtIndex:1] == 3 && [twin strideInPixelsXatIndex:1] == 4 &&
              [twin strideInPixelsYatIndex:1] == 5 && [twin dilationRateXatIndex:1] == 6 &&
              [twin dilationRateYatIndex:1] == 7,
          "all properties at index 1");
    check([twin kernelWidthAtIndex:0] == 1 && [twin strideInPixelsXatIndex:2] == 1, "the others are left alone");
    check([twin destinationFeatureChannelOffset] == 8, "destinationFeatureChannelOffset");
  }
  check_raises("an index of no source", kArgument, "index (3) is not less than sourceCount (3)",
               [&] { [kernel kernelWidthAtIndex:3]; });
  check_raises("setting at no source", kArgument, "index (7) is not less than sourceCount (3)",
               [&] { [kernel setKernelWidth:1 atIndex:7]; });
  check_raises("no source", kArgument, "sourceCount (0) is not between 1 and 1024",
               [] { [[MPSCNNMultiaryKernel alloc] initWithDevice:device sourceCount:0]; });
  check_raises("without a count", kArgument, "use -initWithDevice:sourceCount:",
               [] { [(id)[MPSCNNMultiaryKernel alloc] initWithDevice:device]; });
}

void test_abstract_class() {
  MPSCNNMultiaryKernel *kernel = [[[MPSCNNMultiaryKernel alloc] initWithDevice:device sourceCount:1] autorelease];
  MPSImage *x = make_nan_image(1, 2, 2, 4);
  check_raises("the base class", kArgument, "The class cannot be encoded; use one of its subclasses", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                     sourceImages:[NSArray arrayWithObject:x]
                 destinationImage:make_nan_image(1, 2, 2, 4)];
  });
}

void test_encode_forms() {
  const Sources sources;
  TestConcatenation *kernel = make_kernel();
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *given = make_nan_image(2, 3, 4, 15);
  [kernel encodeToCommandBuffer:buffer sourceImages:sources.images() destinationImage:given];
  MPSImage *returned = [kernel encodeToCommandBuffer:buffer sourceImages:sources.images()];
  MPSState *state = nil;
  MPSImage *with_state = [kernel encodeToCommandBuffer:buffer
                                          sourceImages:sources.images()
                                      destinationState:&state
                           destinationStateIsTemporary:NO];
  MPSImageBatch *batch = make_batch(Tensor(2, 3, 4, 15, NAN));
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:sources.batches() destinationImages:batch];
  MPSImageBatch *returned_batch = [kernel encodeBatchToCommandBuffer:buffer sourceImages:sources.batches()];
  MPSStateBatch *states = nil;
  MPSImageBatch *batch_with_states = [kernel encodeBatchToCommandBuffer:buffer
                                                           sourceImages:sources.batches()
                                                      destinationStates:&states
                                            destinationStateIsTemporary:NO];
  run(buffer);
  const Tensor expected = sources.expected();
  check_equal("a given image", read_image(given), expected, 0);
  check_equal("a returned image", read_image(returned), expected, 0);
  check_equal("a returned image with a state", read_image(with_state), expected, 0);
  check([state isKindOfClass:[MPSNNGradientState class]] && [states count] == 2, "states of the class");
  for (NSUInteger i = 0; i < 2; ++i)
    for (MPSImageBatch *images : {batch, returned_batch, batch_with_states})
      check_equal("a batch", read_image([images objectAtIndex:i]), expected.image(static_cast<long>(i)), 0);
}

/// Each source has its own offset, stride and channels; temporary ones are counted.
void test_slots() {
  TestConcatenation *kernel = make_kernel(2);
  const MPSOffset offset = {1, 0, 1};
  [kernel setOffset:offset atIndex:1];
  [kernel setStrideInPixelsX:2 atIndex:1];
  [kernel setSourceFeatureChannelOffset:4 atIndex:1];
  [kernel setSourceFeatureChannelMaxCount:2 atIndex:1];
  [kernel setClipRect:MTLRegionMake3D(1, 0, 0, 2, 2, 1)];
  const Tensor a = Tensor::random(1, 2, 2, 4, 4), b = Tensor::random(2, 2, 5, 8, 5);
  MPSImage *result = make_nan_image(1, 2, 3, 6);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSTemporaryImage *temporary = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                    imageDescriptor:describe(1, 2, 2, 4)];
  [temporary setReadCount:2];
  [[[[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:0] autorelease] encodeToCommandBuffer:buffer
                                                                                      sourceImage:make_image(a)
                                                                                 destinationImage:temporary];
  [kernel encodeToCommandBuffer:buffer
                   sourceImages:[NSArray arrayWithObjects:temporary, make_image(b), nil]
               destinationImage:result];
  check([temporary readCount] == 1, "an encode reads a source once");
  [temporary setReadCount:0];
  run(buffer);
  Tensor expected(1, 2, 3, 6, NAN);
  for (long y = 0; y < 2; ++y)
    for (long x = 0; x < 2; ++x)
      for (long k = 0; k < 6; ++k)
        expected.at(0, y, x + 1, k) = k < 4 ? a.at(0, y, x, k) : b.at(1, y, 1 + 2 * x, k);
  check_equal("slots of their own", read_image(result), expected, 0);

  const auto refused = [&](const char *part, NSArray *images) {
    check_raises(part, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:command_buffer() sourceImages:images destinationImage:make_nan_image(1, 2, 3, 6)];
    });
  };
  refused("sourceImages has 1 elements, expected one for each of 2 sources", [NSArray arrayWithObject:make_image(a)]);
  [kernel setSourceFeatureChannelOffset:6 atIndex:1];
  NSArray *images = [NSArray arrayWithObjects:make_image(a), make_image(b), nil];
  refused("sourceFeatureChannelOffset at index 1 (6) is not a multiple of 4", images);
  [kernel setSourceFeatureChannelOffset:8 atIndex:1];
  refused("sourceFeatureChannelOffset at index 1 (8) is not less than the 8 feature channels of sourceImages[1]",
          images);
  [kernel setKernelHeight:0 atIndex:0];
  refused("kernelHeight at index 0 (0) is not between 1 and", images);
}

/// MPSImageSizeEncodingState: the state of a convolution has the size of its source.
void test_size_of_the_source() {
  MPSCNNConvolution *kernel = [[[MPSCNNConvolution alloc]
      initWithDevice:device
             weights:make_source(descriptor_of(3, 3, 4, 8), random_values(3 * 3 * 4 * 8, 1), {})] autorelease];
  MPSImage *x = make_image(Tensor(1, 5, 7, 4, 1));
  id<MPSImageSizeEncodingState> state =
      (id<MPSImageSizeEncodingState>)[kernel resultStateForSourceImage:x
                                                          sourceStates:nil
                                                      destinationImage:make_nan_image(1, 5, 7, 8)];
  check([state sourceWidth] == 7 && [state sourceHeight] == 5, "sourceWidth and sourceHeight");
}

}  // namespace

int main() {
  return run_tests({test_properties, test_abstract_class, test_encode_forms, test_slots, test_size_of_the_source});
}
