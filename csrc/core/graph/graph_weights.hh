// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "core/data_source/data_source.hh"

namespace mpscnn {
class WeightsTraining;
}

/// A data source of nodes. An optimizer updates its weights, or methods of the program's source do. After the first
/// step of its optimizer it has the trained weights.
@interface PyMPSGraphWeights : PyMPSArrayDataSource {
 @private
  std::shared_ptr<mpscnn::GuardedSource> guarded_;
  std::shared_ptr<mpscnn::WeightsTraining> training_;
  std::string_view kernel_;
}
/// `kernel`: its name in the table. `training`: null without an optimizer.
- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source
                               kernel:(std::string_view)kernel
                             training:(std::shared_ptr<mpscnn::WeightsTraining>)training;
@end
