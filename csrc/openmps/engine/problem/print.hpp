// SPDX-License-Identifier: Apache-2.0
// Problems as text, for traces and failing tests. Derived from fields(): a member that cannot be printed does not
// compile.
#pragma once

#include <string>

#include "engine/problem/fwd.hpp"

namespace openmps {

/// Return the kind and every field as name=value: "CopyProblem src=a 1x8x8x4 float32 dst=b 1x8x8x4 float16". Images
/// are memory, n x h x w x c and format; the strides of gaps and the offset follow where there are some. Memory is a,
/// b, c ... in the order of appearance; enums are their numbers, weights their extents, functions "?".
std::string describe(const Problem& problem);

}  // namespace openmps
