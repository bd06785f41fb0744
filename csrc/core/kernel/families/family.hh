// SPDX-License-Identifier: Apache-2.0
// What a family supplies: from a row and its parameters to the MPS kernel.
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

/// Whether a source repeats one row, column or channel; nullopt: as the shapes say.
struct Repeat {
  std::optional<bool> h = {}, w = {}, c = {};
};

/// Floats that gradient kernels put into a state, by their Python name and the state's property.
struct StateValues {
  std::string_view name;
  SEL selector;
  Extents shape;
};

class Kernel;

/// Which gradients a kernel computes: with respect to its source, to its parameters.
struct GradientParts {
  bool source = true, parameters = false;
};

/// The window of a kernel: how large its results are.
struct WindowShape {
  Pair kernel_size{1, 1}, stride{1, 1}, dilation{1, 1};
  bool ceil_mode = false;  ///< PyTorch's: a window that begins in the source or its padding may end beyond
};

/// A kernel and what encode() needs to know of it. Copied with the kernel: its functions are given the one
/// that they are called for.
struct Made {
  Ref<MPSKernel *> kernel;                               ///< MPSCNNKernel, or MPSCNNBinaryKernel for two sources
  std::shared_ptr<Guarded> source = {};                  ///< families that read one
  std::function<void(Made &)> read_again = {};           ///< reads the source anew; empty: the class cannot
  std::optional<ConvolutionDescriptor> descriptor = {};  ///< families with weights
  std::optional<WindowShape> window = {};                ///< families with windows, other than transposed ones
  /// Images and pixels that are read of a source, by its extents, where the kernel has a rectangle for it; throws
  /// std::invalid_argument if there are none.
  std::function<ImageShape(std::size_t source, ImageShape)> read_shape = {};
  /// Extents of the result from those that are read of the source, or of both where they are equal; throws
  /// std::invalid_argument if there is none. Empty: by the window, the weights, or the same extents.
  std::function<ImageShape(ImageShape)> result_shape = {};
  /// An image of the result comes of the same image of each source, so that arrays of many images may be run in parts.
  bool image_by_image = true;
  /// Images of the result that come of each image of the source, next to each other.
  std::int64_t results_per_image = 1;
  /// The kernel of results [first, first + count) of each image, if there are several.
  std::function<Made(std::int64_t first, std::int64_t count)> some_results = {};
  std::int64_t source_channel_step = 4;  ///< what an offset of source channels is a multiple of
  Offset3 offset = {};                   ///< of the source where the caller gives none; families without windows
  /// Reload from buffers of floats, one for each of so many channels; empty: the class cannot.
  using Reload = std::function<void(Made &, id<MTLCommandBuffer>, id<MTLBuffer>, id<MTLBuffer>)>;
  Reload reload_gamma_and_beta = {}, reload_mean_and_variance = {};
  std::int64_t channels = 0;
  bool has_statistics = false;  ///< mean and variance are there
  /// How it is encoded, its offset being set; empty: from sourceImage to destinationImage. The destination is nil where
  /// the result is a state; the state may be null where it is not.
  std::function<void(Made &, id<MTLCommandBuffer>, MPSImage *source, MPSImage *destination,
                     BatchNormalizationState *state)>
      encode = {};
  /// Gradient kernels: the kernel that they are the gradient of, and with respect to which of its sources.
  std::shared_ptr<Kernel> forward = {};
  std::size_t of_source = 0;
  std::size_t seen_source = 0;       ///< which of them the second source is
  bool needs_encoded_state = false;  ///< what the forward encode left there
  GradientParts parts = {};          ///< that are wanted; those of parameters need a state to hold them
  /// Before each encode: which of them this one computes. Empty: the kernel has no parameters.
  std::function<void(Made &, GradientParts)> set_parts = {};
  /// Forward kernels: what their gradient kernels leave in the state for the CPU.
  std::vector<StateValues> state_values = {};
  /// How a gradient with a state of batch normalization is encoded; the destination is nil where the result is a state.
  std::function<void(Made &, id<MTLCommandBuffer>, MPSImage *gradient, MPSImage *source, MPSImage *destination,
                     BatchNormalizationState *state)>
      encode_gradient = {};
  NeuronDescriptor neuron = {};
  Padding padding = {};
  Pair output_padding{0, 0};
  std::array<Repeat, 2> repeat = {};  ///< families that broadcast
  Params attributes = {};             ///< common parameters whose default is not the usual one here
};

inline MTLRegion mtl_region(const Region3 &region) {
  const auto &[origin, height, width, images] = region;
  return MTLRegionMake3D(origin.x, origin.y, origin.image, width, height, images);
}

/// The class by Apple's name. Throws NotImplementedError when the platform has none.
Class class_of(const KernelRow &row);

Made make_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_binary_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_neuron(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_neuron_gradient(id<MTLDevice> device, const KernelRow &row, const Params &params);
/// Of a forward kernel.
Made make_neuron_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_pooling_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_softmax_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_upsampling_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
/// Of MPSNNPad as well.
Made make_reshape_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_convolution_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_local_normalization_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_image_normalization_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
Made make_dropout_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward);
/// With respect to one of the sources.
Made make_arithmetic_gradient(id<MTLDevice> device, const KernelRow &row, const Made &forward, std::size_t source);

Made make_pooling(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_arithmetic(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_softmax(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_upsampling(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_reduction(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_slice(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_reshape(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_resize(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_pad(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_dropout(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_local_normalization(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_normalization(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_batch_normalization_gradient(id<MTLDevice> device, const KernelRow &row, const Params &params);
/// Of a convolution's weights in MPS's order.
Extents weights_shape(const ConvolutionDescriptor &d);
Made make_batch_statistics(id<MTLDevice> device, const KernelRow &row, const Params &params);

}  // namespace mpscnn
