// SPDX-License-Identifier: Apache-2.0
// The bracket around everything that a kernel reads from a data source.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <utility>

/// An extension of MPSCNNConvolutionDataSource; asked by respondsToSelector: between load and purge.
@protocol OpenMPSWeightsOwner
/// As long as the object is held, what -weights answered stays valid and is not written, purge or not. nil: it may
/// change.
- (nullable id)weightsOwner;
@end

namespace openmps {

inline bool answers(id source, SEL selector) { return [source respondsToSelector:selector]; }

/// Between load and purge of a data source of any protocol; one without purge needs none.
class Loaded {
 public:
  explicit Loaded(id source) : source_([source respondsToSelector:@selector(purge)] ? source : nil) {}
  ~Loaded() {
    if (source_ == nil) return;
    // An exception is on its way already; a second one out of here would end the process.
    @try {
      [source_ purge];
    } @catch (NSException *) {
    }
  }
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;
  void purge() { [std::exchange(source_, nil) purge]; }

 private:
  id<MPSCNNConvolutionDataSource> source_;
};

/// What the copy of a kernel on `device` takes for its data source: copyWithZone:device:, else copyWithZone:, else the
/// same object [MPSCNNConvolution.h]. Owned by the caller.
inline id new_copy_of_source(id source, id<MTLDevice> device) {
  if ([source respondsToSelector:@selector(copyWithZone:device:)])
    return [(id<MPSCNNConvolutionDataSource>)source copyWithZone:NULL device:device];
  if ([source respondsToSelector:@selector(copyWithZone:)]) return [(id<NSCopying>)source copyWithZone:NULL];
  return [source retain];
}

}  // namespace openmps
