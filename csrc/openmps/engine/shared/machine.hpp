// SPDX-License-Identifier: Apache-2.0
// What the machine is: read once per process.
#pragma once

#include <cstdint>
#include <string>

namespace openmps {

/// Physical memory, or the control group's limit where that is lower. Bytes.
std::uint64_t machine_memory_bytes();

/// Name of the processor as the system gives it.
const std::string& machine_cpu_name();

}  // namespace openmps
