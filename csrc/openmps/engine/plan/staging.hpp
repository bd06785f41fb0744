// SPDX-License-Identifier: Apache-2.0
// Problems of one engine solved by another: on copies of the memory that the other cannot reach.
#pragma once

#include <functional>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

/// The problem on other memory: each block is replaced by what `replace` returns for it.
Problem with_memory(const Problem& problem,
                    const std::function<std::shared_ptr<Memory>(const std::shared_ptr<Memory>&)>& replace);

/// Solve the problem with the processor's engine. Memory of a device is copied to the host before and, where the
/// problem writes, back afterwards; blocks that overlap have one copy.
void run_on_processor(const Problem& problem);

}  // namespace openmps
