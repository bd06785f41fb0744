// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/pixels.hpp"

namespace openmps::cpu {
namespace {

const char* pixel_copy(const PixelCopyProblem& problem) {
  copy_pixels(problem);
  return nullptr;
}

constexpr Implementation<PixelCopyProblem> kPixelCopies[] = {{"pixel_copy", pixel_copy}};
const ImplementationNames kPixelCopyNames(kPixelCopies);

}  // namespace

void run(const PixelCopyProblem& problem) { run_first("pixel_copy", kPixelCopies, problem); }

}  // namespace openmps::cpu
