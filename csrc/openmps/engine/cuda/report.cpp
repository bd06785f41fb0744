// SPDX-License-Identifier: Apache-2.0
// What `mpscnn info` and `mpscnn cache` show of the CUDA engine; python/mpscnn/cli/cuda.py calls it with ctypes.
#include <array>
#include <exception>
#include <string>
#include <utility>

#include "engine/cuda/driver.hpp"
#include "engine/cuda/libraries.hpp"
#include "engine/shared/disk_cache.hpp"

namespace openmps::cuda {
namespace {

void add(std::string& text, const std::string& name, const std::string& value) { text += name + '\t' + value + '\n'; }

void add_devices(std::string& text, const Driver& driver) {
  int version = 0, count = 0;
  driver.check(driver.get_version(&version), "cuDriverGetVersion");
  add(text, "driver", std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10));
  driver.check(driver.get_device_count(&count), "cuDeviceGetCount");
  for (int i = 0; i < count; ++i) {
    Device device = 0;
    int major = 0, minor = 0;
    driver.check(driver.get_device(&device, i), "cuDeviceGet");
    driver.check(driver.get_attribute(&major, kMajor, device), "cuDeviceGetAttribute");
    driver.check(driver.get_attribute(&minor, kMinor, device), "cuDeviceGetAttribute");
    add(text, "cuda:" + std::to_string(i), std::to_string(major) + '.' + std::to_string(minor));
  }
}

std::string report() {
  std::string text, reason;
  if (const Driver* const driver = open_driver(&reason))
    add_devices(text, *driver);
  else
    add(text, "no driver", reason);
  constexpr std::array kNames = {std::pair{"NVRTC", LibraryName::nvrtc}, std::pair{"cuBLASLt", LibraryName::cublaslt},
                                 std::pair{"cuDNN", LibraryName::cudnn}};
  for (const auto& [name, library] : kNames) {
    const Library* const opened = Library::find(library, &reason);
    add(text, (opened ? "library " : "no library ") + std::string(name), opened ? opened->file() : reason);
  }
  return text;
}

}  // namespace
}  // namespace openmps::cuda

/// Return lines of a name, a tab and a value: the CUDA version of "driver" or the reason for "no driver", the compute
/// capability of "cuda:0" and so on, the file of "library NVRTC" or the reason for "no library NVRTC". The text is
/// valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* openmps_cuda_report() {
  static thread_local std::string text;
  try {
    text = openmps::cuda::report();
  } catch (const std::exception& error) {
    text = std::string("no driver\t") + error.what() + '\n';
  }
  return text.c_str();
}

/// Return the folder of an engine's disk cache; "" if it is unknown. Valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* openmps_cache_folder(const char* engine) {
  static thread_local std::string folder;
  folder = openmps::cache_folder(engine);
  return folder.c_str();
}
