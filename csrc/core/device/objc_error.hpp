// SPDX-License-Identifier: Apache-2.0
// NSException -> C++ exception, by name. Plain C++.
#pragma once

#include <string>

namespace mpscnn {

struct Raised {
  std::string name, reason;
};

[[noreturn]] void throw_raised(const Raised& raised);

}  // namespace mpscnn
