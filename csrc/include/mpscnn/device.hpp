// SPDX-License-Identifier: Apache-2.0
// Device: an MTLDevice with a command queue of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpscnn {

class Device {
 public:
  struct Impl;
  /// The system's default device, the same object every time. Throws std::runtime_error when there is none.
  static std::shared_ptr<Device> system_default();
  static std::vector<std::shared_ptr<Device>> all();

  explicit Device(std::unique_ptr<Impl> impl);
  ~Device();

  std::string name() const;
  std::uint64_t allocated_bytes() const;
  /// The most that allocated_bytes() has been since reset_peak_bytes(). Where the device does not count that itself, as
  /// seen whenever a command buffer is committed.
  std::uint64_t peak_bytes() const;
  void reset_peak_bytes();
  /// Free memory that is kept for the next allocation. Throws NotImplementedError where the device does not tell.
  std::uint64_t cached_bytes() const;
  void free_cached_bytes();
  std::uint64_t recommended_max_working_set_bytes() const;
  std::uint64_t max_buffer_bytes() const;
  /// Whether images can use an array's memory in place.
  bool shares_images() const;
  /// Whether temporary images are allocated one by one, and all at once when they are announced.
  bool prefetches_temporaries() const;
  /// Multiply-adds after which a command buffer in parts commits what it has, on devices that end those that take
  /// seconds; for tests.
  void set_most_work(std::uint64_t multiply_adds);
  /// MPSSupportsMTLDevice.
  bool is_supported() const;

  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
