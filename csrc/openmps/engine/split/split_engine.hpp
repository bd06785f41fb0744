// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// An engine for tests of what a GPU's needs: images and private buffers lie where the host cannot reach them, lists
/// run on a thread of the engine, and every second kind of problem is declined. It computes with the processor's
/// engine.
std::shared_ptr<Engine> make_split_engine();

}  // namespace openmps
