// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_engine.hpp"

#include <atomic>
#include <charconv>
#include <new>
#include <shared_mutex>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/driver.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/gpu.hpp"
#include "engine/cuda/graphs.hpp"
#include "engine/cuda/transfers.hpp"
#include "engine/cuda/work.hpp"
#include "engine/plan/execution.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/steps.hpp"
#include "engine/shared/env.hpp"

namespace openmps {
namespace {

using cuda::Driver, cuda::Gpu, cuda::Work;

constexpr std::size_t kMinRerun = 32;  // steps of a list for which recording it again pays

/// Work that a stream is given, from the constructor to end().
class StreamRun final : public Run {
 public:
  explicit StreamRun(Work& work) : work_(work), gpu_(work.gpu()) { record(start_); }
  ~StreamRun() override {
    for (const cuda::Event event : {start_, end_})
      if (event) gpu_.driver().destroy_event(event);  // no end, if a step has failed
  }
  void end() {
    record(end_);
    kept_ = work_.take_kept();
  }
  void wait() override { gpu_.driver().check(gpu_.current().synchronize_event(end_), "cuEventSynchronize"); }
  std::size_t failed_step() const override { return 0; }
  std::optional<double> device_seconds() const override {
    float milliseconds = 0;
    if (gpu_.driver().is_host || gpu_.driver().elapsed_time(&milliseconds, start_, end_) != cuda::kSuccess)
      return std::nullopt;
    return 1e-3 * double{milliseconds};
  }

 private:
  void record(cuda::Event& event) {
    const Driver& driver = gpu_.driver();
    driver.check(driver.create_event(&event, cuda::kTimingEvent), "cuEventCreate");
    driver.check(driver.record_event(event, work_.stream()), "cuEventRecord");
  }

  Work& work_;
  Gpu& gpu_;
  cuda::Event start_ = nullptr, end_ = nullptr;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// An event of the driver, which streams of all GPUs can wait for.
class EventMarker final : public Marker {
 public:
  explicit EventMarker(Work& work) : driver_(work.gpu().driver()) {
    driver_.check(driver_.create_event(&event_, cuda::kPlainEvent), "cuEventCreate");
    driver_.check(driver_.record_event(event_, work.stream()), "cuEventRecord");
  }
  ~EventMarker() override { driver_.destroy_event(event_); }
  const Driver& driver() const { return driver_; }
  cuda::Event event() const { return event_; }

 private:
  const Driver& driver_;
  cuda::Event event_ = nullptr;
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
  Storage buffer_storage() const override { return Storage::device; }

  std::byte* allocate(std::size_t bytes, Storage storage) override {
    cuda::DeviceBlocks& blocks = storage == Storage::device ? gpu_.memory() : gpu_.host_memory();
    try {
      return blocks.allocate(bytes);
    } catch (const std::bad_alloc&) {
      RepeatedList::free_idle(*this);
      return blocks.allocate(bytes);
    }
  }
  void deallocate(std::byte* address, std::size_t, Storage storage) noexcept override {
    if (storage == Storage::device) {
      try {
        gpu_.transfers().synchronize();  // the next owner's work does not wait for this one's uploads
      } catch (const EngineError&) {     // the context is lost
      }
      gpu_.memory().deallocate(address);
    } else {
      gpu_.host_memory().deallocate(address);
    }
  }
  std::shared_ptr<std::byte> arena(std::size_t bytes, std::shared_ptr<void>& stream) override {
    gpu_.current();
    return work_of(stream).arena(bytes);
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
    RepeatedList::free_idle(*this);
    gpu_.memory().trim();
    gpu_.host_memory().trim();
  }
  void download(void* to, const std::byte* from, std::size_t bytes) override {
    gpu_.transfers().download(to, reinterpret_cast<cuda::Address>(from), bytes);
  }
  void upload(std::byte* to, const void* from, std::size_t bytes) override {
    gpu_.transfers().upload(reinterpret_cast<cuda::Address>(to), from, bytes);
  }

  DLPackDevice dlpack_device() const override {
    constexpr std::int32_t kCuda = 2, kExtension = 12;  // kDLCUDA; kDLExtDev, "used for quickly test extension device"
    return {gpu_.driver().is_host ? kExtension : kCuda, gpu_.ordinal()};
  }
  std::int32_t device_number_of(const void* address) const override {
    const Driver& driver = gpu_.current();
    const auto pointer = reinterpret_cast<cuda::Address>(address);
    int type = 0, ordinal = 0;
    const bool is_known = driver.get_pointer_attribute(&type, cuda::kTypeOfPointer, pointer) == cuda::kSuccess &&
                          driver.get_pointer_attribute(&ordinal, cuda::kOrdinalOfPointer, pointer) == cuda::kSuccess;
    return is_known && type == cuda::kDeviceMemory ? ordinal : -1;
  }
  // DLPack's 1 and 2 are the driver's handles of the legacy and the per-thread default stream.
  void wait_for_stream(std::uintptr_t stream) override {
    const Driver& driver = gpu_.current();
    driver.check(stream ? driver.synchronize_stream(reinterpret_cast<cuda::Stream>(stream)) : driver.synchronize(),
                 "cuStreamSynchronize");
  }

  void clear(std::byte* to, std::size_t bytes) override {
    gpu_.current();
    Work& work = gpu_.work();
    work.fill(reinterpret_cast<cuda::Address>(to), 0, bytes);
    work.synchronize();
  }
  void while_placed(const std::function<void()>& use) override {
    const std::shared_lock lock(placement_);
    use();
  }
  void while_idle(const std::function<void()>& move) override {
    const std::unique_lock lock(placement_);
    gpu_.driver().check(gpu_.current().synchronize(), "cuCtxSynchronize");
    ++moves_;
    move();
  }

  bool sums_pixels() const override { return true; }
  bool adds_in_place() const override { return false; }  // cuDNN and cuBLASLt may read the addend late
  bool recomputes() const override { return true; }      // a training step keeps its images until the gradients
  /// Small ones take little memory. Where the largest one has kManyBytes, larger batches are hardly faster, so that
  /// memory for them is of little use.
  std::size_t min_recomputed(std::size_t largest) const override {
    constexpr std::size_t kManyBytes = std::size_t{256} << 20;
    return largest < kManyBytes ? largest / 16 + 1 : largest / 2;
  }
  bool masks_by_results() const override { return true; }
  bool packs_masks() const override { return true; }
  bool falls_back() const override { return env::value_of(env::Variable::cuda_fallback) != "0"; }

  /// Activations and sums after convolutions, if they have the result's format; pooling after some first layers.
  bool fuses(const ConvProblem& conv, const Problem& next) const override {
    const Format format = conv.dst.format;
    if (format != Format::float16 && format != Format::float32) return false;
    if (std::holds_alternative<NeuronProblem>(next)) return true;
    if (const auto* const pool = std::get_if<PoolProblem>(&next)) return cuda::fuses(pooled(conv, *pool), gpu_);
    const auto* const sum = std::get_if<BinaryProblem>(&next);
    // Depth-wise convolutions have kernels of their own, without a sum.
    return sum && conv.weights->groups == 1 && sum->src0.view.format == format && sum->src1.view.format == format;
  }

  bool fuses(const NormalizeProblem& problem) const override { return problem.neuron.type == NeuronType::relu; }
  bool fuses(const NormalizeAddProblem& problem) const override { return cuda::fuses(problem); }
  bool fuses(const MaskedSumProblem&) const override { return true; }
  bool fuses(const MaskedSumMomentsProblem& problem) const override { return cuda::fuses(problem); }

  bool may_group(const Problem& first) const override { return cuda::may_group(first); }
  StepGroup group(const std::function<const Problem*(std::size_t)>& problem,
                  const std::function<bool(const ImageView&, std::size_t)>& ends) const override {
    return {cuda::group(problem, ends)};
  }

  bool keeps_lists() const override { return true; }

  std::unique_ptr<Run> start(Steps& steps, std::shared_ptr<void>& stream) override {
    gpu_.current();
    const cuda::WorkScope scope(gpu_, work_of(stream));
    static const bool has_graphs = env::value_of(env::Variable::cuda_graph) != "0";
    Work& work = gpu_.work();
    const EndOfList end(work);
    const LoadsOfList loads = prepare_loads(steps, work);
    if (!has_graphs || traces_steps()) return Engine::start(steps, stream);
    const bool is_idle = work.is_idle();  // before it waits for uploads
    work.join_uploads();
    auto run = std::make_unique<StreamRun>(work);
    if (std::unique_ptr<Steps::Kept>* const kept = steps.kept())
      start_kept(steps, *kept, work);
    else
      start_once(steps, work, loads, is_idle);
    run->end();
    return run;
  }

  std::shared_ptr<Marker> mark(std::function<void()> then) override {
    const Driver& driver = gpu_.current();
    Work& work = gpu_.work();
    work.join_uploads();
    auto marker = std::make_shared<EventMarker>(work);
    auto task = std::make_unique<std::function<void()>>(std::move(then));
    const auto call = [](void* data) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(data));
      (*owned)();
    };
    driver.check(driver.launch_host(work.stream(), call, task.get()), "cuLaunchHostFunc");
    task.release();
    return marker;
  }
  bool wait_for(const Marker& marker) override {
    const auto* const one = dynamic_cast<const EventMarker*>(&marker);
    const Driver& driver = gpu_.current();
    if (!one || &one->driver() != &driver) return false;
    driver.check(driver.wait_for_event(gpu_.work().stream(), one->event(), 0), "cuStreamWaitEvent");
    return true;
  }

  bool try_run(const Problem& problem) override {
    const std::shared_lock placed(placement_);
    return try_placed(problem);
  }
  void synchronize() override {
    Work& work = gpu_.work();
    work.launch_gathered();
    work.end_list();  // a task of the host, which follows, may read weights that the list has loaded
    gpu_.transfers().synchronize();
    work.synchronize();
    work.take_kept();
  }

 private:
  Work& work_of(std::shared_ptr<void>& stream) {
    if (!stream) stream = gpu_.make_work();
    return *static_cast<Work*>(stream.get());
  }

  bool try_placed(const Problem& problem) {
    gpu_.current();
    Work& work = gpu_.work();
    work.join_uploads();
    if (!cuda::may_gather(problem)) work.launch_gathered();
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

  /// A list that runs repeatedly: its first run may compile kernels, time plans and allocate, the second is recorded.
  struct KeptGraph final : Steps::Kept {
    bool starts_at_once() const override { return graph != nullptr; }
    std::unique_ptr<cuda::ListGraph> graph;
    bool was_tried = false;
    std::uint64_t moves = 0;  ///< value of moves_ when it was recorded
  };

  void start_kept(Steps& steps, std::unique_ptr<Steps::Kept>& kept, Work& work) {
    if (!kept) {
      run_steps(steps);
      kept = std::make_unique<KeptGraph>();
      return;
    }
    auto& [graph, was_tried, moves] = static_cast<KeptGraph&>(*kept);
    {
      const std::shared_lock placed(placement_);
      if (moves != moves_) was_tried = false;
      if (!was_tried) graph = record(steps, work);
      was_tried = true;
      moves = moves_;
      name_first(steps);
      if (graph) return graph->launch(work);
    }
    run_steps(steps);
  }

  enum class LoadsOfList : std::uint8_t {
    none,
    in_place,  ///< all use the blocks of the weights that they replace: the next run of the list may be the same
    elsewhere,
  };

  LoadsOfList prepare_loads(Steps& steps, Work& work) {
    struct Uses {
      std::int64_t references = 0;  ///< of the list's commands
      std::size_t last_step = 0;
    };
    std::vector<std::pair<std::size_t, const ConvWeights*>> loads;
    std::unordered_map<const ConvWeights*, Uses> uses;
    for (std::size_t i = 0; i < steps.size(); ++i)
      steps.for_each_command(i, [&](std::size_t, const Problem& problem) {
        if (const auto* const load = std::get_if<LoadWeightsProblem>(&problem))
          loads.emplace_back(i, load->weights.get());
      });
    if (loads.empty()) return LoadsOfList::none;
    steps.forget_problem();                   // it may refer to weights
    std::unordered_set<std::size_t> counted;  // a command may be in several steps
    for (std::size_t i = 0; i < steps.size(); ++i)
      steps.for_each_command(i, [&](std::size_t command, const Problem& problem) {
        const bool is_new = counted.insert(command).second;
        for_each_weights(problem, [&](const std::shared_ptr<const ConvWeights>& weights) {
          Uses& use = uses[weights.get()];
          use.references += is_new ? 1 : 0;
          use.last_step = i;
        });
      });
    LoadsOfList result = LoadsOfList::in_place;
    for (const auto& [step, weights] : loads) {
      bool may_take = false;
      if (const auto replaced = weights->replaced.lock()) {
        const Uses& use = uses[replaced.get()];
        const std::lock_guard lock(replaced->enqueued.mutex);
        const std::int64_t enqueued = replaced->enqueued.stream == &work ? replaced->enqueued.references : 0;
        may_take = use.last_step < step && replaced.use_count() == 1 + use.references + enqueued;
        std::atomic_thread_fence(std::memory_order_acquire);  // references that other threads have released
      }
      if (!cuda::GpuWeights::prepare(work, *weights, may_take)) result = LoadsOfList::elsewhere;
    }
    return result;
  }

  void start_once(Steps& steps, Work& work, LoadsOfList loads, bool is_idle) {
    cuda::Graphs& graphs = work.graphs();
    cuda::Fingerprint fingerprint(loads != LoadsOfList::none);
    bool can_record = loads != LoadsOfList::elsewhere;
    {
      const std::shared_lock placed(placement_);  // the fingerprint has addresses
      try {
        for (std::size_t i = 0; can_record && i < steps.size(); ++i) {
          const Problem& problem = steps.problem(i);
          can_record = !std::holds_alternative<HostTask>(problem);
          if (can_record) fingerprint.add(problem, work);
        }
      } catch (const cuda::UnreachableMemory&) {
        can_record = false;
      }
      if (can_record) name_first(steps);
      if (can_record && graphs.launch(fingerprint, [&] { solve_varying(steps); })) return;
      std::unique_ptr<cuda::ListGraph> graph;
      if (can_record && graphs.should_record(fingerprint)) graph = record(steps, work);
      if (graph) {
        graph->launch(work);
        return graphs.add(fingerprint, std::move(graph));
      }
      // A stream without work computes while the rest is enqueued, but not while it is recorded.
      if (can_record && steps.size() >= kMinRerun &&
          graphs.rerun(fingerprint, is_idle, [&] { return solve_all(steps, work); }))
        return;
    }
    run_steps(steps);
  }

  /// Ends a list whose work has been enqueued, or has failed.
  class EndOfList {
   public:
    explicit EndOfList(Work& work) : work_(work) {}
    ~EndOfList() { work_.end_list(); }
    EndOfList(const EndOfList&) = delete;
    EndOfList& operator=(const EndOfList&) = delete;

   private:
    Work& work_;
  };

  /// Lets small problems of a list wait for others of their kind.
  class Gathering {
   public:
    explicit Gathering(Work& work) : work_(work) { work.start_gathering(); }
    ~Gathering() { work_.end_gathering(); }
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    Work& work_;
  };

  void run_steps(Steps& steps) {
    Work& work = gpu_.work();
    const Gathering gathering(work);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (try_group(steps, i))
        i += steps.group(i) - 1;
      else
        run_problem(*this, steps.problem(i));
    }
    work.launch_gathered();
  }

  /// Solve the problems whose kernels may change, in groups as they were recorded. With placement_ held.
  void solve_varying(Steps& steps) {
    Work& work = gpu_.work();
    const Gathering gathering(work);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Problem& problem = steps.problem(i);
      if (cuda::varies(problem))
        try_placed(problem);
      else
        work.launch_gathered();
    }
    work.launch_gathered();
  }

  /// Return null if the list cannot be recorded. With placement_ held.
  std::unique_ptr<cuda::ListGraph> record(Steps& steps, Work& work) {
    auto graph = cuda::record(work, [&] { return solve_all(steps, work); });
    name_first(steps);
    return graph;
  }

  /// Return false if the engine does not solve one of the problems. With placement_ held.
  bool solve_all(Steps& steps, Work& work) {
    const Gathering gathering(work);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (try_placed_group(steps, i))
        i += steps.group(i) - 1;
      else if (!try_placed(steps.problem(i)))
        return false;
    }
    work.launch_gathered();
    return true;
  }

  /// Solve the steps of a group together, or return false and do nothing.
  bool try_group(Steps& steps, std::size_t first) {
    const std::shared_lock placed(placement_);
    return try_placed_group(steps, first);
  }
  bool try_placed_group(Steps& steps, std::size_t first) {
    const std::size_t count = steps.group(first);
    if (count == 1) return false;
    gpu_.current();
    Work& work = gpu_.work();
    work.join_uploads();
    work.launch_gathered();
    std::vector<Problem> problems(count);
    for (std::size_t i = count; i-- > 0;) problems[i] = steps.problem(first + i);
    try {
      return cuda::solve(problems, work);
    } catch (const cuda::UnreachableMemory&) {
      return false;
    }
  }

  /// A graph does not say which of its problems failed: the first one is named.
  static void name_first(Steps& steps) {
    if (steps.size() > 0) steps.problem(0);
  }

  const std::string name_;
  mutable Gpu gpu_;
  std::shared_mutex placement_;  ///< held while addresses of buffers are in use by the host; alone, to move one
  std::uint64_t moves_ = 0;      ///< of buffers; changes with placement_ held alone
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
