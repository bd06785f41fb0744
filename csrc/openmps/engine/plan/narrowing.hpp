// SPDX-License-Identifier: Apache-2.0
// Narrowing: float32 results between kernels that are stored as bfloat16, which halves the memory that is moved.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

/// Return the blocks, in order, that hold bfloat16 instead of float32, if the engine narrows. No kernel that does not
/// allow reduced precision loses digits by it: each value is the result of a convolution that allows it, or the
/// readers are such convolutions, which round it to bfloat16 anyway. Kernels that only select or move values may be in
/// between.
std::vector<std::uint32_t> narrowed_blocks(const Engine& engine, const std::vector<Command>& commands,
                                           const Structure& structure, const std::vector<Plan::Step>& steps);

/// Return whether the kernel may read and write bfloat16.
bool can_be_narrow(const Problem& problem);

/// The narrowed memory of one list.
class NarrowedMemory {
 public:
  NarrowedMemory(const Plan& plan, const Structure& structure);

  bool is_used_by(const Problem& problem) const;
  /// Return the problem with bfloat16 views of that memory.
  Problem apply_to(const Problem& problem) const;

 private:
  bool contains(const Memory* memory) const;

  std::vector<const Memory*> memory_;  ///< in the order of addresses
};

}  // namespace openmps
