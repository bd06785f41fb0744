// SPDX-License-Identifier: Apache-2.0
// Interface of a kernel family: makes the MPS kernel of a row and its parameters.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <mpscnn/array.hpp>
#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/table.hpp>

#include "core/data_source/data_source.hh"
#include "core/device/objc_ref.hh"
#include "core/kernel/params.hpp"

namespace mpscnn {

/// Whether a source broadcasts one row, column or channel; nullopt: inferred from the shapes.
struct Repeat {
  std::optional<bool> h = {}, w = {}, c = {};
};

/// Floats that gradient kernels write to a state: Python name and property of the state.
struct StateValues {
  std::string_view name;
  SEL selector;
  Extents shape;
};

class Kernel;

/// Gradients that a kernel computes: with respect to its source and its parameters.
struct GradientParts {
  bool source = true, parameters = false;
};

/// Window of a kernel, which determines the extents of its result.
struct WindowShape {
  Pair kernel_size{1, 1}, stride{1, 1}, dilation{1, 1};
  bool ceil_mode = false;  ///< as in PyTorch: a window that begins in the source or its padding may end beyond
};

/// An MPS kernel and the data that encode() needs. Copied with the kernel: its functions take the object that they
/// are called for.
struct FamilyKernel {
  Ref<MPSKernel *> kernel;                               ///< MPSCNNKernel; MPSCNNBinaryKernel for two sources
  std::shared_ptr<Guarded> source = {};                  ///< families with a data source
  std::function<void(FamilyKernel &)> read_again = {};   ///< reload from the source; empty: unsupported
  std::optional<ConvolutionDescriptor> descriptor = {};  ///< families with weights
  std::optional<WindowShape> window = {};                ///< families with windows, except transposed ones
  /// Return the extents that are read of a source, where the kernel has a rectangle for it; throw std::invalid_argument
  /// if they are empty.
  std::function<ImageShape(std::size_t source, ImageShape)> read_shape = {};
  /// Return the result's extents from those that are read of the source (or of both, if equal); throw
  /// std::invalid_argument if the result is empty. Unset: given by the window, the weights, or the source's extents.
  std::function<ImageShape(ImageShape)> result_shape = {};
  /// Image i of the result depends on image i of each source only, so that a batch may be divided into chunks.
  bool image_by_image = true;
  /// Consecutive images of the result per image of the source.
  std::int64_t results_per_image = 1;
  /// Return the kernel for results [first, first + count) of each image, if there are several.
  std::function<FamilyKernel(std::int64_t first, std::int64_t count)> some_results = {};
  std::int64_t source_channel_step = 4;  ///< source channel offsets are multiples of this
  Offset3 offset = {};                   ///< default offset of the source; families without windows
  /// Reload from buffers with a float per channel; empty: unsupported.
  using Reload = std::function<void(FamilyKernel &, id<MTLCommandBuffer>, id<MTLBuffer>, id<MTLBuffer>)>;
  Reload reload_gamma_and_beta = {}, reload_mean_and_variance = {};
  std::int64_t channels = 0;
  bool has_statistics = false;  ///< has mean and variance
  /// Encode after the offset is set; empty: from sourceImage to destinationImage. The destination is nil if the result
  /// is a state; otherwise the state may be null.
  std::function<void(FamilyKernel &, id<MTLCommandBuffer>, MPSImage *source, MPSImage *destination,
                     BatchNormalizationState *state)>
      encode = {};
  /// Gradient kernels: the forward kernel, and the source with respect to which the gradient is computed.
  std::shared_ptr<Kernel> forward = {};
  std::size_t of_source = 0;
  std::size_t seen_source = 0;       ///< forward source that is the gradient kernel's second source
  bool needs_encoded_state = false;  ///< requires the state of the forward encode
  GradientParts parts = {};          ///< requested gradients; those of parameters need a state to hold them
  /// Select the gradients that the next encode computes. Empty: the kernel has no parameters.
  std::function<void(FamilyKernel &, GradientParts)> set_parts = {};
  /// Forward kernels: values that their gradient kernels write to the state for the CPU.
  std::vector<StateValues> state_values = {};
  /// Encode a gradient with a batch normalization state; the destination is nil if the result is a state.
  std::function<void(FamilyKernel &, id<MTLCommandBuffer>, MPSImage *gradient, MPSImage *source, MPSImage *destination,
                     BatchNormalizationState *state)>
      encode_gradient = {};
  NeuronDescriptor neuron = {};
  Padding padding = {};
  Pair output_padding{0, 0};
  std::array<Repeat, 2> repeat = {};  ///< families with broadcasting
  Params attributes = {};             ///< common parameters whose default differs here
};

inline MTLRegion mtl_region(const Region3 &region) {
  const auto &[origin, height, width, images] = region;
  return MTLRegionMake3D(origin.x, origin.y, origin.image, width, height, images);
}

/// Return the class by Apple's name. Throw NotImplementedError if the platform has none.
Class class_of(const KernelRow &row);

/// How a family makes kernels: from a row's parameters, as the gradient of a forward kernel with respect to one of its
/// sources, or either.
struct FamilyMakers {
  FamilyKernel (*make)(id<MTLDevice> device, const KernelRow &row, const Params &params) = nullptr;
  FamilyKernel (*make_gradient)(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                std::size_t source) = nullptr;
};

/// Registers a family under the name that rows of the table have.
class RegisteredFamily {
 public:
  RegisteredFamily(std::string_view name, FamilyMakers makers);
};

/// Return the functions of the row's family. Throw NotImplementedError if no family has registered under its name.
const FamilyMakers &makers_of(const KernelRow &row);

/// Return the data source of a normalization's row and parameters.
std::shared_ptr<GuardedNormalization> normalization_of(const KernelRow &row, const Params &params);

/// Return the shape of a convolution's weights in MPS's order.
Extents weights_shape(const ConvolutionDescriptor &d);

}  // namespace mpscnn
