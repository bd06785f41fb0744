// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// Make an engine that tests the requirements of GPU engines: images and private buffers are in memory that the host
/// cannot reach, lists run on a thread of the engine, and every second kind of problem is declined. It computes with
/// the processor's engine.
std::shared_ptr<Engine> make_split_engine();

}  // namespace openmps
