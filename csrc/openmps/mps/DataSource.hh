// SPDX-License-Identifier: Apache-2.0
// Helpers for data sources: load, purge, copy.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <utility>

/// Extension of MPSCNNConvolutionDataSource; optional, called between load and purge.
@protocol OpenMPSWeightsOwner
/// Return an object that keeps the result of -weights valid and unchanged while it is held, even after purge. nil: the
/// weights may change.
- (nullable id)weightsOwner;
@end

/// Optional method of such an object. Any thread may call it.
@protocol OpenMPSPagesOwner
/// A kernel has its own copy of the weights. They must stay valid, but are rarely read again: if they are a mapped
/// file, its pages may leave memory.
- (void)releasePages;
@end

namespace openmps {

inline bool answers(id source, SEL selector) { return [source respondsToSelector:selector]; }

/// Scope between load and purge of a data source of any protocol; -purge is optional.
class Loaded {
 public:
  explicit Loaded(id source) : source_([source respondsToSelector:@selector(purge)] ? source : nil) {}
  ~Loaded() {
    if (source_ == nil) return;
    // An exception is in flight; a second one would end the process.
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

/// Return the data source for the copy of a kernel on `device`: copyWithZone:device:, else copyWithZone:, else the same
/// object [MPSCNNConvolution.h]. Owned by the caller.
inline id new_copy_of_source(id source, id<MTLDevice> device) {
  if ([source respondsToSelector:@selector(copyWithZone:device:)])
    return [(id<MPSCNNConvolutionDataSource>)source copyWithZone:NULL device:device];
  if ([source respondsToSelector:@selector(copyWithZone:)]) return [(id<NSCopying>)source copyWithZone:NULL];
  return [source retain];
}

}  // namespace openmps
