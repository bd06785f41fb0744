// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolutionTranspose: a convolution over the source with zeros between its pixels [MPSCNNConvolution.h]. The
// weights are used as given, not rotated.

#import "mps/MPSCNNConvolutionGradientState+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct TransposeState : Extends<TransposeState, ConvolutionState> {
  NSInteger kernel_offset_x = 0, kernel_offset_y = 0;

  bool is_backwards() const override { return true; }
  bool takes_type(MPSDataType type) const override { return type == MPSDataTypeFloat32; }
  bool takes_edge(MPSImageEdgeMode edge) const override { return edge == MPSImageEdgeModeZero; }

  void check_descriptor(MPSCNNConvolutionDescriptor *) const override {
    if (channel_multiplier != 0 || subpixel != 1)
      raise_for(*this, @"A transposed convolution has no depth-wise or sub-pixel descriptor.");
  }

  /// Counted in pixels of the up-sampled source. unverified: that a dilated kernel is centred on its dilated size.
  Window window() const override {
    Window window = ConvolutionState::window();
    check_offset(*this, kernel_offset_x, kernel_offset_y, "kernelOffset");
    const auto start = [](NSInteger offset, NSUInteger stride, NSInteger kernel_offset, std::int64_t extent) {
      return offset * static_cast<NSInteger>(stride) + kernel_offset - extent / 2;
    };
    window.start_h = start(source.offset.y, source.stride_y, kernel_offset_y, source.extent_y());
    window.start_w = start(source.offset.x, source.stride_x, kernel_offset_x, source.extent_x());
    return window;
  }

  /// unverified: the kernel offset takes the policy's offset; `offset`, in source pixels, is too coarse.
  void take_offset(std::size_t, NSInteger x, NSInteger y) override {
    source.offset = {0, 0, 0};
    kernel_offset_x = x;
    kernel_offset_y = y;
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    TransposeProblem problem;
    problem.src = src, problem.dst = dst;
    problem.weights = weights;
    problem.window = window;
    problem.neuron = neuron;
    problem.reduced_precision = (options & MPSKernelOptionsAllowReducedPrecision) != 0;
    return problem;
  }

  void archive(Archive &archive) override {
    ConvolutionState::archive(archive);
    archive.field(@"MPSCNNConvolutionTranspose.kernelOffsetX", kernel_offset_x);
    archive.field(@"MPSCNNConvolutionTranspose.kernelOffsetY", kernel_offset_y);
  }
};

TransposeState &transpose_state(MPSCNNConvolutionTranspose *kernel) { return state_of<TransposeState>(kernel); }

NSArray *array_of(id object) { return object == nil ? nil : [NSArray arrayWithObject:object]; }

}  // namespace
}  // namespace openmps

using openmps::transpose_state;
using openmps::TransposeState;

@implementation MPSCNNConvolutionTranspose

+ (openmps::KernelState *)openmps_newState {
  return new TransposeState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:weights:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights {
  return openmps::init_convolution(self, device, weights);
}

OPENMPS_INIT_WITH_CODER

OPENMPS_GETTER(TransposeState, NSUInteger, inputFeatureChannels, inputs)
OPENMPS_GETTER(TransposeState, NSUInteger, outputFeatureChannels, outputs)
OPENMPS_GETTER(TransposeState, NSUInteger, groups, groups)
OPENMPS_GETTER(TransposeState, id<MPSCNNConvolutionDataSource>, dataSource, data_source.get())
OPENMPS_PROPERTY(TransposeState, NSInteger, kernelOffsetX, setKernelOffsetX, kernel_offset_x)
OPENMPS_PROPERTY(TransposeState, NSInteger, kernelOffsetY, setKernelOffsetY, kernel_offset_y)
OPENMPS_GETTER(TransposeState, MPSNNConvolutionAccumulatorPrecisionOption, accumulatorPrecisionOption, accumulator)

- (void)setAccumulatorPrecisionOption:(MPSNNConvolutionAccumulatorPrecisionOption)option {
  openmps::set_accumulator(transpose_state(self), option);
}

// ------------------------------------------------------------------------------ encode with a state to undo

// The state sizes the forms that return an image; those with a destination use the properties as they are.

static MPSImage *undo(MPSCNNConvolutionTranspose *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                      MPSCNNConvolutionGradientState *convolution, MPSCNNConvolutionTransposeGradientState **out_state,
                      BOOL is_temporary) {
  NSArray *states = openmps::array_of(convolution);
  openmps::States given = {.source = convolution};
  MPSImage *result = openmps::new_destination(kernel, buffer, {&source, 1}, given);
  openmps::Discard discard([NSArray arrayWithObject:result]);
  MPSCNNConvolutionTransposeGradientState *state = nil;
  if (out_state != NULL)
    state = is_temporary ? [kernel temporaryResultStateForCommandBuffer:buffer
                                                            sourceImage:source
                                                           sourceStates:states
                                                       destinationImage:result]
                         : [kernel resultStateForSourceImage:source sourceStates:states destinationImage:result];
  given.result = state;
  openmps::encode_image(kernel, buffer, {&source, 1}, given, result);
  discard.keep();
  if (out_state != NULL) *out_state = state;
  return result;
}

static MPSImageBatch *undo_batch(MPSCNNConvolutionTranspose *kernel, id<MTLCommandBuffer> buffer,
                                 MPSImageBatch *sources, MPSCNNConvolutionGradientStateBatch *convolutions,
                                 MPSCNNConvolutionTransposeGradientStateBatch **out_states, BOOL is_temporary) {
  openmps::States given = {.source = convolutions, .source_name = "convolutionGradientStates"};
  MPSImageBatch *result = openmps::new_destinations(kernel, buffer, {&sources, 1}, given);
  openmps::Discard discard(result);
  NSArray *batches = openmps::array_of(convolutions);
  MPSCNNConvolutionTransposeGradientStateBatch *made = nil;
  if (out_states != NULL)
    made = is_temporary ? [kernel temporaryResultStateBatchForCommandBuffer:buffer
                                                                sourceImage:sources
                                                               sourceStates:batches
                                                           destinationImage:result]
                        : [kernel resultStateBatchForSourceImage:sources sourceStates:batches destinationImage:result];
  given.result = made;
  openmps::encode_images(kernel, buffer, {&sources, 1}, given, result);
  discard.keep();
  if (out_states != NULL) *out_states = made;
  return result;
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
           convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState {
  return undo(self, commandBuffer, sourceImage, convolutionGradientState, NULL, NO);
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImage
                    convolutionGradientStates:(MPSCNNConvolutionGradientStateBatch *)convolutionGradientState {
  return undo_batch(self, commandBuffer, sourceImage, convolutionGradientState, NULL, NO);
}

- (MPSImage *)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                        sourceImage:(MPSImage *)sourceImage
           convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
                   destinationState:(MPSCNNConvolutionTransposeGradientState **)outState
        destinationStateIsTemporary:(BOOL)isTemporary {
  return undo(self, commandBuffer, sourceImage, convolutionGradientState, outState, isTemporary);
}

- (MPSImageBatch *)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                 sourceImages:(MPSImageBatch *)sourceImages
                    convolutionGradientStates:(MPSCNNConvolutionGradientStateBatch *)convolutionGradientStates
                            destinationStates:(MPSCNNConvolutionTransposeGradientStateBatch **)outStates
                  destinationStateIsTemporary:(BOOL)isTemporary {
  return undo_batch(self, commandBuffer, sourceImages, convolutionGradientStates, outStates, isTemporary);
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  sourceImage:(MPSImage *)sourceImage
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
             destinationImage:(MPSImage *)destinationImage {
  openmps::encode_image(self, commandBuffer, {&sourceImage, 1}, {.source = convolutionGradientState}, destinationImage);
}

- (void)encodeBatchToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                      sourceImages:(MPSImageBatch *)sourceImage
         convolutionGradientStates:(MPSCNNConvolutionGradientStateBatch *)convolutionGradientState
                 destinationImages:(MPSImageBatch *)destinationImage {
  openmps::encode_images(self, commandBuffer, {&sourceImage, 1},
                         {.source = convolutionGradientState, .source_name = "convolutionGradientStates"},
                         destinationImage);
}

// ---------------------------------------------------------------------------------------------- states

- (BOOL)isResultStateReusedAcrossBatch {
  return YES;
}

static MPSCNNConvolutionTransposeGradientState *result_state(MPSCNNConvolutionTranspose *kernel, MPSImage *source,
                                                             NSArray *states, id<MTLCommandBuffer> buffer) {
  MPSCNNConvolutionTransposeGradientState *result =
      [MPSCNNConvolutionTransposeGradientState openmps_stateForConvolution:kernel source:source on:buffer];
  [result openmps_gradientData].kernel_offset_x = [kernel kernelOffsetX];
  [result openmps_gradientData].kernel_offset_y = [kernel kernelOffsetY];
  for (MPSState *state in states)  // `convolution` is the convolution that the transpose undoes
    if ([state isKindOfClass:[MPSCNNConvolutionGradientState class]])
      [result openmps_gradientData].pair =
          openmps::Ref<MPSCNNConvolution *>([(MPSCNNConvolutionGradientState *)state convolution]);
  return result;
}

- (MPSCNNConvolutionTransposeGradientState *)resultStateForSourceImage:(MPSImage *)sourceImage
                                                          sourceStates:
                                                              (NSArray<MPSCNNConvolutionGradientState *> *)sourceStates
                                                      destinationImage:(MPSImage *)destinationImage {
  (void)destinationImage;
  return result_state(self, sourceImage, (NSArray *)sourceStates, nil);
}

- (MPSCNNConvolutionTransposeGradientState *)
    temporaryResultStateForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                             sourceImage:(MPSImage *)sourceImage
                            sourceStates:(NSArray<MPSCNNConvolutionGradientState *> *)sourceStates
                        destinationImage:(MPSImage *)destinationImage {
  (void)destinationImage;
  openmps::begin_encode(transpose_state(self), commandBuffer);
  return result_state(self, sourceImage, (NSArray *)sourceStates, commandBuffer);
}

- (MPSCNNConvolutionTransposeGradientStateBatch *)
    resultStateBatchForSourceImage:(MPSImageBatch *)sourceImage
                      sourceStates:(NSArray<MPSCNNConvolutionGradientStateBatch *> *)sourceStates
                  destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNConvolutionTransposeGradientStateBatch *)[super
      resultStateBatchForSourceImage:sourceImage
                        sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                    destinationImage:destinationImage];
}

- (MPSCNNConvolutionTransposeGradientStateBatch *)
    temporaryResultStateBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                  sourceImage:(MPSImageBatch *)sourceImage
                                 sourceStates:(NSArray<MPSCNNConvolutionGradientStateBatch *> *)sourceStates
                             destinationImage:(MPSImageBatch *)destinationImage {
  return (MPSCNNConvolutionTransposeGradientStateBatch *)[super
      temporaryResultStateBatchForCommandBuffer:commandBuffer
                                    sourceImage:sourceImage
                                   sourceStates:(NSArray<MPSStateBatch *> *)sourceStates
                               destinationImage:destinationImage];
}

// ------------------------------------------------------------------------------------- weights afterwards

- (void)reloadWeightsAndBiasesFromDataSource {
  openmps::reload_weights(transpose_state(self), transpose_state(self).data_source.get());
}

- (void)reloadWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                          state:(MPSCNNConvolutionWeightsAndBiasesState *)state {
  openmps::reload_weights(transpose_state(self), commandBuffer, state);
}

- (BOOL)readWeightsInPlaceWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                      state:(MPSCNNConvolutionWeightsAndBiasesState *)state {
  return !openmps::is_hidden(_cmd) && openmps::read_weights_in_place(transpose_state(self), commandBuffer, state);
}

- (MPSCNNConvolutionWeightsAndBiasesState *)exportWeightsAndBiasesWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                          resultStateCanBeTemporary:(BOOL)resultStateCanBeTemporary {
  return openmps::export_weights(self, commandBuffer, resultStateCanBeTemporary);
}

@end
