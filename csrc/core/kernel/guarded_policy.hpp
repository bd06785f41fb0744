// SPDX-License-Identifier: Apache-2.0
// Padding policy that MPS can call: no exception enters MPS's frames; a failure is kept for the code that called MPS.
// Plain C++, since a .mm cannot catch.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/padding_policy.hpp>

namespace mpscnn {

/// Padding policy of one kernel, whose lock is held during calls.
class GuardedPolicy {
 public:
  explicit GuardedPolicy(std::shared_ptr<PaddingPolicy> policy) : policy_(std::move(policy)) {}

  const std::shared_ptr<PaddingPolicy>& policy() const { return policy_; }
  std::shared_ptr<GuardedPolicy> again() const { return std::make_shared<GuardedPolicy>(policy_->again()); }

  /// Scope in which MPS may call the policy for the kernel. Throws std::runtime_error if one is open already.
  class Asking {
   public:
    Asking(GuardedPolicy& policy, Kernel& kernel);
    ~Asking();
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;
    /// Rethrow the policy's exception, or throw if its answer is invalid; to be called after MPS's call.
    void rethrow();

   private:
    GuardedPolicy& policy_;
  };

  std::uint64_t method_bits = 0;  ///< MPSNNPaddingMethod, set by the caller

  /// Return the policy's answer; nullopt if it fails or no Asking is open.
  std::optional<PolicyAnswer> destination(std::span<const ImageShape> sources, ImageShape suggested) noexcept;

 private:
  std::shared_ptr<PaddingPolicy> policy_;
  Kernel* kernel_ = nullptr;
  bool asked_ = false;
  std::exception_ptr failure_;
};

/// Throw, with the prefix `who`, unless MPS accepts a policy's answer.
void check_answer(const std::string& who, const PolicyAnswer& answer, ImageShape suggested);

/// Return the prefix of errors about the policy: "Convolution: padding policy Full".
std::string blame(const Kernel& kernel, PaddingPolicy& policy);

}  // namespace mpscnn
