// SPDX-License-Identifier: Apache-2.0
// GradientState: what a forward kernel leaves for its gradient kernel, an MPSNNGradientState or a class derived from
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <mpscnn/array.hpp>
#include <mpscnn/buffer.hpp>
#include <mpscnn/device.hpp>

namespace mpscnn {

class Kernel;

class GradientState {
 public:
  struct Impl;
  explicit GradientState(std::unique_ptr<Impl> impl);
  ~GradientState();

  /// float32 in memory of the device, which gradient kernels fill: "grad_weight", "grad_bias", ...
  struct Values {
    std::shared_ptr<Buffer> buffer;
    Extents shape;
  };
  /// Those that the state has. Empty for kernels without parameters.
  std::vector<std::string_view> names() const;
  /// Throws KeyError for a name that the state has not; std::runtime_error before the gradients of all forward encodes
  /// have been encoded, and while they are being computed.
  Values values(std::string_view name) const;

  /// Forward encodes that share the state: one, or the parts of a batch.
  std::int64_t encodes() const;
  /// The forward kernel.
  std::shared_ptr<Kernel> kernel() const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
