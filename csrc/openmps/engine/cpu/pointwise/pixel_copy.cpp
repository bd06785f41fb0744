// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/pixels.hpp"
#include "engine/shared/strided.hpp"

namespace openmps::cpu {
namespace {

const char* pixel_copy(const PixelCopyProblem& problem) {
  copy_pixels(problem);
  return nullptr;
}

constexpr Implementation<PixelCopyProblem> kPixelCopies[] = {{"pixel_copy", pixel_copy}};
const ImplementationNames kPixelCopyNames(kPixelCopies);

const char* strided_copy(const StridedCopyProblem& problem) {
  copy_strided(problem);
  return nullptr;
}

constexpr Implementation<StridedCopyProblem> kStridedCopies[] = {{"strided_copy", strided_copy}};
const ImplementationNames kStridedCopyNames(kStridedCopies);

}  // namespace

void run(const PixelCopyProblem& problem) { run_first("pixel_copy", kPixelCopies, problem); }

void run(const StridedCopyProblem& problem) { run_first("strided_copy", kStridedCopies, problem); }

}  // namespace openmps::cpu
