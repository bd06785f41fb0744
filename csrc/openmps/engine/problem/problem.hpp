// SPDX-License-Identifier: Apache-2.0
// All kinds of problems. MPS classes validate and resolve Apple's rules (offset, clipRect, channel offsets, image
// ranges, padding policies) into views and window starts; engines may assume that problems are valid.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <variant>

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
#include "engine/problem/quantized.hpp"
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

/// Call visit(weights) for each reference to weights of convolutions in `object`, a field or a problem.
template <class T, class Visit>
void for_each_weights(T& object, const Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, Problem>) {
    std::visit([&](auto& each) { for_each_weights(each, visit); }, object);
  } else if constexpr (std::is_same_v<Plain, std::shared_ptr<const ConvWeights>>) {
    if (object) visit(object);
  } else if constexpr (Described<Plain>) {
    for_each_field(object, [&](const auto&, auto& member) { for_each_weights(member, visit); });
  }
}

}  // namespace openmps
