// SPDX-License-Identifier: Apache-2.0
// What a pad kernel leaves for its gradient kernel.
#pragma once

#include "engine/problem/reshape.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct PadData : GradientData {
  NSUInteger channels_before = 0;
};

/// What stands beyond a source.
inline PadEdge pad_edge_of(MPSImageEdgeMode mode) {
  switch (mode) {
    case MPSImageEdgeModeClamp: return PadEdge::clamp;
    case MPSImageEdgeModeMirror: return PadEdge::mirror;
    case MPSImageEdgeModeMirrorWithEdge: return PadEdge::mirror_with_edge;
    default: return PadEdge::constant;
  }
}

}  // namespace openmps
