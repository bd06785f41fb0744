// SPDX-License-Identifier: Apache-2.0
// PoolScope: one autorelease pool for many calls of the core.
#pragma once

#include <memory>

namespace mpscnn {

/// While one lives, every Pool on this thread is this one: a pool of its own costs each call half a dozen messages. For
/// a bounded number of calls, as what they autorelease lives until the end. A scope within a scope is a pool of its
/// own.
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
