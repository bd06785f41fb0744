// SPDX-License-Identifier: Apache-2.0
// Functions of programs, compiled by NVRTC. A threadgroup is a block of threads.
#include "engine/function/function.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine/cuda/compiler.hpp"
#include "engine/cuda/families.hpp"
#include "engine/failure.hpp"
#include "engine/function/arguments.hpp"

namespace openmps::cuda {
namespace {

namespace abi = function_abi;

constexpr std::size_t kBytes = 1024;          // of openmps_gpu_call::bytes [engine/function/language.cpp]
constexpr std::size_t kMaxParameters = 4096;  // bytes of a kernel's parameters [CUDA C++ Programming Guide]
constexpr unsigned kMaxGroupDepth = 64, kMaxGroups = 65535;  // blockDim.z; gridDim.y and gridDim.z

/// Return the kernel, compiled on first use; null if NVRTC does not compile it.
Function kernel_of(const function::Function& function, Gpu& gpu) {
  return static_cast<Function>(static_cast<void*>(function.kept(&gpu, [&]() -> void* {
    std::string code;
    try {
      code = compile_function(function.cpp(), function.has_fast_math(), gpu.architecture());
    } catch (const EngineError&) {
      return nullptr;
    }
    return static_cast<void*>(gpu.load(code, "openmps_kernel"));
  })));
}

/// Return the parameter of the kernel, an openmps_gpu_call; empty if it is too large.
std::vector<std::byte> parameter_of(function::Arguments& arguments, const FunctionProblem& problem) {
  std::vector<std::byte> bytes(kBytes);
  std::size_t used = 0;
  for (const FunctionBytes& each : problem.bytes) {
    if (each.bytes.size() > kBytes - used) return {};
    std::memcpy(bytes.data() + used, each.bytes.data(), each.bytes.size());
    arguments.values[each.argument].offset = used;
    used = (used + each.bytes.size() + 15) / 16 * 16;
  }
  // Arguments are followed by one more, which is not used.
  const std::size_t count = problem.function->code()->bindings().size();
  const std::size_t values = sizeof(abi::Call), end = values + (count + 1) * sizeof(abi::Argument),
                    first_byte = (end + 15) / 16 * 16;
  if (first_byte + kBytes > kMaxParameters) return {};
  std::vector<std::byte> result(first_byte + kBytes);
  std::memcpy(result.data(), &arguments.call, sizeof(abi::Call));
  std::ranges::copy(std::as_bytes(std::span(arguments.values).first(count)), result.data() + values);
  std::memcpy(result.data() + first_byte, bytes.data(), kBytes);
  return result;
}

const char* run_function(const Call<FunctionProblem>& call) {
  const auto& [problem, work] = call;
  if (work.gpu().driver().is_host) return "cuda-host has no compiler for functions of the program";
  function::Arguments arguments(
      problem, [&, &work = work](Memory& memory) { return reinterpret_cast<unsigned char*>(work.address(memory)); });
  const abi::Grid& grid = arguments.call.grid;
  if (grid.group[2] > kMaxGroupDepth) return "the depth of a threadgroup is more than 64";
  if (grid.groups[1] > kMaxGroups || grid.groups[2] > kMaxGroups) return "more than 65535 threadgroups";
  const std::vector<std::byte> parameter = parameter_of(arguments, problem);
  if (parameter.empty()) return "arguments have more than 4096 bytes";
  const Function kernel = kernel_of(*problem.function, work.gpu());
  if (!kernel) return "NVRTC does not compile it";
  work.launch_function(kernel, grid.groups, grid.group, static_cast<unsigned>(arguments.group_bytes), parameter.data());
  return nullptr;
}

constexpr Implementation<Call<FunctionProblem>> kFunctions[] = {{"cuda_function", run_function}};
const ImplementationNames kFunctionNames(kFunctions);

}  // namespace

bool solve(const FunctionProblem& problem, Work& work) {
  return try_first("function", kFunctions, Call<FunctionProblem>{problem, work});
}

}  // namespace openmps::cuda
