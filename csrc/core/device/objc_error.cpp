// SPDX-License-Identifier: Apache-2.0
#include "core/device/objc_error.hpp"

#include <mpscnn/error.hpp>

namespace mpscnn {

void throw_raised(const Raised& raised) {
  const auto& [name, reason] = raised;
  if (name == "MPSNotImplementedException") throw NotImplementedError(reason);
  if (name == "NSMallocException") throw MemoryError(reason);
  if (name == "NSInvalidArgumentException" || name == "NSRangeException") throw std::invalid_argument(reason);
  if (name == "MPSUsageException") throw std::runtime_error(reason);
  throw std::runtime_error(name + ": " + reason);
}

}  // namespace mpscnn
