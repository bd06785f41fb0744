// SPDX-License-Identifier: Apache-2.0
// Common parts of the image filters: one source, one destination, as images or as textures.
#pragma once

#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

/// State of an MPSUnaryImageKernel. It has no channel offsets: all channels are read and written.
struct UnaryImageKernelState : Extends<UnaryImageKernelState, ImageKernelState> {
  SourceSlot source;

  Slots slots() override { return {&source, 1}; }
  const SourceNames &names(std::size_t) const override;
  NSUInteger result_channels(std::span<const NSUInteger> channels) const override { return channels[0]; }

  void archive(Archive &archive) override;
};

}  // namespace openmps
