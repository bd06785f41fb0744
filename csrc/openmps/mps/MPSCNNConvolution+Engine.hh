// SPDX-License-Identifier: Apache-2.0
// Common state of the convolution kernels: descriptor, weights, data source, fused neuron.
#pragma once

#import "mps/MPSCNNConvolutionDescriptor+Engine.hh"

namespace openmps {

/// Values of a convolution descriptor, for any kind of weights.
struct DescribedState : Extends<DescribedState, CNNKernelState> {
  NSUInteger inputs = 0, outputs = 0, groups = 1;
  NSUInteger channel_multiplier = 0;  ///< 0: not depth-wise
  NSUInteger subpixel = 1;
  Neuron neuron;
  Ref<MPSNNNeuronDescriptor *> neuron_descriptor;  ///< our copy; nil: none
  Ref<MPSCNNNeuron *> neuron_filter;
  Ref<id<MPSCNNConvolutionDataSource>> data_source;

  /// Set geometry, channels and neuron; raise if the class does not support them.
  void set_descriptor(MPSCNNConvolutionDescriptor *descriptor);
  /// Check this class's own rules for the descriptor; called at the end of set_descriptor().
  virtual void check_descriptor(MPSCNNConvolutionDescriptor *) const {}
  virtual bool has_weights() const { return false; }
  WeightShape weight_shape() const;

  NSUInteger output_channels(NSUInteger channels) const override;
  void size_result(Images sources, MPSImageDescriptor *descriptor) override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
  void did_copy(id<OpenMPSDevice> device) override;
};

/// State of MPSCNNConvolution; base of the states of MPSCNNFullyConnected and MPSCNNConvolutionTranspose.
struct ConvolutionState : Extends<ConvolutionState, DescribedState> {
  MPSNNConvolutionAccumulatorPrecisionOption accumulator = MPSNNConvolutionAccumulatorPrecisionOptionFloat;
  bool float_weights = false;  ///< weights are not rounded to half
  std::shared_ptr<const ConvWeights> weights;
  bool weights_are_there = true;  ///< false: a pending command fills them in

  bool has_weights() const override { return weights != nullptr; }
  /// MPSCNNConvolutionTranspose takes float weights only.
  virtual bool takes_type(MPSDataType type) const {
    return type == MPSDataTypeFloat32 || type == MPSDataTypeFloat16 || type == MPSDataTypeUInt8;
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// Load, read and purge a data source; also purge it on an exception. Return false, with nothing changed, if load
/// returns NO. `new_descriptor`: also take the descriptor; otherwise it must have the kernel's shape.
bool read_data_source(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source, bool new_descriptor,
                      Ref<NSString *> *label);

/// The two initialisers of all classes. nil if the data source does not load.
id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, id<MPSCNNConvolutionDataSource> source);
id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, const MPSCNNConvolutionDescriptor *descriptor,
                    const float *weights, const float *bias, MPSCNNConvolutionFlags flags);

/// Half is accepted and has no effect here; weights kept in float require Float [MPSCNNConvolution.h].
void set_accumulator(ConvolutionState &state, MPSNNConvolutionAccumulatorPrecisionOption option);
/// Implement reloadWeightsAndBiases...DataSource.
void reload_weights(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source);
/// Make later encodes use the contents of the state's buffers at this place of the command buffer.
void reload_weights(ConvolutionState &state, id<MTLCommandBuffer> buffer,
                    MPSCNNConvolutionWeightsAndBiasesState *given);
/// Make later encodes read the state's buffers in place, whose values only commands change. Return false, and do
/// nothing, if the kernel rounds its weights or the engine has memory of its own.
bool read_weights_in_place(ConvolutionState &state, id<MTLCommandBuffer> buffer,
                           MPSCNNConvolutionWeightsAndBiasesState *given);
/// Return the kernel's weights: batch normalization folded in, rounded. No biases if the kernel has none.
MPSCNNConvolutionWeightsAndBiasesState *export_weights(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                                                       BOOL temporary);

}  // namespace openmps
