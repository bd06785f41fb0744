// SPDX-License-Identifier: Apache-2.0
// Arguments of a call in the form that compiled functions take.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/function/library/abi.hpp"
#include "engine/problem/function.hpp"

namespace openmps::function {

struct Arguments {
  /// `address_of`: the first byte of a block, as the function reaches it. FunctionProblem::bytes are left out.
  Arguments(const FunctionProblem& problem, const std::function<unsigned char*(Memory&)>& address_of);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::vector<function_abi::Argument> values;  ///< by position; at least one
  function_abi::Call call{};                   ///< refers to `values`
  std::size_t group_bytes = 0;                 ///< of threadgroup arguments

 private:
  void add(const FunctionTexture& texture, unsigned char* memory);
};

}  // namespace openmps::function
