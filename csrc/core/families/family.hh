// SPDX-License-Identifier: Apache-2.0
// What a family supplies: from a row and its parameters to the MPS kernel.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <cstdint>
#include <memory>
#include <optional>

#include <mpscnn/table.hpp>

#include "data_source.hh"
#include "objc_ref.hh"
#include "params.hpp"

namespace mpscnn {

/// A kernel and what encode() needs to know of it.
struct Made {
  Ref<MPSCNNKernel *> kernel;
  std::shared_ptr<GuardedSource> source = {};            ///< families with weights
  std::optional<ConvolutionDescriptor> descriptor = {};  ///< families with weights
  NeuronDescriptor neuron = {};
  Padding padding = {};
  Pair output_padding{0, 0};
};

/// The class by Apple's name. Throws NotImplementedError when the platform has none.
Class class_of(const KernelRow &row);

Made make_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params);
Made make_neuron(id<MTLDevice> device, const KernelRow &row, const Params &params);

}  // namespace mpscnn
