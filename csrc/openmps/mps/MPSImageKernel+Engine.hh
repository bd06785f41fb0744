// SPDX-License-Identifier: Apache-2.0
// What the image filters share: one source, one destination, as images or as textures.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// The data of an MPSUnaryImageKernel. It has no channel offsets: all channels are read, and all written.
struct UnaryImageKernelState : Extends<UnaryImageKernelState, ImageKernelState> {
  SourceSlot source;

  Slots slots() override { return {&source, 1}; }
  const SourceNames &names(std::size_t) const override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[0]; }

  void archive(Archive &archive) override;
};

}  // namespace openmps
