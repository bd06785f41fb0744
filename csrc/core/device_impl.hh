// SPDX-License-Identifier: Apache-2.0
// The Objective-C objects behind the public classes, for the other .mm files of the core.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>

#include "objc_ref.hh"

namespace mpscnn {

struct Device::Impl {
  Ref<id<MTLDevice>> device;
  Ref<id<MTLCommandQueue>> queue;
};

struct Buffer::Impl {
  std::shared_ptr<Device> device;
  Ref<id<MTLBuffer>> buffer;
};

struct CommandBuffer::Impl {
  std::shared_ptr<Device> device;
  Ref<id<MTLCommandBuffer>> buffer;
};

struct Image::Impl {
  std::shared_ptr<Device> device;
  Ref<MPSImage *> image;
  std::optional<ArrayView> shared;           ///< the array under the image
  bool temporary = false;
  Ref<id<MTLCommandBuffer>> writer = {};     ///< last command buffer that encoded a write; the CPU waits for it
};

/// "the device (…) is not the one of …": objects of one call must agree.
void check_same_device(const Device &a, const Device &b, const char *what);

MPSImageDescriptor *image_descriptor(ImageShape shape, DType dtype);

}  // namespace mpscnn
