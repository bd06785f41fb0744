// SPDX-License-Identifier: Apache-2.0
// A padding policy as MPS may call it: nothing is thrown into MPS's frames, the failure is kept for the code that asked
// MPS. Plain C++, since a .mm cannot catch.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/padding_policy.hpp>

namespace mpscnn {

/// Of one kernel, whose lock is held while it is asked.
class GuardedPolicy {
 public:
  explicit GuardedPolicy(std::shared_ptr<PaddingPolicy> policy) : policy_(std::move(policy)) {}

  const std::shared_ptr<PaddingPolicy>& policy() const { return policy_; }
  std::shared_ptr<GuardedPolicy> again() const { return std::make_shared<GuardedPolicy>(policy_->again()); }

  /// While it lives, MPS may ask on behalf of the kernel. Throws std::runtime_error when that is so already.
  class Asking {
   public:
    Asking(GuardedPolicy& policy, Kernel& kernel);
    ~Asking();
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;
    /// To be called when MPS has asked: throws what the policy threw, and what is wrong with its answer.
    void rethrow();

   private:
    GuardedPolicy& policy_;
  };

  std::uint64_t method_bits = 0;  ///< MPSNNPaddingMethod, set by the code that asks

  /// nullopt when the policy fails, and when nobody asks on behalf of a kernel.
  std::optional<PolicyAnswer> destination(std::span<const ImageShape> sources, ImageShape suggested) noexcept;

 private:
  std::shared_ptr<PaddingPolicy> policy_;
  Kernel* kernel_ = nullptr;
  bool asked_ = false;
  std::exception_ptr failure_;
};

/// "Convolution: padding policy Full", with which errors about it begin.
std::string blame(const Kernel& kernel, PaddingPolicy& policy);

}  // namespace mpscnn
