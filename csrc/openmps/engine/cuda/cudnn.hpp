// SPDX-License-Identifier: Apache-2.0
// Convolutions of cuDNN: graphs of a convolution and what follows it, and the plans that its engines offer for them.
// Names and values are those of cuDNN 9's graph API [docs.nvidia.com/deeplearning/cudnn, Backend API].
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/work.hpp"

namespace openmps::cuda {

/// A graph: forward: y = after(neuron(x * w + bias) + addend), added
/// before the bias if there is no neuron; data: x = gradient of y; weights: w = gradient of y.
/// Extents and strides are (n, c, h, w) of images and (o, i, h, w) of weights, in elements.
struct ConvGraph {
  enum class Kind : std::uint8_t { forward, data, weights };
  using Extents = std::array<std::int64_t, 4>;

  Kind kind = Kind::forward;
  Format format = Format::float32;          ///< of the images, and of the weights that are read
  Format weights_format = Format::float32;  ///< of the gradient of the weights
  bool reduced_precision = false;           ///< tf32 products of float32
  Extents x{}, x_strides{}, w{}, w_strides{}, y{}, y_strides{}, addend_strides{};
  std::array<std::int64_t, 2> pad_before{}, pad_after{}, stride{1, 1}, dilation{1, 1};
  std::int64_t alignment = 16;                ///< of the addresses of x, y and the addend, in bytes; at most 16
  bool has_bias = false, has_addend = false;  ///< the bias has the images' format
  bool has_sums = false;  ///< forward: each channel's sum of y and of its squares, as float32, are results, too
  NeuronType neuron = NeuronType::none, after = NeuronType::none;
  float neuron_a = 0, neuron_b = 0, after_a = 0, after_b = 0;

  /// Return all fields as text.
  std::string key() const;
};

/// Return whether cuDNN computes the activation as part of a convolution.
bool cudnn_has(const Neuron& neuron, Format format);

struct ConvAddresses {
  Address x = 0, w = 0, bias = 0, addend = 0, y = 0;
  Address sums = 0, squares = 0;                ///< of each channel of y
  std::function<Address()> turned_w = nullptr;  ///< data: [I][kH][kW][O], taps in reverse order
  bool writes_w = false;                        ///< weights: w is the result
};

/// A way to compute a graph.
class CudnnPlan {
 public:
  virtual ~CudnnPlan() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void run(Work& work, const ConvAddresses& at, Address workspace) const = 0;
  /// Return the plan as text, for restore_plan().
  virtual std::string saved() const = 0;
};

/// Return whether cuDNN can be opened, and computes where the driver does.
bool has_cudnn(const Gpu& gpu);
std::string cudnn_version();

/// Return up to `count` plans that cuDNN's heuristic recommends, the best first; none if it supports no plan. Engines
/// that compile their kernels take up to a second for each plan, in every process: one such plan at most, and only if
/// there is no other.
std::vector<std::shared_ptr<const CudnnPlan>> cudnn_plans(Work& work, const ConvGraph& graph, std::size_t count);
/// Return the plan of an earlier process; null if this cuDNN cannot read it.
std::shared_ptr<const CudnnPlan> restore_plan(Work& work, const ConvGraph& graph, const std::string& saved);

}  // namespace openmps::cuda
