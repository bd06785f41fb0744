// SPDX-License-Identifier: Apache-2.0
// FunctionLayer: a Metal function as a node of a network.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpscnn/metal_function.hpp>

namespace mpscnn {

/// Textures that the function reads are the sources, in order; the one that it writes is the result. All other
/// arguments are constants. The function is encoded for each image of a batch, on views of that image's slices: a
/// function cannot know how many images a chunk has.
class FunctionLayer {
 public:
  using Size = MetalFunction::Size;
  using ShapeRule = std::function<ImageShape(std::span<const ImageShape> sources)>;
  using GridRule = std::function<Size(ImageShape result)>;
  struct Options {
    ShapeRule out_shape = {};  ///< empty: the first source's shape
    GridRule grid = {};        ///< threads for one image; empty: one for each pixel and slice of the result
    std::optional<Size> threadgroup = {};
  };

  /// Throw TypeError unless the function has sources and exactly one result, and `constants` has all other arguments.
  static std::shared_ptr<FunctionLayer> make(std::shared_ptr<MetalFunction> function,
                                             std::vector<FunctionValue> constants, Options options);
  FunctionLayer(std::shared_ptr<MetalFunction> function, std::vector<FunctionValue> constants, Options options);

  const std::string& name() const { return function_->name(); }
  std::shared_ptr<Device> device() const { return function_->device(); }
  std::size_t source_count() const { return sources_.size(); }

  /// Return the shape of the result. Throw std::invalid_argument for a rule's answer that no image can have.
  ImageShape result_shape(std::span<const ImageShape> sources) const;
  /// Return the threads of one image of a result of this shape.
  Size threads(ImageShape result) const;

  /// Encode the function for each image; `threads` are those of one. Counts as one read of each temporary source.
  void encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> sources,
              const std::shared_ptr<Image>& destination, Size threads) const;

 private:
  std::shared_ptr<MetalFunction> function_;
  std::vector<FunctionValue> values_;  ///< constants, then sources and the result without images
  std::vector<std::size_t> sources_;   ///< places in values_
  std::size_t result_ = 0;
  Options options_;
};

}  // namespace mpscnn
