// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/guarded_policy.hpp"

#include <utility>

#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

namespace mpscnn {

void check_answer(const std::string& who, const PolicyAnswer& answer, ImageShape suggested) {
  const auto within = [&](const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
    check(value >= least, who, ": ", what, " (", value, ") is less than the minimum (", least, ").");
    check(value <= most, who, ": ", what, " (", value, ") is greater than the maximum (", most, ").");
  };
  const auto& [shape, offset] = answer;
  check(shape.n == suggested.n, who, ": number of images (", shape.n, ") is not that of the suggestion (", suggested.n,
        ").");
  within("height", shape.h, 1, Image::kMostPixels);
  within("width", shape.w, 1, Image::kMostPixels);
  within("number of channels", shape.c, suggested.c, Image::kMostChannels);
  if (!offset) return;
  // As for the kernel parameter `offset`.
  constexpr std::int64_t kFarthest = 1 << 30;
  within("offset y", offset->y, -kFarthest, kFarthest);
  within("offset x", offset->x, -kFarthest, kFarthest);
}

std::string blame(const Kernel& kernel, PaddingPolicy& policy) {
  return say(kernel.row().name, ": padding policy ", policy.name());
}

GuardedPolicy::Asking::Asking(GuardedPolicy& policy, Kernel& kernel) : policy_(policy) {
  check<std::runtime_error>(policy.kernel_ == nullptr, blame(kernel, *policy.policy_),
                            ": the kernel is used inside of the policy that it asks.");
  policy.kernel_ = &kernel;
  policy.asked_ = false;
  policy.failure_ = nullptr;
}

GuardedPolicy::Asking::~Asking() { policy_.kernel_ = nullptr; }

void GuardedPolicy::Asking::rethrow() {
  if (auto failure = std::exchange(policy_.failure_, nullptr)) std::rethrow_exception(failure);
  check<std::runtime_error>(policy_.asked_, blame(*policy_.kernel_, *policy_.policy_), ": it was not asked.");
}

std::optional<PolicyAnswer> GuardedPolicy::destination(std::span<const ImageShape> sources,
                                                       ImageShape suggested) noexcept {
  if (!kernel_) return std::nullopt;
  try {
    asked_ = true;
    const auto answer = policy_->destination(*kernel_, sources, suggested);
    check_answer(blame(*kernel_, *policy_), answer, suggested);
    return answer;
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    return std::nullopt;
  }
}

}  // namespace mpscnn
