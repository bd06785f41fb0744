// SPDX-License-Identifier: Apache-2.0
#include "core/call/image_pool.hpp"

#include <algorithm>
#include <iterator>

namespace mpscnn {

std::shared_ptr<ImagePool> ImagePool::make(const std::shared_ptr<Device>& device) {
  return device->shares_images() ? nullptr : std::make_shared<ImagePool>(device);
}

std::shared_ptr<Image> ImagePool::take(ImageShape shape, DType dtype) {
  {
    const std::scoped_lock lock(mutex_);
    const auto fits = [&](const auto& image) { return image->shape() == shape && image->dtype() == dtype; };
    if (const auto found = std::ranges::find_if(images_, fits); found != images_.end()) {
      auto image = std::move(*found);
      images_.erase(found);
      return image;
    }
  }
  return Image::make(device_, shape, dtype);
}

void ImagePool::give(std::shared_ptr<Image> image) {
  std::list<std::shared_ptr<Image>> dropped;
  const std::scoped_lock lock(mutex_);
  images_.push_front(std::move(image));
  // Keep at most 1/8 of the recommended working set: the images are kept only for speed.
  const auto most = device_->recommended_max_working_set_bytes() / 8;
  const auto bytes = [&] {
    std::uint64_t sum = 0;
    for (const auto& each : images_) sum += Image::bytes(*device_, each->shape(), each->dtype());
    return sum;
  };
  while (images_.size() > kMostImages || bytes() > most) {
    dropped.splice(dropped.end(), images_, std::prev(images_.end()));
    if (images_.empty()) break;
  }
}

}  // namespace mpscnn
