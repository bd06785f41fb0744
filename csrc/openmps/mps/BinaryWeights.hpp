// SPDX-License-Identifier: Apache-2.0
// From words of single bits to the weights that a binary convolution keeps. Plain C++: it allocates, and allocation
// throws.
#pragma once

#include <memory>
#include <string>

#include "engine/problem/conv.hpp"

namespace openmps {

/// Checks lengths, clears bits beyond the last channel and derives what the engine works with. Returns an empty string,
/// or why it could not be done.
std::string finish_binary_weights(std::shared_ptr<BinaryWeights> weights,
                                  std::shared_ptr<const BinaryWeights> &result) noexcept;

}  // namespace openmps
