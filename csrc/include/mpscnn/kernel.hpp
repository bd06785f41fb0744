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

/// Window of a kernel on its sources, in pixels.
struct KernelWindow {
  Pair kernel_size, stride, dilation;
};

/// Channels [first, first + count); count 0: all of them.
struct ChannelRange {
  std::int64_t first = 0, count = 0;
  bool operator==(const ChannelRange&) const = default;
};

/// Channel ranges of a kernel's sources and result in images with more channels. All `first` are multiples of 4, the
/// channels of a slice [MPSCNNKernel.h].
struct Placement {
  std::array<ChannelRange, SourceNames::kMost> sources = {};
  std::int64_t destination = 0;

  bool is_whole() const { return destination == 0 && sources[0].count == 0 && sources[1].count == 0; }
  bool operator==(const Placement&) const = default;
};

/// States of one encode.
struct EncodeStates {
  BatchNormalizationState* batch = nullptr;  ///< read, for rows that name a state
  GradientState* gradient = nullptr;         ///< read by a gradient kernel: state of the forward encode
  /// For the gradient kernel: created by this encode, or extended by it with another chunk of the batch.
  std::shared_ptr<GradientState>* left = nullptr;
};

class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  struct Impl;
  /// Throw std::invalid_argument, TypeError or KeyError with the parameter, its value and the limit;
  /// NotImplementedError if the platform lacks the class. Exceptions of the data source are rethrown.
  static std::shared_ptr<Kernel> make(std::shared_ptr<Device> device, const KernelRow& row, const Params& params);

  explicit Kernel(std::unique_ptr<Impl> impl);
  ~Kernel();

  /// Return a copy, by MPS's copyWithZone:device:. It has the same data source; with `archived` it is decoded from an
  /// archive, with weights and no data source.
  std::shared_ptr<Kernel> copy(bool archived) const;

  const KernelRow& row() const;
  std::shared_ptr<Device> device() const;

  Value get(std::string_view name) const;
  void set(std::string_view name, const Value& value);

  /// Return a number that grows with each change of attributes or weights, which commands encoded before do not see.
  std::uint64_t changes() const;

  /// Throw TypeError unless `count` is the row's number of sources.
  void check_source_count(std::size_t count) const;

  /// Return the shape of the resulting image; `states` are needed by gradient kernels. Throw like encode().
  ImageShape result_shape(std::span<const ImageShape> sources, const EncodeStates& states = {}) const;

  /// Whether image i of the result depends only on image i of each source.
  bool works_image_by_image() const;
  /// Number of result images per source image.
  std::int64_t results_per_image() const;
  /// Return a kernel with the same attributes that computes only results [first, first + count) of each image.
  std::shared_ptr<Kernel> some_results(std::int64_t first, std::int64_t count) const;

  /// Encode into `destination`, or into a new image of `dtype` (default: the first source's), temporary on request.
  /// Thread-safe on different command buffers. States are for rows that read or write one.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, std::span<const Image* const> sources,
                                std::shared_ptr<Image> destination = nullptr, bool temporary = false,
                                std::optional<DType> dtype = std::nullopt, const EncodeStates& states = {});

  /// Encode between the channel ranges of `placement`; attributes of the kernel are relative to them. The destination
  /// exceeds the result only in channels.
  void encode_placed(CommandBuffer& buffer, std::span<const Image* const> sources, const Image& destination,
                     const Placement& placement);

  /// Encode a row whose result is a state, into `state` or a new one.
  std::shared_ptr<BatchNormalizationState> encode_state(CommandBuffer& buffer, std::span<const Image* const> sources,
                                                        std::shared_ptr<BatchNormalizationState> state = nullptr);

  /// Return the kernel that computes the gradients with respect to a source and to the parameters. It shares the
  /// attributes of this kernel. Throw TypeError if there is none, and NotImplementedError if the platform or the table
  /// lacks it.
  std::shared_ptr<Kernel> gradient(std::size_t source = 0);
  /// Whether all encodes of a batch may leave one GradientState, which sums the gradients of the parameters.
  bool shares_gradient_state() const;
  /// The forward kernel of a gradient kernel; null for others.
  std::shared_ptr<Kernel> forward() const;

  /// The activation that the kernel computes or applies to its result; nullopt if none.
  std::optional<NeuronDescriptor> neuron() const;
  std::shared_ptr<Source> data_source() const;
  /// Number of a convolution's weights; 0 for other kernels.
  std::int64_t weight_count() const;
  /// Return whether results may be kept in bfloat16 (MPSKernelOptionsAllowReducedPrecision).
  bool allows_reduced_precision() const;
  /// The caller's policy; null for pixels and MPS's own policies. Needs no lock.
  std::shared_ptr<PaddingPolicy> padding_policy() const;
  /// For kernels with one source.
  KernelWindow window() const;
  /// Read the data source again.
  void reload();
  /// Reload on a command buffer: later encodes use the contents of the state's buffers at the time of execution; for a
  /// BatchNormalizationState, mean and variance.
  void reload(CommandBuffer& buffer, const NormalizationGammaAndBetaState& state);
  void reload(CommandBuffer& buffer, const NormalizationMeanAndVarianceState& state);
  void reload(CommandBuffer& buffer, const BatchNormalizationState& state);
  void reload(CommandBuffer& buffer, const ConvolutionWeightsAndBiasesState& state);
  /// Read the weights in the state's buffers from now on, instead of a copy. See WeightsInPlace: only commands change
  /// the buffers, and a reload follows. The kernel gives up its data source. Return false, with nothing encoded, if
  /// the kernel needs values of its own.
  bool read_in_place(CommandBuffer& buffer, const ConvolutionWeightsAndBiasesState& state);
  /// Export the kernel's weights at the time of execution, rounded, with batch normalization folded in.
  std::shared_ptr<ConvolutionWeightsAndBiasesState> export_weights(CommandBuffer& buffer);

  Impl& impl() const { return *impl_; }

 private:
  void check_encode(const CommandBuffer& buffer, std::span<const Image* const> sources,
                    const EncodeStates& states) const;
  void check_result_is_image() const;
  /// Throw unless the states match those that the kernel reads and writes.
  void check_states(const EncodeStates& states) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
