// SPDX-License-Identifier: Apache-2.0
// All kinds of problems. MPS classes validate and resolve Apple's rules (offset, clipRect, channel offsets, image
// ranges, padding policies) into views and window starts; engines may assume that problems are valid.
#pragma once

#include <string>

#include "engine/problem/conv.hpp"
#include "engine/problem/conv_pool.hpp"
#include "engine/problem/copy.hpp"
#include "engine/problem/function.hpp"
#include "engine/problem/fwd.hpp"
#include "engine/problem/loss.hpp"
#include "engine/problem/normalize.hpp"
#include "engine/problem/optimize.hpp"
#include "engine/problem/pointwise.hpp"
#include "engine/problem/pool.hpp"
#include "engine/problem/product.hpp"
#include "engine/problem/random.hpp"
#include "engine/problem/reduce.hpp"
#include "engine/problem/resample.hpp"
#include "engine/problem/reshape.hpp"
#include "engine/problem/sums.hpp"

namespace openmps {

/// One recorded encode.
struct Command {
  Problem problem;
  std::string label;  ///< class and label of the kernel, for errors and traces
};

}  // namespace openmps
