// SPDX-License-Identifier: Apache-2.0
// PoolScope: one autorelease pool for several calls of the core.
#pragma once

#include <memory>

namespace mpscnn {

/// Replaces every Pool on this thread while it exists: a pool per call costs half a dozen messages. For a bounded
/// number of calls, since autoreleased objects live until the end of the scope. A nested scope is a new pool.
class PoolScope {
 public:
  PoolScope();
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

  static bool is_open();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
