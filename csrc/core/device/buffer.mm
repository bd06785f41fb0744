// SPDX-License-Identifier: Apache-2.0
// MTLBuffer: device memory, or borrowed memory of the caller.
#include <mpscnn/buffer.hpp>
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
    check<MemoryError>([buffer.get() contents] != nullptr, "Buffer: the device cannot allocate length (", bytes,
                       ") bytes.");
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
  check<NotImplementedError>(bytes != nullptr, "Buffer: this device does not show the CPU its memory.");
  return bytes;
}
std::uint64_t Buffer::bytes() const { return [impl_->buffer.get() length]; }

}  // namespace mpscnn
