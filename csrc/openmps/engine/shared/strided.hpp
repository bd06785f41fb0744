// SPDX-License-Identifier: Apache-2.0
// Copies of arrays with any strides and types, in host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/problem/copy.hpp"

namespace openmps {

/// Return the axes that are longer than 1 by ascending stride in dst; axes that continue each other become one.
std::vector<CopyAxis> merged_axes(std::vector<CopyAxis> axes);

/// Copy the elements, converted as StridedCopyProblem describes; on several threads if it pays.
void copy_strided(std::byte* dst, ElementType dst_type, const std::byte* src, ElementType src_type,
                  std::vector<CopyAxis> axes);

/// Run a StridedCopyProblem on host memory.
void copy_strided(const StridedCopyProblem& problem);

}  // namespace openmps
