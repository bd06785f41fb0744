// SPDX-License-Identifier: Apache-2.0
// MPSCNNDropout: each value is kept with a probability and divided by it, or set to 0 [MPSCNNDropout.h].
//
// unverified: everything about the random numbers. Here the k-th image that a kernel encodes, counted from 0 over all
// encodes, has mask k of the seed: kernels with the same seed have the same masks, and one kernel never repeats a mask.
// A copy of a kernel and one from an archive begin with mask 0.

#import "mps/MPSCNNDropout+Engine.hh"

#include <atomic>

#include "engine/problem/problem.hpp"
#include "engine/shared/dropout.hpp"

namespace openmps {
namespace {

/// Number of images that a kernel has encoded; 0 in a copy.
class ImageCounter {
 public:
  ImageCounter() = default;
  ImageCounter(const ImageCounter &) {}
  ImageCounter &operator=(const ImageCounter &) = delete;
  std::uint64_t take(std::int64_t images) { return next_.fetch_add(static_cast<std::uint64_t>(images)); }

 private:
  std::atomic<std::uint64_t> next_{0};
};

struct DropoutState : Extends<DropoutState, CNNKernelState> {
  DropoutParameters parameters;
  mutable ImageCounter images;

  bool uses_states() const override { return true; }

  Problem make_problem(const Encode &encode) const override {
    const MTLSize &mask_stride = parameters.mask_stride;
    DropoutProblem problem;
    problem.src = operand(source, encode.src[0]);
    problem.dst = encode.dst;
    problem.mask.seed = parameters.seed;
    problem.mask.image = images.take(encode.dst.n);
    problem.mask.h = mask_stride.height == 0 ? 1 : encode.dst.h;
    problem.mask.w = mask_stride.width == 0 ? 1 : encode.dst.w;
    problem.mask.c = mask_stride.depth == 0 ? 1 : encode.dst.c;
    problem.mask.keep = parameters.keep;
    if (encode.result_state != nil) {
      if (![encode.result_state isKindOfClass:[MPSCNNDropoutGradientState class]])
        raise_for(*this, @"destinationState is an object of class %@, expected MPSCNNDropoutGradientState.",
                  [encode.result_state class]);
      DropoutData &data = [(MPSCNNDropoutGradientState *)encode.result_state openmps_dropoutData];
      data.mask = problem.mask;
      data.images = encode.dst.n;
    }
    return problem;
  }

  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    parameters.archive(archive, @"MPSCNNDropout");
  }

  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    parameters.check(*this);
  }
};

MPSCNNDropoutGradientState *new_dropout_state(MPSCNNDropout *kernel, id<MTLCommandBuffer> buffer, MPSImage *source) {
  const auto &state = state_of<DropoutState>(kernel);
  if (buffer != nil) begin_encode(state, buffer);
  auto data = std::make_unique<DropoutData>();
  take_sources(*data, state, {&source, 1});
  MPSStateResourceList *none = [MPSStateResourceList resourceList];
  MPSCNNDropoutGradientState *made =
      buffer != nil
          ? [MPSCNNDropoutGradientState temporaryStateWithCommandBuffer:buffer resourceList:none]
          : [[[MPSCNNDropoutGradientState alloc] initWithDevice:state.device.get() resourceList:none] autorelease];
  [made openmps_setData:std::move(data)];
  return made;
}

}  // namespace
}  // namespace openmps

using openmps::DropoutState;

@implementation MPSCNNDropout

+ (openmps::KernelState *)openmps_newState {
  return new DropoutState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:keepProbability:seed:maskStrideInPixels:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               keepProbability:(float)keepProbability
                          seed:(NSUInteger)seed
            maskStrideInPixels:(MTLSize)maskStrideInPixels {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  auto &state = openmps::state_of<DropoutState>(self);
  state.parameters = {keepProbability, seed, maskStrideInPixels};
  state.parameters.check(state);
  return unwind.done();
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(DropoutState, float, keepProbability, parameters.keep)
OPENMPS_GETTER(DropoutState, NSUInteger, seed, parameters.seed)
OPENMPS_GETTER(DropoutState, MTLSize, maskStrideInPixels, parameters.mask_stride)

// ---------------------------------------------------------------------------------------------- states

- (MPSCNNDropoutGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
                                             sourceStates:(NSArray<MPSState *> *)sourceStates
                                         destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_dropout_state(self, nil, sourceImage);
}

- (MPSCNNDropoutGradientState *)temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                         sourceImage:(MPSImage *)sourceImage
                                                        sourceStates:(NSArray<MPSState *> *)sourceStates
                                                    destinationImage:(MPSImage *)destinationImage {
  (void)sourceStates, (void)destinationImage;
  return openmps::new_dropout_state(self, commandBuffer, sourceImage);
}

/// An array like all batches; Apple's header names the class of a single state.
- (MPSCNNDropoutGradientState *)resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                                                  sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                              destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNDropoutGradientState *)[super resultStateBatchForSourceImage:sourceImage
                                                                sourceStates:sourceStates
                                                            destinationImage:destinationImage];
}

- (MPSCNNDropoutGradientStateBatch *)temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                                   sourceImage:(MPSImageBatch *)sourceImage
                                                                  sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                                                              destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNDropoutGradientStateBatch *)[super temporaryResultStateBatchForCommandBuffer:commandBuffer
                                                                                 sourceImage:sourceImage
                                                                                sourceStates:sourceStates
                                                                            destinationImage:destinationImage];
}

@end

@implementation MPSCNNDropoutGradientState

- (openmps::DropoutData &)openmps_dropoutData {
  return static_cast<openmps::DropoutData &>(openmps::gradient_data(self));
}

/// unverified: a byte for each value, 1 if it is kept, in the order channels, columns, rows, images; one byte along an
/// axis whose maskStrideInPixels is 0.
- (NSData *)maskData {
  const openmps::DropoutData &data = [self openmps_dropoutData];
  if (data.images == 0)
    openmps::raise_usage(@"%@: No encode has filled the state yet, so there is no mask.", [self class]);
  const openmps::DropoutMask &mask = data.mask;
  const std::int64_t size = mask.h * mask.w * mask.c;
  NSMutableData *bytes = [NSMutableData dataWithLength:static_cast<NSUInteger>(size * data.images)];
  for (std::int64_t i = 0; i < data.images; ++i)
    openmps::dropout_mask(mask, mask.image + static_cast<std::uint64_t>(i),
                          static_cast<std::uint8_t *>([bytes mutableBytes]) + i * size);
  return bytes;
}

@end
