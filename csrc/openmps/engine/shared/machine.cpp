// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/machine.hpp"

#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>

namespace openmps {
namespace {

/// Return a control group's limit; "max" or no file means none.
std::uint64_t limit_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : UINT64_MAX;
}

std::string read_cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

std::uint64_t machine_memory_bytes() {
  static const std::uint64_t bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const std::uint64_t physical =
        pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : UINT64_MAX;
    return std::min(
        {physical, limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  }();
  return bytes;
}

const std::string& machine_cpu_name() {
  static const auto* const name = new std::string(read_cpu_name());
  return *name;
}

std::string machine_cpu_model() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0, signature = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return {};
  std::string vendor;
  for (const unsigned part : {b, d, c})
    for (int byte = 0; byte < 4; ++byte) vendor += static_cast<char>(part >> (8 * byte) & 0xff);
  if (!__get_cpuid(1, &signature, &b, &c, &d)) return vendor;
  return vendor + ' ' + std::to_string(signature);
#else
  return {};
#endif
}

}  // namespace openmps
