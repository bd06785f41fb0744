// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels that normalize by mean and variance: the values of each channel, their data sources, and
// the states for the gradient kernels.
#pragma once

#include <vector>

#include "engine/problem/normalize.hpp"
#import "mps/MPSCNNNeuron+Engine.hh"

namespace openmps {

/// One float for each channel, in a buffer that is not written again once it is complete: a reload makes a new one.
/// Kernels and states share it.
using Values = Ref<id<MTLBuffer>>;

/// State of MPSCNNBatchNormalization, MPSCNNInstanceNormalization and MPSCNNGroupNormalization.
struct NormalizationState : Extends<NormalizationState, CNNKernelState> {
  NSUInteger channels = 0;
  NSUInteger groups = 0;  ///< 0: mean and variance are given; else each image has its own, so many
  float epsilon = 0;
  Values gamma, beta;     ///< ones and zeros if the data source has none
  Values mean, variance;  ///< nil if the data source has none
  NeuronFunction fused;   ///< no descriptor: none
  Ref<id> data_source;
  std::vector<Values> replaced;  ///< by reloads in command buffers, the oldest first

  /// Return the data source's number of groups; the channels are known.
  virtual NSUInteger read_groups(id) const { return 0; }
  virtual bool groups_fit() const { return groups == 0; }
  /// Return whether the data source has mean and variance.
  virtual bool has_statistics() const { return false; }
  void set_epsilon(float value);

  bool uses_states() const override { return true; }
  NSUInteger output_channels(NSUInteger given) const override;
  Problem make_problem(const Encode &encode) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
  void did_copy(id<OpenMPSDevice> device) override;
};

/// State of the kernels with a mean and variance for each image, which the kernel's result state stores.
struct ImageNormalizationState : Extends<ImageNormalizationState, NormalizationState> {
  /// Class of that result state.
  virtual Class state_class() const { return Nil; }
  Problem make_problem(const Encode &encode) const override;
  void did_encode(const Encode &encode) const override;
};

/// Data of these kernels for their gradient kernels, besides the buffers of the state.
struct NormalizationGradientData : GradientData {
  Ref<MPSCNNKernel *> kernel;
  NSUInteger channels = 0, groups = 0;
  NSUInteger images = 0;  ///< capacity of mean and variance
  // Of the kernel, when it made the state or was last encoded with it.
  Values gamma, beta;
  float epsilon = 0;
  NSUInteger known_images = 0;  ///< with mean and variance from the last encode; 0: no encode
  bool has_gradients = false;   ///< an encode that stores the gradients has been recorded
};

/// Mean and variance of a state are the stored statistics, else the kernel's.
struct BatchNormalizationData : NormalizationGradientData {
  Values mean, variance;            ///< of the kernel, like gamma and beta
  std::int64_t count = 0;           ///< pixels that the stored statistics cover; 0: none stored
  bool is_used = false;             ///< by a normalization: the next statistics begin a new batch
  bool has_used_gradients = false;  ///< the next gradients of gamma and beta begin a new batch

  bool has_statistics() const { return count > 0 || mean; }
};

inline BatchNormalizationData &batch_data(MPSState *state) {
  return static_cast<BatchNormalizationData &>(gradient_data(state));
}

/// Resources of a state. kExact: mean and variance in double, in pairs.
enum NormalizationResource : NSUInteger { kMean = 0, kVariance, kGradientForGamma, kGradientForBeta, kExact };

/// Return one resource of a state; allocate its memory.
ChannelValues resource_values(MPSState *state, NormalizationResource resource);
ChannelValues channel_values(const Values &values);

/// Make a state, temporary if `buffer` is not nil. `data`: the class's own.
MPSState *new_normalization_state(Class kind, MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                                  std::unique_ptr<NormalizationGradientData> data);
inline NormalizationGradientData &state_data(MPSState *state) {
  return static_cast<NormalizationGradientData &>(gradient_data(state));
}
/// Return the state's data. Raise for a state of another class, for other channels, or that no kernel has made.
NormalizationGradientData &normalization_data(const NormalizationState &state, MPSState *given, Class kind,
                                              const char *name);
/// Return the state's data. Raise for a state of another class or that no kernel has made.
NormalizationGradientData &normalization_data(const KernelState &state, MPSState *given, Class kind, const char *name);

/// State of gradient kernels whose result pixels each read one pixel of each source.
struct PixelGradientState : Extends<PixelGradientState, GradientKernelState> {
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }
  /// The result lies on the forward kernel's source.
  void take_forward(const GradientData::Source &forward) override;
  void check_encode(const Encode &encode, const Clip &clip) const override;
  /// Raise for unsupported properties: strides, and values beyond the incoming gradient.
  void check_sources() const;

  Operand incoming(const ImageView &view) const;
  Operand source_operand(const ImageView &view) const { return operand(secondary(), view); }
};

/// State of the gradient kernels of normalization by mean and variance.
struct NormalizationGradientState : Extends<NormalizationGradientState, PixelGradientState> {
  NeuronFunction fused;  ///< no descriptor: none

  bool uses_states() const override { return true; }
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// State of those with a mean and variance for each image.
struct ImageNormalizationGradientState : Extends<ImageNormalizationGradientState, NormalizationGradientState> {
  /// Class of the forward kernel's result state.
  virtual Class state_class() const { return Nil; }
  Problem make_problem(const Encode &encode) const override;
  void did_encode(const Encode &encode) const override;
};

/// The values to read from a data source.
enum class SourceParts { all, gamma_and_beta, mean_and_variance };

/// The initialiser of all classes. nil if the data source does not load.
id init_normalization(MPSCNNKernel *kernel, id<MTLDevice> device, id source, MPSNNNeuronDescriptor *fused);
/// Implement reload...FromDataSource.
void reload_normalization(MPSCNNKernel *kernel, id source, SourceParts parts);
/// Make later encodes use the contents of the state's buffers at this place of the command buffer.
void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationGammaAndBetaState *state);
void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationMeanAndVarianceState *state);

/// Describe a state of two buffers with a float for each channel.
MPSStateResourceList *two_buffers(Class kind, NSUInteger channels);
/// Return both buffers; raise if one is nil.
NSArray<id<MTLResource>> *two_resources(Class kind, id<MTLBuffer> first, const char *first_name, id<MTLBuffer> second,
                                        const char *second_name);

}  // namespace openmps

@interface MPSCNNBatchNormalizationStatistics (Engine)
/// The encode of any images, of which each may hold several.
- (void)openmps_encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               images:(const std::vector<MPSImage *> &)images
              batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
@end

@interface MPSCNNBatchNormalizationStatisticsGradient (Engine)
/// The same; pairs of gradient and source.
- (void)openmps_encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                               images:(const std::vector<std::array<MPSImage *, 2>> &)images
              batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState;
@end

/// Methods of the three kernels.
#define OPENMPS_NORMALIZATION_KERNEL                                                                            \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                       \
    (void)device;                                                                                               \
    openmps::UnwindRelease unwind(self);                                                                        \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:dataSource:");                                      \
  }                                                                                                             \
  OPENMPS_INIT_WITH_CODER                                                                                       \
  OPENMPS_GETTER(openmps::NormalizationState, float, epsilon, epsilon)                                          \
  -(void)setEpsilon : (float)epsilon {                                                                          \
    openmps::state_of<openmps::NormalizationState>(self).set_epsilon(epsilon);                                  \
  }                                                                                                             \
  -(void)reloadGammaAndBetaFromDataSource {                                                                     \
    openmps::reload_normalization(self, openmps::state_of<openmps::NormalizationState>(self).data_source.get(), \
                                  openmps::SourceParts::gamma_and_beta);                                        \
  }                                                                                                             \
  -(void)reloadGammaAndBetaWithCommandBuffer : (id<MTLCommandBuffer>)commandBuffer gammaAndBetaState            \
      : (MPSCNNNormalizationGammaAndBetaState *)gammaAndBetaState {                                             \
    openmps::reload_normalization(self, commandBuffer, gammaAndBetaState);                                      \
  }

/// Methods of the kernels with a mean and variance for each image.
#define OPENMPS_IMAGE_NORMALIZATION_KERNEL(STATE)                                                             \
  OPENMPS_NORMALIZATION_KERNEL                                                                                \
  -(STATE *)resultStateForSourceImage : (MPSImage *)sourceImage sourceStates                                  \
      : (NSArray<MPSState *> *)sourceStates destinationImage : (MPSImage *)destinationImage {                 \
    (void)sourceStates, (void)destinationImage;                                                               \
    return (STATE *)openmps::new_normalization_state([STATE class], self, nil, sourceImage,                   \
                                                     std::make_unique<openmps::NormalizationGradientData>()); \
  }                                                                                                           \
  -(STATE *)temporaryResultStateForCommandBuffer : (id<MTLCommandBuffer>)commandBuffer sourceImage            \
      : (MPSImage *)sourceImage sourceStates : (NSArray<MPSState *> *)sourceStates destinationImage           \
      : (MPSImage *)destinationImage {                                                                        \
    (void)sourceStates, (void)destinationImage;                                                               \
    return (STATE *)openmps::new_normalization_state([STATE class], self, commandBuffer, sourceImage,         \
                                                     std::make_unique<openmps::NormalizationGradientData>()); \
  }

/// Methods of the states.
#define OPENMPS_NORMALIZATION_STATE(KERNEL, NAME)            \
  -(KERNEL *)NAME {                                          \
    return (KERNEL *)openmps::state_data(self).kernel.get(); \
  }                                                          \
  -(id<MTLBuffer>)gamma {                                    \
    return openmps::state_data(self).gamma.get();            \
  }                                                          \
  -(id<MTLBuffer>)beta {                                     \
    return openmps::state_data(self).beta.get();             \
  }
/// Methods of their states. The gradients are zeros until they have been computed.
#define OPENMPS_IMAGE_NORMALIZATION_STATE(KERNEL, NAME)                                         \
  OPENMPS_NORMALIZATION_STATE(KERNEL, NAME)                                                     \
  -(id<MTLBuffer>)gradientForGamma {                                                            \
    return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForGamma allocateMemory:YES]; \
  }                                                                                             \
  -(id<MTLBuffer>)gradientForBeta {                                                             \
    return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForBeta allocateMemory:YES];  \
  }

/// Methods of their gradient kernels.
#define OPENMPS_IMAGE_NORMALIZATION_GRADIENT(STATE) \
  +(openmps::KernelState *)openmps_newState {       \
    return new STATE();                             \
  }                                                 \
  OPENMPS_INIT_WITH_DEVICE                          \
  OPENMPS_INIT_WITH_CODER                           \
  /* The gradients of gamma and beta. */            \
  -(BOOL)isStateModified {                          \
    return YES;                                     \
  }
