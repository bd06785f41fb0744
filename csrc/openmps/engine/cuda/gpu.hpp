// SPDX-License-Identifier: Apache-2.0
// Gpu: a GPU, its context, its memory and its kernels.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/device_blocks.hpp"
#include "engine/cuda/driver.hpp"

namespace openmps {
class Engine;
}

namespace openmps::cuda {

class Work;

/// Lives as long as the process.
class Gpu {
 public:
  Gpu(const Driver& driver, int ordinal);

  /// Make the context current for the calling thread, and return the driver. Every thread does so before it calls.
  const Driver& current() const;
  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  /// Return the compute capability: 90 for 9.0.
  int architecture() const { return architecture_; }
  int processors() const { return processors_; }
  std::uint64_t total_memory() const { return total_memory_; }

  /// The engine that allocates with this GPU.
  const Engine* owner() const { return owner_; }
  void set_owner(const Engine* engine) { owner_ = engine; }

  DeviceBlocks& memory() { return *memory_; }
  DeviceBlocks& host_memory() { return *host_memory_; }

  /// Return a kernel of a file, compiled with `definitions` on its first use.
  Function function(const std::string& file, const char* name, const std::string& definitions);

  /// Return the calling thread's work on this GPU.
  Work& work();

 private:
  friend class WorkOfThread;
  const Driver& driver_;
  cuda::Device device_ = 0;
  Context context_ = nullptr;
  std::string name_;
  int architecture_ = 0, processors_ = 1;
  std::uint64_t total_memory_ = 0;
  const Engine* owner_ = nullptr;
  std::unique_ptr<DeviceBlocks> memory_, host_memory_;
  std::mutex mutex_;  ///< guards the members below
  std::map<std::string, Module> modules_;
  std::map<std::string, Function> functions_;
  std::vector<std::unique_ptr<Work>> idle_;  ///< of threads that have ended
};

/// Memory of the GPU for as long as this lives.
class GpuBlock {
 public:
  GpuBlock(Gpu& gpu, std::size_t bytes) : gpu_(gpu), data_(gpu.memory().allocate(bytes)), bytes_(bytes) {}
  ~GpuBlock() { gpu_.memory().deallocate(data_); }
  GpuBlock(const GpuBlock&) = delete;
  GpuBlock& operator=(const GpuBlock&) = delete;

  Address address() const { return reinterpret_cast<Address>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  Gpu& gpu_;
  std::byte* const data_;
  const std::size_t bytes_;
};

}  // namespace openmps::cuda
