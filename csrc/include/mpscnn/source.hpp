// SPDX-License-Identifier: Apache-2.0
// Base class of all data sources.
#pragma once

#include <string>

namespace mpscnn {

/// MPS calls load() first and purge() after reading, always balanced, from any thread. Exceptions propagate to the code
/// that creates the kernel.
class Source {
 public:
  virtual ~Source() = default;

  virtual bool load() = 0;
  virtual void purge() = 0;
  virtual std::string label() { return {}; }
};

}  // namespace mpscnn
