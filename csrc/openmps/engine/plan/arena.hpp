// SPDX-License-Identifier: Apache-2.0
// Where the private blocks of a list lie while it runs: in one block of the engine's, in turns.
#pragma once

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

/// Fills in the plan's placements from its steps.
void place_blocks(const Engine& engine, const std::vector<Command>& commands, const Structure& structure, Plan& plan);

/// The placements, for one list, as long as this lives.
class Arena {
 public:
  Arena(Engine& engine, const Plan& plan, const Structure& structure);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

 private:
  Engine& engine_;
  const std::size_t bytes_;
  std::byte* data_ = nullptr;
  std::vector<Memory*> placed_;
};

}  // namespace openmps
