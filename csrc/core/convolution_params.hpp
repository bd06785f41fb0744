// SPDX-License-Identifier: Apache-2.0
// From the parameters of a convolution row to a data source with its descriptor. Plain C++.
#pragma once

#include <memory>

#include <mpscnn/data_source.hpp>
#include <mpscnn/table.hpp>

namespace mpscnn {

/// The given data source, or one over the given array. Throws what does not fit, naming argument, value and limit.
std::shared_ptr<DataSource> convolution_source(const KernelRow& row, const Params& params);

/// Rules of MPS's that hold for any data source's descriptor: channels, groups, depth-wise, sub-pixel, neuron data.
void check_descriptor(const KernelRow& row, const ConvolutionDescriptor& descriptor);

}  // namespace mpscnn
