// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// Make the processor's engine, which uses oneDNN and own loops. Its calls are synchronous.
std::shared_ptr<Engine> make_cpu_engine();

}  // namespace openmps
