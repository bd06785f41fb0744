// SPDX-License-Identifier: Apache-2.0
// Buffer: an MTLBuffer whose memory NumPy sees.
#pragma once

#include <memory>

#include <mpscnn/array.hpp>
#include <mpscnn/device.hpp>

namespace mpscnn {

class Buffer {
 public:
  struct Impl;
  /// Zero-filled memory of the device's.
  static std::shared_ptr<Buffer> make(std::shared_ptr<Device> device, std::uint64_t bytes);
  /// The array's own memory. Throws BufferError when it is not contiguous, page-aligned and whole pages long.
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
