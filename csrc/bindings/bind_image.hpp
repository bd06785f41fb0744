// SPDX-License-Identifier: Apache-2.0
// Images for other bindings.
#pragma once

#include <memory>

#include <mpscnn/image.hpp>

namespace mpscnn::bindings {

/// An image whose pixels NumPy can see without a copy where the platform shares memory, an ordinary one elsewhere.
std::shared_ptr<Image> make_visible_image(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype);

}  // namespace mpscnn::bindings
