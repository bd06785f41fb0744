// SPDX-License-Identifier: Apache-2.0
// What the convolution kernels share: weights, where they come from, the fused neuron.
#pragma once

#import "mps/MPSCNNConvolutionDescriptor+Engine.hh"

namespace openmps {

/// What a convolution descriptor decides, whatever the weights are.
struct DescribedState : Extends<DescribedState, CNNKernelState> {
  NSUInteger inputs = 0, outputs = 0, groups = 1;
  NSUInteger channel_multiplier = 0;  ///< 0: not depth-wise
  NSUInteger subpixel = 1;
  Neuron neuron;
  Ref<MPSNNNeuronDescriptor *> neuron_descriptor;  ///< our copy; nil: none
  Ref<MPSCNNNeuron *> neuron_filter;
  Ref<id<MPSCNNConvolutionDataSource>> data_source;

  /// Geometry, channels and neuron of a descriptor; raises for what the class cannot do.
  void set_descriptor(MPSCNNConvolutionDescriptor *descriptor);
  /// What the descriptor of this class must be beyond the common rules; called at the end of set_descriptor().
  virtual void check_descriptor(MPSCNNConvolutionDescriptor *) const {}
  virtual bool has_weights() const { return false; }
  WeightShape weight_shape() const;

  NSUInteger output_channels(NSUInteger channels) const override;
  void size_result(Images sources, MPSImageDescriptor *descriptor) override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
  void did_copy(id<OpenMPSDevice> device) override;
};

/// The data of MPSCNNConvolution; MPSCNNFullyConnected and MPSCNNConvolutionTranspose derive theirs from it.
struct ConvolutionState : Extends<ConvolutionState, DescribedState> {
  MPSNNConvolutionAccumulatorPrecisionOption accumulator = MPSNNConvolutionAccumulatorPrecisionOptionFloat;
  bool float_weights = false;  ///< the weights have not been rounded to half
  std::shared_ptr<const ConvWeights> weights;
  bool weights_are_there = true;  ///< false: a command that may be yet to run fills them in

  bool has_weights() const override { return weights != nullptr; }
  /// MPSCNNConvolutionTranspose takes float weights only.
  virtual bool takes_type(MPSDataType type) const {
    return type == MPSDataTypeFloat32 || type == MPSDataTypeFloat16 || type == MPSDataTypeUInt8;
  }

  Problem problem(const ImageView &src, const ImageView &dst, const Window &window) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// load ... purge around everything that a kernel reads from a data source; purge also when something raises.
/// False, and nothing changed, when load answers NO. `new_descriptor`: also take the descriptor (otherwise it must
/// have the shape the kernel has).
bool read_data_source(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source, bool new_descriptor,
                      Ref<NSString *> *label);

/// The two initialisers all classes have. nil when the data source does not load.
id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, id<MPSCNNConvolutionDataSource> source);
id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, const MPSCNNConvolutionDescriptor *descriptor,
                    const float *weights, const float *bias, MPSCNNConvolutionFlags flags);

/// Half is a permission nobody uses here; but weights kept in float need Float [MPSCNNConvolution.h].
void set_accumulator(ConvolutionState &state, MPSNNConvolutionAccumulatorPrecisionOption option);
/// reloadWeightsAndBiases...DataSource
void reload_weights(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source);
/// Encodes made from now on use what the given state's buffers hold when the command buffer gets to this place.
void reload_weights(ConvolutionState &state, id<MTLCommandBuffer> buffer,
                    MPSCNNConvolutionWeightsAndBiasesState *given);
/// The weights as the kernel has them: batch normalization folded in, rounded. No biases where the kernel has none.
MPSCNNConvolutionWeightsAndBiasesState *export_weights(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                                                       BOOL temporary);

}  // namespace openmps
