// SPDX-License-Identifier: Apache-2.0
// Network: a graph of kernels, encoded onto one command buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/function_layer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/kernel.hpp>

namespace mpscnn {

/// An input of the network; extents that are not given are arbitrary.
struct NetworkInput {
  std::string name;
  std::optional<std::int64_t> h, w, c;
  std::string fixed_by;  ///< the layer that determines height and width; empty: the input itself
};

/// A resize of the first source to the height and width of the second, whose values are not read.
struct Interpolation {
  enum class Mode { nearest, bilinear } mode = Mode::bilinear;
  bool align_corners = false;  ///< of bilinear; false: half-pixel centres
};

/// The mean or max of each of h x w areas, at any extents of the source, as PyTorch's adaptive pooling.
struct AdaptivePooling {
  bool is_max = false;
  std::int64_t h = 1, w = 1;
};

/// Values are numbered: inputs first, then the result of each node. Nodes are in topological order.
struct NetworkNode {
  std::string name;
  std::shared_ptr<Kernel> kernel;
  std::vector<std::uint32_t> sources;
  std::shared_ptr<FunctionLayer> function = {};          ///< instead of a kernel
  std::optional<DType> dtype = {};                       ///< of the result's image; default: the network's
  std::optional<Interpolation> interpolation = {};       ///< instead of a kernel
  std::optional<AdaptivePooling> adaptive_pooling = {};  ///< instead of a kernel

  /// Whether the sources are concatenated along the channels.
  bool is_concatenation() const { return !kernel && !function && !interpolation && !adaptive_pooling; }
  /// The sources whose values are read.
  std::span<const std::uint32_t> read() const { return std::span(sources).first(interpolation ? 1 : sources.size()); }
};

struct NetworkParts {
  std::vector<NetworkInput> inputs;
  std::vector<NetworkNode> nodes;
  std::vector<std::uint32_t> outputs;  ///< values
  DType dtype = DType::float32;        ///< of the network's intermediate images
  int threads = 0;                     ///< that compute a call, beside other calls; 0: all of the process, in turn
};

/// One encode for inputs of given height and width and any number of images. For tables and tests.
struct NetworkStep {
  std::string name;  ///< of the node
  std::string kernel;
  std::vector<std::uint32_t> sources;  ///< images
  std::uint32_t destination = 0;       ///< image
  Placement placement;
};
struct NetworkImage {
  ImageShape shape;          ///< n is 1
  std::int64_t reads = 0;    ///< number of encodes that read it: the read_count of a temporary image
  std::int64_t input = -1;   ///< index of the input, or
  std::int64_t output = -1;  ///< index of the output; both -1: temporary
  DType dtype = DType::float32;
};

class ImagePool;
class NetworkPlan;
class RecordedCommands;

/// Thread-safe.
class Network final {
 public:
  /// Throw std::invalid_argument if nodes, sources and outputs are inconsistent.
  static std::shared_ptr<Network> make(std::shared_ptr<Device> device, NetworkParts parts);
  Network(std::shared_ptr<Device> device, NetworkParts parts);
  ~Network();

  const NetworkParts& parts() const { return parts_; }
  std::shared_ptr<Device> device() const { return device_; }

  /// Return the shape of every value. All inputs must have equal n. Throw an error with the input or node for a wrong
  /// shape.
  std::vector<ImageShape> shapes(std::span<const ImageShape> inputs) const;

  /// Return the plan for inputs of these extents and any n, cached or new. Throw for a wrong shape.
  std::shared_ptr<const NetworkPlan> plan(std::span<const ImageShape> inputs) const;

  /// Return the shape of every output, for one image.
  static std::vector<ImageShape> result_shapes(const NetworkPlan& plan);

  /// Return the max number of images per command buffer; larger batches are computed in chunks, which keeps temporary
  /// images small. 0: batches cannot be divided, because a kernel reads several images at once.
  static std::int64_t chunk_images(const NetworkPlan& plan);

  /// Encode the network. Null outputs are allocated. If the platform can repeat commands, they are recorded when the
  /// same images, or any of the same layout if it can replace them, are encoded a second time, and encoded again from
  /// then on, as long as no kernel changes.
  void encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> inputs,
              std::span<std::shared_ptr<Image>> outputs) const;
  /// Encode with a plan for the shapes of the inputs.
  void encode(CommandBuffer& buffer, const std::shared_ptr<const NetworkPlan>& plan,
              std::span<const std::shared_ptr<Image>> inputs, std::span<std::shared_ptr<Image>> outputs) const;
  /// Max number of encodes whose commands are kept, for each queue. Evicts the least recently used.
  static constexpr std::size_t kMostRecorded = 8;

  /// Encode each kernel on its own command buffer; commit all but the last, and return that.
  std::shared_ptr<CommandBuffer> encode_apart(const NetworkPlan& plan, std::span<const std::shared_ptr<Image>> inputs,
                                              std::span<std::shared_ptr<Image>> outputs,
                                              const std::shared_ptr<SideQueue>& queue = nullptr) const;

  /// Return the queue for a call: null for the device's own.
  std::shared_ptr<SideQueue> queue() const {
    return parts_.threads > 0 ? device_->side_queue(parts_.threads) : nullptr;
  }

  std::vector<NetworkStep> steps(std::span<const ImageShape> inputs) const;
  std::vector<NetworkImage> images(std::span<const ImageShape> inputs) const;

  /// Images at the boundary of calls; null if images of the device share the memory of arrays.
  const std::shared_ptr<ImagePool>& image_pool() const;

  /// Max number of cached plans, one per combination of heights, widths and channels of the inputs. Evicts the least
  /// recently used.
  static constexpr std::size_t kMostPlans = 16;
  std::size_t plans() const;

 private:
  void check_inputs(std::span<const ImageShape> inputs) const;
  using Images = std::vector<std::shared_ptr<Image>>;
  Images boundary(const NetworkPlan& made, std::span<const std::shared_ptr<Image>> inputs,
                  std::span<std::shared_ptr<Image>> outputs) const;
  const std::string& name_of(std::uint32_t node) const;
  void encode_steps(CommandBuffer& buffer, const NetworkPlan& plan, std::span<const std::shared_ptr<Image>> inputs,
                    std::span<std::shared_ptr<Image>> outputs) const;
  struct Encode;
  std::vector<std::shared_ptr<const RecordedCommands>> recorded(const Encode& encode) const;
  bool was_seen(const Encode& encode) const;
  static constexpr std::size_t kMostSeen = 32;

  std::shared_ptr<Device> device_;
  NetworkParts parts_;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace mpscnn
