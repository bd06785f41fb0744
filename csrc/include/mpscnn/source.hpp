// SPDX-License-Identifier: Apache-2.0
// What the data sources of all kernels have in common.
#pragma once

#include <string>

namespace mpscnn {

/// MPS calls load() before anything else and purge() when it has read what it wants, always balanced, from any thread.
/// Exceptions reach the code that made the kernel.
class Source {
 public:
  virtual ~Source() = default;

  virtual bool load() = 0;
  virtual void purge() = 0;
  virtual std::string label() { return {}; }
};

}  // namespace mpscnn
