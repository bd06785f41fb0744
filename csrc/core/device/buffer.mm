// SPDX-License-Identifier: Apache-2.0
// MTLBuffer: device memory, or borrowed memory of the caller.
#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>

#include <unistd.h>

#include <cstring>

#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"

namespace mpscnn {

Buffer::Buffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Buffer::~Buffer() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<Buffer> Buffer::make(std::shared_ptr<Device> device, std::uint64_t bytes) {
  check(bytes > 0, "Buffer: length (0) is less than the minimum (1).");
  check<MemoryError>(bytes <= device->max_buffer_bytes(), "Buffer: length (", bytes,
                     ") is greater than the device's max_buffer_bytes (", device->max_buffer_bytes(), ").");
  return guard([&] {
    auto buffer =
        Ref<id<MTLBuffer>>::adopt([device->impl().device.get() newBufferWithLength:bytes
                                                                           options:MTLResourceStorageModeShared]);
    check<MemoryError>(static_cast<bool>(buffer), "Buffer: the device cannot allocate length (", bytes, ") bytes.");
    // Elsewhere the memory is allocated when it is used, on the device or the host.
    check<MemoryError>(!device->shares_images() || [buffer.get() contents] != nullptr,
                       "Buffer: the device cannot allocate length (", bytes, ") bytes.");
    return std::make_shared<Buffer>(std::make_unique<Impl>(Impl{device, buffer}));
  });
}

std::shared_ptr<Buffer> Buffer::share(std::shared_ptr<Device> device, const ArrayView &array) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto bytes = static_cast<std::uint64_t>(array.size()) * size_of(array.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(array.data);
  check<BufferError>(array.is_contiguous(), "Buffer: the array cannot be shared: strides ", as_tuple(array.strides),
                     " of shape ", as_tuple(array.shape), " are not C-contiguous.");
  check<BufferError>(!array.read_only, "Buffer: the array cannot be shared: it is read-only.");
  check<BufferError>(array.space.is_host() || bytes > 0, "Buffer: the array cannot be shared: it has no elements.");
  if (!array.space.is_host())
    return guard([&] {
      auto owner = array.owner;
      auto buffer =
          Ref<id<MTLBuffer>>::adopt([with_memory(device->impl().device.get()) newBufferWithDeviceBytesNoCopy:array.data
                                                                                                      length:bytes
                                                                                                 deallocator:^{
                                                                                                   (void)owner;
                                                                                                 }]);
      return std::make_shared<Buffer>(std::make_unique<Impl>(Impl{device, buffer}));
    });
  check<BufferError>(bytes > 0 && bytes % page == 0, "Buffer: the array cannot be shared: its length (", bytes,
                     " bytes) is not a positive multiple of the page size (", page,
                     "); mpscnn.empty() makes arrays that fit.");
  check<BufferError>(address % page == 0, "Buffer: the array cannot be shared: its address (", array.data,
                     ") is not a multiple of the page size (", page, "); mpscnn.empty() makes arrays that fit.");
  return guard([&] {
    auto owner = array.owner;
    auto buffer =
        Ref<id<MTLBuffer>>::adopt([device->impl().device.get() newBufferWithBytesNoCopy:array.data
                                                                                 length:bytes
                                                                                options:MTLResourceStorageModeShared
                                                                            deallocator:^(void *, NSUInteger) {
                                                                              (void)owner;
                                                                            }]);
    check<BufferError>(static_cast<bool>(buffer), "Buffer: the device refused to share ", bytes, " bytes at ",
                       array.data, ".");
    return std::make_shared<Buffer>(std::make_unique<Impl>(Impl{device, buffer}));
  });
}

void *Buffer::contents() const {
  void *bytes = [impl_->buffer.get() contents];
  check<NotImplementedError>(bytes != nullptr || with_memory(impl_->device->impl().device.get()) != nil,
                             "Buffer: this device does not show the CPU its memory.");
  check<BufferError>(bytes != nullptr, "Buffer: it is in the memory of the device (", impl_->device->name(),
                     "), which the host cannot access.");
  return bytes;
}
bool Buffer::is_visible() const { return [impl_->buffer.get() storageMode] != MTLStorageModePrivate; }

ArrayView Buffer::device_array(const std::shared_ptr<Buffer> &buffer) {
  const auto &impl = *buffer->impl_;
  id<DeviceWithMemory> device = with_memory(impl.device->impl().device.get());
  check<BufferError>(device != nil, "Buffer: its memory is the host's, not that of a GPU.");
  void *const data = guard([&] { return [device deviceBytesOfBuffer:impl.buffer.get()]; });
  return {.data = data,
          .dtype = DType::uint8,
          .shape = {static_cast<std::int64_t>(buffer->bytes())},
          .strides = {1},
          .owner = buffer,
          .space = impl.device->memory_space()};
}

std::shared_ptr<Device> Buffer::device() const { return impl_->device; }

namespace {

void copy(const Buffer::Impl &impl, id<MTLBuffer> from, id<MTLBuffer> to) {
  const auto commands = CommandBuffer::make(impl.device);
  id<MTLBlitCommandEncoder> blit = [commands->impl().buffer.get() blitCommandEncoder];
  [blit copyFromBuffer:from sourceOffset:0 toBuffer:to destinationOffset:0 size:from.length];
  [blit endEncoding];
  commands->run();
}

}  // namespace

void Buffer::read(void *to) const {
  guard([&] {
    if (impl_->device->shares_images()) {
      std::memcpy(to, contents(), bytes());
      return;
    }
    const auto shared = make(impl_->device, bytes());
    const void *values = shared->contents();
    copy(*impl_, impl_->buffer.get(), shared->impl().buffer.get());
    std::memcpy(to, values, bytes());
  });
}

void Buffer::write(const void *from) {
  guard([&] {
    if (impl_->device->shares_images()) {
      std::memcpy(contents(), from, bytes());
      return;
    }
    const auto shared = make(impl_->device, bytes());
    std::memcpy(shared->contents(), from, bytes());
    copy(*impl_, shared->impl().buffer.get(), impl_->buffer.get());
  });
}

std::uint64_t Buffer::bytes() const { return [impl_->buffer.get() length]; }

}  // namespace mpscnn
