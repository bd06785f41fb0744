// SPDX-License-Identifier: Apache-2.0
// ArrayCall: arrays in, arrays out, on one command buffer; and kernels, losses and conversions run so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mpscnn/array.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/image_conversion.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/loss.hpp>

namespace mpscnn {

/// The arrays of one command buffer, as images. Arrays are N, H, W, C in any order of memory.
class ArrayCall {
 public:
  /// A pool is for devices whose images do not share arrays' memory; without one, images are new.
  explicit ArrayCall(std::shared_ptr<Device> device, std::shared_ptr<const ImagePool> pool = nullptr);

  /// Return an image of the array's values: over its memory where that can be shared, else a copy.
  std::shared_ptr<Image> source(const ArrayView& array);
  /// Return an image whose pixels are the array's when the work is done: over its memory, or copied by copy_results().
  std::shared_ptr<Image> result(const ArrayView& array) {
    return result(array, [] { return false; });
  }
  /// The same; `is_partial()` returns whether pixels that the kernel does not write keep their values.
  template <class IsPartial>
  std::shared_ptr<Image> result(const ArrayView& array, const IsPartial& is_partial) {
    if (auto image = shared_result(array)) return image;
    return copied_result(array, is_partial());
  }

  /// Commit and wait, then copy the results.
  void run(CommandBuffer& buffer);
  /// Copy what does not go into arrays by itself, and give images back to the pool: once, however often it is called.
  /// Throws if the work has failed.
  void copy_results();
  bool has_copies() const { return !copies_.empty(); }

 private:
  std::shared_ptr<Image> new_image(const ArrayView& array);
  std::shared_ptr<Image> shared_result(const ArrayView& array);
  std::shared_ptr<Image> copied_result(const ArrayView& array, bool is_partial);

  std::shared_ptr<Device> device_;
  std::shared_ptr<const ImagePool> pool_;
  std::vector<std::shared_ptr<Image>> images_;                        ///< of the pool, if there is one
  std::vector<std::pair<std::shared_ptr<Image>, ArrayView>> copies_;  ///< results and where they go
};

/// Return an image whose pixels are visible to the host without a copy where the device shares memory, an ordinary one
/// elsewhere.
std::shared_ptr<Image> make_visible_image(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype);

/// Return a new array on whole pages, contents undefined.
ArrayView make_array(const Extents& shape, DType dtype);

/// Call `run(first, count)` for chunks of up to `max` of `n` images, at least one.
template <class Run>
void for_each_chunk(std::int64_t n, std::int64_t max, Run&& run) {
  for (std::int64_t first = 0; first < n; first += max) run(first, max < n - first ? max : n - first);
}

// Each function runs on a command buffer of its own and waits. Arrays may hold more images than one MPSImage: they are
// computed in chunks then.

void run(Kernel& kernel, std::span<const std::shared_ptr<Image>> sources, const EncodeStates& states,
         const std::shared_ptr<Image>& out);
/// Return `out`, or a new array of `dtype`, by default that of the first source.
ArrayView run(Kernel& kernel, std::span<const ArrayView> sources, const EncodeStates& states,
              std::optional<ArrayView> out, std::optional<DType> dtype);
/// For kernels whose result is a state.
std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, std::span<const std::shared_ptr<Image>> sources,
                                             std::shared_ptr<BatchNormalizationState> state);
std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, std::span<const ArrayView> sources,
                                             std::shared_ptr<BatchNormalizationState> state);

void run(const LossKernel& kernel, const std::shared_ptr<Image>& x, LossLabels& labels,
         const std::shared_ptr<Image>& out);
void run(const LossKernel& kernel, const ArrayView& x, LossLabels& labels, const ArrayView& out);

void run(const ImageConversion& kernel, const Image& x, const std::shared_ptr<Image>& out);
void run(const ImageConversion& kernel, const ArrayView& x, const ArrayView& out);

}  // namespace mpscnn
