// SPDX-License-Identifier: Apache-2.0
// A driver without a GPU: device memory is the host's, but not at its address.
#include <cstdlib>
#include <cstring>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {
namespace {

/// Device addresses have kHostDeviceBit set: they are then not canonical, so the processor faults on access [Intel SDM
/// volume 1, 3.3.7.1].
void* host_address(Address address) { return reinterpret_cast<void*>(address & ~kHostDeviceBit); }

/// A recorded call.
struct Node {
  HostFunction function = nullptr;  ///< null: a copy or a fill of `count` bytes
  std::vector<std::byte> arguments;
  std::int64_t count = 0;
  Address to = 0, from = 0;
  unsigned char value = 0;

  void run() const {
    if (function)
      function(arguments.data(), count);
    else if (from)
      std::memmove(host_address(to), host_address(from), static_cast<std::size_t>(count));
    else
      std::memset(host_address(to), value, static_cast<std::size_t>(count));
  }
};
using Nodes = std::vector<Node>;

/// Streams run at once, unless they record: then they have nodes.
struct HostStream {
  std::unique_ptr<Nodes> recorded;
};

int add(Stream stream, Node node) {
  auto* const host = reinterpret_cast<HostStream*>(stream);
  if (host && host->recorded)
    host->recorded->push_back(std::move(node));
  else
    node.run();
  return kSuccess;
}

struct RegisteredKernel {
  HostKernel kernel{};
  std::atomic<std::int64_t> launches = 0;
};

std::map<std::string, RegisteredKernel>& kernels() {
  static auto* const all = new std::map<std::string, RegisteredKernel>;
  return *all;
}

void* pages(std::size_t bytes) { return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); }

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
        void* const block = pages(bytes);
        *address = reinterpret_cast<Address>(block) | kHostDeviceBit;
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
      .get_attribute = [](int* value, int, Device) -> int { return *value = 1, kSuccess; },
      .register_host = [](void*, std::size_t, unsigned) -> int { return kSuccess; },
      .unregister_host = [](void*) -> int { return kSuccess; },
      .create_stream = [](Stream* stream, unsigned) -> int {
        return *stream = reinterpret_cast<Stream>(new HostStream), kSuccess;
      },
      .destroy_stream = [](Stream stream) -> int { return delete reinterpret_cast<HostStream*>(stream), kSuccess; },
      .synchronize_stream = [](Stream) -> int { return kSuccess; },
      .wait_for_event = [](Stream, Event, unsigned) -> int { return kSuccess; },
      .create_event = [](Event* event, unsigned) -> int { return *event = nullptr, kSuccess; },
      .destroy_event = [](Event) -> int { return kSuccess; },
      .record_event = [](Event, Stream) -> int { return kSuccess; },
      .query_event = [](Event) -> int { return kSuccess; },
      .synchronize_event = [](Event) -> int { return kSuccess; },
      .elapsed_time = [](float* milliseconds, Event, Event) -> int { return *milliseconds = 0, kSuccess; },
      .copy = [](Address to, Address from, std::size_t bytes, Stream stream) -> int {
        return add(stream, {.count = static_cast<std::int64_t>(bytes), .to = to, .from = from});
      },
      .fill = [](Address to, unsigned char value, std::size_t count, Stream stream) -> int {
        return add(stream, {.count = static_cast<std::int64_t>(count), .to = to, .value = value});
      },
      .load_module = [](Module* module, const void*) -> int { return *module = nullptr, kSuccess; },
      .get_function = [](Function* function, Module, const char* name) -> int {
        const auto found = kernels().find(name);
        if (found == kernels().end()) return kNotFound;
        return *function = reinterpret_cast<Function>(&found->second), kSuccess;
      },
      .launch = [](Function function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   Stream stream, void** arguments, void**) -> int {
        auto& [kernel, launches] = *reinterpret_cast<RegisteredKernel*>(function);
        ++launches;
        const auto* const first = static_cast<const std::byte*>(arguments[0]);
        return add(stream, {.function = kernel.function,
                            .arguments = {first, first + kernel.bytes},
                            .count = *static_cast<const std::int64_t*>(arguments[1])});
      },
      .begin_capture = [](Stream stream, int) -> int {
        return reinterpret_cast<HostStream*>(stream)->recorded = std::make_unique<Nodes>(), kSuccess;
      },
      .end_capture = [](Stream stream, Graph* graph) -> int {
        return *graph = reinterpret_cast<Graph>(reinterpret_cast<HostStream*>(stream)->recorded.release()), kSuccess;
      },
      .instantiate = [](GraphExec* executable, Graph graph, unsigned long long) -> int {
        return *executable = reinterpret_cast<GraphExec>(new Nodes(*reinterpret_cast<Nodes*>(graph))), kSuccess;
      },
      .launch_graph = [](GraphExec executable, Stream) -> int {
        for (const Node& node : *reinterpret_cast<Nodes*>(executable)) node.run();
        return kSuccess;
      },
      .destroy_graph = [](Graph graph) -> int { return delete reinterpret_cast<Nodes*>(graph), kSuccess; },
      .destroy_executable = [](GraphExec executable) -> int {
        return delete reinterpret_cast<Nodes*>(executable), kSuccess;
      },
      .get_nodes = [](Graph graph, void**, std::size_t* count) -> int {
        return *count = reinterpret_cast<Nodes*>(graph)->size(), kSuccess;
      },
      .is_host = true,
  };
  return driver;
}

}  // namespace openmps::cuda
