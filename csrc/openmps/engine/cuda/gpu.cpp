// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/gpu.hpp"

#include "engine/cuda/compiler.hpp"
#include "engine/cuda/transfers.hpp"
#include "engine/cuda/work.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

class GpuBlocks final : public DeviceBlocks {
 public:
  explicit GpuBlocks(const Gpu& gpu) : gpu_(gpu) {}

 private:
  std::byte* take(std::size_t bytes) override {
    Address address = 0;
    const Driver& driver = gpu_.current();
    driver.check(driver.allocate(&address, bytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(address);
  }
  void give(std::byte* block) noexcept override {
    try {
      gpu_.current().free(reinterpret_cast<Address>(block));
    } catch (const EngineError&) {  // the context is lost, and its memory with it
    }
  }

  const Gpu& gpu_;
};

/// Page-locked memory of the host, which the GPU reads at PCIe speed.
class HostBlocks final : public DeviceBlocks {
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

}  // namespace

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  driver.check(driver.get_device(&device_, ordinal), "cuDeviceGet");
  driver.check(driver.retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
  char name[256] = {};
  driver.check(driver.get_device_name(name, sizeof name - 1, device_), "cuDeviceGetName");
  name_ = name;
  int major = 0, minor = 0;
  driver.check(driver.get_attribute(&major, kMajor, device_), "cuDeviceGetAttribute");
  driver.check(driver.get_attribute(&minor, kMinor, device_), "cuDeviceGetAttribute");
  driver.check(driver.get_attribute(&processors_, kProcessors, device_), "cuDeviceGetAttribute");
  architecture_ = 10 * major + minor;
  std::size_t bytes = 0;
  driver.check(driver.get_total_memory(&bytes, device_), "cuDeviceTotalMem");
  total_memory_ = bytes;
  memory_ = std::make_unique<GpuBlocks>(*this);
  host_memory_ = std::make_unique<HostBlocks>(*this);
  transfers_ = std::make_unique<Transfers>(*this);
}

Gpu::~Gpu() = default;

const Driver& Gpu::current() const {
  driver_.check(driver_.set_context(context_), "cuCtxSetCurrent");
  return driver_;
}

Function Gpu::function(const std::string& file, const char* name, const std::string& definitions) {
  const std::string module_key = file + definitions, key = module_key + ' ' + name;
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(key); found != functions_.end()) return found->second;
  auto module = modules_.find(module_key);
  if (module == modules_.end()) {
    Module loaded = nullptr;
    if (!driver_.is_host) {
      const std::string code = compile(file, definitions, architecture_);
      driver_.check(driver_.load_module(&loaded, code.data()), "cuModuleLoadData");
    }
    module = modules_.emplace(module_key, loaded).first;
  }
  Function function = nullptr;
  driver_.check(driver_.get_function(&function, module->second, name), name);
  return functions_.emplace(key, function).first->second;
}

Function Gpu::load(const std::string& code, const char* name) {
  Module module = nullptr;
  driver_.check(driver_.load_module(&module, code.data()), "cuModuleLoadData");
  Function function = nullptr;
  driver_.check(driver_.get_function(&function, module, name), name);
  return function;
}

std::shared_ptr<Work> Gpu::make_work() {
  std::unique_ptr<Work> work;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      work = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!work) work = std::make_unique<Work>(*this);
  return {work.release(), [this](Work* ended) {
            const std::lock_guard lock(mutex_);
            idle_.emplace_back(ended);
          }};
}

namespace {

/// The GPU and the work of a WorkScope.
std::pair<const Gpu*, Work*>& scope_of_thread() {
  thread_local std::pair<const Gpu*, Work*> scope;
  return scope;
}

}  // namespace

WorkScope::WorkScope(const Gpu& gpu, Work& work) : outer_(scope_of_thread()) { scope_of_thread() = {&gpu, &work}; }
WorkScope::~WorkScope() { scope_of_thread() = outer_; }

Work& Gpu::work() {
  if (const auto& [gpu, work] = scope_of_thread(); gpu == this) return *work;
  thread_local std::map<const Gpu*, std::shared_ptr<Work>> all;
  auto& mine = all[this];
  if (!mine) mine = make_work();
  return *mine;
}

}  // namespace openmps::cuda
