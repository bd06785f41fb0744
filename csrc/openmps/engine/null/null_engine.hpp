// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// Computes nothing: memory is real and zero-filled, buffers are copied and filled, images stay as they are. For tests
/// of shapes, states and errors, and to measure what everything around the arithmetic costs.
std::shared_ptr<Engine> make_null_engine();

}  // namespace openmps
