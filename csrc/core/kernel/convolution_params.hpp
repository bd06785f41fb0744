// SPDX-License-Identifier: Apache-2.0
// From the parameters of a convolution row to a data source with its descriptor. Plain C++.
#pragma once

#include <memory>
#include <string_view>

#include <mpscnn/data_source.hpp>
#include <mpscnn/table.hpp>

namespace mpscnn {

/// The given data source, or one over the given array. Throws what does not fit, naming argument, value and limit.
std::shared_ptr<DataSource> convolution_source(const KernelRow& row, const Params& params);

/// The same for weights of one bit, 32 input channels in a word.
std::shared_ptr<DataSource> binary_source(const KernelRow& row, const Params& params);

/// Rules of MPS's that hold for any data source's descriptor: channels, groups, depth-wise, sub-pixel, neuron data.
/// `who` begins the sentences.
void check_descriptor(std::string_view who, const ConvolutionDescriptor& descriptor);

}  // namespace mpscnn
