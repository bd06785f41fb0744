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

class Transfers;
class Work;

/// Lives as long as the process.
class Gpu {
 public:
  Gpu(const Driver& driver, int ordinal);
  ~Gpu();

  /// Make the context current for the calling thread, and return the driver. Every thread does so before it calls.
  const Driver& current() const;
  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  /// Return the compute capability: 90 for 9.0.
  int architecture() const { return architecture_; }
  int processors() const { return processors_; }
  /// Return whether tensor cores multiply tf32.
  bool has_tf32() const { return driver_.is_host || architecture_ >= 80; }
  /// Return whether blocks can run in clusters.
  bool has_clusters() const { return driver_.is_host || architecture_ >= 90; }
  /// Return whether kernels have wgmma [kernels/wgmma.hpp].
  bool has_wgmma() const { return driver_.is_host || architecture_ == 90; }
  /// Return whether blocks of a kernel can start while those of the kernel before end.
  bool can_overlap() const { return driver_.launch_with && architecture_ >= 90; }
  int ordinal() const { return ordinal_; }
  std::uint64_t total_memory() const { return total_memory_; }

  /// The engine that allocates with this GPU.
  const Engine* owner() const { return owner_; }
  void set_owner(const Engine* engine) { owner_ = engine; }

  DeviceBlocks& memory() { return *memory_; }
  DeviceBlocks& host_memory() { return *host_memory_; }

  Transfers& transfers() { return *transfers_; }

  /// Return a kernel of a file, compiled with `definitions` on its first use.
  Function function(const std::string& file, const char* name, const std::string& definitions);
  /// Return a kernel of machine code; it lives as long as the process.
  Function load(const std::string& code, const char* name);

  /// Return the work of the calling thread: that of its WorkScope, or its own.
  Work& work();
  /// Return work for a queue.
  std::shared_ptr<Work> make_work();

 private:
  const Driver& driver_;
  cuda::Device device_ = 0;
  Context context_ = nullptr;
  std::string name_;
  int architecture_ = 0, processors_ = 1, ordinal_ = 0;
  std::uint64_t total_memory_ = 0;
  const Engine* owner_ = nullptr;
  std::unique_ptr<DeviceBlocks> memory_, host_memory_;
  std::unique_ptr<Transfers> transfers_;
  std::mutex mutex_;  ///< guards the members below
  std::map<std::string, Module> modules_;
  std::map<std::string, Function> functions_;
  std::vector<std::unique_ptr<Work>> idle_;  ///< of threads and queues that have ended
};

/// Lets a thread use a queue's work while this lives.
class WorkScope {
 public:
  WorkScope(const Gpu& gpu, Work& work);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  const std::pair<const Gpu*, Work*> outer_;
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
