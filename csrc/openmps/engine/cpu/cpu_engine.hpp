// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.hpp"

namespace openmps {

/// The processor, through oneDNN and own loops. Everything is done when an entry returns.
std::shared_ptr<Engine> make_cpu_engine();

}  // namespace openmps
