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
#include <mpscnn/image.hpp>
#include <mpscnn/kernel.hpp>

namespace mpscnn {

/// A source of the whole network; extents that are not given are free.
struct NetworkInput {
  std::string name;
  std::optional<std::int64_t> h, w, c;
  std::string fixed_by;  ///< the layer that height and width are given for; empty: the input's own
};

/// Values are numbered: inputs first, then the result of each node. A node comes after those it reads.
struct NetworkNode {
  std::string name;
  std::shared_ptr<Kernel> kernel;  ///< none: the channels of the sources side by side
  std::vector<std::uint32_t> sources;
};

struct NetworkParts {
  std::vector<NetworkInput> inputs;
  std::vector<NetworkNode> nodes;
  std::vector<std::uint32_t> outputs;  ///< values
  DType dtype = DType::float32;        ///< of images that the network makes
};

/// What is encoded for inputs of some height and width, of however many images: for tables and tests.
struct NetworkStep {
  std::string name;  ///< of the node
  std::string kernel;
  std::vector<std::uint32_t> sources;  ///< images
  std::uint32_t destination = 0;       ///< image
  Placement placement;
};
struct NetworkImage {
  ImageShape shape;          ///< n is 1
  std::int64_t reads = 0;    ///< encodes that read it: the read_count of a temporary image
  std::int64_t input = -1;   ///< which input it is, or
  std::int64_t output = -1;  ///< which output; neither: temporary
};

class NetworkPlan;

/// Safe to use from several threads at once.
class Network final : public ImagePool {
 public:
  /// Throws std::invalid_argument where nodes, sources and outputs do not fit each other.
  static std::shared_ptr<Network> make(std::shared_ptr<Device> device, NetworkParts parts);
  Network(std::shared_ptr<Device> device, NetworkParts parts);
  ~Network() override;

  const NetworkParts& parts() const { return parts_; }
  std::shared_ptr<Device> device() const { return device_; }

  /// Of every value for such inputs. Equal n in all inputs. Throws what is wrong with a shape, naming the input or the
  /// node.
  std::vector<ImageShape> shapes(std::span<const ImageShape> inputs) const;

  /// The plan for inputs of such extents, whatever their n: looked up, or made. Throws what is wrong with a shape.
  std::shared_ptr<const NetworkPlan> plan(std::span<const ImageShape> inputs) const;

  /// Of every output, for one image.
  static std::vector<ImageShape> result_shapes(const NetworkPlan& plan);

  /// Max images of one command buffer of a call; larger batches are computed in chunks, so that temporary images stay
  /// small. 0: some kernel reads several images at once, so that batches cannot be divided.
  static std::int64_t chunk_images(const NetworkPlan& plan);

  /// Appends the whole network. An output that is null is made.
  void encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> inputs,
              std::span<std::shared_ptr<Image>> outputs) const;
  /// The same for inputs that the plan is for.
  void encode(CommandBuffer& buffer, const NetworkPlan& plan, std::span<const std::shared_ptr<Image>> inputs,
              std::span<std::shared_ptr<Image>> outputs) const;

  /// The same with a command buffer for each kernel, all of them committed but the last, which is returned.
  std::shared_ptr<CommandBuffer> encode_apart(const NetworkPlan& plan, std::span<const std::shared_ptr<Image>> inputs,
                                              std::span<std::shared_ptr<Image>> outputs) const;

  std::vector<NetworkStep> steps(std::span<const ImageShape> inputs) const;
  std::vector<NetworkImage> images(std::span<const ImageShape> inputs) const;

  /// Images at the boundary, for devices whose images do not share arrays' memory. The least recently used leaves
  /// first.
  std::shared_ptr<Image> take_image(ImageShape shape, DType dtype) const override;
  void give_image(std::shared_ptr<Image> image) const override;
  static constexpr std::size_t kMostKeptImages = 16;

  /// Plans that are kept, one for each combination of heights, widths and channels of the inputs; the least recently
  /// used leaves first.
  static constexpr std::size_t kMostPlans = 16;
  std::size_t plans() const;

 private:
  void check_inputs(std::span<const ImageShape> inputs) const;
  using Images = std::vector<std::shared_ptr<Image>>;
  Images boundary(const NetworkPlan& made, std::span<const std::shared_ptr<Image>> inputs,
                  std::span<std::shared_ptr<Image>> outputs) const;
  const std::string& name_of(std::uint32_t node) const;

  std::shared_ptr<Device> device_;
  NetworkParts parts_;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace mpscnn
