// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/work.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/cuda/graphs.hpp"
#include "engine/cuda/transfers.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kMaxGrid = 0x7fffffff;  // gridDim.x of compute capability 3.0 and later [CUDA C Programming Guide]

// Blocks per multiprocessor up to which kernels overlap. Blocks of a larger kernel would all start on the
// multiprocessors that are free first: ResNet-50's training took 10 to 25 % longer so. With this limit MobileNetV2
// takes 0.92, ResNet-50 0.98 of the time at batch 1, and the others as long as before (H200).
constexpr i64 kOverlapBlocks = 2;

/// The program's own memory, locked and mapped while this lives.
class LockedPages {
 public:
  LockedPages(const Gpu& gpu, std::byte* data, std::size_t bytes) : gpu_(gpu), data_(data) {
    is_locked_ = gpu.current().register_host(data, bytes, kPortable | kMapped) == kSuccess;
  }
  ~LockedPages() {
    try {
      if (is_locked_) gpu_.current().unregister_host(data_);
    } catch (const EngineError&) {  // the context is lost
    }
  }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;
  bool is_locked() const { return is_locked_; }

 private:
  const Gpu& gpu_;
  std::byte* const data_;
  bool is_locked_ = false;
};

/// Copies of constants on one GPU.
struct Constant {
  std::weak_ptr<const std::vector<float>> values;
  std::unique_ptr<GpuBlock> copy;
};

}  // namespace

Filled::Filled(const Driver& driver, Stream stream) : driver_(driver), stream_(stream) {
  driver.check(driver.create_event(&event_, kPlainEvent), "cuEventCreate");
}
Filled::~Filled() { driver_.destroy_event(event_); }

void Filled::enqueued() noexcept {
  driver_.record_event(event_, stream_);  // fails only if the context is lost, as the wait does
  is_enqueued_ = true;
  is_enqueued_.notify_all();
}

void Filled::wait(Stream stream) const {
  if (stream == stream_) return;
  is_enqueued_.wait(false);
  driver_.check(driver_.synchronize_event(event_), "cuEventSynchronize");
}

Work::Work(Gpu& gpu) : gpu_(gpu) {
  gpu.driver().check(gpu.current().create_stream(&stream_, kNonBlockingStream), "cuStreamCreate");
  graphs_ = std::make_unique<Graphs>(*this);
}

Work::~Work() = default;  // the stream lives as long as the process

Address Work::address(Memory& memory) {
  std::byte* const data = memory.address();
  Memory& root = memory.root();
  if (root.owner() != gpu_.owner()) {
    if (root.storage() == Storage::device) throw UnreachableMemory();
    const auto& pages =
        root.derived([&](std::byte* first) { return std::make_shared<LockedPages>(gpu_, first, root.size()); });
    if (!static_cast<LockedPages*>(pages.get())->is_locked()) throw UnreachableMemory();
  }
  return reinterpret_cast<Address>(data);
}

View Work::view(const ImageView& image) {
  if (!image.memory) return {.data = {}, .n = image.n, .h = image.h, .w = image.w, .c = image.c};
  return {.data = {address(*image.memory) + image.offset},
          .format = image.format,
          .n = image.n,
          .h = image.h,
          .w = image.w,
          .c = image.c,
          .n_stride = image.n_stride,
          .h_stride = image.h_stride,
          .w_stride = image.w_stride};
}

Source Work::source(const Operand& operand) {
  return {.view = view(operand.view),
          .start_h = operand.start_h,
          .start_w = operand.start_w,
          .repeat_h = operand.repeat_h,
          .repeat_w = operand.repeat_w,
          .repeat_c = operand.repeat_c,
          .edge = operand.edge};
}

Address Work::values_address(const std::shared_ptr<Memory>& memory, std::size_t offset) {
  return memory ? address(*memory) + offset : 0;
}

Activation Work::activation(const Neuron& neuron) {
  return {.type = neuron.type,
          .a = neuron.a,
          .b = neuron.b,
          .c = neuron.c,
          .log_base = neuron_log_base(neuron.c),
          .slopes = neuron_is_per_channel(neuron) ? constants(neuron.a_per_channel) : Pointer<const float>{}};
}

Pointer<const float> Work::constants(const std::shared_ptr<const std::vector<float>>& values) {
  if (!values || values->empty()) return {};
  static std::mutex mutex;
  static auto* const all = new std::map<std::pair<const Gpu*, const void*>, Constant>;
  const std::lock_guard lock(mutex);
  std::erase_if(*all, [](const auto& each) { return each.second.values.expired(); });
  Constant& constant = (*all)[{&gpu_, values.get()}];
  if (!constant.copy) {
    const std::size_t bytes = values->size() * sizeof(float);
    constant = {values, std::make_unique<GpuBlock>(gpu_, bytes)};
    const Driver& driver = gpu_.current();
    driver.check(driver.copy_to_device(constant.copy->address(), values->data(), bytes), "cuMemcpyHtoD");
    driver.check(driver.synchronize(), "cuCtxSynchronize");  // the copy may arrive later [API synchronization behavior]
  }
  return {constant.copy->address()};
}

Address Work::scratch(std::size_t bytes) {
  if (!scratch_ || scratch_->bytes() < bytes) replace(scratch_, bytes);
  return scratch_->address();
}

Address Work::counters(i64 count) {
  constexpr std::size_t kLeastBytes = 4096;
  const auto bytes = static_cast<std::size_t>(count) * sizeof(unsigned);
  if (!counters_ || counters_->bytes() < bytes) {
    replace(counters_, std::max(bytes, kLeastBytes));
    fill(counters_->address(), 0, counters_->bytes());
  }
  return counters_->address();
}

void Work::replace(std::shared_ptr<GpuBlock>& block, std::size_t bytes) {
  if (is_recording_) throw EngineError(FailureCode::internal, "a recorded problem needs more memory than before.");
  synchronize();  // work under way uses the old block, which graphs may keep
  block = nullptr;
  block = std::make_shared<GpuBlock>(gpu_, bytes);
}

std::shared_ptr<std::byte> Work::arena(std::size_t bytes) {
  auto block = arena_.lock();
  if (!block || block->bytes() < bytes)
    arena_ = block = std::make_shared<GpuBlock>(gpu_, DeviceBlocks::block_bytes(bytes));
  return {block, reinterpret_cast<std::byte*>(block->address())};
}

void Work::launch_bytes(const char* file, const char* name, int threads, const void* args, i64 count,
                        std::initializer_list<const View*> images, std::size_t varying_bytes) {
  launch_large(file, name, threads, args, count, images, varying_bytes, 0);
}

void Work::launch_large(const char* file, const char* name, int threads, const void* args, i64 count,
                        std::initializer_list<const View*> images, std::size_t varying_bytes, unsigned shared_bytes) {
  if (count <= 0) return;
  std::string definitions;
  const auto with_data = [](const View* view) { return static_cast<bool>(*view); };
  const auto first = std::find_if(images.begin(), images.end(), with_data);
  if (first != images.end()) {
    const Format format = (*first)->format;
    const bool is_common = std::all_of(images.begin(), images.end(),
                                       [&](const View* view) { return !with_data(view) || view->format == format; });
    if (is_common && (format == Format::float16 || format == Format::float32))
      definitions = "-DMPSCNN_FORMAT=" + std::to_string(static_cast<int>(format));
  }
  const Function function = gpu_.function(file, name, definitions);
  const i64 blocks = (count * threads + kThreads - 1) / kThreads;
  if (blocks > kMaxGrid)
    throw EngineError(FailureCode::internal, std::string(name) + " needs " + std::to_string(blocks) +
                                                 " blocks of threads; a GPU runs at most 2147483647.");
  const auto grid = static_cast<unsigned>(blocks);
  const auto launch = [&] {
    const auto* const first = static_cast<const std::byte*>(args);
    return VaryingLaunch{nullptr, function, grid, {first, first + varying_bytes}, count};
  };
  if (change_) {
    change_->fits = change_->fits && varying_bytes > 0 && change(launch());
    return;
  }
  void* arguments[] = {const_cast<void*>(args), &count};
  const Driver& driver = gpu_.driver();
  if (shared_bytes > 0)
    driver.check(driver.set_function_attribute(function, kMaxSharedBytes, static_cast<int>(shared_bytes)), name);
  if (may_overlap(blocks)) {
    const LaunchAttribute overlap{.id = kOverlap, .padding = {}, .is_allowed = 1};
    const LaunchConfig config{grid, 1, 1, kThreads, 1, 1, shared_bytes, stream_, &overlap, 1};
    driver.check(driver.launch_with(&config, function, arguments, nullptr), name);
  } else {
    driver.check(driver.launch(function, grid, 1, 1, kThreads, 1, 1, shared_bytes, stream_, arguments, nullptr), name);
  }
  if (varying_bytes > 0 && is_recording_) note_varying(launch());
}

bool Work::may_overlap(i64 blocks) {
  const i64 before = std::exchange(blocks_before_, blocks);
  return gpu_.can_overlap() && std::max(blocks, before) <= kOverlapBlocks * gpu_.processors();
}

void Work::note_varying(VaryingLaunch launch) {
  const Driver& driver = gpu_.driver();
  if (!driver.get_capture_info || !driver.set_kernel_params)
    throw EngineError(FailureCode::internal, "the driver cannot change kernels of graphs.");
  int status = 0;
  std::uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode* dependencies = nullptr;
  std::size_t nodes = 0;
  driver.check(driver.get_capture_info(stream_, &status, &id, &graph, &dependencies, &nodes), "cuStreamGetCaptureInfo");
  if (status != kActiveCapture || nodes != 1)
    throw EngineError(FailureCode::internal, "a recorded kernel has no node.");
  launch.node = dependencies[0];
  varying_.push_back(std::move(launch));
}

void Work::start_change(GraphExec executable, std::vector<VaryingLaunch>& launches) {
  change_ = {executable, &launches, 0, true};
}

bool Work::change(VaryingLaunch launch) {
  if (change_->done == change_->launches->size()) return false;
  VaryingLaunch& known = (*change_->launches)[change_->done++];
  if (known.function != launch.function || known.count != launch.count || known.args.size() != launch.args.size())
    return false;
  if (known.args == launch.args) return true;
  known.args.swap(launch.args);
  void* arguments[] = {known.args.data(), &known.count};
  const KernelNodeParams params{known.function, known.blocks, 1, 1, kThreads, 1, 1, 0, arguments, nullptr};
  return gpu_.driver().set_kernel_params(change_->executable, known.node, &params) == kSuccess;
}

bool Work::end_change() {
  const bool is_complete = change_->fits && change_->done == change_->launches->size();
  change_.reset();
  return is_complete;
}

void Work::launch_function(Function function, const unsigned (&blocks)[3], const unsigned (&threads)[3],
                           unsigned shared_bytes, const void* argument) {
  void* arguments[] = {const_cast<void*>(argument)};
  const Driver& driver = gpu_.driver();
  driver.check(driver.launch(function, blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2],
                             shared_bytes, stream_, arguments, nullptr),
               "a function of the program");
}

void Work::copy(Address to, Address from, std::size_t bytes) {
  gpu_.driver().check(gpu_.driver().copy(to, from, bytes, stream_), "cuMemcpyAsync");
}

void Work::fill(Address to, unsigned char value, std::size_t bytes) {
  gpu_.driver().check(gpu_.driver().fill(to, value, bytes, stream_), "cuMemsetD8Async");
}

void Work::launch_gathered() {
  if (const auto waiting = std::exchange(gathered_, nullptr)) waiting->launch(*this);
}

void Work::end_gathering() {
  gathers_ = false;
  gathered_ = nullptr;  // left only by a failure
}

void Work::join_uploads() {
  const std::uint64_t uploads = gpu_.transfers().uploads();
  if (is_recording_ || uploads == joined_uploads_) return;
  gpu_.transfers().join(stream_);
  joined_uploads_ = uploads;
}

const std::shared_ptr<Filled>& Work::filled() {
  if (!filled_) filled_ = std::make_shared<Filled>(gpu_.driver(), stream_);
  return filled_;
}

void Work::end_list() noexcept {
  if (const auto filled = std::exchange(filled_, nullptr)) filled->enqueued();
}

void Work::synchronize() { gpu_.driver().check(gpu_.current().synchronize_stream(stream_), "cuStreamSynchronize"); }

}  // namespace openmps::cuda
