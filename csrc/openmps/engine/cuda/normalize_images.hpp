// SPDX-License-Identifier: Apache-2.0
// Instance normalization in one kernel.
#pragma once

#include "engine/cuda/families.hpp"

namespace openmps::cuda {

const char* run_normalize_images(const Call<NormalizeProblem>& call);

}  // namespace openmps::cuda
