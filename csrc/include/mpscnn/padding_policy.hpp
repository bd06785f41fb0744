// SPDX-License-Identifier: Apache-2.0
// Where the windows of a kernel lie, by the caller's own rule: the C++ side of MPSNNPadding.
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

/// What a policy answers.
struct PolicyAnswer {
  ImageShape shape;
  struct Offset {
    std::int64_t y = 0, x = 0;
  };
  std::optional<Offset> offset = {};  ///< of the kernel, for this encode; nullopt: that of the suggestion
};

class PaddingPolicy {
 public:
  virtual ~PaddingPolicy() = default;

  /// What errors call it.
  virtual std::string name() = 0;
  /// MPSNNPaddingMethod, which makes the suggestion: names of flags (padding_policy.mm).
  virtual std::vector<std::string> method() = 0;
  /// The suggestion may have less than one pixel. Called from any thread that encodes, by one at a time for each
  /// kernel.
  virtual PolicyAnswer destination(Kernel& kernel, std::span<const ImageShape> sources, ImageShape suggested) = 0;
  /// The same policy for a copy of the kernel: each kernel owns its policy by itself, as a garbage collector wants it.
  virtual std::shared_ptr<PaddingPolicy> again() const = 0;
};

}  // namespace mpscnn
