// SPDX-License-Identifier: Apache-2.0
// The MPS object behind a GradientState, for the kernels that make and take one.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <mpscnn/gradient_state.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/table.hpp>

#include "core/device/device_impl.hh"
#include "core/kernel/families/family.hh"

namespace mpscnn {

struct GradientState::Impl {
  /// What a gradient is of: the gradient kernel's row, and which source, or the parameters.
  using Part = std::pair<const KernelRow *, int>;
  static constexpr int kParameters = -1;

  /// Forward encodes of the same shapes.
  struct Encodes {
    std::array<ImageShape, SourceNames::kMost> sources = {};
    std::array<ImageShape, SourceNames::kMost> read = {};  ///< with the channels that were read
    ImageShape result = {};
    std::int64_t count = 1;
    std::map<Part, std::int64_t> used = {};  ///< by how many gradient encodes
  };
  /// Where all of them read their source: the MPS state has it once.
  struct Place {
    std::int64_t x = 0, y = 0, z = 0;  ///< offset
    Pair kernel_offset{0, 0};
    MPSImageEdgeMode edge = MPSImageEdgeModeZero;
    NSUInteger first_channel = 0, most_channels = 0;
    bool operator==(const Place &) const = default;
  };

  std::shared_ptr<Device> device;
  std::shared_ptr<Kernel> kernel;
  /// Of all images; or one of each, which may be the same object for several [isResultStateReusedAcrossBatch].
  Ref<NSArray<MPSState *> *> states;
  std::vector<Encodes> encodes = {};
  Place place = {};
  std::vector<StateValues> values = {};
  mutable std::deque<Writer> writers = {};  ///< of the values
  mutable std::mutex mutex = {};            ///< guards all but what is made with the state

  /// For `count` images of an encode.
  MPSStateBatch *of_images(NSUInteger count) const;
  /// The states that hold a sum each: over all images, or over their own.
  std::vector<MPSState *> distinct() const;
  std::int64_t encoded() const;
  /// Called behind the encode of a write.
  void note_write(id<MTLCommandBuffer> commands) {
    if (copies_storage())
      for (MPSState *state : distinct()) synchronize(state, commands);
    if (writers.empty() || writers.back().get().get() != commands) writers.emplace_back().set(commands);
  }
  /// Encodes whose gradients with respect to parameters have been encoded.
  std::int64_t summed() const;
};

/// Throws unless all gradients with respect to parameters have been encoded. `who` asks for `name`; `shown` is what it
/// calls the state. The state is locked.
void check_complete(const GradientState::Impl &state, const char *who, std::string_view name, const char *shown);

}  // namespace mpscnn
