// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolutionGradient, MPSCNNFullyConnectedGradient, MPSCNNConvolutionTransposeGradient. The result is the
// gradient of the source; the state receives the gradients of weights and biases [MPSCNNConvolution.h].

#include <cstring>

#include "engine/problem/problem.hpp"

#import "mps/MPSCNNConvolutionGradientState+Engine.hh"

namespace openmps {
namespace {

/// The forward kernel's descriptor and weights.
struct ForwardState : Extends<ForwardState, ConvolutionState> {
  enum Kind : std::uint8_t { convolution, fully_connected, transpose };
  Kind kind = convolution;

  bool takes_type(MPSDataType type) const override {
    return kind == transpose ? type == MPSDataTypeFloat32 : ConvolutionState::takes_type(type);
  }

  void check_descriptor(MPSCNNConvolutionDescriptor *) const override {
    if (subpixel != 1)
      raise_for(*this, @"subPixelScaleFactor (%lu) is not 1: there is no gradient of a sub-pixel convolution.",
                (unsigned long)subpixel);
    if (kind != convolution && channel_multiplier != 0)
      raise_for(*this, @"The data source has a depth-wise descriptor, which the forward kernel does not take.");
    if (kind != fully_connected) return;
    if (source.stride_x != 1 || source.stride_y != 1 || source.dilation_x != 1 || source.dilation_y != 1 || groups != 1)
      raise_for(*this, @"A fully connected kernel has strides, dilation rates and groups of 1.");
  }
};

struct ConvolutionGradientKernelState : Extends<ConvolutionGradientKernelState, GradientKernelState> {
  mutable ForwardState forward;  ///< without weights until the first encode if an archive had none
  MPSCNNConvolutionGradientOption option = MPSCNNConvolutionGradientOptionAll;
  BOOL serializes = NO;

  ConvolutionGradientKernelState() = default;
  explicit ConvolutionGradientKernelState(ForwardState::Kind kind) { forward.kind = kind; }

  bool wants_data() const { return (option & MPSCNNConvolutionGradientOptionGradientWithData) != 0; }
  bool wants_weights() const { return (option & MPSCNNConvolutionGradientOptionGradientWithWeightsAndBias) != 0; }
  bool writes_source_state() const override { return wants_weights(); }
  bool uses_states() const override { return true; }

  /// Return `forward` with the kernel's current name.
  ForwardState &named_forward() const {
    forward.title = title;
    forward.device = device;
    return forward;
  }

  /// Set the slots from the descriptor; a state may change them later.
  void take_descriptor() {
    secondary() = forward.source;
    SourceSlot &gradient = primary();
    gradient.kernel_width = forward.source.kernel_width, gradient.kernel_height = forward.source.kernel_height;
    gradient.dilation_x = forward.source.dilation_x, gradient.dilation_y = forward.source.dilation_y;
  }

  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    if (channels[0] != forward.outputs)
      raise_for(*this,
                @"The kernel reads %lu feature channels of sourceGradient and sourceGradientFeatureChannels is %lu.",
                (unsigned long)channels[0], (unsigned long)forward.outputs);
    if (channels[1] != forward.inputs)
      raise_for(*this, @"The kernel reads %lu feature channels of sourceImage and sourceImageFeatureChannels is %lu.",
                (unsigned long)channels[1], (unsigned long)forward.inputs);
    return forward.inputs;
  }

  void check_encode(const Encode &encode, const Clip &) const override {
    if (primary().edge != MPSImageEdgeModeZero)
      raise_for(*this, @"primaryEdgeMode (%lu) is not Zero (0): there is no gradient outside of sourceGradient.",
                (unsigned long)primary().edge);
    if (primary().stride_x != 1 || primary().stride_y != 1)
      raise_for(
          *this,
          @"primaryStrideInPixelsX (%lu) and primaryStrideInPixelsY (%lu) are not 1; the forward kernel's strides "
          @"are the secondary ones.",
          (unsigned long)primary().stride_x, (unsigned long)primary().stride_y);
    if (secondary().kernel_width != forward.source.kernel_width ||
        secondary().kernel_height != forward.source.kernel_height)
      raise_for(*this,
                @"secondaryKernelWidth and secondaryKernelHeight (%lu x %lu) are not those of the weights (%lu x %lu).",
                (unsigned long)secondary().kernel_width, (unsigned long)secondary().kernel_height,
                (unsigned long)forward.source.kernel_width, (unsigned long)forward.source.kernel_height);
    check_kind(encode);
  }

  /// Check the forward class's own rules.
  void check_kind(const Encode &encode) const {
    const ImageView &gradient = encode.src[0], &image = encode.src[1];
    if (forward.kind == ForwardState::transpose && secondary().edge != MPSImageEdgeModeZero)
      raise_for(*this, @"secondaryEdgeMode (%lu) is not Zero (0), the only one of a transposed convolution.",
                (unsigned long)secondary().edge);
    if (forward.kind != ForwardState::fully_connected) return;
    if (image.w != static_cast<std::int64_t>(secondary().kernel_width) ||
        image.h != static_cast<std::int64_t>(secondary().kernel_height))
      raise_for(*this, @"sourceImage has %ld x %ld pixels (width x height) and the kernel %lu x %lu.", (long)image.w,
                (long)image.h, (unsigned long)secondary().kernel_width, (unsigned long)secondary().kernel_height);
    if (gradient.w != 1 || gradient.h != 1)
      raise_for(*this, @"sourceGradient has %ld x %ld pixels (width x height), expected 1 x 1.", (long)gradient.w,
                (long)gradient.h);
  }

  /// Return the state's data; raise unless it is of a forward kernel of the right class and shape. Null for nil.
  ConvolutionGradientData *data_of(MPSState *state) const {
    if (state == nil) return nullptr;
    const bool is_transpose = forward.kind == ForwardState::transpose;
    const Class expected =
        is_transpose ? [MPSCNNConvolutionTransposeGradientState class] : [MPSCNNConvolutionGradientState class];
    if (![state isKindOfClass:expected] ||
        [state isKindOfClass:[MPSCNNConvolutionTransposeGradientState class]] != is_transpose)
      raise_for(*this, @"gradientState is of class %@, expected %@.", [state class], expected);
    ConvolutionGradientData &data = [(MPSCNNConvolutionGradientState *)state openmps_gradientData];
    const auto &kernel = state_of<ConvolutionState>(data.kernel.get());
    if (kernel.inputs != forward.inputs || kernel.outputs != forward.outputs || kernel.groups != forward.groups ||
        kernel.channel_multiplier != forward.channel_multiplier ||
        kernel.source.kernel_width != forward.source.kernel_width ||
        kernel.source.kernel_height != forward.source.kernel_height)
      raise_for(*this,
                @"gradientState is that of a kernel with %lu x %lu x %lu x %lu weights (OHWI) in %lu groups; here they "
                @"are %lu x %lu x %lu x %lu in %lu.",
                (unsigned long)kernel.outputs, (unsigned long)kernel.source.kernel_height,
                (unsigned long)kernel.source.kernel_width, (unsigned long)kernel.inputs, (unsigned long)kernel.groups,
                (unsigned long)forward.outputs, (unsigned long)forward.source.kernel_height,
                (unsigned long)forward.source.kernel_width, (unsigned long)forward.inputs,
                (unsigned long)forward.groups);
    return &data;
  }

  /// Share the forward kernel's weights if their values are the same: one copy, packed once.
  void share_weights(const ConvolutionGradientData *data) const {
    if (data == nullptr) {
      if (!forward.weights)
        raise_for(*this, @"The kernel has no weights, and there is no gradientState to take them from.");
      return;
    }
    const auto &kernel = state_of<ConvolutionState>(data->kernel.get());
    if (kernel.weights == forward.weights || !kernel.weights) return;
    if (!forward.weights) {
      forward.weights = kernel.weights;
      forward.float_weights = kernel.float_weights;
      forward.weights_are_there = kernel.weights_are_there;
      forward.data_source = kernel.data_source;
      return;
    }
    const std::weak_ptr<const ConvWeights> &last = compared;
    if (!last.owner_before(kernel.weights) && !kernel.weights.owner_before(last)) return;
    compared = kernel.weights;
    if (!forward.weights_are_there || !kernel.weights_are_there) return;
    const Floats &own = forward.weights->values, &theirs = kernel.weights->values;
    if (own.size() == theirs.size() && std::memcmp(own.data(), theirs.data(), own.size() * sizeof(float)) == 0)
      forward.weights = kernel.weights;
  }
  mutable std::weak_ptr<const ConvWeights> compared;  ///< weights that share_weights() found to differ

  static ChannelValues values_of(id<MTLBuffer> buffer, const char *name, bool is_filled) {
    id<OpenMPSBuffer> known = buffer_of(buffer, name);
    return {is_filled ? [known openmps_memory] : [known openmps_memoryToFill], 0};
  }

  Problem make_problem(const Encode &encode) const override {
    ConvolutionGradientData *const data = data_of(encode.source_state);
    share_weights(data);
    TransposeGradientProblem problem;
    problem.diff_dst = encode.src[0];
    problem.src = encode.src[1];
    problem.weights = forward.weights;
    problem.reduced_precision = (options & MPSKernelOptionsAllowReducedPrecision) != 0;
    place(problem);
    if (wants_data()) problem.diff_src = encode.dst;
    if (wants_weights()) {
      if (data == nullptr)
        raise_for(
            *this,
            @"There is no gradientState to put the gradients of weights and biases into, and gradientOption (%lu) "
            @"asks for them.",
            (unsigned long)option);
      auto *state = (MPSCNNConvolutionGradientState *)encode.source_state;
      problem.accumulates = data->has_gradients || encode.continues;
      problem.diff_weights = values_of([state gradientForWeights], "gradientForWeights", problem.accumulates);
      problem.diff_bias = values_of([state gradientForBiases], "gradientForBiases", problem.accumulates);
    } else {
      problem.src.memory = nullptr;
    }
    if (forward.kind == ForwardState::transpose) return problem;
    return static_cast<ConvGradientProblem &>(problem);
  }

  void did_encode(const Encode &encode) const override {
    if (wants_weights()) data_of(encode.source_state)->has_gradients = true;
  }

  /// Place the windows. The valid part of sourceGradient begins at primaryOffset [MPSCNNConvolution.h].
  void place(ConvGradientProblem &problem) const {
    Window &window = problem.window;
    window = secondary().window();
    const std::int64_t row = first_row(), column = first_column();
    const std::int64_t extent_y = secondary().extent_y(), extent_x = secondary().extent_x();
    switch (forward.kind) {
      case ForwardState::fully_connected: window.start_h = window.start_w = 0; break;
      case ForwardState::transpose:
        window.start_h = secondary().offset.y * window.stride_h + kernel_offset_y - extent_y / 2 - primary().offset.y;
        window.start_w = secondary().offset.x * window.stride_w + kernel_offset_x - extent_x / 2 - primary().offset.x;
        break;
      case ForwardState::convolution: {
        window.start_h -= primary().offset.y * window.stride_h;
        window.start_w -= primary().offset.x * window.stride_w;
        // The result's windows start at row - extent / 2 of the gradient with zeros between its pixels, and their taps
        // are in reverse order.
        problem.first_h = window.start_h + row - extent_y / 2 + extent_y - 1;
        problem.first_w = window.start_w + column - extent_x / 2 + extent_x - 1;
        break;
      }
    }
  }

  void archive(Archive &archive) override {
    GradientKernelState::archive(archive);
    archive.field(@"MPSCNNConvolutionGradient.inputFeatureChannels", forward.inputs);
    archive.field(@"MPSCNNConvolutionGradient.outputFeatureChannels", forward.outputs);
    archive.field(@"MPSCNNConvolutionGradient.groups", forward.groups);
    archive.field(@"MPSCNNConvolutionGradient.channelMultiplier", forward.channel_multiplier);
    archive.field(@"MPSCNNConvolutionGradient.gradientOption", option);
    archive.field(@"MPSCNNConvolutionGradient.serializeWeightsAndBiases", serializes);
  }

  void did_read(MPSKernel *kernel) override {
    GradientKernelState::did_read(kernel);
    constexpr NSUInteger kMax = NSUInteger{1} << 31;
    for (NSUInteger value : {forward.inputs, forward.outputs, forward.groups})
      if (value < 1 || value > kMax)
        raise_for(*this, @"The archive holds a number of channels (%lu) below 1.", (unsigned long)value);
    if (forward.inputs % forward.groups != 0 || forward.outputs % forward.groups != 0 ||
        forward.channel_multiplier > 1 || (forward.channel_multiplier == 1 && forward.inputs != forward.outputs))
      raise_for(*this, @"The archive holds numbers of channels that do not belong together.");
    check_option(option);
    forward.source = secondary();
    forward.source.offset = {0, 0, 0};
  }

  void did_copy(id<OpenMPSDevice> target) override {
    GradientKernelState::did_copy(target);
    forward.did_copy(target);
  }

  void check_option(MPSCNNConvolutionGradientOption value) const {
    if (value < MPSCNNConvolutionGradientOptionGradientWithData || value > MPSCNNConvolutionGradientOptionAll)
      raise_for(*this,
                @"gradientOption (%lu) is neither GradientWithData (1) nor GradientWithWeightsAndBias (2) nor All (3).",
                (unsigned long)value);
  }
};

id init_gradient(MPSKernel *kernel, id<MTLDevice> device, id<MPSCNNConvolutionDataSource> source) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<ConvolutionGradientKernelState>(kernel);
  ForwardState &forward = state.named_forward();
  Ref<NSString *> label;
  if (!read_data_source(forward, source, true, &label)) return nil;  // unwind releases the kernel
  forward.data_source = Ref<id<MPSCNNConvolutionDataSource>>(source);
  state.take_descriptor();
  if (label) [kernel setLabel:label.get()];
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::ConvolutionGradientKernelState;
using openmps::ForwardState;

static ConvolutionGradientKernelState &gradient_state(MPSKernel *kernel) {
  return openmps::state_of<ConvolutionGradientKernelState>(kernel);
}

/// Members of the two classes below, whose common base is MPSCNNGradientKernel.
#define OPENMPS_CONVOLUTION_GRADIENT                                                                         \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                    \
    (void)device;                                                                                            \
    openmps::UnwindRelease unwind(self);                                                                     \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:weights:");                                      \
  }                                                                                                          \
  -(instancetype)initWithDevice : (id<MTLDevice>)device weights : (id<MPSCNNConvolutionDataSource>)weights { \
    return openmps::init_gradient(self, device, weights);                                                    \
  }                                                                                                          \
  OPENMPS_INIT_WITH_CODER                                                                                    \
  OPENMPS_GETTER(ConvolutionGradientKernelState, NSUInteger, sourceGradientFeatureChannels, forward.outputs) \
  OPENMPS_GETTER(ConvolutionGradientKernelState, NSUInteger, sourceImageFeatureChannels, forward.inputs)     \
  OPENMPS_GETTER(ConvolutionGradientKernelState, NSUInteger, groups, forward.groups)                         \
  OPENMPS_GETTER(ConvolutionGradientKernelState, id<MPSCNNConvolutionDataSource>, dataSource,                \
                 forward.data_source.get())                                                                  \
  OPENMPS_GETTER(ConvolutionGradientKernelState, MPSCNNConvolutionGradientOption, gradientOption, option)    \
  -(void)setGradientOption : (MPSCNNConvolutionGradientOption)option {                                       \
    gradient_state(self).check_option(option);                                                               \
    gradient_state(self).option = option;                                                                    \
  }                                                                                                          \
  -(BOOL)isStateModified {                                                                                   \
    return gradient_state(self).wants_weights();                                                             \
  }                                                                                                          \
  -(void)reloadWeightsAndBiasesFromDataSource {                                                              \
    ForwardState &forward = gradient_state(self).named_forward();                                            \
    openmps::reload_weights(forward, forward.data_source.get());                                             \
  }                                                                                                          \
  -(void)reloadWeightsAndBiasesWithCommandBuffer : (id<MTLCommandBuffer>)commandBuffer state                 \
      : (MPSCNNConvolutionWeightsAndBiasesState *)state {                                                    \
    openmps::reload_weights(gradient_state(self).named_forward(), commandBuffer, state);                     \
  }                                                                                                          \
  -(BOOL)readWeightsInPlaceWithCommandBuffer : (id<MTLCommandBuffer>)commandBuffer state                     \
      : (MPSCNNConvolutionWeightsAndBiasesState *)state {                                                    \
    return !openmps::is_hidden(_cmd) &&                                                                      \
           openmps::read_weights_in_place(gradient_state(self).named_forward(), commandBuffer, state);       \
  }

@implementation MPSCNNConvolutionGradient

+ (openmps::KernelState *)openmps_newState {
  return new ConvolutionGradientKernelState(ForwardState::convolution);
}

OPENMPS_CONVOLUTION_GRADIENT

OPENMPS_GETTER(ConvolutionGradientKernelState, NSUInteger, channelMultiplier, forward.channel_multiplier)
OPENMPS_PROPERTY(ConvolutionGradientKernelState, BOOL, serializeWeightsAndBiases, setSerializeWeightsAndBiases,
                 serializes)

@end

@implementation MPSCNNFullyConnectedGradient

+ (openmps::KernelState *)openmps_newState {
  return new ConvolutionGradientKernelState(ForwardState::fully_connected);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights {
  return [super initWithDevice:device weights:weights];
}

OPENMPS_INIT_WITH_CODER

@end

@implementation MPSCNNConvolutionTransposeGradient

+ (openmps::KernelState *)openmps_newState {
  return new ConvolutionGradientKernelState(ForwardState::transpose);
}

OPENMPS_CONVOLUTION_GRADIENT

@end
