// SPDX-License-Identifier: Apache-2.0
// A driver without a GPU: device memory is the host's, but not at its address.
#include <cstdlib>
#include <cstring>

#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/host_stream.hpp"
#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {
namespace {

using Nodes = std::vector<std::function<void()>>;

/// Blocks of memory that the driver has allocated or locked, by their address on the host.
class Blocks {
 public:
  static Blocks& all() {
    static auto* const blocks = new Blocks;
    return *blocks;
  }
  void add(const void* first, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[reinterpret_cast<Address>(first)] = bytes;
  }
  void remove(const void* first) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(reinterpret_cast<Address>(first));
  }
  bool has(const void* first, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<Address>(first);
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return false;
    const auto& [start, size] = *std::prev(after);
    return address - start <= size && bytes <= size - (address - start);
  }

 private:
  mutable std::mutex mutex_;
  std::map<Address, std::size_t> blocks_;
};

/// Streams run at once, unless they record.
class RunningStream final : public HostStream {
 public:
  void add(std::function<void()> call) override {
    if (recorded)
      recorded->push_back(std::move(call));
    else
      call();
  }
  bool has(Address first, std::size_t bytes) const override { return Blocks::all().has(host_address(first), bytes); }
  void spend(float milliseconds) override { time += milliseconds; }

  float time = 0;                   ///< in milliseconds
  std::unique_ptr<Nodes> recorded;  ///< null: it does not record
  GraphNode last = nullptr;         ///< the number of recorded nodes
};
/// The time at which an event was recorded. Several threads may record the same event, as with CUDA's driver.
std::atomic<float>& time_of(Event event) { return *reinterpret_cast<std::atomic<float>*>(event); }
RunningStream* running(Stream stream) { return static_cast<RunningStream*>(reinterpret_cast<HostStream*>(stream)); }

int add(Stream stream, std::function<void()> call) {
  if (stream)
    running(stream)->add(std::move(call));
  else
    call();
  return kSuccess;
}

struct RegisteredKernel {
  HostKernel kernel{};
  std::atomic<std::int64_t> launches = 0;

  /// Return a call with copies of the arguments.
  std::function<void()> call(void** arguments) const {
    const auto* const first = static_cast<const std::byte*>(arguments[0]);
    return [function = kernel.function, copy = std::vector(first, first + kernel.bytes),
            count = *static_cast<const std::int64_t*>(arguments[1])] { function(copy.data(), count); };
  }
};

std::map<std::string, RegisteredKernel>& kernels() {
  static auto* const all = new std::map<std::string, RegisteredKernel>;
  return *all;
}

void* allocate(std::size_t bytes) {
  void* const block = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (block) Blocks::all().add(block, bytes);
  return block;
}
int release(void* block) {
  Blocks::all().remove(block);
  return std::free(block), kSuccess;
}

}  // namespace

void register_host_kernel(const char* name, HostKernel kernel) { kernels()[name].kernel = kernel; }

std::map<std::string, std::int64_t> host_kernel_launches() {
  std::map<std::string, std::int64_t> result;
  for (const auto& [name, registered] : kernels()) result[name] = registered.launches;
  return result;
}

bool has_host_kernels() { return !kernels().empty(); }

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
        void* const block = allocate(bytes);
        *address = reinterpret_cast<Address>(block) | kHostDeviceBit;
        return block ? kSuccess : kOutOfMemory;
      },
      .free = [](Address address) -> int { return release(host_address(address)); },
      .allocate_host = [](void** data, std::size_t bytes, unsigned) -> int {
        return (*data = allocate(bytes)) ? kSuccess : kOutOfMemory;
      },
      .free_host = [](void* data) -> int { return release(data); },
      .copy_to_device = [](Address to, const void* from, std::size_t bytes) -> int {
        return std::memcpy(host_address(to), from, bytes), kSuccess;
      },
      .copy_to_host = [](void* to, Address from, std::size_t bytes) -> int {
        return std::memcpy(to, host_address(from), bytes), kSuccess;
      },
      .synchronize = []() -> int { return kSuccess; },
      .get_attribute = [](int* value, int, Device) -> int { return *value = 1, kSuccess; },
      .get_pointer_attribute = [](void* value, int attribute, Address address) -> int {
        if (!(address & kHostDeviceBit)) return kInvalidValue;
        return *static_cast<int*>(value) = attribute == kTypeOfPointer ? kDeviceMemory : 0, kSuccess;
      },
      .register_host = [](void* data, std::size_t bytes, unsigned) -> int {
        return Blocks::all().add(data, bytes), kSuccess;
      },
      .unregister_host = [](void* data) -> int { return Blocks::all().remove(data), kSuccess; },
      .create_stream = [](Stream* stream, unsigned) -> int {
        return *stream = reinterpret_cast<Stream>(static_cast<HostStream*>(new RunningStream)), kSuccess;
      },
      .destroy_stream = [](Stream stream) -> int { return delete running(stream), kSuccess; },
      .synchronize_stream = [](Stream) -> int { return kSuccess; },
      .wait_for_event = [](Stream, Event, unsigned) -> int { return kSuccess; },
      .create_event = [](Event* event, unsigned) -> int {
        return *event = reinterpret_cast<Event>(new std::atomic<float>(0)), kSuccess;
      },
      .destroy_event = [](Event event) -> int { return delete &time_of(event), kSuccess; },
      .record_event = [](Event event, Stream stream) -> int {
        return time_of(event) = stream ? running(stream)->time : 0.0f, kSuccess;
      },
      .query_event = [](Event) -> int { return kSuccess; },
      .synchronize_event = [](Event) -> int { return kSuccess; },
      .elapsed_time = [](float* milliseconds, Event start, Event end) -> int {
        return *milliseconds = time_of(end) - time_of(start), kSuccess;
      },
      .launch_host = [](Stream stream, void (*function)(void*), void* data) -> int {
        return add(stream, [=] { function(data); });
      },
      .copy = [](Address to, Address from, std::size_t bytes, Stream stream) -> int {
        return add(stream, [=] { std::memmove(host_address(to), host_address(from), bytes); });
      },
      .fill = [](Address to, unsigned char value, std::size_t count, Stream stream) -> int {
        return add(stream, [=] { std::memset(host_address(to), value, count); });
      },
      .load_module = [](Module* module, const void*) -> int { return *module = nullptr, kSuccess; },
      .get_function = [](Function* function, Module, const char* name) -> int {
        const auto found = kernels().find(name);
        if (found == kernels().end()) return kNotFound;
        return *function = reinterpret_cast<Function>(&found->second), kSuccess;
      },
      .launch = [](Function function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   Stream stream, void** arguments, void**) -> int {
        auto& kernel = *reinterpret_cast<RegisteredKernel*>(function);
        ++kernel.launches;
        return add(stream, kernel.call(arguments));
      },
      .begin_capture = [](Stream stream, int) -> int {
        return running(stream)->recorded = std::make_unique<Nodes>(), kSuccess;
      },
      .end_capture = [](Stream stream, Graph* graph) -> int {
        return *graph = reinterpret_cast<Graph>(running(stream)->recorded.release()), kSuccess;
      },
      .get_capture_info = [](Stream stream, int* status, std::uint64_t*, Graph*, const GraphNode** dependencies,
                             std::size_t* count) -> int {
        const std::unique_ptr<Nodes>& recorded = running(stream)->recorded;
        *status = recorded ? kActiveCapture : 0;
        if (!recorded) return kSuccess;
        running(stream)->last = reinterpret_cast<GraphNode>(recorded->size());
        return *dependencies = &running(stream)->last, *count = recorded->empty() ? 0 : 1, kSuccess;
      },
      .instantiate = [](GraphExec* executable, Graph graph, unsigned long long) -> int {
        return *executable = reinterpret_cast<GraphExec>(new Nodes(*reinterpret_cast<Nodes*>(graph))), kSuccess;
      },
      .launch_graph = [](GraphExec executable, Stream) -> int {
        for (const auto& node : *reinterpret_cast<Nodes*>(executable)) node();
        return kSuccess;
      },
      .update_executable = [](GraphExec executable, Graph graph, UpdateResult*) -> int {
        auto &nodes = *reinterpret_cast<Nodes*>(executable), &others = *reinterpret_cast<Nodes*>(graph);
        if (nodes.size() != others.size()) return kInvalidValue;
        return nodes = others, kSuccess;
      },
      .set_kernel_params = [](GraphExec executable, GraphNode node, const KernelNodeParams* params) -> int {
        auto& nodes = *reinterpret_cast<Nodes*>(executable);
        nodes.at(reinterpret_cast<std::size_t>(node) - 1) =
            reinterpret_cast<const RegisteredKernel*>(params->function)->call(params->arguments);
        return kSuccess;
      },
      .destroy_graph = [](Graph graph) -> int { return delete reinterpret_cast<Nodes*>(graph), kSuccess; },
      .destroy_executable = [](GraphExec executable) -> int {
        return delete reinterpret_cast<Nodes*>(executable), kSuccess;
      },
      .get_nodes = [](Graph graph, GraphNode*, std::size_t* count) -> int {
        return *count = reinterpret_cast<Nodes*>(graph)->size(), kSuccess;
      },
      .is_host = true,
      .query_stream = [](Stream) -> int { return kNotReady; },  // so that tests see the graphs of busy streams
      .set_function_attribute = [](Function, int, int) -> int { return kSuccess; },
  };
  return driver;
}

}  // namespace openmps::cuda
