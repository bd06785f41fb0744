// SPDX-License-Identifier: Apache-2.0
// Number of processors that this process may use, for the core's helper threads and openmps' pool.
#pragma once

#include <string>

namespace mpscnn {

/// Return the number of threads that compute at once: set_available_threads(), by default OMP_NUM_THREADS; at most the
/// processors of the process' affinity mask and of its control groups' CPU quota, which are read once. At least 1.
int available_threads();
/// Set that number for this library, whose copy of this file it is; at least 1.
void set_available_threads(int threads);

/// Return ceil(quota / period) of the control groups of this process, the min over their ancestors, versions 1 and 2;
/// INT_MAX without a limit. `root` is put before /proc and /sys.
int quota_processors(const std::string& root = "");

}  // namespace mpscnn
