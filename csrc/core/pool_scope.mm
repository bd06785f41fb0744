// SPDX-License-Identifier: Apache-2.0
#include "objc_scope.hh"

namespace mpscnn {
namespace {

thread_local bool is_open_here = false;

}  // namespace

struct PoolScope::Impl {
  Pool pool;
};

PoolScope::PoolScope() : impl_(std::make_unique<Impl>()) { is_open_here = true; }
PoolScope::~PoolScope() { is_open_here = false; }

bool PoolScope::is_open() { return is_open_here; }

}  // namespace mpscnn
