// SPDX-License-Identifier: Apache-2.0
// Threads of a threadgroup as fibers of one thread, because they wait for each other at barriers and in functions of
// SIMD groups.
#pragma once

#include "engine/function/host_compiler.hpp"

namespace openmps::cpu {

/// Run threads 0 ... count - 1 of a group, whose `wait` and `exchange` this sets. Threads that do not wait run one
/// after the other on one fiber; others get one each, with a stack of 256 KiB. Return false if there is no memory for
/// stacks.
bool run_group(function::HostCode::Thread* thread, function_abi::Group& group, unsigned count);

}  // namespace openmps::cpu
