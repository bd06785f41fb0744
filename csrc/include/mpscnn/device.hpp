// SPDX-License-Identifier: Apache-2.0
// Device: an MTLDevice with its own command queue.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <mpscnn/array.hpp>

namespace mpscnn {

/// A command queue besides the device's own. Its command buffers are computed by a number of threads, beside those of
/// other queues, and after those that were committed to the device's own queue before them.
class SideQueue;

class Device {
 public:
  struct Impl;
  /// Return the system's default device, always the same object. Throw std::runtime_error if there is none.
  static std::shared_ptr<Device> system_default();
  /// Return the device of that name; on Linux also by the name of its engine, "cuda:0" for NVIDIA's first GPU. Throw
  /// std::invalid_argument with the names that exist, or with the reason why the device cannot be made.
  static std::shared_ptr<Device> named(const std::string& name);
  static std::vector<std::shared_ptr<Device>> all();

  explicit Device(std::unique_ptr<Impl> impl);
  ~Device();

  std::string name() const;
  std::uint64_t allocated_bytes() const;
  /// Max of allocated_bytes() since reset_peak_bytes(); sampled at each commit if the device does not track it.
  std::uint64_t peak_bytes() const;
  void reset_peak_bytes();
  /// Free memory that is cached for later allocations. Throw NotImplementedError if the device does not report it.
  std::uint64_t cached_bytes() const;
  void free_cached_bytes();
  std::uint64_t recommended_max_working_set_bytes() const;
  std::uint64_t max_buffer_bytes() const;
  /// Memory of images: the host's, or the device's own, which the host cannot access.
  MemorySpace memory_space() const;
  /// Set the number of an array's device if it is unknown. Throw TypeError with `what` unless the array is in the
  /// host's memory or in that of this device.
  void check_memory(ArrayView& array, const std::string& what) const;
  /// Wait until a stream of another library has done its work: DLPack's number of a stream; 0: all streams.
  void wait_for_stream(std::uintptr_t stream) const;
  /// Whether images can share the memory of arrays.
  bool shares_images() const;
  /// Whether temporary images are allocated one by one unless prefetched.
  bool prefetches_temporaries() const;
  /// Whether gradients of sums are known to be 0 where the sum reached a bound.
  bool differentiates_bounds() const;
  /// Set the number of multiply-adds after which a command buffer in parts commits, on devices that abort command
  /// buffers that run for seconds. For tests.
  void set_most_work(std::uint64_t multiply_adds);
  /// Max number of threads that compute at once in this process, on all devices. Throw NotImplementedError if the
  /// device does not tell.
  int threads() const;
  /// Set that number for work that starts later; it is at most the number of processors that the process may use.
  void set_threads(int threads);
  /// Whether the device has side queues.
  bool computes_on_threads() const;
  /// Return the side queue with this number of threads that has the fewest users. There are as many as can compute at
  /// once. The result is a user. Throw NotImplementedError if the device has none.
  std::shared_ptr<SideQueue> side_queue(int threads);
  /// MPSSupportsMTLDevice.
  bool is_supported() const;

  /// Return a copy, in the host's memory, of an array in the device's own memory; with the same strides.
  ArrayView to_host(const ArrayView& array) const;

  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Return the view for a library that uses it on `stream`. When the library releases it, its work there is awaited
/// before the memory is freed.
ArrayView lend(ArrayView view, std::shared_ptr<const Device> device, std::uintptr_t stream);

}  // namespace mpscnn
