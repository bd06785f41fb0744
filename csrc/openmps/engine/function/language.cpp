// SPDX-License-Identifier: Apache-2.0
#include "engine/function/language.hpp"

#include <sstream>

namespace openmps::function {
namespace {

/// Each file after those that it includes.
constexpr const char* kOrder[] = {"abi", "scalars", "vectors", "functions", "atomics", "simd", "textures", "entry"};

constexpr const char* kStart = R"(
#if defined(__CUDACC_RTC__)
#define OPENMPS_THREADGROUP __shared__
#define OPENMPS_KERNEL static __forceinline__
#else
#define OPENMPS_THREADGROUP static thread_local
#define OPENMPS_KERNEL static inline __attribute__((always_inline))
#endif
)";

constexpr const char* kTable = R"(
#if defined(__CUDACC_RTC__)
#define OPENMPS_EXPORT extern "C"
#else
#define OPENMPS_EXPORT extern "C" __attribute__((visibility("default")))
#endif
OPENMPS_EXPORT const decltype(metal::program::openmps_this_entry::table()) openmps_table;
OPENMPS_EXPORT const unsigned openmps_table_size;
const decltype(metal::program::openmps_this_entry::table()) openmps_table = metal::program::openmps_this_entry::table();
const unsigned openmps_table_size = metal::program::openmps_this_entry::kCount;
)";

/// The arguments of a call, by value: `bytes` are those of setBytes:length:atIndex:, at the offsets of their arguments,
/// which have no pointer. See engine/cuda/function.cpp.
constexpr const char* kGpu = R"(
struct openmps_gpu_call {
  openmps::function_abi::Call call;
  openmps::function_abi::Argument arguments[metal::program::openmps_this_entry::kCount + 1];
  alignas(16) unsigned char bytes[1024];
};
extern "C" __global__ void __launch_bounds__(1024) openmps_kernel(const __grid_constant__ openmps_gpu_call given) {
  extern __shared__ __align__(16) unsigned char openmps_memory[];
  openmps::function_abi::Call call = given.call;
  openmps::function_abi::Argument arguments[metal::program::openmps_this_entry::kCount + 1];
  for (int i = 0; i < metal::program::openmps_this_entry::kCount; ++i) {
    arguments[i] = given.arguments[i];
    if (!arguments[i].pointer) arguments[i].pointer = const_cast<unsigned char*>(given.bytes) + arguments[i].offset;
  }
  call.arguments = arguments;
  metal::program::openmps_this_entry::run_thread(call, openmps_memory);
}
)";

constexpr const char* kBox = R"(
OPENMPS_EXPORT void openmps_box(const openmps::function_abi::Call* call, const openmps::function_abi::Box* box) {
  metal::program::openmps_this_entry::run_box(*call, *box);
}
)";

constexpr const char* kThread = R"(
OPENMPS_EXPORT void openmps_thread(const openmps::function_abi::Group* group, unsigned index) {
  metal::program::openmps_this_entry::thread(*group, index);
}
)";

}  // namespace

const std::string& language_text() {
  static const auto* const text = [] {
    auto* const all = new std::string;
    for (const char* name : kOrder) {
      const std::string file = std::string("engine/function/library/") + name + ".hpp";
      for (const LibraryFile& each : library_files()) {
        if (each.name != file) continue;
        std::istringstream lines(each.text);
        for (std::string line; std::getline(lines, line);)
          if (!line.starts_with("#include") && !line.starts_with("#pragma once")) *all += line + '\n';
      }
    }
    *all += kStart;
    return all;
  }();
  return *text;
}

const char* entry_text(bool uses_group) {
  static const auto both = [](const char* host) {
    std::string text;
    for (const char* each : {kTable, "#if OPENMPS_ON_GPU\n", kGpu, "#else\n", host, "#endif\n"}) text += each;
    return text;
  };
  static const std::string box = both(kBox), thread = both(kThread);
  return (uses_group ? thread : box).c_str();
}

}  // namespace openmps::function
