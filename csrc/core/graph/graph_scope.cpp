// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph_scope.hpp"

#include <utility>

namespace mpscnn {
namespace {

thread_local GraphScope* innermost_scope = nullptr;

}  // namespace

GraphScope::GraphScope(std::shared_ptr<CommandBuffer> buffer)
    : buffer_(std::move(buffer)), outer_(std::exchange(innermost_scope, this)) {}

GraphScope::~GraphScope() { innermost_scope = outer_; }

GraphScope* GraphScope::current() { return innermost_scope; }

bool GraphScope::run(const std::function<void()>& f) noexcept {
  try {
    f();
    return true;
  } catch (...) {
    keep(std::current_exception());
    return false;
  }
}

void GraphScope::keep(std::exception_ptr failure) noexcept {
  if (!failure_) failure_ = std::move(failure);
}

void GraphScope::rethrow() {
  if (auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

}  // namespace mpscnn
