// SPDX-License-Identifier: Apache-2.0
// What the kernels that normalize by mean and variance share: the values of each channel, where they come from, what
// they leave for their gradient kernels.
#pragma once

#include "engine/problem/normalize.hpp"
#import "mps/MPSCNNNeuron+Engine.hh"

namespace openmps {

/// One float for each channel in a buffer that nobody writes once it is complete: a reload makes a new one. Several
/// kernels and states may hold it.
using Values = Ref<id<MTLBuffer>>;

/// The data of MPSCNNBatchNormalization, MPSCNNInstanceNormalization and MPSCNNGroupNormalization.
struct NormalizationState : Extends<NormalizationState, CNNKernelState> {
  NSUInteger channels = 0;
  NSUInteger groups = 0;  ///< 0: mean and variance come from elsewhere; else each image has its own, so many
  float epsilon = 0;
  Values gamma, beta;     ///< of ones and zeros where the data source has none
  Values mean, variance;  ///< nil: the data source has none
  NeuronFunction fused;   ///< without descriptor: none
  Ref<id> data_source;

  /// The groups that a data source asks for, with the channels known.
  virtual NSUInteger read_groups(id) const { return 0; }
  virtual bool groups_fit() const { return groups == 0; }
  /// Whether the data source has mean and variance.
  virtual bool has_statistics() const { return false; }
  void set_epsilon(float value);

  bool uses_states() const override { return true; }
  NSUInteger output_channels(NSUInteger given) const override;
  Problem make_problem(const Encode &encode) const override;
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
  void did_copy(id<OpenMPSDevice> device) override;
};

/// The kernels of which each image has its own mean and variance. They are stored in the state that the kernel leaves.
struct ImageNormalizationState : Extends<ImageNormalizationState, NormalizationState> {
  /// Of that state.
  virtual Class state_class() const { return Nil; }
  Problem make_problem(const Encode &encode) const override;
  void did_encode(const Encode &encode) const override;
};

/// What these kernels leave for their gradient kernels, beside the buffers of the state.
struct NormalizationGradientData : GradientData {
  Ref<MPSCNNKernel *> kernel;
  NSUInteger channels = 0, groups = 0;
  NSUInteger images = 0;  ///< that mean and variance have place for
  // Of the kernel, when it made the state or was last encoded with it.
  Values gamma, beta;
  float epsilon = 0;
  NSUInteger known_images = 0;  ///< whose mean and variance the last encode stored; 0: none has
  bool has_gradients = false;   ///< an encode has been recorded that stores the gradients
};

/// The mean and variance of a state are those that statistics have stored, else the kernel's.
struct BatchNormalizationData : NormalizationGradientData {
  Values mean, variance;            ///< of the kernel, like gamma and beta
  std::int64_t count = 0;           ///< pixels that the stored statistics cover; 0: none are stored
  bool is_used = false;             ///< by a normalization: the next statistics begin a new batch
  bool has_used_gradients = false;  ///< the next gradients of gamma and beta begin a new batch

  bool has_statistics() const { return count > 0 || mean; }
};

inline BatchNormalizationData &batch_data(MPSState *state) {
  return static_cast<BatchNormalizationData &>(gradient_data(state));
}

/// Resources of a state. kExact: mean and variance in double, in pairs.
enum NormalizationResource : NSUInteger { kMean = 0, kVariance, kGradientForGamma, kGradientForBeta, kExact };

/// Where a state keeps one of these; there is memory for it.
ChannelValues resource_values(MPSState *state, NormalizationResource resource);
ChannelValues channel_values(const Values &values);

/// On a command buffer (not nil) the state is temporary. `data` is the class's own.
MPSState *new_normalization_state(Class kind, MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                                  std::unique_ptr<NormalizationGradientData> data);
inline NormalizationGradientData &state_data(MPSState *state) {
  return static_cast<NormalizationGradientData &>(gradient_data(state));
}
/// Raises for a state of another class, that no kernel has made, or that was made for other channels.
NormalizationGradientData &normalization_data(const NormalizationState &state, MPSState *given, Class kind,
                                              const char *name);
/// Raises for a state of another class or that no kernel has made.
NormalizationGradientData &normalization_data(const KernelState &state, MPSState *given, Class kind, const char *name);

/// The data of gradient kernels of which each pixel of the result sees one of each source.
struct PixelGradientState : Extends<PixelGradientState, GradientKernelState> {
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override {
    return CNNBinaryKernelState::result_channels(channels);
  }
  /// The result lies on the forward kernel's source.
  void take_forward(const GradientData::Source &forward) override;
  void check_encode(const Encode &encode, const Clip &clip) const override;
  /// Raises for what a gradient cannot have: strides, and values beyond the incoming gradient.
  void check_sources() const;

  Operand incoming(const ImageView &view) const;
  Operand source_operand(const ImageView &view) const { return operand(secondary(), view); }
};

/// The same of the gradient kernels of normalization by mean and variance.
struct NormalizationGradientState : Extends<NormalizationGradientState, PixelGradientState> {
  NeuronFunction fused;  ///< without descriptor: none

  bool uses_states() const override { return true; }
  void archive(Archive &archive) override;
  void did_read(MPSKernel *kernel) override;
};

/// Of those of which each image has its own mean and variance.
struct ImageNormalizationGradientState : Extends<ImageNormalizationGradientState, NormalizationGradientState> {
  /// That the forward kernel leaves.
  virtual Class state_class() const { return Nil; }
  Problem make_problem(const Encode &encode) const override;
  void did_encode(const Encode &encode) const override;
};

/// Which values of a data source are read.
enum class SourceParts { all, gamma_and_beta, mean_and_variance };

/// The initialiser of all classes. nil when the data source does not load.
id init_normalization(MPSCNNKernel *kernel, id<MTLDevice> device, id source, MPSNNNeuronDescriptor *fused);
/// reload...FromDataSource
void reload_normalization(MPSCNNKernel *kernel, id source, SourceParts parts);
/// Encodes made from now on use what the buffers of the state hold when the command buffer gets to this place.
void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationGammaAndBetaState *state);
void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationMeanAndVarianceState *state);

/// A state of two buffers with a float for each channel.
MPSStateResourceList *two_buffers(Class kind, NSUInteger channels);
/// Raises for a nil buffer.
NSArray<id<MTLResource>> *two_resources(Class kind, id<MTLBuffer> first, const char *first_name, id<MTLBuffer> second,
                                        const char *second_name);

}  // namespace openmps

/// Methods that the three kernels have alike.
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

/// The same for those of which each image has its own mean and variance.
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

/// Methods that the states have alike.
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
/// The gradients are zeros until they have been computed.
#define OPENMPS_IMAGE_NORMALIZATION_STATE(KERNEL, NAME)                                         \
  OPENMPS_NORMALIZATION_STATE(KERNEL, NAME)                                                     \
  -(id<MTLBuffer>)gradientForGamma {                                                            \
    return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForGamma allocateMemory:YES]; \
  }                                                                                             \
  -(id<MTLBuffer>)gradientForBeta {                                                             \
    return (id<MTLBuffer>)[self resourceAtIndex:openmps::kGradientForBeta allocateMemory:YES];  \
  }

/// The gradient kernels of those.
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
