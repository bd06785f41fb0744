// SPDX-License-Identifier: Apache-2.0
// GradientState: state that a forward kernel passes to its gradient kernel, an MPSNNGradientState or a subclass.
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

  /// float32 in device memory, written by gradient kernels: "grad_weight", "grad_bias", ...
  struct Values {
    std::shared_ptr<Buffer> buffer;
    Extents shape;
  };
  /// Names of the gradients; empty for kernels without parameters.
  std::vector<std::string_view> names() const;
  /// Throw KeyError for an unknown name, and std::runtime_error until the gradients of all forward encodes are encoded
  /// and computed.
  Values values(std::string_view name) const;

  /// Number of forward encodes that share the state: one, or one per chunk of a batch.
  std::int64_t encodes() const;
  /// The forward kernel's name in the table.
  std::string_view maker() const;
  /// Return whether `kernel`, or the kernel that it is a copy of, is the forward kernel.
  bool is_of(const Kernel& kernel) const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn
