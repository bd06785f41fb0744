// SPDX-License-Identifier: Apache-2.0
// NetworkPlan: the steps that a network encodes for given input shapes. Shapes, liveness, placement of concatenations.
#pragma once

#include <mpscnn/network.hpp>

namespace mpscnn {

class NetworkPlan {
 public:
  /// Return the shapes of all values; all inputs must have the same n.
  static std::vector<ImageShape> infer(const NetworkParts& parts, std::span<const ImageShape> inputs);

  NetworkPlan(const std::shared_ptr<Device>& device, const NetworkParts& parts, std::vector<ImageShape> shapes);

  struct Step {
    std::uint32_t node = 0;          ///< for its name in errors
    std::shared_ptr<Kernel> kernel;  ///< the node's kernel, or one that moves channels
    std::vector<std::uint32_t> sources;
    std::uint32_t destination = 0;
    Placement placement;
    std::shared_ptr<FunctionLayer> function = {};  ///< instead of a kernel; on whole images
    FunctionLayer::Size threads = {};              ///< of the function, for one image

    /// Return the kernel's name in Python, "MetalFunction" for a function.
    std::string kernel_name() const { return kernel ? std::string(kernel->row().name) : "MetalFunction"; }
  };

  std::vector<Step> steps;
  std::vector<NetworkImage> images;
  std::vector<std::uint32_t> output_images;  ///< image of each output
  std::int64_t most_images = 0;              ///< max batch of an encode (widest image); 0: batches cannot be divided
  std::int64_t chunk_images = 0;             ///< images per chunk of a call; 0: batches cannot be divided
  bool can_repeat = true;                    ///< no padding policy of the caller's, which may answer differently

  /// Return the sum of Kernel::changes().
  std::uint64_t changes() const;

 private:
  struct Location {
    std::uint32_t image = 0;
    std::int64_t first = 0;
  };
  struct Part {
    std::uint32_t concatenation = 0;  ///< value that contains this one
    std::int64_t first = 0;           ///< first channel there
  };

  /// Approximate bytes of a chunk's intermediate results, for the caches. 32 images of 224 x 224 through MobileNetV2
  /// take 123 ms in chunks of 4, 141 in chunks of 8, 153 at once; ResNet-18 494, 491 and 499 (AMD EPYC, two cores).
  static constexpr std::int64_t kChunkBytes = 32 << 20;
  /// Chunks may take as many bytes as the weights, which each chunk reads again, but no more than this,
  /// or twice as many with reduced precision. See "Chunks of a batch" in docs/engine.md.
  static constexpr std::int64_t kMaxChunkBytes = 128 << 20;
  /// The same on devices with memory of their own, where small chunks leave processors idle; at most 1/8 of the memory,
  /// because several chunks are under way.
  static constexpr std::int64_t kDeviceChunkBytes = std::int64_t{2} << 30;
  /// Return the max bytes of simultaneously live intermediate results per image.
  std::int64_t working_bytes() const;
  /// Return the max bytes of a chunk's intermediate results.
  std::int64_t chunk_bytes() const;

  void find_prefixes();
  void find_live();
  void find_parts();
  std::uint32_t outermost(std::uint32_t value) const;
  std::uint32_t add_image(ImageShape shape);
  std::uint32_t add_image_of(std::uint32_t value);
  /// Return the type of a node's result, if it is not the network's.
  std::optional<DType> own_dtype(std::uint32_t value) const;
  Location location(std::uint32_t value);
  ChannelRange range(std::uint32_t value);
  void add_step(std::uint32_t node, std::shared_ptr<Kernel> kernel, const std::vector<std::uint32_t>& sources,
                Location destination);
  void add_function(std::uint32_t node);
  void add_interpolation(std::uint32_t node);
  void add_bilinear(std::uint32_t node, std::uint32_t source, Location destination);
  void add_nearest(std::uint32_t node, std::uint32_t source, Location destination);
  void add_adaptive_pooling(std::uint32_t node);
  void add_areas(std::uint32_t node, std::uint32_t source, Location destination);
  /// Add a step on an image of the node's own.
  void add_inner_step(std::uint32_t node, std::string_view row, const Params& params, std::uint32_t image,
                      Location destination);
  void append(Step step);
  void add_copy(std::uint32_t node, std::uint32_t source, Location destination);
  void add_concatenation(std::uint32_t node);
  void add_unaligned(std::uint32_t node, std::span<const std::uint32_t> sources, Location destination);
  std::shared_ptr<Kernel> mover(std::string_view row, const Params& params = {});

  bool is_input(std::uint32_t value) const { return value < parts_.inputs.size(); }
  const NetworkNode& node_of(std::uint32_t value) const { return parts_.nodes[value - parts_.inputs.size()]; }

  const std::shared_ptr<Device>& device_;
  const NetworkParts& parts_;
  std::vector<ImageShape> shapes_;
  std::vector<std::vector<std::uint32_t>> sources_;  ///< sources of each node, common prefixes of concatenations merged
  std::vector<bool> is_live_;                        ///< whether an output depends on the value
  std::vector<std::optional<Part>> part_;            ///< place of each value in a concatenation
  std::vector<std::int64_t> image_of_;               ///< image of each value; -1: none yet
};

}  // namespace mpscnn
