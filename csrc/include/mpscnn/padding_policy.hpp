// SPDX-License-Identifier: Apache-2.0
// User-defined placement of a kernel's windows: the C++ side of MPSNNPadding.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpscnn/image.hpp>

namespace mpscnn {

class Kernel;

/// Result of a policy.
struct PolicyAnswer {
  ImageShape shape;
  struct Offset {
    std::int64_t y = 0, x = 0;
  };
  std::optional<Offset> offset = {};  ///< of the kernel, for this encode; nullopt: the suggested one
};

class PaddingPolicy {
 public:
  virtual ~PaddingPolicy() = default;

  /// Name in errors.
  virtual std::string name() = 0;
  /// MPSNNPaddingMethod that computes the suggestion: names of flags (padding_policy.mm).
  virtual std::vector<std::string> method() = 0;
  /// Return shape and offset of the result. `suggested` may have extents below 1. Called from any encoding thread, one
  /// at a time per kernel.
  virtual PolicyAnswer destination(Kernel& kernel, std::span<const ImageShape> sources, ImageShape suggested) = 0;
  /// Return the policy for a copy of the kernel: each kernel owns its own, as garbage collection requires.
  virtual std::shared_ptr<PaddingPolicy> again() const = 0;
};

}  // namespace mpscnn
