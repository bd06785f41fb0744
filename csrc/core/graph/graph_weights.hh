// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/data_source/data_source.hh"

namespace mpscnn {
class WeightsTraining;
}

/// A data source of nodes. After the first step of its optimizer it has the trained weights.
@interface PyMPSGraphWeights : PyMPSArrayDataSource {
 @private
  std::shared_ptr<mpscnn::GuardedSource> guarded_;
  std::shared_ptr<mpscnn::WeightsTraining> training_;
}
- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source
                             training:(std::shared_ptr<mpscnn::WeightsTraining>)training;
@end
