// SPDX-License-Identifier: Apache-2.0
// ImagePool: the images of calls on arrays, for later calls.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>

#include "core/device/forked.hpp"

namespace mpscnn {

/// Images that no work uses, for arrays whose memory cannot be shared. Evicts the least recently used.
class ImagePool {
 public:
  /// Return a pool, or null if images of the device share the memory of arrays.
  static std::shared_ptr<ImagePool> make(const std::shared_ptr<Device>& device);
  explicit ImagePool(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  /// Return an image with undefined contents: the last one given that fits, or a new one.
  std::shared_ptr<Image> take(ImageShape shape, DType dtype);
  /// Return an image to the pool.
  void give(std::shared_ptr<Image> image);

 private:
  static constexpr std::size_t kMostImages = 16;

  const std::shared_ptr<Device> device_;
  ForkChecked<std::mutex> mutex_;
  std::list<std::shared_ptr<Image>> images_;  ///< the last given first
};

}  // namespace mpscnn
