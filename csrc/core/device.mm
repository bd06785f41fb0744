// SPDX-License-Identifier: Apache-2.0
// MTLDevice and MTLCommandQueue.
#include <mpscnn/device.hpp>
#include <mpscnn/error.hpp>

#include "device_impl.hh"
#include "objc_scope.hh"
#include "sharing.hh"

namespace mpscnn {
namespace {

std::shared_ptr<Device> wrap(id<MTLDevice> device) {
  auto impl = std::make_unique<Device::Impl>();
  impl->device = Ref<id<MTLDevice>>::retain(device);
  impl->queue = Ref<id<MTLCommandQueue>>::adopt([device newCommandQueue]);
  return std::make_shared<Device>(std::move(impl));
}

std::shared_ptr<Device> make_default() {
  return guard([] {
    auto device = Ref<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
    if (!device) throw std::runtime_error("Device: this machine has no Metal device.");
    return wrap(device.get());
  });
}

}  // namespace

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;

std::shared_ptr<Device> Device::system_default() {
  // Never destroyed: work may be under way on its queue when the process ends.
  static auto *device = new std::shared_ptr<Device>(make_default());
  return *device;
}

std::vector<std::shared_ptr<Device>> Device::all() {
  return guard([] {
    std::vector<std::shared_ptr<Device>> devices{system_default()};
    auto list = Ref<NSArray<id<MTLDevice>> *>::adopt(MTLCopyAllDevices());
    for (id<MTLDevice> device in list.get())
      if (device != devices.front()->impl().device.get()) devices.push_back(wrap(device));
    return devices;
  });
}

std::string Device::name() const {
  return guard([&] { return text([impl_->device.get() name]); });
}
std::uint64_t Device::allocated_bytes() const { return [impl_->device.get() currentAllocatedSize]; }
std::uint64_t Device::recommended_max_working_set_bytes() const {
  return [impl_->device.get() recommendedMaxWorkingSetSize];
}
std::uint64_t Device::max_buffer_bytes() const { return [impl_->device.get() maxBufferLength]; }
bool Device::shares_images() const { return mpscnn::shares_images(); }
bool Device::is_supported() const { return MPSSupportsMTLDevice(impl_->device.get()); }

void check_same_device(const Device &a, const Device &b, const char *what) {
  check(a.impl().device.get() == b.impl().device.get(), what, ": the device (", b.name(),
        ") is not the device of the command buffer (", a.name(), ").");
}

}  // namespace mpscnn
