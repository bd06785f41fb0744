// SPDX-License-Identifier: Apache-2.0
// Source of a kernel's weights: the C++ side of MPSCNNConvolutionDataSource.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <mpscnn/array.hpp>
#include <mpscnn/source.hpp>
#include <mpscnn/value.hpp>
#include <mpscnn/weights.hpp>

namespace mpscnn {

/// Properties of MPSCNNConvolutionDescriptor and its subclasses.
struct ConvolutionDescriptor {
  Pair kernel_size{1, 1};
  std::int64_t in_channels = 0, out_channels = 0;  ///< totals over all groups
  Pair stride{1, 1}, dilation{1, 1};
  std::int64_t groups = 1;
  bool depthwise = false;                   ///< MPSCNNDepthWiseConvolutionDescriptor; groups stays 1
  std::int64_t sub_pixel_scale_factor = 1;  ///< > 1: MPSCNNSubPixelConvolutionDescriptor
  NeuronDescriptor activation = {};
  std::optional<BatchNorm> batch_norm = {};
};

class DataSource : public Source {
 public:
  virtual ConvolutionDescriptor descriptor() = 0;
  /// OHWI, C-contiguous; float32, float16, uint8, or uint32 for 1-bit weights, 32 channels per word. Valid until
  /// purge().
  virtual ArrayView weights() = 0;
  /// Owner that keeps weights() valid and constant while held, even after purge(). Null: the weights may change.
  virtual std::shared_ptr<void> weights_owner() { return {}; }
  /// One float32 per output channel.
  virtual std::optional<ArrayView> bias() { return std::nullopt; }
  /// For uint8 weights, one of the two: (O, 2) float32 minimum and maximum, or 256 float32.
  virtual std::optional<ArrayView> ranges() { return std::nullopt; }
  virtual std::optional<ArrayView> lookup_table() { return std::nullopt; }
  /// Precision in which the kernel keeps the weights: float32 or float16.
  virtual DType kernel_dtype() { return weights().dtype == DType::float32 ? DType::float32 : DType::float16; }
};

struct ArrayDataSourceOptions {
  Layout layout = Layout::OIHW;
  std::optional<ArrayView> bias = {}, ranges = {}, lookup_table = {};
  std::optional<DType> kernel_dtype = {};
  std::string label = {};
  bool rotate = false;  ///< rotate the kernel by 180 degrees: PyTorch's transposed convolution
};

/// Return a data source that uses the array in place if it is OHWI and contiguous, else reorders it at load() and frees
/// the copy at purge(). Throw an error with argument, value and limit if the shapes do not match.
std::shared_ptr<DataSource> array_data_source(ConvolutionDescriptor descriptor, ArrayView weights,
                                              ArrayDataSourceOptions options);

}  // namespace mpscnn
