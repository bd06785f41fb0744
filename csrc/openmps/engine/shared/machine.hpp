// SPDX-License-Identifier: Apache-2.0
// Properties of the machine; read once per process.
#pragma once

#include <cstdint>
#include <string>

namespace openmps {

/// Return the bytes of physical memory, or the control group's limit if that is lower.
std::uint64_t machine_memory_bytes();

/// Return the processor's name as the system reports it.
const std::string& machine_cpu_name();

/// Return the processor's vendor, family, model and stepping, which a virtual machine's name may leave out; "" where
/// it does not say.
std::string machine_cpu_model();

}  // namespace openmps
