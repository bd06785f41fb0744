// SPDX-License-Identifier: Apache-2.0
#include "core/loss/update_call.hpp"

#include <utility>

namespace mpscnn {
namespace {

thread_local UpdateCall* innermost_call = nullptr;

}  // namespace

UpdateCall::UpdateCall(std::shared_ptr<CommandBuffer> buffer, std::shared_ptr<GradientState> gradient,
                       std::shared_ptr<ConvolutionWeightsAndBiasesState> source)
    : buffer_(std::move(buffer)),
      gradient_(std::move(gradient)),
      source_(std::move(source)),
      outer_(std::exchange(innermost_call, this)) {}

UpdateCall::~UpdateCall() { innermost_call = outer_; }

UpdateCall* UpdateCall::current() { return innermost_call; }

void UpdateCall::update(UpdatingSource& source) noexcept {
  try {
    result = source.update(buffer_, gradient_, source_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void UpdateCall::update_on_cpu(UpdatingSource& source) noexcept {
  try {
    has_changed = source.update_on_cpu(gradient_, source_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void UpdateCall::rethrow() {
  if (auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

}  // namespace mpscnn
