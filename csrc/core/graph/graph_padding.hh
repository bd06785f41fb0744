// SPDX-License-Identifier: Apache-2.0
// Padding policies of nodes.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <memory>

#include <mpscnn/graph_object.hpp>

#include "core/kernel/padding_policy.hh"

/// Padding in pixels, as in PyTorch.
@interface PyMPSPixelPadding : PyMPSPadding {
 @private
  mpscnn::PixelPadding pixels_;
}
- (instancetype)initWithPixels:(const mpscnn::PixelPadding &)pixels;
/// An extension that openmps looks for: it asks again only for other sizes. NO once a call has failed.
- (BOOL)dependsOnSizesOnly;
@end

/// A policy of the program's.
@interface PyMPSGraphPadding : PyMPSPadding {
 @private
  std::shared_ptr<mpscnn::GraphPadding> policy_;
  MPSNNPaddingMethod method_;
}
- (instancetype)initWithPolicy:(std::shared_ptr<mpscnn::GraphPadding>)policy;
@end
