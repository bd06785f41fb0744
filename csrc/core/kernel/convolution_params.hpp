// SPDX-License-Identifier: Apache-2.0
// Data source and descriptor from the parameters of a convolution row. Plain C++.
#pragma once

#include <memory>
#include <string_view>

#include <mpscnn/data_source.hpp>
#include <mpscnn/table.hpp>

namespace mpscnn {

/// Return the given data source, or one over the given array. Errors name argument, value and limit.
std::shared_ptr<DataSource> convolution_source(const KernelRow& row, const Params& params);

/// Same for 1-bit weights, 32 input channels per word.
std::shared_ptr<DataSource> binary_source(const KernelRow& row, const Params& params);

/// Check MPS's rules for any data source's descriptor: channels, groups, depth-wise, sub-pixel, neuron data. `who` is
/// the prefix of the messages.
void check_descriptor(std::string_view who, const ConvolutionDescriptor& descriptor);

}  // namespace mpscnn
