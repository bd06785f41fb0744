// SPDX-License-Identifier: Apache-2.0
// Driver: the functions of NVIDIA's driver that the engine calls, opened at run time. Nothing of NVIDIA's is needed to
// build; names and values are those of the CUDA driver API [docs.nvidia.com, CUDA Driver API].
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace openmps::cuda {

using Address = std::uint64_t;  ///< CUdeviceptr
using Device = int;             ///< CUdevice
struct ContextOfDriver;
using Context = ContextOfDriver*;  ///< CUcontext

/// Status codes that the engine tells apart.
enum Status : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kFirstLostContext = 700,  ///< CUDA_ERROR_ILLEGAL_ADDRESS; the context fails every later call
  kLastLostContext = 720,
};

struct Driver {
  int (*init)(unsigned flags);
  int (*get_version)(int* version);
  int (*get_error_name)(int status, const char** name);
  int (*get_error_string)(int status, const char** text);
  int (*get_device_count)(int* count);
  int (*get_device)(Device* device, int ordinal);
  int (*get_device_name)(char* name, int length, Device device);
  int (*get_total_memory)(std::size_t* bytes, Device device);
  int (*retain_context)(Context* context, Device device);
  int (*set_context)(Context context);
  int (*allocate)(Address* address, std::size_t bytes);
  int (*free)(Address address);
  int (*allocate_host)(void** data, std::size_t bytes, unsigned flags);
  int (*free_host)(void* data);
  int (*copy_to_device)(Address to, const void* from, std::size_t bytes);
  int (*copy_to_host)(void* to, Address from, std::size_t bytes);
  int (*synchronize)();

  /// Throw std::bad_alloc when memory runs out, and EngineError with the call and the driver's words for other
  /// failures.
  void check(int status, const char* call) const;
};

/// Open libcuda and initialize it, once per process. Return null and set `reason` to a sentence if there is no driver
/// or no device.
const Driver* open_driver(std::string* reason);

/// Return a driver that computes on the host: its device memory is the host's. For tests without a GPU.
const Driver& host_driver();

}  // namespace openmps::cuda
