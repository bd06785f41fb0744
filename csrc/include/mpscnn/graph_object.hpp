// SPDX-License-Identifier: Apache-2.0
// Objects of which a graph of MPS is made: nodes, and the data sources, policies and descriptors that nodes take.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <mpscnn/data_source.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/loss.hpp>
#include <mpscnn/normalization_source.hpp>
#include <mpscnn/optimizer.hpp>
#include <mpscnn/padding_policy.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

class GraphObject;

/// Argument or result of a method. Two integers are a height and a width, which are the next two arguments; sizes,
/// coordinates and regions are in the order of this project: (height, width[, images]), (y, x, channel), and origin and
/// size of a region.
using GraphValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::shared_ptr<GraphObject>, std::vector<std::shared_ptr<GraphObject>>>;

/// A padding policy of the caller's for nodes, whose kernels only MPS knows.
class GraphPadding {
 public:
  virtual ~GraphPadding() = default;
  virtual std::string name() = 0;
  virtual std::vector<std::string> method() = 0;
  virtual PolicyAnswer destination(std::string_view kernel, const KernelWindow& window,
                                   std::span<const ImageShape> sources, ImageShape suggested) = 0;
};

/// An image allocator of the caller's.
class GraphAllocator {
 public:
  virtual ~GraphAllocator() = default;
  /// The property that has it, for error messages.
  virtual std::string_view name() const = 0;
  /// Return an image of this shape and type for a batch of results.
  virtual std::shared_ptr<Image> allocate(ImageShape shape, DType dtype) = 0;
};

/// Pixels around the source of a convolution or a pooling, as PyTorch's `padding`.
struct PixelPadding {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  bool ceil_mode = false;
  Pair output_padding{0, 0};
  std::optional<bool> count_include_pad = {};  ///< of average poolings; nullopt: zeros without end around the source
};

/// Values of a normalization in device memory, a float for each channel. Null: not updated.
struct NormalizationValues {
  std::shared_ptr<Buffer> gamma, beta, mean, variance;
};

class GraphObject {
 public:
  struct Impl;
  using Ptr = std::shared_ptr<GraphObject>;

  /// Call an initializer ("initWith...") or a class method ("nodeWith...") of one of Apple's classes. Throw
  /// NotImplementedError if the platform lacks class or method, std::invalid_argument for what MPS refuses.
  static Ptr make(const std::string& apple_class, const std::string& selector, std::span<const GraphValue> values);
  /// The data source of a convolution's row and parameters. With an optimizer, graphs that compute the gradients of its
  /// weights update them.
  static Ptr weights(const KernelRow& row, const Params& params, std::shared_ptr<Optimizer> optimizer);
  /// The data source of a normalization's row and parameters. With an optimizer, graphs that compute the gradients of
  /// gamma and beta update them; those of a batch add its mean and variance to the moving ones, with this `momentum`.
  static Ptr normalization(const KernelRow& row, const Params& params, std::shared_ptr<Optimizer> optimizer,
                           double momentum);
  /// One of MPS's policies: "same", "valid", "full", "tensorflow_average_pooling", ...
  static Ptr padding(std::string_view name);
  static Ptr padding(const PixelPadding& pixels);
  static Ptr padding(std::shared_ptr<GraphPadding> policy);
  static Ptr neuron(const NeuronDescriptor& neuron);
  static Ptr loss(const LossKernel& loss);           ///< its descriptor
  static Ptr floats(std::span<const float> values);  ///< NSData
  static Ptr handle(const std::string& label);
  /// The allocator of results that the program takes: each batch is one Image.
  static Ptr allocator();
  /// The same with images of the caller's.
  static Ptr allocator(std::shared_ptr<GraphAllocator> own);

  explicit GraphObject(std::unique_ptr<Impl> impl);
  ~GraphObject();

  GraphValue send(const std::string& selector, std::span<const GraphValue> values) const;
  GraphValue get(const std::string& property) const;
  void set(const std::string& property, const GraphValue& value) const;
  /// trainingGraphWithSourceGradient:nodeHandler:. The handler gets the gradient node, the forward node, and the
  /// images that they read.
  using Handler = std::function<void(Ptr, Ptr, Ptr, Ptr)>;
  std::vector<Ptr> training_graph(const Ptr& source_gradient, const Handler& handler) const;

  std::string apple_class() const;
  /// Equal for two objects that refer to the same object of MPS.
  std::uintptr_t identity() const;
  /// Of an allocator: the caller's; null for others and other objects.
  std::shared_ptr<GraphAllocator> own_allocator() const;
  /// Of weights: their descriptor.
  const ConvolutionDescriptor& descriptor() const;
  /// Of weights: the current ones, OHWI and float32, and the bias or null. Throw while they are being written, and if
  /// no optimizer has changed them yet.
  ConvolutionWeightsAndBiasesState trained() const;
  bool is_trained() const;
  /// Of values of a normalization: the current ones. Throw as trained().
  NormalizationValues trained_values() const;
  /// Of values of a batch normalization: the padding policy for its node; null if nothing updates them.
  Ptr counting() const;
  /// Of a state that a graph has returned: values in a buffer of floats. Throw until they are computed.
  std::shared_ptr<Buffer> buffer(const std::string& property) const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
