// SPDX-License-Identifier: Apache-2.0
// The MPS objects behind a GradientState, for the kernels that make or take one.
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
  /// Identifies a gradient: the gradient kernel's row, and the source or kParameters.
  using Part = std::pair<const KernelRow *, int>;
  static constexpr int kParameters = -1;

  /// Forward encodes with equal shapes.
  struct Encodes {
    std::array<ImageShape, SourceNames::kMost> sources = {};
    std::array<ImageShape, SourceNames::kMost> read = {};  ///< extents that were read
    ImageShape result = {};
    std::int64_t count = 1;
    std::map<Part, std::int64_t> used = {};  ///< number of gradient encodes
  };
  /// Position from which all encodes read their source: the MPS state holds only one.
  struct Place {
    std::int64_t x = 0, y = 0, z = 0;  ///< offset
    Pair kernel_offset{0, 0};
    MPSImageEdgeMode edge = MPSImageEdgeModeZero;
    NSUInteger first_channel = 0, most_channels = 0;
    bool operator==(const Place &) const = default;
  };

  std::shared_ptr<Device> device;
  std::string_view maker;          ///< the forward kernel's name in the table
  std::shared_ptr<Kernel> kernel;  ///< null: a node's
  /// One state for all images, or one per image; images may share an object [isResultStateReusedAcrossBatch].
  Ref<NSArray<MPSState *> *> states;
  std::vector<Encodes> encodes = {};
  Place place = {};
  std::vector<StateValues> values = {};
  bool is_temporary = false;                ///< in temporary memory of a graph
  bool has_ended = false;                   ///< temporary, and the last read has been encoded
  mutable std::deque<Writer> writers = {};  ///< writers of the values
  mutable std::mutex mutex = {};            ///< guards the members that change after construction

  /// Return the states of `count` images of an encode.
  MPSStateBatch *of_images(NSUInteger count) const;
  /// Return the distinct states; each holds a sum over its images.
  std::vector<MPSState *> distinct() const;
  std::int64_t encoded() const;
  /// Record a write that has been encoded.
  void note_write(id<MTLCommandBuffer> commands) {
    if (copies_storage())
      for (MPSState *state : distinct()) synchronize(state, commands);
    if (writers.empty() || writers.back().get().get() != commands) writers.emplace_back().set(commands);
  }
  /// Return the number of forward encodes whose parameter gradients have been encoded.
  std::int64_t summed() const;
};

/// Throw unless all parameter gradients have been encoded. The message begins with `who`, the gradient is `name` and
/// the state `shown`. The state must be locked.
void check_complete(const GradientState::Impl &state, const char *who, std::string_view name, const char *shown);

}  // namespace mpscnn
