// SPDX-License-Identifier: Apache-2.0
// Problems as text, for traces and failing tests. Derived from fields(): a member that cannot be printed does not
// compile.
#pragma once

#include <string>

#include "engine/problem/fwd.hpp"

namespace openmps {

/// Return the kind and every field as name=value: "CopyProblem src=a 1x8x8x4 float32 dst=b 1x8x8x4 float16". Images
/// print memory, n x h x w x c and format, then strides if not dense and the offset if not 0. Memory is a, b, c ... in
/// order of appearance; enums print as numbers, weights as their extents, functions as "?".
std::string describe(const Problem& problem);

/// If dispatch is traced, print a problem that is about to be solved.
void trace_problem(const Problem& problem);

}  // namespace openmps
