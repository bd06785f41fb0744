// SPDX-License-Identifier: Apache-2.0
// Buffer: an MTLBuffer whose memory is visible to NumPy.
#pragma once

#include <memory>

#include <mpscnn/array.hpp>
#include <mpscnn/device.hpp>

namespace mpscnn {

class Buffer {
 public:
  struct Impl;
  /// Allocate zero-filled memory on the device.
  static std::shared_ptr<Buffer> make(std::shared_ptr<Device> device, std::uint64_t bytes);
  /// Wrap the array's memory. Throw BufferError unless it is contiguous and, in the host's memory, page-aligned and a
  /// multiple of the page size.
  static std::shared_ptr<Buffer> share(std::shared_ptr<Device> device, const ArrayView& array);

  explicit Buffer(std::unique_ptr<Impl> impl);
  ~Buffer();

  /// Return the memory. A device with memory of its own keeps the buffer in the host's from now on.
  void* contents() const;
  /// Copy all bytes out of the buffer or into it. No work may use the buffer.
  void read(void* to) const;
  void write(const void* from);
  /// Whether the host can access the bytes.
  bool is_visible() const;
  /// Return the bytes as an array in the memory of a device, which may access a visible buffer too; keeps the buffer.
  static ArrayView device_array(const std::shared_ptr<Buffer>& buffer);
  std::uint64_t bytes() const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
