// SPDX-License-Identifier: Apache-2.0
// Kernel: an MPSCNNKernel or MPSCNNBinaryKernel made from a row of the table.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/convolution_state.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/normalization_states.hpp>
#include <mpscnn/padding_policy.hpp>
#include <mpscnn/source.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

/// Of the sources, in pixels.
struct KernelWindow {
  Pair kernel_size, stride, dilation;
};

/// Channels [first, first + count); count 0: all of them.
struct ChannelRange {
  std::int64_t first = 0, count = 0;
  bool operator==(const ChannelRange&) const = default;
};

/// Where a kernel's sources and its result lie in images that hold more channels than theirs. All `first` are
/// multiples of 4, the channels of a slice [MPSCNNKernel.h].
struct Placement {
  std::array<ChannelRange, SourceNames::kMost> sources = {};
  std::int64_t destination = 0;

  bool is_whole() const { return destination == 0 && sources[0].count == 0 && sources[1].count == 0; }
  bool operator==(const Placement&) const = default;
};

/// States of one encode.
struct EncodeStates {
  BatchNormalizationState* batch = nullptr;  ///< read, for rows that name a state
  GradientState* gradient = nullptr;         ///< read by a gradient kernel: what the forward encode left
  /// For the gradient kernel: made by this encode, or, where there is one, joined by it as another part of a batch.
  std::shared_ptr<GradientState>* left = nullptr;
};

class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  struct Impl;
  /// Throws std::invalid_argument, TypeError, KeyError with the parameter, its value and the limit; NotImplementedError
  /// when the platform lacks the class; what the data source threw.
  static std::shared_ptr<Kernel> make(std::shared_ptr<Device> device, const KernelRow& row, const Params& params);

  explicit Kernel(std::unique_ptr<Impl> impl);
  ~Kernel();

  /// Another kernel that computes the same, by MPS's copyWithZone:device: with the same data source, or with `archived`
  /// by way of an archive, which has weights and no data source.
  std::shared_ptr<Kernel> copy(bool archived) const;

  const KernelRow& row() const;
  std::shared_ptr<Device> device() const;

  Value get(std::string_view name) const;
  void set(std::string_view name, const Value& value);

  /// TypeError unless `count` is the row's number of sources.
  void check_source_count(std::size_t count) const;

  /// Extents of the result, an image, for such sources, and for the state of a gradient kernel. Throws like encode().
  ImageShape result_shape(std::span<const ImageShape> sources, const EncodeStates& states = {}) const;

  /// Whether an image of the result comes of the same image of each source and of no other.
  bool works_image_by_image() const;
  /// Images of the result that come of each image of the source.
  std::int64_t results_per_image() const;
  /// A kernel with the same attributes that makes results [first, first + count) of each image only.
  std::shared_ptr<Kernel> some_results(std::int64_t first, std::int64_t count) const;

  /// Encodes; with `destination` into it, else into a new image of `dtype` (default: the first source's), temporary if
  /// asked. Safe from several threads on different command buffers. States are for rows that take or leave one.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, std::span<const Image* const> sources,
                                std::shared_ptr<Image> destination = nullptr, bool temporary = false,
                                std::optional<DType> dtype = std::nullopt, const EncodeStates& states = {});

  /// Encodes into those channels of `destination`, from those of the sources; what was set on the kernel holds within
  /// them. The destination is larger than the result in channels only.
  void encode_placed(CommandBuffer& buffer, std::span<const Image* const> sources, const Image& destination,
                     const Placement& placement);

  /// For rows whose result is a state: encodes into that, or into a new one.
  std::shared_ptr<BatchNormalizationState> encode_state(CommandBuffer& buffer, std::span<const Image* const> sources,
                                                        std::shared_ptr<BatchNormalizationState> state = nullptr);

  /// The kernel that computes gradients with respect to a source, and to the parameters, from those of this kernel's
  /// result; made of this kernel, whose attributes it follows. Throws TypeError where there is none, and
  /// NotImplementedError where the platform or the table lacks it.
  std::shared_ptr<Kernel> gradient(std::size_t source = 0);
  /// Of a gradient kernel: the kernel that it was made of. Null for others.
  std::shared_ptr<Kernel> forward() const;

  /// The activation that the kernel computes, or applies to its result before that is stored; nullopt for none.
  std::optional<NeuronDescriptor> neuron() const;
  std::shared_ptr<Source> data_source() const;
  /// Of the caller's; null for pixels and MPS's own policies. Needs no lock.
  std::shared_ptr<PaddingPolicy> padding_policy() const;
  /// Kernels of one source.
  KernelWindow window() const;
  /// Reads the data source again.
  void reload();
  /// On a command buffer: what is encoded from now on uses what stands in the state's buffers when the device gets
  /// there; of a batch normalization's state, mean and variance.
  void reload(CommandBuffer& buffer, const NormalizationGammaAndBetaState& state);
  void reload(CommandBuffer& buffer, const NormalizationMeanAndVarianceState& state);
  void reload(CommandBuffer& buffer, const BatchNormalizationState& state);
  void reload(CommandBuffer& buffer, const ConvolutionWeightsAndBiasesState& state);
  /// The weights as the kernel has them, batch normalization folded in and rounded, when the device gets there.
  std::shared_ptr<ConvolutionWeightsAndBiasesState> export_weights(CommandBuffer& buffer);

  Impl& impl() const { return *impl_; }

 private:
  void check_encode(const CommandBuffer& buffer, std::span<const Image* const> sources,
                    const EncodeStates& states) const;
  void check_result_is_image() const;
  /// The states are such as the kernel takes and leaves.
  void check_states(const EncodeStates& states) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
