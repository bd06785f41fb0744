// SPDX-License-Identifier: Apache-2.0
// Recomputation: results that are computed again for late readers, so that their memory is free in between.
#pragma once

#include <vector>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

/// Insert steps that run a command again before readers that come late, if the engine recomputes results. Only for
/// commands that are cheap compared with convolutions (activations, normalizations with known statistics), whose source
/// stays in memory anyway and whose operands nothing writes in between. The results are equal to the last bit.
void add_recomputations(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                        std::vector<Plan::Step>& steps);

}  // namespace openmps
