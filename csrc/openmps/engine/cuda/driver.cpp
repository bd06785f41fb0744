// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/driver.hpp"

#include <dlfcn.h>

#include <new>

#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

/// The driver, or the reason why there is none.
struct Opened {
  Driver driver{};
  std::string reason;
};

Opened open() {
  Opened opened;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (!library) {
    opened.reason = "libcuda.so.1 cannot be opened: NVIDIA's driver is not installed.";
    return opened;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && opened.reason.empty())
      opened.reason = std::string("libcuda.so.1 has no ") + name + ": NVIDIA's driver is too old.";
  };
  const auto find_any = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  Driver& d = opened.driver;
  find_any(d.get_capture_info, "cuStreamGetCaptureInfo_v2");
  find_any(d.update_executable, "cuGraphExecUpdate_v2");
  find_any(d.set_kernel_params, "cuGraphExecKernelNodeSetParams");
  find_any(d.launch_with, "cuLaunchKernelEx");
  find_any(d.get_node_kind, "cuGraphNodeGetType");
  find_any(d.get_fill_params, "cuGraphMemsetNodeGetParams");
  find_any(d.get_nodes_before, "cuGraphNodeGetDependencies");
  find_any(d.get_nodes_after, "cuGraphNodeGetDependentNodes");
  find_any(d.add_kernel_node, "cuGraphAddKernelNode");
  find_any(d.add_edges, "cuGraphAddDependencies");
  find_any(d.destroy_node, "cuGraphDestroyNode");
  find(d.init, "cuInit");
  find(d.get_version, "cuDriverGetVersion");
  find(d.get_error_name, "cuGetErrorName");
  find(d.get_error_string, "cuGetErrorString");
  find(d.get_device_count, "cuDeviceGetCount");
  find(d.get_device, "cuDeviceGet");
  find(d.get_device_name, "cuDeviceGetName");
  find(d.get_total_memory, "cuDeviceTotalMem_v2");
  find(d.retain_context, "cuDevicePrimaryCtxRetain");
  find(d.set_context, "cuCtxSetCurrent");
  find(d.allocate, "cuMemAlloc_v2");
  find(d.free, "cuMemFree_v2");
  find(d.allocate_host, "cuMemHostAlloc");
  find(d.free_host, "cuMemFreeHost");
  find(d.copy_to_device, "cuMemcpyHtoD_v2");
  find(d.copy_to_host, "cuMemcpyDtoH_v2");
  find(d.synchronize, "cuCtxSynchronize");
  find(d.get_attribute, "cuDeviceGetAttribute");
  find(d.get_pointer_attribute, "cuPointerGetAttribute");
  find(d.register_host, "cuMemHostRegister_v2");
  find(d.unregister_host, "cuMemHostUnregister");
  find(d.create_stream, "cuStreamCreate");
  find(d.destroy_stream, "cuStreamDestroy_v2");
  find(d.synchronize_stream, "cuStreamSynchronize");
  find(d.query_stream, "cuStreamQuery");
  find(d.wait_for_event, "cuStreamWaitEvent");
  find(d.create_event, "cuEventCreate");
  find(d.destroy_event, "cuEventDestroy_v2");
  find(d.record_event, "cuEventRecord");
  find(d.query_event, "cuEventQuery");
  find(d.synchronize_event, "cuEventSynchronize");
  find(d.elapsed_time, "cuEventElapsedTime");
  find(d.launch_host, "cuLaunchHostFunc");
  find(d.copy, "cuMemcpyAsync");
  find(d.fill, "cuMemsetD8Async");
  find(d.load_module, "cuModuleLoadData");
  find(d.get_function, "cuModuleGetFunction");
  find(d.launch, "cuLaunchKernel");
  find(d.set_function_attribute, "cuFuncSetAttribute");
  find(d.begin_capture, "cuStreamBeginCapture_v2");
  find(d.end_capture, "cuStreamEndCapture");
  find(d.instantiate, "cuGraphInstantiateWithFlags");
  find(d.launch_graph, "cuGraphLaunch");
  find(d.destroy_graph, "cuGraphDestroy");
  find(d.destroy_executable, "cuGraphExecDestroy");
  find(d.get_nodes, "cuGraphGetNodes");
  if (!opened.reason.empty()) return opened;
  int count = 0;
  int status = d.init(0);
  if (status == kSuccess) status = d.get_device_count(&count);
  if (status == kNoDevice || (status == kSuccess && count == 0)) {
    opened.reason = "NVIDIA's driver has no device.";
  } else if (status != kSuccess) {
    const char* name = nullptr;
    d.get_error_name(status, &name);
    opened.reason = std::string("NVIDIA's driver failed: ") + (name ? name : "unknown error") + ".";
  }
  return opened;
}

}  // namespace

void Driver::check(int status, const char* call) const {
  if (status == kSuccess) return;
  if (status == kOutOfMemory) throw std::bad_alloc();
  const char *name = nullptr, *text = nullptr;
  get_error_name(status, &name);
  get_error_string(status, &text);
  const bool lost = status >= kFirstLostContext && status < kLastLostContext;
  throw EngineError(lost ? FailureCode::device_lost : FailureCode::internal,
                    std::string(call) + ": " + (name ? name : "unknown error") + ", " + (text ? text : "") + ".");
}

const Driver* open_driver(std::string* reason) {
  static const auto* const opened = new Opened(open());
  if (opened->reason.empty()) return &opened->driver;
  if (reason) *reason = opened->reason;
  return nullptr;
}

}  // namespace openmps::cuda
