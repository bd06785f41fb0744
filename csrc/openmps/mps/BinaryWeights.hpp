// SPDX-License-Identifier: Apache-2.0
// From words of single bits to the weights of a binary convolution. Plain C++: it allocates, and allocation throws.
#pragma once

#include <memory>
#include <string>

#include "engine/problem/conv.hpp"

namespace openmps {

/// Check lengths, clear bits beyond the last channel and derive the engine's form of the weights. Return an empty
/// string, or the error.
std::string finish_binary_weights(std::shared_ptr<BinaryWeights> weights,
                                  std::shared_ptr<const BinaryWeights> &result) noexcept;

}  // namespace openmps
