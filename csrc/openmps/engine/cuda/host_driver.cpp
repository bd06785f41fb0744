// SPDX-License-Identifier: Apache-2.0
// A driver without a GPU: device memory is the host's, but not at its address.
#include <cstdlib>
#include <cstring>

#include "engine/cuda/driver.hpp"

namespace openmps::cuda {
namespace {

/// Set in device addresses: they are then not canonical, so the processor faults on access [Intel SDM volume
/// 1, 3.3.7.1].
constexpr Address kDeviceBit = Address{1} << 52;

void* host_address(Address address) { return reinterpret_cast<void*>(address & ~kDeviceBit); }

void* pages(std::size_t bytes) { return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); }

}  // namespace

const Driver& host_driver() {
  static constexpr Driver driver = {
      .init = [](unsigned) -> int { return kSuccess; },
      .get_version = [](int* version) -> int { return *version = 13000, kSuccess; },
      .get_error_name = [](int, const char** name) -> int { return *name = "CUDA_ERROR", kSuccess; },
      .get_error_string = [](int, const char** text) -> int { return *text = "failed", kSuccess; },
      .get_device_count = [](int* count) -> int { return *count = 1, kSuccess; },
      .get_device = [](Device* device, int ordinal) -> int { return *device = ordinal, kSuccess; },
      .get_device_name = [](char* name, int length, Device) -> int {
        std::strncpy(name, "CUDA on the host", static_cast<std::size_t>(length));
        return kSuccess;
      },
      .get_total_memory = [](std::size_t* bytes, Device) -> int { return *bytes = std::size_t{64} << 30, kSuccess; },
      .retain_context = [](Context* context, Device) -> int { return *context = nullptr, kSuccess; },
      .set_context = [](Context) -> int { return kSuccess; },
      .allocate = [](Address* address, std::size_t bytes) -> int {
        void* const block = pages(bytes);
        *address = reinterpret_cast<Address>(block) | kDeviceBit;
        return block ? kSuccess : kOutOfMemory;
      },
      .free = [](Address address) -> int { return std::free(host_address(address)), kSuccess; },
      .allocate_host = [](void** data, std::size_t bytes, unsigned) -> int {
        return (*data = pages(bytes)) ? kSuccess : kOutOfMemory;
      },
      .free_host = [](void* data) -> int { return std::free(data), kSuccess; },
      .copy_to_device = [](Address to, const void* from, std::size_t bytes) -> int {
        return std::memcpy(host_address(to), from, bytes), kSuccess;
      },
      .copy_to_host = [](void* to, Address from, std::size_t bytes) -> int {
        return std::memcpy(to, host_address(from), bytes), kSuccess;
      },
      .synchronize = []() -> int { return kSuccess; },
  };
  return driver;
}

}  // namespace openmps::cuda
