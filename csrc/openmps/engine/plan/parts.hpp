// SPDX-License-Identifier: Apache-2.0
// Batches that are recorded in parts: an image has room for 2048 slices of four channels, so that a batch of many
// channels is several images, and each kernel is encoded for each of them. What lies in memory side by side is one
// batch for an engine.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/problem/problem.hpp"

namespace openmps {

/// All images of a problem. None: of this kind of problem, parts are never joined.
std::vector<ImageView*> images_of(Problem& problem);

/// Whether these are the same problem for images of equal layout, one part of a batch after the other, wherever the
/// images lie: each has images of its own, and later ones add to what the ones before have stored of the whole batch.
bool are_parts(std::span<const Problem> problems);

/// The problem of all images of are_parts(), if the images of each part lie behind those of the one before, and if it
/// makes no difference that none is stored before all others are read.
std::optional<Problem> joined(std::span<const Problem> parts);

}  // namespace openmps
