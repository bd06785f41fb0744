// SPDX-License-Identifier: Apache-2.0
// State of the convolution kernels: from a descriptor to a problem [MPSCNNConvolution.h].

#import "mps/DataSource.hh"
#import "mps/MPSCNNConvolution+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

/// Check the convolution descriptor's channels; `multiplier` is 0 for ordinary convolution.
void check_channels(const KernelState &state, const ConvolutionDescriptorState &given, NSUInteger multiplier,
                    bool depthwise) {
  if (depthwise) {
    if (given.groups != 1)
      raise_for(state, @"A depth-wise convolution has groups (%lu); it is 1.", (unsigned long)given.groups);
    if (multiplier != 1 || given.outputs != given.inputs)
      raise_for(state,
                @"A depth-wise convolution has outputFeatureChannels (%lu) and inputFeatureChannels (%lu); a "
                @"channelMultiplier other than 1 is not supported.",
                (unsigned long)given.outputs, (unsigned long)given.inputs);
  } else if (given.groups > 1) {
    const NSUInteger step = 4 * given.groups;
    if (given.inputs % step != 0 || given.outputs % step != 0)
      raise_for(
          state,
          @"inputFeatureChannels (%lu) and outputFeatureChannels (%lu) are not multiples of 4 in each of groups (%lu).",
          (unsigned long)given.inputs, (unsigned long)given.outputs, (unsigned long)given.groups);
  }
  const NSUInteger positions = given.subpixel * given.subpixel;
  if (given.outputs % positions != 0)
    raise_for(state, @"outputFeatureChannels (%lu) is not a multiple of the square of subPixelScaleFactor (%lu).",
              (unsigned long)given.outputs, (unsigned long)given.subpixel);
  if (given.groups > 1 && given.subpixel > 1 && given.outputs / positions % 4 != 0)
    raise_for(
        state,
        @"outputFeatureChannels (%lu) / subPixelScaleFactor (%lu) squared is not a multiple of 4, and groups is %lu.",
        (unsigned long)given.outputs, (unsigned long)given.subpixel, (unsigned long)given.groups);
}

}  // namespace

void DescribedState::set_descriptor(MPSCNNConvolutionDescriptor *descriptor) {
  const ConvolutionDescriptorState &given = [descriptor openmps_state];
  const bool depthwise = [descriptor isKindOfClass:[MPSCNNDepthWiseConvolutionDescriptor class]];
  channel_multiplier = [descriptor openmps_channelMultiplier];
  check_channels(*this, given, channel_multiplier, depthwise);

  source.kernel_width = given.kernel_width, source.kernel_height = given.kernel_height;
  source.stride_x = given.stride_x, source.stride_y = given.stride_y;
  source.dilation_x = given.dilation_x, source.dilation_y = given.dilation_y;
  check_slots();
  inputs = given.inputs, outputs = given.outputs, groups = given.groups;
  subpixel = given.subpixel;

  neuron_filter = given.neuron_filter;
  neuron_descriptor = Ref<MPSNNNeuronDescriptor *>();
  neuron = Neuron();
  if (given.neuron && [given.neuron.get() neuronType] != MPSCNNNeuronTypeNone) {
    neuron = [given.neuron.get() openmps_neuron];
    neuron_descriptor = Ref<MPSNNNeuronDescriptor *>::adopt([given.neuron.get() copy]);
    if (neuron.a_per_channel && neuron.a_per_channel->size() != outputs)
      raise_for(*this, @"The fused PReLU has %lu values and outputFeatureChannels is %lu.",
                (unsigned long)neuron.a_per_channel->size(), (unsigned long)outputs);
  }
  check_descriptor(descriptor);
}

WeightShape DescribedState::weight_shape() const {
  WeightShape shape;
  const bool depthwise = channel_multiplier != 0;
  shape.out_channels = static_cast<std::int64_t>(outputs);
  shape.kernel_h = static_cast<std::int64_t>(source.kernel_height);
  shape.kernel_w = static_cast<std::int64_t>(source.kernel_width);
  shape.groups = static_cast<std::int64_t>(depthwise ? outputs : groups);
  shape.in_channels_per_group = depthwise ? 1 : static_cast<std::int64_t>(inputs / groups);
  std::int64_t count = shape.out_channels;
  for (std::int64_t factor : {shape.kernel_h, shape.kernel_w, shape.in_channels_per_group})
    if (__builtin_mul_overflow(count, factor, &count) || count > std::int64_t{1} << 48)
      raise_for(*this, @"The weights are too many: %lu x %lu x %lu x %lu (OHWI).", (unsigned long)outputs,
                (unsigned long)source.kernel_height, (unsigned long)source.kernel_width, (unsigned long)inputs);
  return shape;
}

NSUInteger DescribedState::output_channels(NSUInteger channels) const {
  if (!has_weights()) raise_for(*this, @"The kernel has no weights.");
  if (channels != inputs)
    raise_for(*this,
              @"The source has %lu feature channels (from sourceFeatureChannelOffset on, at most "
              @"sourceFeatureChannelMaxCount) and inputFeatureChannels is %lu.",
              (unsigned long)channels, (unsigned long)inputs);
  return outputs / (subpixel * subpixel);
}

Problem ConvolutionState::problem(const ImageView &src, const ImageView &dst, const Window &window) const {
  ConvProblem problem;
  problem.src = src, problem.dst = dst;
  problem.weights = weights;
  problem.window = window;
  problem.neuron = neuron;
  problem.subpixel = static_cast<std::int64_t>(subpixel);
  problem.reduced_precision = (options & MPSKernelOptionsAllowReducedPrecision) != 0;
  return problem;
}

/// unverified: the result is subPixelScaleFactor times as large; otherwise the encode that returns an image would be
/// useless.
void DescribedState::size_result(Images sources, MPSImageDescriptor *descriptor) {
  CNNKernelState::size_result(sources, descriptor);
  [descriptor setWidth:[descriptor width] * subpixel];
  [descriptor setHeight:[descriptor height] * subpixel];
}

void DescribedState::archive(Archive &archive) {
  CNNKernelState::archive(archive);
  archive.field(@"MPSCNNConvolution.inputFeatureChannels", inputs);
  archive.field(@"MPSCNNConvolution.outputFeatureChannels", outputs);
  archive.field(@"MPSCNNConvolution.groups", groups);
  archive.field(@"MPSCNNConvolution.channelMultiplier", channel_multiplier);
  archive.field(@"MPSCNNConvolution.subPixelScaleFactor", subpixel);
  archive.object(@"MPSCNNConvolution.fusedNeuronDescriptor", [MPSNNNeuronDescriptor class], neuron_descriptor);
}

void DescribedState::did_read(MPSKernel *kernel) {
  CNNKernelState::did_read(kernel);
  constexpr NSUInteger kMax = NSUInteger{1} << 31;
  for (NSUInteger value : {inputs, outputs, groups, subpixel})
    if (value < 1 || value > kMax)
      raise_for(*this, @"The archive holds a number of channels (%lu) below 1.", (unsigned long)value);
  if (inputs % groups != 0 || outputs % groups != 0 || outputs % (subpixel * subpixel) != 0 || channel_multiplier > 1 ||
      (channel_multiplier == 1 && inputs != outputs))
    raise_for(*this, @"The archive holds numbers of channels that do not belong together.");
  if (!neuron_descriptor) return;
  neuron = [neuron_descriptor.get() openmps_neuron];
  if (neuron.a_per_channel && neuron.a_per_channel->size() != outputs)
    raise_for(*this, @"The archive holds a PReLU of %lu channels, expected %lu.",
              (unsigned long)neuron.a_per_channel->size(), (unsigned long)outputs);
}

void ConvolutionState::archive(Archive &archive) {
  DescribedState::archive(archive);
  archive.field(@"MPSCNNConvolution.accumulatorPrecisionOption", accumulator);
  archive.field(@"MPSCNNConvolution.floatWeights", float_weights);
  // As the kernel has them: batch normalization folded in, rounded.
  auto kept = std::make_shared<ConvWeights>();
  if (!archive.is_reading() && !weights) return;
  ConvWeights &fields = archive.is_reading() ? *kept : const_cast<ConvWeights &>(*weights);
  std::vector<float> values(fields.values.data(), fields.values.data() + fields.values.size());
  archive.field(@"MPSCNNConvolution.weights", values);
  if (archive.is_reading()) fields.values.own() = std::move(values);
  std::vector<float> biases(fields.bias.data(), fields.bias.data() + fields.bias.size());
  archive.field(@"MPSCNNConvolution.biases", biases);
  if (archive.is_reading()) fields.bias.own() = std::move(biases), weights = std::move(kept);
}

void ConvolutionState::did_read(MPSKernel *kernel) {
  DescribedState::did_read(kernel);
  const WeightShape shape = weight_shape();
  const std::size_t count =
      static_cast<std::size_t>(shape.out_channels * shape.kernel_h * shape.kernel_w * shape.in_channels_per_group);
  if (weights->values.size() != count || (!weights->bias.empty() && weights->bias.size() != outputs))
    raise_for(*this, @"The archive holds %lu weights and %lu biases, expected %lu and %lu.",
              (unsigned long)weights->values.size(), (unsigned long)weights->bias.size(), (unsigned long)count,
              (unsigned long)outputs);
  auto &kept = const_cast<ConvWeights &>(*weights);  // just made by archive(), not shared yet
  kept.out_channels = shape.out_channels;
  kept.kernel_h = shape.kernel_h;
  kept.kernel_w = shape.kernel_w;
  kept.in_channels_per_group = shape.in_channels_per_group;
  kept.groups = shape.groups;
}

/// The copy shares the weights, which are immutable.
void DescribedState::did_copy(id<OpenMPSDevice> target) {
  CNNKernelState::did_copy(target);
  data_source = Ref<id<MPSCNNConvolutionDataSource>>::adopt(new_copy_of_source(data_source.get(), target));
}

void set_accumulator(ConvolutionState &state, MPSNNConvolutionAccumulatorPrecisionOption option) {
  if (option != MPSNNConvolutionAccumulatorPrecisionOptionHalf &&
      option != MPSNNConvolutionAccumulatorPrecisionOptionFloat)
    raise_for(state, @"accumulatorPrecisionOption (%lu) is neither Half (0) nor Float (1).", (unsigned long)option);
  if (state.float_weights && option != MPSNNConvolutionAccumulatorPrecisionOptionFloat)
    raise_for(state, @"accumulatorPrecisionOption is Half and the data source's kernelWeightsDataType is Float32.");
  state.accumulator = option;
}

}  // namespace openmps
