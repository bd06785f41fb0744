// SPDX-License-Identifier: Apache-2.0
// MPSCNNBinaryConvolution, MPSCNNBinaryFullyConnected: weights of one bit [MPSCNNConvolution.h].
// unverified: pixels outside the source are 0 after the input's bias and scale, so that XNOR and AND read a bit of 1
// there, and they add 0 to beta; bits beyond the last channel are ignored.

#include "engine/problem/problem.hpp"
#include "mps/BinaryWeights.hpp"
#import "mps/DataSource.hh"
#import "mps/MPSCNNFullyConnected+Engine.hh"

namespace openmps {
namespace {

struct BinaryConvolutionState : Extends<BinaryConvolutionState, DescribedState> {
  std::shared_ptr<const BinaryWeights> weights;

  bool has_weights() const override { return weights != nullptr; }

  void check_descriptor(MPSCNNConvolutionDescriptor *descriptor) const override {
    if (groups != 1) raise_for(*this, @"A binary convolution has groups (%lu); it is 1.", (unsigned long)groups);
    if (channel_multiplier != 0 || subpixel != 1)
      raise_for(*this, @"A binary convolution has no depth-wise or sub-pixel descriptor.");
    if ([descriptor openmps_state].batch_norm)
      raise_for(*this, @"A binary convolution has no batch normalization to fold into its weights.");
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override {
    BinaryConvProblem problem;
    problem.src = src, problem.dst = dst;
    problem.weights = weights;
    problem.window = window;
    problem.neuron = neuron;
    return problem;
  }

  /// Set the finished weights; raise if they are invalid.
  void set_weights(std::shared_ptr<BinaryWeights> given) {
    const WeightShape shape = weight_shape();
    given->out_channels = shape.out_channels;
    given->kernel_h = shape.kernel_h, given->kernel_w = shape.kernel_w;
    given->in_channels = shape.in_channels_per_group;
    const std::string error = finish_binary_weights(std::move(given), weights);
    if (!error.empty()) raise_for(*this, @"%s", error.c_str());
  }

  void archive(Archive &archive) override {
    DescribedState::archive(archive);
    auto kept = std::make_shared<BinaryWeights>();
    if (!archive.is_reading() && !weights) return;
    BinaryWeights &fields = archive.is_reading() ? *kept : const_cast<BinaryWeights &>(*weights);
    archive.field(@"MPSCNNBinaryConvolution.type", fields.type);
    archive.field(@"MPSCNNBinaryConvolution.useBetaScaling", fields.uses_beta);
    archive.field(@"MPSCNNBinaryConvolution.weights", fields.words);
    archive.field(@"MPSCNNBinaryConvolution.outputScaleTerms", fields.scale);
    archive.field(@"MPSCNNBinaryConvolution.outputBiasTerms", fields.bias);
    archive.field(@"MPSCNNBinaryConvolution.inputScaleTerms", fields.input_scale);
    archive.field(@"MPSCNNBinaryConvolution.inputBiasTerms", fields.input_bias);
    if (archive.is_reading()) read_ = std::move(kept);
  }

  void did_read(MPSKernel *kernel) override {
    DescribedState::did_read(kernel);
    if (read_->type < BinaryConvType::binary_weights || read_->type > BinaryConvType::logical_and)
      raise_for(*this, @"The archive holds a type (%d) that there is not.", (int)read_->type);
    set_weights(std::move(read_));
  }

 private:
  std::shared_ptr<BinaryWeights> read_;  ///< from archive() to did_read()
};

struct BinaryFullyConnectedState : CoversSource<BinaryFullyConnectedState, BinaryConvolutionState> {};

/// The terms of an initialiser; null: none.
struct Terms {
  const float *output_bias = nullptr, *output_scale = nullptr, *input_bias = nullptr, *input_scale = nullptr;
  const float *scale_value = nullptr;  ///< one scale for all outputs; the bias is the data source's
};

std::vector<float> terms_of(const float *values, NSUInteger count) {
  return values == nullptr ? std::vector<float>() : std::vector<float>(values, values + count);
}

id init_binary(MPSCNNKernel *kernel, id<MTLDevice> device, id<MPSCNNConvolutionDataSource> source, const Terms &terms,
               MPSCNNBinaryConvolutionType type, MPSCNNBinaryConvolutionFlags flags) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  BinaryConvolutionState &state = state_of<BinaryConvolutionState>(kernel);
  if (source == nil) raise_for(state, @"convolutionData, the data source, is nil.");
  if (type > MPSCNNBinaryConvolutionTypeAND)
    raise_for(state, @"type (%lu) is not BinaryWeights (0), XNOR (1) or AND (2).", (unsigned long)type);
  if (flags > MPSCNNBinaryConvolutionFlagsUseBetaScaling)
    raise_for(state, @"flags (%lu) is neither None (0) nor UseBetaScaling (1).", (unsigned long)flags);
  if (![source load]) return nil;  // unwind releases the kernel
  Loaded loaded(source);
  MPSCNNConvolutionDescriptor *descriptor = [source descriptor];
  if (descriptor == nil) raise_for(state, @"The data source's descriptor is nil.");
  state.set_descriptor(descriptor);
  const MPSDataType data_type = [source dataType];
  if (data_type != MPSDataTypeUInt32)
    raise_for(state, @"The data source's dataType (0x%x) is not UInt32, words of 32 bits.", (unsigned)data_type);
  const auto *words = static_cast<const std::uint32_t *>([source weights]);
  if (words == nullptr) raise_for(state, @"The data source's weights are NULL.");

  auto weights = std::make_shared<BinaryWeights>();
  weights->type = static_cast<BinaryConvType>(type);
  weights->uses_beta = flags == MPSCNNBinaryConvolutionFlagsUseBetaScaling;
  const WeightShape shape = state.weight_shape();
  weights->words.assign(
      words, words + shape.out_channels * shape.kernel_h * shape.kernel_w * ((shape.in_channels_per_group + 31) / 32));
  if (terms.scale_value != nullptr) {
    weights->scale.assign(state.outputs, *terms.scale_value);
    weights->bias = terms_of([source biasTerms], state.outputs);
  } else {
    weights->scale = terms_of(terms.output_scale, state.outputs);
    weights->bias = terms_of(terms.output_bias, state.outputs);
    weights->input_scale = terms_of(terms.input_scale, state.inputs);
    weights->input_bias = terms_of(terms.input_bias, state.inputs);
  }
  state.set_weights(std::move(weights));
  state.data_source = Ref<id<MPSCNNConvolutionDataSource>>(source);
  Ref<NSString *> label([source label]);
  loaded.purge();
  if (label) [kernel setLabel:label.get()];
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::BinaryConvolutionState;

@implementation MPSCNNBinaryConvolution

+ (openmps::KernelState *)openmps_newState {
  return new BinaryConvolutionState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:convolutionData:scaleValue:type:flags:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags {
  openmps::Terms terms;
  terms.scale_value = &scaleValue;
  return openmps::init_binary(self, device, convolutionData, terms, type, flags);
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
               outputBiasTerms:(const float *)outputBiasTerms
              outputScaleTerms:(const float *)outputScaleTerms
                inputBiasTerms:(const float *)inputBiasTerms
               inputScaleTerms:(const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags {
  openmps::Terms terms;
  terms.output_bias = outputBiasTerms, terms.output_scale = outputScaleTerms;
  terms.input_bias = inputBiasTerms, terms.input_scale = inputScaleTerms;
  return openmps::init_binary(self, device, convolutionData, terms, type, flags);
}

OPENMPS_INIT_WITH_CODER
OPENMPS_GETTER(BinaryConvolutionState, NSUInteger, inputFeatureChannels, inputs)
OPENMPS_GETTER(BinaryConvolutionState, NSUInteger, outputFeatureChannels, outputs)

@end

@implementation MPSCNNBinaryFullyConnected

+ (openmps::KernelState *)openmps_newState {
  return new openmps::BinaryFullyConnectedState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
                    scaleValue:(float)scaleValue
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags {
  return [super initWithDevice:device convolutionData:convolutionData scaleValue:scaleValue type:type flags:flags];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
               convolutionData:(id<MPSCNNConvolutionDataSource>)convolutionData
               outputBiasTerms:(const float *)outputBiasTerms
              outputScaleTerms:(const float *)outputScaleTerms
                inputBiasTerms:(const float *)inputBiasTerms
               inputScaleTerms:(const float *)inputScaleTerms
                          type:(MPSCNNBinaryConvolutionType)type
                         flags:(MPSCNNBinaryConvolutionFlags)flags {
  return [super initWithDevice:device
               convolutionData:convolutionData
               outputBiasTerms:outputBiasTerms
              outputScaleTerms:outputScaleTerms
                inputBiasTerms:inputBiasTerms
               inputScaleTerms:inputScaleTerms
                          type:type
                         flags:flags];
}

OPENMPS_INIT_WITH_CODER

@end
