// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_engine.hpp"

#include <charconv>
#include <new>
#include <stdexcept>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/gpu.hpp"
#include "engine/cuda/graphs.hpp"
#include "engine/cuda/work.hpp"
#include "engine/plan/steps.hpp"
#include "engine/shared/env.hpp"

namespace openmps {
namespace {

using cuda::Driver, cuda::Gpu, cuda::Work;

/// Work that a stream has been given.
class StreamRun final : public Run {
 public:
  explicit StreamRun(Work& work) : gpu_(work.gpu()) {
    const Driver& driver = gpu_.driver();
    driver.check(driver.create_event(&end_, cuda::kPlainEvent), "cuEventCreate");
    driver.check(driver.record_event(end_, work.stream()), "cuEventRecord");
  }
  ~StreamRun() override { gpu_.driver().destroy_event(end_); }
  void wait() override { gpu_.driver().check(gpu_.current().synchronize_event(end_), "cuEventSynchronize"); }
  std::size_t failed_step() const override { return 0; }

 private:
  Gpu& gpu_;
  cuda::Event end_ = nullptr;
};

class CudaEngine final : public Engine {
 public:
  CudaEngine(std::string name, const Driver& driver, int ordinal) : name_(std::move(name)), gpu_(driver, ordinal) {
    gpu_.set_owner(this);
  }

  const char* name() const override { return name_.c_str(); }
  std::string device_name() const override { return gpu_.name(); }
  std::uint64_t working_set_limit() const override { return gpu_.total_memory(); }
  Storage image_storage() const override { return Storage::device; }

  std::byte* allocate(std::size_t bytes, Storage storage) override {
    return storage == Storage::device ? gpu_.memory().allocate(bytes) : gpu_.host_memory().allocate(bytes);
  }
  void deallocate(std::byte* address, std::size_t, Storage storage) noexcept override {
    if (storage == Storage::device)
      gpu_.memory().deallocate(address);
    else
      gpu_.host_memory().deallocate(address);
  }
  MemoryUse memory_use() const override {
    const MemoryUse gpu = gpu_.memory().use(), host = gpu_.host_memory().use();
    return {gpu.allocated + host.allocated, gpu.peak + host.peak, gpu.cached + host.cached};
  }
  void reset_peak_bytes() override {
    gpu_.memory().reset_peak_bytes();
    gpu_.host_memory().reset_peak_bytes();
  }
  void free_cached_bytes() override {
    gpu_.memory().trim();
    gpu_.host_memory().trim();
  }
  // On the thread's stream, because copies on the default stream may arrive after the call [CUDA Driver API, API
  // synchronization behavior].
  void download(void* to, const std::byte* from, std::size_t bytes) override {
    gpu_.current();
    Work& work = gpu_.work();
    work.copy(reinterpret_cast<cuda::Address>(to), reinterpret_cast<cuda::Address>(from), bytes);
    work.synchronize();
  }
  void upload(std::byte* to, const void* from, std::size_t bytes) override {
    gpu_.current();
    Work& work = gpu_.work();
    work.copy(reinterpret_cast<cuda::Address>(to), reinterpret_cast<cuda::Address>(from), bytes);
    work.synchronize();
  }

  bool adds_in_place() const override { return false; }  // cuDNN and cuBLASLt may read the addend late
  bool falls_back() const override { return env::value_of(env::Variable::cuda_fallback) != "0"; }

  /// Activations and sums after convolutions, if they have the result's format.
  bool fuses(const ConvProblem& conv, const Problem& next) const override {
    const Format format = conv.dst.format;
    if (format != Format::float16 && format != Format::float32) return false;
    if (std::holds_alternative<NeuronProblem>(next)) return true;
    const auto* const sum = std::get_if<BinaryProblem>(&next);
    // Depth-wise convolutions have kernels of their own, without a sum.
    return sum && conv.weights->groups == 1 && sum->src0.view.format == format && sum->src1.view.format == format;
  }

  std::unique_ptr<Run> start(Steps& steps) override {
    static const bool has_graphs = env::value_of(env::Variable::cuda_graph) != "0";
    if (!has_graphs || traces_steps()) return Engine::start(steps);
    gpu_.current();
    Work& work = gpu_.work();
    cuda::Graphs& graphs = work.graphs();
    cuda::Fingerprint fingerprint;
    bool can_record = true;
    try {
      for (std::size_t i = 0; can_record && i < steps.size(); ++i) {
        const Problem& problem = steps.problem(i);
        can_record = !std::holds_alternative<HostTask>(problem);
        if (can_record) fingerprint.add(problem, work);
      }
    } catch (const cuda::UnreachableMemory&) {
      can_record = false;
    }
    // A graph does not say which of its problems failed: the first one is named.
    const auto name_first = [&] {
      if (steps.size() > 0) steps.problem(0);
    };
    if (can_record) name_first();
    if (can_record && graphs.launch(fingerprint)) return std::make_unique<StreamRun>(work);
    if (!can_record || !graphs.was_seen(fingerprint)) {
      for (std::size_t i = 0; i < steps.size(); ++i) run_problem(*this, steps.problem(i));
      return std::make_unique<StreamRun>(work);
    }
    graphs.begin();
    try {
      for (std::size_t i = 0; can_record && i < steps.size(); ++i) can_record = try_run(steps.problem(i));
    } catch (...) {
      can_record = false;
    }
    if (can_record)
      name_first();
    else
      graphs.abandon();
    if (!can_record || !graphs.end(fingerprint))
      for (std::size_t i = 0; i < steps.size(); ++i) run_problem(*this, steps.problem(i));
    return std::make_unique<StreamRun>(work);
  }

  bool try_run(const Problem& problem) override {
    gpu_.current();
    Work& work = gpu_.work();
    return std::visit(
        [&](const auto& each) {
          if constexpr (requires { cuda::solve(each, work); }) {
            try {
              return cuda::solve(each, work);
            } catch (const cuda::UnreachableMemory&) {
            }
          }
          return false;
        },
        problem);
  }
  void synchronize() override { gpu_.work().synchronize(); }

 private:
  const std::string name_;
  mutable Gpu gpu_;
};

}  // namespace

std::vector<std::string> cuda_engine_names() {
  std::vector<std::string> names;
  int count = 0;
  if (const Driver* driver = cuda::open_driver(nullptr)) driver->get_device_count(&count);
  for (int i = 0; i < count; ++i) names.push_back("cuda:" + std::to_string(i));
  return names;
}

std::shared_ptr<Engine> make_cuda_engine(const std::string& name, const Driver& driver) {
  return std::make_shared<CudaEngine>(name, driver, 0);
}

std::shared_ptr<Engine> make_cuda_engine(const std::string& name) {
  if (name == "cuda-host") {
    if (!cuda::has_host_kernels())
      throw std::runtime_error("this build has no kernels for it. It is for tests: set MPSCNN_CUDA_HOST=ON in CMake.");
    return make_cuda_engine(name, cuda::host_driver());
  }
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
