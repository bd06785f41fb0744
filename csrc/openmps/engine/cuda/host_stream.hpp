// SPDX-License-Identifier: Apache-2.0
// Streams and device memory of cuda-host, for libraries that compute on it. For tests.
#pragma once

#include <cstddef>
#include <functional>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

/// Libraries that compute on cuda-host have a symbol of this name; NVIDIA's do not.
constexpr const char* kHostLibraryMark = "mpscnn_computes_on_host";

/// Return where the bytes of a device address are. Device addresses have kHostDeviceBit set: they are then not
/// canonical, so the processor faults on access [Intel SDM volume 1, 3.3.7.1].
inline void* host_address(Address address) { return reinterpret_cast<void*>(address & ~kHostDeviceBit); }

/// A Stream of cuda-host points to one.
class HostStream {
 public:
  virtual ~HostStream() = default;
  /// Run the call now, or in every launch of the graph that the stream records.
  virtual void add(std::function<void()> call) = 0;
  /// Return whether a block that the driver has allocated or locked contains these bytes.
  virtual bool has(Address first, std::size_t bytes) const = 0;
  /// Let events that are recorded later be so much later. Everything else takes no time.
  virtual void spend(float milliseconds) = 0;
};

}  // namespace openmps::cuda
