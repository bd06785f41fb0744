// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/pixels.hpp"

namespace openmps::cpu {

void run(const PixelCopyProblem& problem) { copy_pixels(problem); }

}  // namespace openmps::cpu
