// SPDX-License-Identifier: Apache-2.0
// Places of a list's private blocks while it runs: one block of the engine's memory, reused over time.
#pragma once

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

/// Fill in the plan's placements from its steps.
void place_blocks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure, Plan& plan);

/// Memory for a plan's placements, assigned to the blocks of one list while this lives.
class Arena {
 public:
  Arena(Engine& engine, const Plan& plan, const Structure& structure, std::shared_ptr<void>& stream);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

 private:
  std::shared_ptr<std::byte> data_;
  std::vector<Memory*> placed_;
};

}  // namespace openmps
