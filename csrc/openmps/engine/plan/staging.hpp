// SPDX-License-Identifier: Apache-2.0
// Staging: solve problems on the processor, on host copies of a device's memory.
#pragma once

#include <functional>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

/// Return the problem with each memory block replaced by `replace` of it.
Problem with_memory(const Problem& problem,
                    const std::function<std::shared_ptr<Memory>(const std::shared_ptr<Memory>&)>& replace);

/// Solve the problem with the processor's engine. Device memory is copied to the host before and, if the problem writes
/// it, back afterwards; overlapping blocks share one copy.
void run_on_processor(const Problem& problem);

}  // namespace openmps
