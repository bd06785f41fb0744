// SPDX-License-Identifier: Apache-2.0
// Steps that an engine may solve together.
#pragma once

#include <vector>

#include "engine/plan/plan.hpp"
#include "engine/plan/structure.hpp"

namespace openmps {

class Engine;

/// Mark groups of adjacent steps that the engine may solve in one call. All of them keep their memory until the last
/// one ends, so the engine may as well solve one after the other. A step whose result is read later moves to its reader
/// if the engine solves the two together.
void group_steps(const Engine& engine, const std::vector<Command>& commands, const Structure& structure,
                 std::vector<Plan::Step>& steps);

}  // namespace openmps
