// SPDX-License-Identifier: Apache-2.0
// Driver: the functions of NVIDIA's driver that the engine calls, opened at run time. Nothing of NVIDIA's is needed to
// build; names and values are those of the CUDA driver API [docs.nvidia.com, CUDA Driver API].
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace openmps::cuda {

using Address = std::uint64_t;  ///< CUdeviceptr
using Device = int;             ///< CUdevice
struct ContextOfDriver;
using Context = ContextOfDriver*;             ///< CUcontext
using Stream = struct StreamOfDriver*;        ///< CUstream
using Event = struct EventOfDriver*;          ///< CUevent
using Module = struct ModuleOfDriver*;        ///< CUmodule
using Function = struct FunctionOfDriver*;    ///< CUfunction
using Graph = struct GraphOfDriver*;          ///< CUgraph
using GraphExec = struct GraphExecOfDriver*;  ///< CUgraphExec
using GraphNode = struct GraphNodeOfDriver*;  ///< CUgraphNode

/// CUDA_KERNEL_NODE_PARAMS_v1.
struct KernelNodeParams {
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  void** arguments;
  void** extra;
};

/// CUDA_MEMSET_NODE_PARAMS_v1.
struct FillNodeParams {
  Address to;
  std::size_t pitch;
  unsigned value, element_bytes;
  std::size_t width, height;
};

/// CUlaunchAttribute, with the one kind of value that is used.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int is_allowed;
  };
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// CUgraphExecUpdateResultInfo.
struct UpdateResult {
  int result;
  GraphNode node, from_node;
};

/// Status codes that the engine tells apart.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNotFound = 500,
  kNotReady = 600,
  kFirstLostContext = 700,  ///< CUDA_ERROR_ILLEGAL_ADDRESS; the context fails every later call
  kLastLostContext = 720,
};

/// CUdevice_attribute.
enum Attribute : int {
  kProcessors = 16,  ///< multiprocessors
  kMajor = 75,       ///< compute capability
  kMinor = 76,
};

constexpr int kOrdinalOfPointer = 9;                   ///< CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr int kTypeOfPointer = 2;                      ///< CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceMemory = 2;                       ///< CU_MEMORYTYPE_DEVICE
constexpr unsigned kPortable = 1, kMapped = 2;         ///< CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP
constexpr unsigned kNonBlockingStream = 1;             ///< CU_STREAM_NON_BLOCKING
constexpr unsigned kTimingEvent = 0, kPlainEvent = 2;  ///< CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING
constexpr int kRelaxedCapture = 2;                     ///< CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kOverlap = 6;                            ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kFillNode = 2;                           ///< CU_GRAPH_NODE_TYPE_MEMSET
constexpr int kMaxSharedBytes = 8;                     ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kActiveCapture = 1;                      ///< CU_STREAM_CAPTURE_STATUS_ACTIVE

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
  int (*get_attribute)(int* value, int attribute, Device device);
  int (*get_pointer_attribute)(void* value, int attribute, Address address);
  int (*register_host)(void* data, std::size_t bytes, unsigned flags);
  int (*unregister_host)(void* data);

  int (*create_stream)(Stream* stream, unsigned flags);
  int (*destroy_stream)(Stream stream);
  int (*synchronize_stream)(Stream stream);
  int (*wait_for_event)(Stream stream, Event event, unsigned flags);
  int (*create_event)(Event* event, unsigned flags);
  int (*destroy_event)(Event event);
  int (*record_event)(Event event, Stream stream);
  int (*query_event)(Event event);
  int (*synchronize_event)(Event event);
  int (*elapsed_time)(float* milliseconds, Event start, Event end);
  int (*launch_host)(Stream stream, void (*function)(void* data), void* data);
  int (*copy)(Address to, Address from, std::size_t bytes, Stream stream);  ///< between any two addresses
  int (*fill)(Address to, unsigned char value, std::size_t count, Stream stream);

  int (*load_module)(Module* module, const void* image);
  int (*get_function)(Function* function, Module module, const char* name);
  int (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments,
                void** extra);
  /// Null in old drivers.
  int (*launch_with)(const LaunchConfig* config, Function function, void** arguments, void** extra);

  int (*begin_capture)(Stream stream, int mode);
  int (*end_capture)(Stream stream, Graph* graph);
  /// On success, `dependencies` are the nodes after which the stream's next one will run. Null in old drivers.
  int (*get_capture_info)(Stream stream, int* status, std::uint64_t* id, Graph* graph, const GraphNode** dependencies,
                          std::size_t* count);
  int (*instantiate)(GraphExec* executable, Graph graph, unsigned long long flags);
  int (*launch_graph)(GraphExec executable, Stream stream);
  /// Replace the work of later launches by that of a graph with the same kinds of nodes, in the same order. Null in old
  /// drivers.
  int (*update_executable)(GraphExec executable, Graph graph, UpdateResult* result);
  /// Change a kernel of later launches. Null in old drivers.
  int (*set_kernel_params)(GraphExec executable, GraphNode node, const KernelNodeParams* params);
  int (*destroy_graph)(Graph graph);
  int (*destroy_executable)(GraphExec executable);
  int (*get_nodes)(Graph graph, GraphNode* nodes, std::size_t* count);

  bool is_host;  ///< computes on the host: kernels are host functions

  int (*query_stream)(Stream stream);  ///< kSuccess: its work is done
  // Null in old drivers, and on the host.
  int (*get_node_kind)(GraphNode node, int* kind);
  int (*get_fill_params)(GraphNode node, FillNodeParams* params);
  int (*get_nodes_before)(GraphNode node, GraphNode* nodes, std::size_t* count);
  int (*get_nodes_after)(GraphNode node, GraphNode* nodes, std::size_t* count);
  int (*add_kernel_node)(GraphNode* node, Graph graph, const GraphNode* before, std::size_t count,
                         const KernelNodeParams* params);
  int (*add_edges)(Graph graph, const GraphNode* from, const GraphNode* to, std::size_t count);
  int (*destroy_node)(GraphNode node);

  int (*set_function_attribute)(Function function, int attribute, int value);

  /// Throw std::bad_alloc when memory runs out, and EngineError with the call and the driver's words for other
  /// failures.
  void check(int status, const char* call) const;
};

/// Open libcuda and initialize it, once per process. Return null and set `reason` to a sentence if there is no driver
/// or no device.
const Driver* open_driver(std::string* reason);

/// Return a driver that computes on the host: its device memory is the host's. For tests without a GPU.
const Driver& host_driver();
/// Return whether this build has the kernels of that driver (CMake's option MPSCNN_CUDA_HOST).
bool has_host_kernels();
/// Return all kernels, and how often that driver has launched each.
std::map<std::string, std::int64_t> host_kernel_launches();

}  // namespace openmps::cuda
