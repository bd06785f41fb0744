// SPDX-License-Identifier: Apache-2.0
// The MPS object behind a GradientState, for the kernels that make and take one.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <array>
#include <mutex>
#include <set>
#include <utility>

#include <mpscnn/gradient_state.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/table.hpp>

#include "device_impl.hh"
#include "families/family.hh"

namespace mpscnn {

struct GradientState::Impl {
  std::shared_ptr<Device> device;
  std::shared_ptr<Kernel> kernel;
  Ref<MPSState *> state;
  std::array<ImageShape, SourceNames::kMost> sources = {};  ///< of the forward encode
  std::array<ImageShape, SourceNames::kMost> read = {};     ///< with the channels that it read
  ImageShape result = {};
  std::vector<StateValues> values = {};
  /// Which gradients have been encoded: the gradient's row and its part (0: with respect to a source).
  std::set<std::pair<const KernelRow *, int>> used = {};
  mutable Writer writer = {};  ///< of the values
  bool has_values = false;
  mutable std::mutex mutex = {};
};

}  // namespace mpscnn
