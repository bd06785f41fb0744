// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// Make an engine that computes nothing: memory is real and zero-filled, buffers are copied and filled, images stay as
/// they are. For tests of shapes, states and errors, and to measure the cost of everything but the arithmetic.
std::shared_ptr<Engine> make_null_engine();

}  // namespace openmps
