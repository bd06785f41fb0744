// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/device/objc_scope.hh"

namespace mpscnn {
namespace {

thread_local bool is_open_here = false;

}  // namespace

/// Not a Pool: inside of an outer scope it would use that scope's pool.
struct PoolScope::Impl {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  bool was_open = std::exchange(is_open_here, true);
  ~Impl() {
    is_open_here = was_open;
    [pool drain];
  }
};

PoolScope::PoolScope() : impl_(std::make_unique<Impl>()) {}
PoolScope::~PoolScope() = default;

bool PoolScope::is_open() { return is_open_here; }

}  // namespace mpscnn
