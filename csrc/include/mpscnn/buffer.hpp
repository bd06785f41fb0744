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
  /// Wrap the array's memory. Throw BufferError unless it is contiguous, page-aligned and a multiple of the page size.
  static std::shared_ptr<Buffer> share(std::shared_ptr<Device> device, const ArrayView& array);

  explicit Buffer(std::unique_ptr<Impl> impl);
  ~Buffer();

  void* contents() const;
  std::uint64_t bytes() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
