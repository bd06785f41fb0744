// SPDX-License-Identifier: Apache-2.0
// ArrayCall: runs kernels, losses and conversions on arrays, on one command buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mpscnn/array.hpp>
#include <mpscnn/boundary.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/image_conversion.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/loss.hpp>

namespace mpscnn {

class ImagePool;

/// The arrays of one command buffer, as images. Arrays are N, H, W, C in any order of memory.
class ArrayCall {
 public:
  /// `pool` serves devices whose images cannot share the memory of arrays; without it, images are allocated.
  explicit ArrayCall(std::shared_ptr<Device> device, std::shared_ptr<ImagePool> pool = nullptr);

  /// Return an image of the array: over its memory where that can be shared, else a copy.
  std::shared_ptr<Image> source(const ArrayView& array);
  /// Return the image of a result: over the array's memory, or copied into it by copy_results().
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
  /// Copy the results that do not share memory, and return images to the pool. Later calls do nothing. Throw if the
  /// work has failed.
  void copy_results();
  bool has_copies() const { return !copies_.empty(); }

 private:
  std::shared_ptr<Image> new_image(const ArrayView& array);
  std::shared_ptr<Image> shared_result(const ArrayView& array);
  std::shared_ptr<Image> copied_result(const ArrayView& array, bool is_partial);

  std::shared_ptr<Device> device_;
  std::shared_ptr<ImagePool> pool_;
  std::vector<std::shared_ptr<Image>> images_;                        ///< made for the call, or taken from the pool
  std::vector<std::shared_ptr<Image>> shared_;                        ///< over the memory of arrays
  std::vector<std::pair<std::shared_ptr<Image>, ArrayView>> copies_;  ///< results and their destinations
};

/// Return an image that the host can access without a copy if the device shares memory, else an ordinary image.
std::shared_ptr<Image> make_visible_image(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype);

/// Return an image of an array: over its memory with `copy` false, a copy that the host can access with true, nullopt
/// copies if the memory cannot be shared. Throw BufferError with the reason.
std::shared_ptr<Image> make_image(const std::shared_ptr<Device>& device, const ArrayView& array, ImageLayout layout,
                                  CopyMode copy);

/// Return an uninitialized array on whole pages.
ArrayView make_array(const Extents& shape, DType dtype);
/// Return an uninitialized, contiguous array for images of `shape`, in the memory of the device's images.
ArrayView make_device_array(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype);
/// Return an array for a result of a network, in the memory of the device's images; its axes have the order of
/// `layout`, and their memory that of images, unless the result is `flat`: then it is contiguous.
ArrayView make_device_result(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype,
                             const BoundaryLayout& layout, const std::optional<Extents>& flat);
/// Return whether a call's results go to the device's own memory: one of its arrays is there.
bool has_device_array(std::span<const ArrayView> arrays);

/// Call `run(first, count)` for each chunk of 1 to `max` of the `n` images.
template <class Run>
void for_each_chunk(std::int64_t n, std::int64_t max, Run&& run) {
  for (std::int64_t first = 0; first < n; first += max) run(first, max < n - first ? max : n - first);
}

/// One item per source of a call, in the order of the row's names. Does not allocate: a small kernel takes only five
/// microseconds.
template <class T>
class PerSource {
 public:
  void push_back(T item) { items_[size_++] = std::move(item); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t source) { return items_[source]; }
  const T& operator[](std::size_t source) const { return items_[source]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  std::span<const T> span() const { return std::span(items_).first(size_); }
  operator std::span<const T>() const { return span(); }

 private:
  std::array<T, SourceNames::kMost> items_{};
  std::size_t size_ = 0;
};

using SharedImages = std::span<const std::shared_ptr<Image>>;

/// Encode into `out`, or into a new image that the host can access without a copy unless it is temporary.
std::shared_ptr<Image> encode(Kernel& kernel, CommandBuffer& buffer, SharedImages sources, const EncodeStates& states,
                              std::shared_ptr<Image> out, bool temporary, std::optional<DType> dtype);
/// For kernels whose result is a state.
std::shared_ptr<BatchNormalizationState> encode(Kernel& kernel, CommandBuffer& buffer, SharedImages sources,
                                                std::shared_ptr<BatchNormalizationState> state);

std::shared_ptr<Image> encode(const LossKernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x,
                              LossLabels& labels, std::shared_ptr<Image> out, bool temporary);
std::shared_ptr<Image> encode(const ImageConversion& kernel, CommandBuffer& buffer, const Image& x,
                              std::shared_ptr<Image> out, bool temporary);

// Each function runs on its own command buffer and waits. Arrays with more images than one MPSImage can hold are
// computed in chunks.

/// Return `out`, or a new image of `dtype`.
std::shared_ptr<Image> run(Kernel& kernel, SharedImages sources, const EncodeStates& states, std::shared_ptr<Image> out,
                           std::optional<DType> dtype);
/// Return `out`, or a new array of `dtype` (default: that of the first source).
ArrayView run(Kernel& kernel, std::span<const ArrayView> sources, const EncodeStates& states,
              std::optional<ArrayView> out, std::optional<DType> dtype);
/// For kernels whose result is a state.
std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, SharedImages sources,
                                             std::shared_ptr<BatchNormalizationState> state);
std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, std::span<const ArrayView> sources,
                                             std::shared_ptr<BatchNormalizationState> state);

std::shared_ptr<Image> run(const LossKernel& kernel, const std::shared_ptr<Image>& x, LossLabels& labels,
                           std::shared_ptr<Image> out);
void run(const LossKernel& kernel, const ArrayView& x, LossLabels& labels, const ArrayView& out);

std::shared_ptr<Image> run(const ImageConversion& kernel, const Image& x, std::shared_ptr<Image> out);
/// Return `out`, or a new array.
ArrayView run(const ImageConversion& kernel, const ArrayView& x, std::optional<ArrayView> out);

}  // namespace mpscnn
