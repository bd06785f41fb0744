// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_engine.hpp"

#include <charconv>
#include <new>
#include <stdexcept>

#include "engine/cuda/device_blocks.hpp"
#include "engine/cuda/driver.hpp"
#include "engine/failure.hpp"

namespace openmps {
namespace {

using cuda::Driver;

constexpr unsigned kPortable = 1, kMapped = 2;  // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP

/// A GPU and its primary context. Every thread that calls the driver makes the context current first.
class Gpu {
 public:
  Gpu(const Driver& driver, int ordinal) : driver_(driver) {
    driver.check(driver.get_device(&device_, ordinal), "cuDeviceGet");
    driver.check(driver.retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
  }

  const Driver& current() const {
    driver_.check(driver_.set_context(context_), "cuCtxSetCurrent");
    return driver_;
  }
  std::string name() const {
    char name[256] = {};
    driver_.check(driver_.get_device_name(name, sizeof name - 1, device_), "cuDeviceGetName");
    return name;
  }
  std::uint64_t total_memory() const {
    std::size_t bytes = 0;
    driver_.check(driver_.get_total_memory(&bytes, device_), "cuDeviceTotalMem");
    return bytes;
  }

 private:
  const Driver& driver_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
};

class GpuBlocks final : public cuda::DeviceBlocks {
 public:
  explicit GpuBlocks(const Gpu& gpu) : gpu_(gpu) {}

 private:
  std::byte* take(std::size_t bytes) override {
    cuda::Address address = 0;
    const Driver& driver = gpu_.current();
    driver.check(driver.allocate(&address, bytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(address);
  }
  void give(std::byte* block) noexcept override {
    try {
      gpu_.current().free(reinterpret_cast<cuda::Address>(block));
    } catch (const EngineError&) {  // the context is lost, and its memory with it
    }
  }

  const Gpu& gpu_;
};

/// Page-locked memory of the host, which the GPU reads at PCIe speed.
class HostBlocks final : public cuda::DeviceBlocks {
 public:
  explicit HostBlocks(const Gpu& gpu) : gpu_(gpu) {}

 private:
  std::byte* take(std::size_t bytes) override {
    void* data = nullptr;
    const Driver& driver = gpu_.current();
    driver.check(driver.allocate_host(&data, bytes, kPortable | kMapped), "cuMemHostAlloc");
    return static_cast<std::byte*>(data);
  }
  void give(std::byte* block) noexcept override {
    try {
      gpu_.current().free_host(block);
    } catch (const EngineError&) {
    }
  }

  const Gpu& gpu_;
};

class CudaEngine final : public Engine {
 public:
  CudaEngine(std::string name, const Driver& driver, int ordinal) : name_(std::move(name)), gpu_(driver, ordinal) {}

  const char* name() const override { return name_.c_str(); }
  std::string device_name() const override { return gpu_.name(); }
  std::uint64_t working_set_limit() const override { return gpu_.total_memory(); }
  Storage image_storage() const override { return Storage::device; }

  std::byte* allocate(std::size_t bytes, Storage storage) override {
    return storage == Storage::device ? gpu_blocks_.allocate(bytes) : host_blocks_.allocate(bytes);
  }
  void deallocate(std::byte* address, std::size_t, Storage storage) noexcept override {
    if (storage == Storage::device)
      gpu_blocks_.deallocate(address);
    else
      host_blocks_.deallocate(address);
  }
  MemoryUse memory_use() const override {
    const MemoryUse gpu = gpu_blocks_.use(), host = host_blocks_.use();
    return {gpu.allocated + host.allocated, gpu.peak + host.peak, gpu.cached + host.cached};
  }
  void reset_peak_bytes() override {
    gpu_blocks_.reset_peak_bytes();
    host_blocks_.reset_peak_bytes();
  }
  void free_cached_bytes() override {
    gpu_blocks_.trim();
    host_blocks_.trim();
  }
  void download(void* to, const std::byte* from, std::size_t bytes) override {
    const Driver& driver = gpu_.current();
    driver.check(driver.copy_to_host(to, reinterpret_cast<cuda::Address>(from), bytes), "cuMemcpyDtoH");
  }
  void upload(std::byte* to, const void* from, std::size_t bytes) override {
    const Driver& driver = gpu_.current();
    driver.check(driver.copy_to_device(reinterpret_cast<cuda::Address>(to), from, bytes), "cuMemcpyHtoD");
  }

  /// No problem has a kernel yet: the processor's engine solves all of them on copies.
  bool try_run(const Problem&) override { return false; }
  void synchronize() override {
    const Driver& driver = gpu_.current();
    driver.check(driver.synchronize(), "cuCtxSynchronize");
  }

 private:
  const std::string name_;
  const Gpu gpu_;
  GpuBlocks gpu_blocks_{gpu_};
  HostBlocks host_blocks_{gpu_};
};

}  // namespace

std::vector<std::string> cuda_engine_names() {
  std::vector<std::string> names;
  int count = 0;
  if (const Driver* driver = cuda::open_driver(nullptr)) driver->get_device_count(&count);
  for (int i = 0; i < count; ++i) names.push_back("cuda:" + std::to_string(i));
  return names;
}

std::shared_ptr<Engine> make_cuda_engine(const std::string& name) {
  if (name == "cuda-host") return std::make_shared<CudaEngine>(name, cuda::host_driver(), 0);
  int ordinal = 0;
  if (name != "cuda") {
    if (!name.starts_with("cuda:")) return nullptr;
    const char *const first = name.data() + 5, *const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(first, last, ordinal);
    if (error != std::errc() || end != last)
      throw std::runtime_error(name + " is not \"cuda:\" and the number of a GPU.");
  }
  std::string reason;
  const Driver* const driver = cuda::open_driver(&reason);
  if (!driver) throw std::runtime_error(reason);
  int count = 0;
  driver->check(driver->get_device_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count)
    throw std::runtime_error(name + " is not one of the " + std::to_string(count) + " devices of NVIDIA's driver.");
  return std::make_shared<CudaEngine>("cuda:" + std::to_string(ordinal), *driver, ordinal);
}

}  // namespace openmps
