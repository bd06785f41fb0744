// SPDX-License-Identifier: Apache-2.0
#include "common/available_threads.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace mpscnn {
namespace {

int processors_for(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::clamp<std::int64_t>(quota / period + (quota % period != 0), 1, INT_MAX));
}

/// Read cpu.max: "max 100000" or "150000 100000", quota and period in microseconds.
int limit_of_v2(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  std::int64_t quota = 0, period = 0;
  return file >> quota >> period ? processors_for(quota, period) : INT_MAX;
}

/// Read cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is no limit.
int limit_of_v1(const std::string& group) {
  std::ifstream quota_file(group + "/cpu.cfs_quota_us"), period_file(group + "/cpu.cfs_period_us");
  std::int64_t quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? processors_for(quota, period) : INT_MAX;
}

/// Return the min over a group and its ancestors. In a container, the path may contain groups that are not mounted;
/// these are skipped.
int min_of(const std::string& mount, std::string path, int (*limit_of)(const std::string&)) {
  int result = limit_of(mount);
  while (path.size() > 1) {
    result = std::min(result, limit_of(mount + path));
    path.resize(path.rfind('/'));
  }
  return result;
}

bool lists_cpu(const std::string& controllers) { return ("," + controllers + ",").find(",cpu,") != std::string::npos; }

int affinity_processors() {
#if defined(CPU_COUNT)  // sched.h knows sets of processors
  for (int processors = 1024; processors <= 1 << 20; processors *= 2) {
    cpu_set_t* const set = CPU_ALLOC(processors);
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(processors);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// Return the first number of OMP_NUM_THREADS; INT_MAX if unset or not positive.
int requested_threads() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (!text) return INT_MAX;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  return end != text && count > 0 ? static_cast<int>(std::min<long>(count, INT_MAX)) : INT_MAX;
}

std::atomic<int> chosen{0};  ///< set_available_threads(); 0: OMP_NUM_THREADS

}  // namespace

int quota_processors(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  int result = INT_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");  // lines "hierarchy:controllers:path" [cgroups(7)]
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      result = std::min(result, min_of(mount, path, limit_of_v2));
      result = std::min(result, min_of(mount + "/unified", path, limit_of_v2));
    } else if (lists_cpu(controllers)) {
      result = std::min(result, min_of(mount + "/" + controllers, path, limit_of_v1));
      if (controllers != "cpu") result = std::min(result, min_of(mount + "/cpu", path, limit_of_v1));
    }
  }
  return result;
}

int available_threads() {
  static const int processors = std::min(affinity_processors(), quota_processors());
  static const int requested = requested_threads();
  const int threads = chosen.load(std::memory_order_relaxed);
  return std::min(threads > 0 ? threads : requested, processors);
}

void set_available_threads(int threads) { chosen.store(std::max(1, threads), std::memory_order_relaxed); }

}  // namespace mpscnn
