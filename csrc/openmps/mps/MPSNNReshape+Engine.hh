// SPDX-License-Identifier: Apache-2.0
// The state that a pad kernel makes for its gradient kernel.
#pragma once

#include "engine/problem/reshape.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct PadData : GradientData {
  NSUInteger channels_before = 0;
};

/// Return the rule for the values beyond a source.
inline PadEdge pad_edge_of(MPSImageEdgeMode mode) {
  switch (mode) {
    case MPSImageEdgeModeClamp: return PadEdge::clamp;
    case MPSImageEdgeModeMirror: return PadEdge::mirror;
    case MPSImageEdgeModeMirrorWithEdge: return PadEdge::mirror_with_edge;
    default: return PadEdge::constant;
  }
}

}  // namespace openmps
